// The budget of a record set. See budget.h for the file and the invariants.
#include "worker/privacy/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/privacy/account.h"
#include "common/privacy/sampling.h"
#include "kernels/privacy/pool.h"

static const uint32_t MAGIC = 0x4250484c; // "LHPB"
enum { VERSION = 1, BLOCKS_AHEAD = 16, FILE_MAX = 16 << 20 };

// ---------------------------------------------------------------- bytes

static void write_runs(const struct wk_budget *b, struct lh_buf *out)
{
    lh_put_u32(out, MAGIC);
    lh_put_u16(out, VERSION);
    lh_put_u16(out, 0);
    lh_put_u32(out, b->runs);
    for (uint32_t i = 0; i < b->runs; i++) {
        const struct wk_budget_run *r = &b->run[i];
        lh_put(out, r->job, LH_JOB_BYTES);
        lh_put_u32(out, r->shards);
        lh_privacy_write(&r->terms, out);
        for (uint32_t k = 0; k < r->shards; k++) lh_put_u64(out, r->charged[k]);
    }
    lh_put_u32(out, lh_crc32c(0, out->data, out->len));
}

static lh_err damaged(const struct wk_budget *b)
{
    return lh_fail(
        LH_ERR_CORRUPT,
        "%s is damaged: it records what was charged to these records. Restore a copy that is not "
        "older than the last push; without one, these records can't be used any more",
        b->path);
}

static bool read_run(struct lh_cursor *c, struct wk_budget_run *r)
{
    lh_get_into(c, r->job, LH_JOB_BYTES);
    r->shards = lh_get_u32(c);
    if (!lh_privacy_read(c, &r->terms) || !r->terms.level) return false;
    if (!r->shards || r->shards > LH_SHARDS_MAX) return false;
    r->charged = calloc(r->shards, sizeof *r->charged);
    for (uint32_t k = 0; r->charged && k < r->shards; k++) {
        r->charged[k] = lh_get_u64(c);
        if (r->charged[k] > r->terms.steps) return false;
    }
    return r->charged && !c->failed;
}

static lh_err read_runs(struct wk_budget *b, struct lh_span bytes)
{
    if (bytes.len < 4) return damaged(b);
    struct lh_cursor c = lh_cursor(lh_span(bytes.data, bytes.len - 4));
    struct lh_cursor sum = lh_cursor(lh_span(bytes.data + bytes.len - 4, 4));
    if (lh_get_u32(&sum) != lh_crc32c(0, bytes.data, bytes.len - 4)) return damaged(b);
    if (lh_get_u32(&c) != MAGIC || lh_get_u16(&c) != VERSION || lh_get_u16(&c)) return damaged(b);
    uint32_t runs = lh_get_u32(&c);
    if (c.failed || runs > WK_BUDGET_RUNS_MAX) return damaged(b);
    while (b->runs < runs) {
        bool good = read_run(&c, &b->run[b->runs]);
        b->runs++; // a run that is half read is freed with the others
        if (!good) return damaged(b);
    }
    return lh_left(&c) ? damaged(b) : LH_OK;
}

// ---------------------------------------------------------------- open

static lh_err lock(struct wk_budget *b)
{
    char path[LH_PATH_BYTES + 8];
    snprintf(path, sizeof path, "%s.lock", b->path);
    unsigned flags = LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_LOCK;
    lh_err err = b->env->ops->files->open(b->env, path, flags, &b->lock);
    if (err != LH_ERR_BUSY) return err;
    return lh_fail(LH_ERR_BUSY,
                   "%s is locked: another worker uses these records, and steps of both would be "
                   "charged only once; stop it, or give this one records of its own",
                   path);
}

static lh_err load(struct wk_budget *b)
{
    struct lh_buf bytes = lh_buf(FILE_MAX);
    lh_err err = lh_file_load(b->env, b->path, &bytes);
    if (err == LH_ERR_NOT_FOUND)
        err = LH_OK;
    else if (!err)
        err = read_runs(b, lh_buf_span(&bytes));
    lh_buf_free(&bytes);
    return err;
}

