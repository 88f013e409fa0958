// A leader's push, encoded together with its ranks. See encoders.h.
//
// Invariants: 1. values of a portion are changed on the encode lane alone, once the portion is the
// leader's or its answer was checked; the region's thread reads those of a portion that a rank has,
// under the lock; 2. everything that can fail is done before any value changes; 3. an answer lies
// in the portion's own buffer, which bounds it.
#include "worker/ranks/encode/encoders.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "common/base/parallel.h"
#include "worker/ranks/encode/encoding.h"
#include "worker/ranks/encode/portion_gpu.h"

enum { LOOK_MS = 20, MEASURE_EVERY = 64 };
enum { ASK_BYTES = 64 + 4 * WK_ENCODING_CHUNKS + 4 * WK_ENCODING_VALUES };

struct job { // A push that is being encoded.
    float *values;
    struct lk_range *range; // [count]
    struct lh_buf *payload; // [count]
    struct lh_span *span;   // [count]
    size_t count;
};

struct wk_encoders {
    struct wk_encoders_conf conf;
    struct wk_encoders_device device; // alone: NULL: the CPU encodes
    struct wk_portion_gpu *gpu;       // The leader's own portions on that device; NULL: none.
    uint64_t n;                       // The encode lane's: pushes so far.
    double ns[2];                     // The encode lane's: see wk_encoders_choose().
    pthread_mutex_t lock;             // guards what follows
    pthread_cond_t come;
    struct wk_portions portions;
    struct job job;
    struct lh_buf ask;
    void (*ring)(void *arg);
    void *ring_arg;
    uint64_t together; // Pushes that ranks had a part in.
    uint64_t there;    // Portions that the leader's device encoded.
};

bool wk_encoders_choose(const double ns[2], uint64_t n)
{
    uint64_t turn = n % MEASURE_EVERY;
    return turn == 1 || (turn > 1 && ns[1] < ns[0]);
}

// ---------------------------------------------------------------- create, destroy

static bool has_ranges(const struct wk_encoders *e)
{
    return e->conf.codec.index != LK_INDEX_TENSOR;
}

lh_err wk_encoders_create(const struct wk_encoders_conf *conf, struct wk_encoders **out)
{
    struct wk_encoders *e = calloc(1, sizeof *e);
    *out = e;
    if (!e) return lh_fail(LH_ERR_NO_MEMORY, "encoders of a region");
    LH_ASSERT(conf->ranks > 1 && conf->ranks <= WK_RANKS_MAX);
    e->conf = *conf;
    e->portions = (struct wk_portions){.ranks = conf->ranks, .push = lh_random_u64(conf->env) >> 1};
    e->portions.patience_ns =
        conf->patience_ns ? conf->patience_ns : WK_ENCODERS_PATIENCE_MS * LH_MS;
    e->ask = lh_buf(ASK_BYTES);
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&e->come, &clock);
    pthread_condattr_destroy(&clock);
    if (!has_ranges(e))
        lh_logf(conf->log, LH_WARN, "compress.leader",
                "codec %s searches whole tensors: rank 0 encodes pushes alone, whatever "
                "ranks.compress is",
                lk_codec_name(&conf->codec));
    return LH_OK;
}

