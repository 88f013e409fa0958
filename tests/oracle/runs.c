// Runs with features that no fixture in the tree has, for decode_made.py: `oracle_runs DIR` writes
// DIR/NAME/server (log, checkpoints, expect.txt) and DIR/NAME's model.json, weights.bin and
// job.keys for each.
//
//   optimizers  the optimizer with state: steps, the guard, changes of the kind, pushes pending
//               when the run closes, checkpoints in between; dense pushes
//   large       states of several ranges, shards of many groups of chunks, AES-256-GCM throughout
#include <stdio.h>

#include "common/base/check.h"
#include "deploy/tool/files.h"
#include "tests/history/files.h"

static void must(lh_err err)
{
    if (err) lh_assert_failed(lh_err_text(err), __FILE__, __LINE__);
}

static void add(struct history *h, uint32_t shard, enum lh_kind kind, unsigned times)
{
    for (unsigned i = 0; i < times; i++) history_add(h, shard, kind);
}

static void add_plan(struct history *h, uint32_t shard, uint8_t optimizer, float bound)
{
    h->optimizer = optimizer;
    h->bound = bound;
    history_add(h, shard, LH_PLAN);
}

// Adds the plans that close and end the run; pushes pending at the close are applied.
static void end(struct history *h, uint32_t shard)
{
    h->phase = LH_PHASE_CLOSE;
    history_add(h, shard, LH_PLAN);
    history_add(h, shard, LH_DIGEST_RECORD);
    h->phase = LH_PHASE_END;
    history_add(h, shard, LH_PLAN);
    h->phase = LH_PHASE_RUN;
}

static void both_begin(struct history *h)
{
    for (uint32_t shard = 0; shard < HISTORY_SHARDS; shard++) {
        add_plan(h, shard, LH_OPT_SGD, 0);
        history_add(h, shard, LH_FENCE);
        add(h, shard, LH_ADMIT, 2);
    }
}

static void optimizers(struct history *h)
{
    both_begin(h);
    add_plan(h, 0, LH_OPT_DELAYED_NESTEROV, 0);
    add(h, 0, LH_ADMIT, 3);
    history_write(h, 0, false); // one push is pending
    history_add(h, 0, LH_REFUSE);
    add(h, 0, LH_ADMIT, 2);
    history_reopen(h);
    history_add(h, 0, LH_DIGEST_RECORD);
    add_plan(h, 0, LH_OPT_DELAYED_NESTEROV, 1.25f);
    add(h, 0, LH_ADMIT, 4);
    LH_ASSERT(h->replica[0].outer.momentum < 0.5f); // the guard lowered it
    history_write(h, 0, false);
    add_plan(h, 0, LH_OPT_DELAYED_NESTEROV, 1.25f);
    add(h, 0, LH_ADMIT, 3);
    add_plan(h, 1, LH_OPT_DELAYED_NESTEROV, 0);
    add(h, 1, LH_ADMIT, 3);
    history_reopen(h);
    history_write(h, 1, false); // one push is pending
    add_plan(h, 1, LH_OPT_SGD, 0);
    history_write(h, 1, false);
    add(h, 1, LH_ADMIT, 2);
    add_plan(h, 0, LH_OPT_DELAYED_NESTEROV, 0);
    history_write(h, 0, false);
    h->optimizer = LH_OPT_DELAYED_NESTEROV;
    end(h, 0);
    history_write(h, 0, true);
    h->optimizer = LH_OPT_SGD;
    end(h, 1);
    history_write(h, 1, false);
}

static void large(struct history *h)
{
    both_begin(h);
    history_write(h, 0, false);
    add_plan(h, 0, LH_OPT_DELAYED_NESTEROV, 0);
    add(h, 0, LH_ADMIT, 3);
    history_add(h, 0, LH_DIGEST_RECORD);
    history_write(h, 0, false);
    history_add(h, 1, LH_DIGEST_RECORD);
    history_write(h, 1, true);
}

static const struct run {
    const char *name;
    struct history_kind kind;
    void (*fill)(struct history *h);
} runs[] = {
    {"optimizers",
     {.segment_bytes = 8192, .codec = "dense-q4", .density = 1, .steady = true},
     optimizers},
    {"large",
     {.large = 2400000, .segment_bytes = 1 << 20, .cipher = LH_CIPHER_AES256GCM, .density = 0.004f},
     large},
};

int main(int argc, char **argv)
{
    struct lh_env *env;
    if (argc != 2) {
        fprintf(stderr, "usage: oracle_runs DIR\n");
        return 2;
    }
    must(lh_env_real_create(&env));
    for (size_t i = 0; i < LH_COUNT(runs); i++) {
        struct history h;
        char root[DP_PATH_BYTES], server[DP_PATH_BYTES];
        if (runs[i].kind.cipher && !lh_cipher_available(runs[i].kind.cipher)) {
            printf("%s: not made, this processor lacks its cipher\n", runs[i].name);
            continue;
        }
        must(dp_path(root, "%s/%s", argv[1], runs[i].name));
        must(dp_path(server, "%s/server", root));
        must(dp_make_dirs(server));
        history_start_as(&h, env, server, &runs[i].kind);
        runs[i].fill(&h);
        history_mark(&h);
        history_write_expect(&h, server);
        history_write_job(&h, root);
        history_finish(&h);
    }
    lh_env_real_destroy(env);
    return 0;
}
