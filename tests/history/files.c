// A history's files on the real disk. See files.h.
#include "tests/history/files.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "deploy/tool/files.h"

static void must(lh_err err)
{
    if (err) lh_assert_failed(lh_err_text(err), __FILE__, __LINE__);
}

static void put(const char *dir, const char *name, struct lh_span bytes)
{
    char path[DP_PATH_BYTES];
    must(dp_path(path, "%s/%s", dir, name));
    must(dp_file_write(path, bytes, 0600));
}

struct copying {
    const struct history *h;
    const char *sub, *dir;
};

void history_copy_one(const struct history *h, const char *sub, const char *name, const char *dir)
{
    char from[DP_PATH_BYTES], to[DP_PATH_BYTES];
    struct lh_buf b = lh_buf(1 << 20);
    must(dp_path(from, "%s/%s/%s", h->dir, sub, name));
    must(dp_path(to, "%s/%s", dir, sub));
    must(lh_file_load(h->env, from, &b));
    must(dp_make_dirs(to));
    put(to, name, lh_buf_span(&b));
    lh_buf_free(&b);
}

static void copy_each(void *arg, const char *name)
{
    const struct copying *c = arg;
    history_copy_one(c->h, c->sub, name, c->dir);
}

void history_copy_out(const struct history *h, const char *dir)
{
    struct copying log = {h, "log", dir}, checkpoints = {h, "checkpoints", dir};
    must(h->env->ops->files->list(h->env, h->log, copy_each, &log));
    must(h->env->ops->files->list(h->env, h->checkpoints, copy_each, &checkpoints));
}

void history_write_expect(const struct history *h, const char *dir)
{
    char chain[2 * LH_HASH_BYTES + 1], digest[2 * LH_HASH_BYTES + 1];
    struct lh_buf b = lh_buf(1 << 20);
    for (uint32_t shard = 0; shard < HISTORY_SHARDS; shard++)
        for (uint64_t v = 0; v <= h->replica[shard].ledger.version; v++) {
            lh_hash_hex(&h->chain[shard][v], chain);
            lh_hash_hex(&h->digest[shard][v], digest);
            dp_put(&b, "%" PRIu32 " %" PRIu64 " %s %s\n", shard, v, chain, digest);
        }
    put(dir, "expect.txt", lh_buf_span(&b));
    lh_buf_free(&b);
}

void history_write_job(const struct history *h, const char *root)
{
    uint8_t key[32];
    float *initial = malloc(h->manifest.values * sizeof *initial);
    struct lh_buf b = lh_buf(1 << 20);
    LH_ASSERT(initial);
    history_key(key);
    dp_put(&b, "%d:", HISTORY_KEY_ID);
    for (size_t i = 0; i < sizeof key; i++) dp_put(&b, "%02x", key[i]);
    put(root, "job.keys", lh_buf_span(&b));
    lh_buf_clear(&b);
    must(lh_manifest_write(&h->manifest, &b));
    put(root, "model.json", lh_buf_span(&b));
    history_initial(0, h->manifest.values, initial);
    put(root, "weights.bin", lh_span(initial, h->manifest.values * sizeof(float)));
    lh_buf_free(&b);
    free(initial);
}
