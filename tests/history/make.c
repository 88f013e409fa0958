// Writes a golden: `golden_make DIR` fills an empty folder with a server's directory in today's
// formats (log, checkpoints) and expect.txt: "shard version chain digest" of every version. Run it
// when a format changes (README.md).
#include <stdio.h>

#include "common/base/check.h"
#include "tests/history/files.h"

// Signs the checkpoints with a key of which only the public half is kept, as DIR/signer.pub.
static void make_signer(struct history *h)
{
    char path[LH_PATH_BYTES];
    struct lh_signer *signer;
    lh_err err = lh_path(path, sizeof path, h->dir, "signer");
    if (!err) err = lh_sign_generate(path, "golden");
    if (!err) err = lh_signer_load(path, &signer);
    LH_ASSERT(err == LH_OK && remove(path) == 0);
    h->conf.signer = signer; // the process keeps it until its end
}

// Writes checkpoints of the weights alone, of both shards at their last version.
static void write_weights(const struct history *h)
{
    for (uint32_t shard = 0; shard < HISTORY_SHARDS; shard++) {
        struct lk_checkpoint c;
        lh_err err = lk_checkpoint_begin(&h->conf, &h->replica[shard], &c);
        c.weights = true;
        if (!err) err = lk_checkpoint_copy(&c, &h->replica[shard], UINT64_MAX);
        if (!err) err = lk_checkpoint_write(&c);
        LH_ASSERT(err == LH_OK);
        lk_checkpoint_free(&c);
    }
}

// Moves both shards to another server, with a checkpoint between the records. Only one of them goes
// on there.
static void move(struct history *h)
{
    for (uint32_t shard = 0; shard < HISTORY_SHARDS; shard++) {
        history_add(h, shard, LH_DIGEST_RECORD);
        history_add(h, shard, LH_MOVE);
        history_write(h, shard, false);
    }
    history_add(h, 0, LH_EPOCH);
    history_add(h, 0, LH_ADMIT);
    history_mark(h);
}

int main(int argc, char **argv)
{
    struct history h;
    struct lh_env *env;
    if (argc != 2) {
        fprintf(stderr, "usage: golden_make DIR\n");
        return 2;
    }
    lh_err err = lh_env_real_create(&env);
    LH_ASSERT(err == LH_OK);
    history_start(&h, env, argv[1]);
    make_signer(&h);
    history_usual(&h);
    move(&h);
    write_weights(&h);
    history_write_expect(&h, argv[1]);
    history_finish(&h);
    lh_env_real_destroy(env);
    return 0;
}