// Finds this run, or makes a row that the first charge writes.
static lh_err find_own(struct wk_budget *b, const uint8_t job[LH_JOB_BYTES],
                       const struct lh_privacy *terms, uint32_t shards)
{
    while (b->own < b->runs && memcmp(b->run[b->own].job, job, LH_JOB_BYTES) != 0) b->own++;
    b->found = b->own < b->runs;
    if (b->found) {
        const struct wk_budget_run *r = &b->run[b->own];
        if (r->shards == shards && lh_privacy_equal(&r->terms, terms)) return LH_OK;
        return lh_fail(LH_ERR_CONFIG,
                       "%s has charges of this run under other terms of privacy, but a run keeps "
                       "its terms: give the run another name",
                       b->path);
    }
    if (b->own == WK_BUDGET_RUNS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%s has %d runs, the most there can be", b->path,
                       WK_BUDGET_RUNS_MAX);
    struct wk_budget_run *r = &b->run[b->own];
    memcpy(r->job, job, LH_JOB_BYTES);
    r->terms = *terms;
    r->shards = shards;
    r->charged = calloc(shards, sizeof *r->charged);
    return r->charged ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err wk_budget_open(struct lh_env *env, const char *path, const uint8_t job[LH_JOB_BYTES],
                      const struct lh_privacy *terms, uint32_t shards, struct wk_budget **out)
{
    LH_ASSERT(terms->level && shards && shards <= LH_SHARDS_MAX);
    struct wk_budget *b = calloc(1, sizeof *b);
    if (!b) return LH_ERR_NO_MEMORY;
    b->env = env;
    snprintf(b->path, sizeof b->path, "%s", path);
    lh_err err = lock(b);
    if (!err) err = load(b);
    if (!err) err = find_own(b, job, terms, shards);
    if (err) {
        wk_budget_close(b);
        return err;
    }
    *out = b;
    return LH_OK;
}

lh_err wk_budget_look(struct lh_env *env, const char *path, struct wk_budget **out)
{
    struct wk_budget *b = calloc(1, sizeof *b);
    if (!b) return LH_ERR_NO_MEMORY;
    b->env = env;
    snprintf(b->path, sizeof b->path, "%s", path);
    lh_err err = load(b);
    if (err) {
        wk_budget_close(b);
        return err;
    }
    b->own = b->runs;
    *out = b;
    return LH_OK;
}

void wk_budget_close(struct wk_budget *b)
{
    if (!b) return;
    for (uint32_t i = 0; i < WK_BUDGET_RUNS_MAX; i++) free(b->run[i].charged);
    if (b->lock) b->env->ops->files->close(b->lock);
    free(b);
}

// ---------------------------------------------------------------- charge

uint64_t wk_budget_charged(const struct wk_budget *b, uint32_t shard)
{
    const struct wk_budget_run *r = &b->run[b->own];
    return r->charged[r->terms.level == LH_PRIVACY_REGION ? shard : 0];
}

static lh_err store(struct wk_budget *b)
{
    struct lh_buf bytes = lh_buf(FILE_MAX);
    uint32_t before = b->runs;
    if (b->own == b->runs) b->runs++;
    write_runs(b, &bytes);
    lh_err err = lh_buf_err(&bytes);
    if (!err) err = lh_file_replace(b->env, b->path, lh_buf_span(&bytes));
    if (err) b->runs = before;
    lh_buf_free(&bytes);
    return err;
}

lh_err wk_budget_charge(struct wk_budget *b, uint32_t shard, uint64_t total)
{
    struct wk_budget_run *r = &b->run[b->own];
    uint64_t *count = &r->charged[r->terms.level == LH_PRIVACY_REGION ? shard : 0];
    uint64_t most = r->terms.steps, had = *count;
    LH_ASSERT(shard < r->shards);
    if (total <= had) return LH_OK;
    if (total > most)
        return lh_fail(LH_ERR_BUDGET, "step %llu of shard %u is above the %llu that may be charged",
                       (unsigned long long)total, shard, (unsigned long long)most);
    uint64_t block = r->terms.ahead / BLOCKS_AHEAD;
    *count = total;
    if (block > 1) *count = most - total < block - 1 ? most : total + block - 1;
    lh_err err = store(b);
    if (err) *count = had; // the file may have more, which a start finds; never less
    return err;
}

lh_err wk_budget_check_sampler(const struct lh_privacy *p, double values,
                               const struct lk_pool *pool, const char *set)
{
    double adds = lh_sampling_slack(p->epsilon, values, lk_noise_distance(pool->width));
    if (adds <= LH_ACCOUNT_SLACK * p->delta) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "the noise's sampler adds %g to a delta of %g over %g values: set %s", adds,
                   p->delta, values, set);
}