void wk_encoders_destroy(struct wk_encoders *e)
{
    if (!e) return;
    wk_portion_gpu_destroy(e->gpu);
    wk_portions_free(&e->portions);
    lh_buf_free(&e->ask);
    pthread_cond_destroy(&e->come);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

lh_err wk_encoders_use(struct wk_encoders *e, const struct wk_encoders_device *device)
{
    wk_portion_gpu_destroy(e->gpu);
    e->gpu = NULL;
    e->device = device ? *device : (struct wk_encoders_device){.gpu = NULL};
    return device ? wk_portion_gpu_create(device->gpu, device->index, e->conf.log, &e->gpu) : LH_OK;
}

json_t *wk_encoders_status(struct wk_encoders *e)
{
    pthread_mutex_lock(&e->lock);
    struct wk_portions_counts c = e->portions.counts;
    uint64_t together = e->together, there = e->there;
    pthread_mutex_unlock(&e->lock);
    return json_pack("{s:s s:s s:I s:I s:I s:I s:I s:I}", "mode",
                     e->conf.compress == WK_COMPRESS_AUTO ? "auto" : "members", "why",
                     has_ranges(e) ? "" : "the codec searches whole tensors", "pushes",
                     (json_int_t)together, "portions", (json_int_t)c.ranks, "own",
                     (json_int_t)c.leader, "own_there", (json_int_t)there, "late",
                     (json_int_t)c.late, "wrong", (json_int_t)c.wrong);
}

// ---------------------------------------------------------------- a push

static void free_job(struct job *j)
{
    for (size_t i = 0; i < j->count; i++) {
        if (j->range) lk_range_free(&j->range[i]);
        if (j->payload) lh_buf_free(&j->payload[i]);
    }
    free(j->range);
    free(j->payload);
    free(j->span);
    *j = (struct job){.count = 0};
}

// The portions of a push: each rank, and the leader, has one where there are groups enough.
static LH_MUST lh_err cut_job(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                              uint32_t encoders, float *values, struct job *j)
{
    uint64_t groups = lk_groups(codec, layout), each = groups / encoders;
    each = each > WK_ENCODING_GROUPS ? WK_ENCODING_GROUPS : each ? each : 1;
    size_t count = (size_t)((groups + each - 1) / each);
    *j = (struct job){.values = values,
                      .range = calloc(count, sizeof *j->range),
                      .payload = calloc(count, sizeof *j->payload),
                      .span = calloc(count, sizeof *j->span),
                      .count = count};
    if (!j->range || !j->payload || !j->span)
        return lh_fail(LH_ERR_NO_MEMORY, "portions of a push");
    for (size_t i = 0; i < count; i++) {
        uint64_t first = i * each, left = groups - first;
        LH_TRY(lk_range_of(layout, first, left < each ? left : each, &j->range[i]));
        size_t most = lk_payload_max(codec, &j->range[i].layout);
        if (!most) return lh_fail(LH_ERR_INVALID, "codec %s", lk_codec_name(codec));
        j->payload[i] = lh_buf(most);
        LH_TRY(lh_buf_reserve(&j->payload[i], most));
    }
    return LH_OK;
}

static bool all_finite(const struct job *j)
{
    for (size_t i = 0; i < j->count; i++)
        if (!lk_range_finite(&j->range[i], j->values + j->range[i].at)) return false;
    return true;
}

struct own { // Parts that the leader encodes at once.
    struct wk_encoders *encoders;
    size_t portion[LH_PARALLEL_ON_MAX], count;
};

// Memory is there and values are finite: it can't fail.
static void encode_own(void *arg, size_t i)
{
    const struct own *own = arg;
    const struct wk_encoders *e = own->encoders;
    const struct job *j = &e->job;
    size_t k = own->portion[i];
    lh_buf_clear(&j->payload[k]);
    lh_err err = lk_encode(&e->conf.codec, &j->range[k].layout, 1, NULL, j->values + j->range[k].at,
                           &j->payload[k], NULL);
    LH_ASSERT(err == LH_OK);
}

// Checks a payload that came from elsewhere, and takes what it carries out of the portion's values.
static LH_MUST lh_err take_payload(const struct wk_encoders *e, size_t k)
{
    const struct lk_range *r = &e->job.range[k];
    struct lh_span payload = lh_buf_span(&e->job.payload[k]);
    LH_TRY(lk_range_check(&e->conf.codec, r, payload));
    return lk_fold(&e->conf.codec, &r->layout, payload, 1, e->job.values + r->at);
}

// encode_own() of one portion on the leader's device. False: the CPU did it.
static bool encode_there(struct own *own)
{
    const struct wk_encoders *e = own->encoders;
    size_t k = own->portion[0];
    const struct lk_range *r = &e->job.range[k];
    bool there;
    lh_buf_clear(&e->job.payload[k]);
    lh_err err = wk_portion_gpu_encode(e->gpu, &e->conf.codec, &r->layout, e->job.values + r->at,
                                       &e->job.payload[k], &there);
    if (!err && there) err = take_payload(e, k);
    if (err) encode_own(own, 0); // It has no memory for the device's plan, or what came is wrong.
    return !err && there;
}

// True: the answer is the portion's payload, and what it carries is out of the values.
static bool take_answer(const struct wk_encoders *e, size_t k)
{
    lh_err err = take_payload(e, k);
    if (err)
        lh_log_peer(
            e->conf.log, LH_WARN, "compress.wrong",
            "rank %u: %s; the leader encodes its portion, and asks it for none for %d pushes",
            e->portions.portion[k].rank, lh_err_text(err), WK_PORTIONS_SKIP);
    return !err;
}

// The env's time is the monotonic clock's wherever ranks are real.
static void wait_a_little(struct wk_encoders *e)
{
    int64_t until = lh_now(e->conf.env) + LOOK_MS * LH_MS;
    const struct timespec at = {until / LH_SECOND, until % LH_SECOND};
    pthread_cond_timedwait(&e->come, &e->lock, &at);
}

// Under the lock, which it gives up while it works. One turn of the leader; false: all is done.
static bool work(struct wk_encoders *e, uint32_t threads)
{
    struct own own = {.encoders = e};
    size_t portion = 0;
    enum wk_portions_next is = WK_PORTIONS_END;
    bool device = wk_portion_gpu_works(e->gpu);
    while (own.count < (device ? 1 : threads)) {
        is = wk_portions_next(&e->portions, lh_now(e->conf.env), &portion);
        if (is != WK_PORTIONS_ENCODE) break;
        own.portion[own.count++] = portion;
    }
    if (own.count) {
        pthread_mutex_unlock(&e->lock);
        bool there = device && encode_there(&own);
        if (!device) lh_parallel_on(threads, own.count, encode_own, &own);
        pthread_mutex_lock(&e->lock);
        e->there += there;
        for (size_t i = 0; i < own.count; i++) wk_portions_done(&e->portions, own.portion[i], true);
        return true;
    }
    if (is == WK_PORTIONS_WAIT) wait_a_little(e);
    if (is != WK_PORTIONS_CHECK) return is != WK_PORTIONS_END;
    pthread_mutex_unlock(&e->lock);
    bool fine = take_answer(e, portion);
    pthread_mutex_lock(&e->lock);
    wk_portions_done(&e->portions, portion, fine);
    return true;
}

static LH_MUST lh_err run_job(struct wk_encoders *e, uint32_t threads, const struct job *job)
{
    pthread_mutex_lock(&e->lock);
    e->job = *job;
    lh_err err = wk_portions_begin(&e->portions, job->count);
    if (!err) {
        uint64_t before = e->portions.counts.ranks;
        if (e->ring) e->ring(e->ring_arg);
        while (work(e, threads)) continue;
        e->together += e->portions.counts.ranks > before;
        wk_portions_end(&e->portions);
    }
    e->job = (struct job){.count = 0};
    pthread_mutex_unlock(&e->lock);
    return err;
}

static LH_MUST lh_err encode_parts(struct wk_encoders *e, uint32_t threads,
                                   const struct lh_shard_layout *layout, struct job *job,
                                   struct lh_buf *out, struct lk_payload_info *info)
{
    LH_TRY(lh_buf_reserve(out, out->len + lk_payload_max(&e->conf.codec, layout)));
    LH_TRY(run_job(e, threads, job));
    for (size_t i = 0; i < job->count; i++) job->span[i] = lh_buf_span(&job->payload[i]);
    return lk_join(&e->conf.codec, layout, job->span, job->count, out, info);
}

// The ranks that would have a part in the next push.
static uint32_t helpers(struct wk_encoders *e)
{
    pthread_mutex_lock(&e->lock);
    uint32_t n = e->ring ? wk_portions_helpers(&e->portions) : 0;
    pthread_mutex_unlock(&e->lock);
    return n;
}

static LH_MUST lh_err alone(const struct wk_encoders *e, uint32_t threads,
                            const struct lh_shard_layout *layout, float *values, struct lh_buf *out,
                            struct lk_payload_info *info)
{
    if (e->device.alone) return e->device.alone(e->device.arg, layout, values, out, info);
    return lk_encode_on(threads, &e->conf.codec, layout, 1, NULL, values, out, info);
}

// With a value that is not finite, or too little memory, the leader alone does it or says why not.
static LH_MUST lh_err together(struct wk_encoders *e, uint32_t threads, uint32_t others,
                               const struct lh_shard_layout *layout, float *values,
                               struct lh_buf *out, struct lk_payload_info *info)
{
    struct job job;
    lh_err err = cut_job(&e->conf.codec, layout, others + 1, values, &job);
    if (!err && all_finite(&job))
        err = encode_parts(e, threads, layout, &job, out, info);
    else
        err = alone(e, threads, layout, values, out, info);
    free_job(&job);
    return err;
}

lh_err wk_encoders_encode(struct wk_encoders *e, uint32_t threads,
                          const struct lh_shard_layout *layout, float *values, struct lh_buf *out,
                          struct lk_payload_info *info)
{
    uint32_t others = has_ranges(e) && layout->chunks ? helpers(e) : 0;
    bool all = e->conf.compress == WK_COMPRESS_MEMBERS || wk_encoders_choose(e->ns, e->n);
    if (!threads) threads = 1;
    if (threads > LH_PARALLEL_ON_MAX) threads = LH_PARALLEL_ON_MAX;
    int64_t since = lh_now(e->conf.env);
    lh_err err = others && all ? together(e, threads, others, layout, values, out, info)
                               : alone(e, threads, layout, values, out, info);
    if (!others || err) return err; // Nothing to compare: the turn comes when ranks are there.
    e->ns[all] = (double)(lh_now(e->conf.env) - since) / (double)layout->values;
    e->n++;
    return LH_OK;
}

// ---------------------------------------------------------------- the region's thread

void wk_encoders_attach(struct wk_encoders *e, void (*ring)(void *arg), void *arg)
{
    pthread_mutex_lock(&e->lock);
    e->ring = ring;
    e->ring_arg = arg;
    if (!ring) wk_portions_here(&e->portions, 0);
    pthread_cond_broadcast(&e->come);
    pthread_mutex_unlock(&e->lock);
}

void wk_encoders_turn(struct wk_encoders *e, uint64_t here,
                      void (*send)(void *arg, uint32_t rank, struct lh_span ask), void *arg)
{
    uint32_t rank;
    size_t k;
    pthread_mutex_lock(&e->lock);
    wk_portions_here(&e->portions, here);
    while (wk_portions_ask(&e->portions, &rank, &k)) {
        const struct lk_range *r = &e->job.range[k];
        lh_buf_clear(&e->ask);
        wk_encoding_ask_put(&e->ask, e->portions.push, (uint32_t)k, &e->conf.codec, &r->layout,
                            e->job.values + r->at);
        if (lh_buf_err(&e->ask)) continue; // No memory: as if it were lost on its way.
        send(arg, rank, lh_buf_span(&e->ask));
    }
    pthread_mutex_unlock(&e->lock);
}

lh_err wk_encoders_answer(struct wk_encoders *e, uint32_t rank, struct lh_span bytes)
{
    struct wk_encoding_answer is;
    LH_TRY(wk_encoding_answer_get(bytes, &is));
    pthread_mutex_lock(&e->lock);
    if (wk_portions_came(&e->portions, rank, is.push, is.portion)) {
        struct lh_buf *to = &e->job.payload[is.portion];
        lh_buf_clear(to);
        // One that is longer than any is none, as an empty one is.
        if (is.payload.len <= to->max) lh_put(to, is.payload.data, is.payload.len);
        pthread_cond_broadcast(&e->come);
    }
    pthread_mutex_unlock(&e->lock);
    return LH_OK;
}

void wk_encoders_gone(struct wk_encoders *e, uint32_t rank)
{
    pthread_mutex_lock(&e->lock);
    wk_portions_gone(&e->portions, rank);
    pthread_cond_broadcast(&e->come);
    pthread_mutex_unlock(&e->lock);
}
