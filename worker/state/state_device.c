// A state on the device that trains. See state_device.h.
//
// 1. One stream has all work of a shard's state, in the worker's order: a renewal reads all earlier
//    folds and no later ones.
// 2. If that work touches the trainer's parameters, the streams wait for each other and no thread
//    does: this stream for earlier steps, and the trainer's for this work (enter, leave).
// 3. `mass` is the residual. `chain` names the state in `theta`. If a renewal finds that the
//    replica's chain differs, it refills `theta` from the host, so other changes of the replica
//    need no report here. `residual_number` does the same for the residual.
// 4. A failed call leaves `theta` or the state unused: `broken` ends the next step or cut.
// 5. The loop begins a push without waiting: `begun` means that its values and its remainder are
//    queued, behind `encoded`. Work that must wait (a residual on the host) is left to encode().
#include "worker/state/state_device.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/crossing.h"

enum { ARRAYS = 5 };

struct device_state {
    struct wk_shard_state base;
    struct wk_device_state_conf conf;
    const struct lk_gpu_backend *b;
    lk_gpu_stream stream;
    lk_gpu_event entered, left, staged, encoded;
    struct lk_gpu_shard *shard;  // NULL: the shard has no values
    float *theta, *mass, *spare; // on the device, like the next five
    float *slot[2];              // as in a host's state
    uint8_t *payload, *incoming; // a push and a record
    struct lk_gpu_result *result;
    uint8_t *hashes;                      // LK_GPU_HASH_BYTES for each range of the parameters
    uint8_t *host_incoming, *host_hashes; // pinned, like the next one
    struct lk_gpu_result *host_result;
    struct lk_inward in;
    size_t payload_max, incoming_room;
    struct lk_payload_info info; // known before the push's values are
    struct lh_hash chain;
    uint64_t residual_number;
    bool theta_there, residual_there; // they match `chain` and `residual_number`
    bool sgd;                         // the replica's optimizer was sgd, as of `chain`
    int broken;                       // error of a call on the loop; 0: none
    bool left_there;                  // `spare` holds a push's remainder, not the progress
    bool begun;                       // a push is queued
    int begun_with;                   // error of that queueing; 0: none
};

static struct device_state *device_of(struct wk_shard_state *st)
{
    return (struct device_state *)(void *)st;
}

static uint64_t values_of(const struct device_state *d)
{
    return d->conf.layout->values;
}

static float *local(const struct device_state *d)
{
    return d->conf.trainer.value + d->conf.layout->first;
}

static float *base(const struct device_state *d)
{
    return d->slot[d->base.number % 2];
}

static float *other(const struct device_state *d)
{
    return d->slot[(d->base.number + 1) % 2];
}

static uint64_t ranges_of(uint64_t values)
{
    return (values * sizeof(float) + LK_GPU_DIGEST_RANGE - 1) / LK_GPU_DIGEST_RANGE;
}

// ---------------------------------------------------------------- failures

static int ready(const struct device_state *d)
{
    return d->broken ? d->broken : d->b->use(d->conf.trainer.index);
}

// Records an error. On the loop, between two steps.
static void note(struct device_state *d, int err)
{
    if (!err) return;
    d->broken = err;
    if (d->conf.failed) d->conf.failed(d->conf.arg, err);
}

static lh_err say(const struct device_state *d, const char *what, int err)
{
    return lh_fail(LH_ERR_IO, "state on the GPU, %s, shard %u: %s: %s; start the worker again",
                   d->conf.trainer.name, d->conf.layout->shard, what, d->b->error_text(err));
}

// ---------------------------------------------------------------- crossing

static int to_device(struct device_state *d, float *device, const float *host)
{
    uint64_t bytes = values_of(d) * sizeof *host;
    int err = lk_inward_copy(&d->in, device, host, bytes, d->stream);
    if (!err) atomic_fetch_add(&d->conf.counts->filled, 1);
    return err;
}

// Copies an array to the host and waits for each piece. Not for pushes.
static int to_host(struct device_state *d, float *host, const float *device)
{
    size_t bytes = values_of(d) * sizeof *host;
    int err = 0;
    for (size_t at = 0, n; !err && at < bytes; at += n) {
        n = bytes - at < d->in.bytes ? bytes - at : d->in.bytes;
        err = d->b->memory->copy_out(d->in.half[0], (const uint8_t *)(const void *)device + at, n,
                                     d->stream);
        if (!err) err = d->b->streams->wait(d->stream);
        if (!err) memcpy((uint8_t *)(void *)host + at, d->in.half[0], n);
    }
    return err;
}

static bool residual_is(const struct device_state *d, const struct wk_shard_state_of *of)
{
    return d->residual_there && d->residual_number == of->residual_number;
}

// Copies the residual from the host. Also on the encode lane, during a cut.
static int fill_residual(struct device_state *d, const struct wk_shard_state_of *of)
{
    if (residual_is(d, of)) return 0;
    int err = to_device(d, d->mass, of->residual);
    d->residual_there = !err;
    d->residual_number = of->residual_number;
    return err;
}

// Copies residual and parameters from the host.
static int fill(struct device_state *d, const struct wk_shard_state_of *of)
{
    const struct lk_replica *r = of->replica;
    int err = fill_residual(d, of);
    if (err || (d->theta_there && lh_hash_equal(&d->chain, &r->ledger.chain))) return err;
    err = to_device(d, d->theta, r->theta);
    d->theta_there = !err;
    d->chain = r->ledger.chain;
    d->sgd = r->outer.kind == LH_OPT_SGD;
    return err;
}

// ---------------------------------------------------------------- between two steps

static int follow(struct device_state *d, lk_gpu_event event, lk_gpu_stream first,
                  lk_gpu_stream then)
{
    int err = d->b->streams->event_record(event, first);
    return err ? err : d->b->streams->event_follow(then, event);
}

static int enter(struct device_state *d)
{
    int err = ready(d);
    return err ? err : follow(d, d->entered, d->conf.trainer.stream, d->stream);
}

static int leave(struct device_state *d, int err)
{
    return err ? err : follow(d, d->left, d->stream, d->conf.trainer.stream);
}

static void view(struct wk_shard_state *st, const struct wk_shard_state_of *of, enum lk_gpu_op op)
{
    struct device_state *d = device_of(st);
    if (!d->shard) return;
    const struct lk_gpu_arrays arrays = {d->theta, d->mass,        local(d),
                                         base(d),  st->conf.kappa, values_of(d)};
    int err = enter(d);
    if (!err) err = fill(d, of);
    if (!err) err = d->b->kernels->each(op, &arrays, d->stream);
    note(d, leave(d, err));
}

static void start(struct wk_shard_state *st, const struct wk_shard_state_of *of)
{
    view(st, of, LK_GPU_VIEW_START);
}

static void renew(struct wk_shard_state *st, const struct wk_shard_state_of *of)
{
    view(st, of, LK_GPU_VIEW_MOVE);
}

static void copy(struct wk_shard_state *st)
{
    struct device_state *d = device_of(st);
    if (!d->shard) return;
    d->begun = false; // the previous cut was dropped
    int err = enter(d);
    if (!err)
        err =
            d->b->memory->copy_within(other(d), local(d), values_of(d) * sizeof(float), d->stream);
    note(d, leave(d, err));
}

// ---------------------------------------------------------------- a cut

// Leaves the delta in `spare`.
static int make_delta(struct device_state *d, const struct wk_shard_state_of *of, float beta)
{
    const struct lk_gpu_arrays arrays = {d->mass, other(d), d->spare, base(d), beta, values_of(d)};
    int err = ready(d);
    if (!err) err = fill_residual(d, of);
    return err ? err : d->b->kernels->each(LK_GPU_VIEW_DELTA, &arrays, d->stream);
}

static lh_err delta(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                    float *out)
{
    struct device_state *d = device_of(st);
    if (!d->shard) return LH_OK;
    d->begun = false; // its memory is reused
    d->left_there = false;
    int err = make_delta(d, of, beta);
    if (!err) err = to_host(d, out, d->spare);
    return err ? say(d, "progress", err) : LH_OK;
}

// Queues a push: its payload, and its remainder in `spare`.
static int queue_push(struct device_state *d, const struct wk_shard_state_of *of, float beta)
{
    const struct lk_gpu_encode in = {d->spare, d->payload, d->result};
    int err = make_delta(d, of, beta);
    if (!err) err = d->b->kernels->encode(d->shard, &in, d->stream);
    if (!err) err = d->b->memory->copy_out(d->host_result, d->result, sizeof *d->result, d->stream);
    return err ? err : d->b->streams->event_record(d->encoded, d->stream);
}

static void begin_push(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta)
{
    struct device_state *d = device_of(st);
    d->begun = d->shard && residual_is(d, of);
    if (d->begun) d->begun_with = queue_push(d, of, beta);
}

// Waits for the queued push, and for no work behind it.
static int end_push(struct device_state *d, const struct wk_shard_state_of *of, float beta)
{
    int err = ready(d);
    if (!err) err = d->begun ? d->begun_with : queue_push(d, of, beta);
    d->begun = false;
    return err ? err : d->b->streams->event_wait(d->encoded);
}

// Fetches a payload and its remainder through the slots that all shards share.
static int fetch_push(struct device_state *d, uint8_t *payload, float *left)
{
    size_t bytes = values_of(d) * sizeof *left;
    const struct lk_way way[] = {{d->payload, payload, d->host_result->bytes},
                                 {d->spare, left, bytes}};
    return lk_outward_copy(d->conf.outward, d->encoded, way, LH_COUNT(way));
}

static lh_err encode_there(struct device_state *d, const struct wk_shard_state_of *of, float beta,
                           float *left, struct lh_buf *out, struct lk_payload_info *info)
{
    const struct lk_gpu_result *is = d->host_result;
    if (!d->shard) return lk_encode(&d->conf.codec, d->conf.layout, left, out, info);
    int err = end_push(d, of, beta);
    if (err) return say(d, "encoding", err);
    if (is->bad != LK_GPU_FINE) { // the CPU names the tensor
        err = to_host(d, left, d->spare);
        if (err) return say(d, "a value that is not finite", err);
        return lk_encode(&d->conf.codec, d->conf.layout, left, out, info);
    }
    if (is->bytes > d->payload_max)
        return lh_fail(LH_ERR_IO, "state on the GPU, shard %u: a payload of %" PRIu64 " bytes",
                       d->conf.layout->shard, is->bytes);
    uint8_t *at = lh_buf_grow(out, is->bytes);
    if (!at) return lh_buf_err(out);
    err = fetch_push(d, at, left);
    if (err) return say(d, "what was encoded", err);
    *info = d->info;
    info->sum_squares = is->sum_squares;
    atomic_fetch_add(&d->conf.counts->encoded, 1);
    return LH_OK;
}

static lh_err encode(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                     float *left, struct lh_buf *out, struct lk_payload_info *info)
{
    struct device_state *d = device_of(st);
    lh_err err = encode_there(d, of, beta, left, out, info);
    if (!err) d->left_there = true;
    return err;
}

static void committed(struct wk_shard_state *st, const struct wk_shard_state_of *of)
{
    struct device_state *d = device_of(st);
    st->number++;
    if (!d->left_there) { // the host encoded and has the remainder
        d->residual_there = false;
        return;
    }
    float *before = d->mass;
    d->mass = d->spare;
    d->spare = before;
    d->residual_number = of->residual_number;
}

// ---------------------------------------------------------------- records

// Grows the buffer for a payload of another codec; the previous payload may still be in use.
static int grow_incoming(struct device_state *d, size_t bytes)
{
    const struct lk_gpu_memory *m = d->b->memory;
    void *there = NULL, *here = NULL;
    if (bytes <= d->incoming_room) return 0;
    int err = d->b->streams->wait(d->stream);
    if (!err) err = m->alloc(&there, bytes);
    if (!err) err = m->pinned_alloc(&here, bytes);
    if (err) {
        if (there) m->release(there);
        return err;
    }
    m->release(d->incoming);
    m->pinned_release(d->host_incoming);
    d->incoming = there;
    d->host_incoming = here;
    d->incoming_room = bytes;
    return 0;
}

// Copies the payload to pinned memory once the previous copy has left it.
static int stage(struct device_state *d, struct lh_span plain)
{
    int done = 0, err = grow_incoming(d, plain.len);
    if (!err) err = d->b->streams->event_done(d->staged, &done);
    if (!err && !done) err = d->b->streams->wait(d->stream);
    if (err) return err;
    memcpy(d->host_incoming, plain.data, plain.len);
    err = d->b->memory->copy_in(d->incoming, d->host_incoming, plain.len, d->stream);
    return err ? err : d->b->streams->event_record(d->staged, d->stream);
}

static int fold_payload(struct device_state *d, const struct wk_shard_state_folded *f)
{
    int err = ready(d);
    if (!err) err = stage(d, f->plain);
    if (!err) {
        const struct lk_gpu_record record =
            lk_gpu_record_of(&f->codec, f->plain, d->incoming, f->scale);
        err = d->b->kernels->fold(d->shard, &record, 1, values_of(d), d->theta, d->stream);
    }
    return err;
}

// A record that can't be folded here (another optimizer, a fragment, no memory) is filled in by the
// next renewal.
static void fold(struct wk_shard_state *st, const struct wk_shard_state_of *of,
                 const struct wk_shard_state_folded *f)
{
    struct device_state *d = device_of(st);
    bool sgd = of->replica->outer.kind == LH_OPT_SGD, before = d->sgd;
    bool follows = d->theta_there && lh_hash_equal(&d->chain, &f->before) && sgd && before;
    bool fragment = f->admitted && f->codec.index == LK_INDEX_FRAGMENT;
    d->theta_there = false;
    if (!d->shard || !follows || fragment) return;
    if (f->admitted && fold_payload(d, f)) return;
    if (f->admitted) atomic_fetch_add(&d->conf.counts->folded, 1);
    d->chain = of->replica->ledger.chain;
    d->theta_there = true;
}

static int hash(struct device_state *d)
{
    uint64_t bytes = values_of(d) * sizeof(float), n = ranges_of(values_of(d));
    int err = ready(d);
    if (!err) err = d->b->kernels->digest(d->theta, bytes, d->hashes, d->stream);
    if (!err)
        err = d->b->memory->copy_out(d->host_hashes, d->hashes, n * LK_GPU_HASH_BYTES, d->stream);
    return err ? err : d->b->streams->wait(d->stream);
}

static bool differs(struct device_state *d)
{
    atomic_fetch_add(&d->conf.counts->differed, 1);
    d->theta_there = false;
    return false;
}

// Computes the replica's digest (kernels/state/replica.c) from the device's hashes.
static bool agrees(struct wk_shard_state *st, const struct wk_shard_state_of *of,
                   const struct lh_record *record)
{
    struct device_state *d = device_of(st);
    const struct lh_ledger *l = &of->replica->ledger;
    if (!d->theta_there || !d->sgd || !lh_hash_equal(&d->chain, &l->chain)) return true;
    if (record->body.len != LH_HASH_BYTES || hash(d)) return true; // a failure ends the next cut
    struct lh_buf all = lh_buf(SIZE_MAX);
    lh_ledger_write(l, &all);
    lh_put(&all, d->host_hashes, ranges_of(values_of(d)) * LK_GPU_HASH_BYTES);
    bool same = true;
    if (!lh_buf_err(&all)) {
        struct lh_span whole = lh_buf_span(&all);
        struct lh_hash is = lh_hash_of((struct lh_span){0}, &whole, 1);
        same = memcmp(is.b, record->body.data, LH_HASH_BYTES) == 0;
        atomic_fetch_add(&d->conf.counts->compared, 1);
    }
    lh_buf_free(&all);
    return same || differs(d);
}

lh_err wk_device_state_read(struct wk_shard_state *st, float *out)
{
    struct device_state *d = device_of(st);
    int err = ready(d);
    if (!err) err = to_host(d, out, d->theta);
    return err ? say(d, "its parameters", err) : LH_OK;
}

// ---------------------------------------------------------------- life

static void destroy(struct wk_shard_state *st)
{
    struct device_state *d = device_of(st);
    const struct lk_gpu_memory *m = d->b->memory;
    const struct lk_gpu_streams *s = d->b->streams;
    (void)d->b->use(d->conf.trainer.index);
    if (d->stream) (void)s->wait(d->stream);
    void *there[] = {d->theta,   d->mass,     d->spare,  d->slot[0], d->slot[1],
                     d->payload, d->incoming, d->result, d->hashes};
    void *here[] = {d->host_incoming, d->host_hashes, d->host_result};
    lk_gpu_event events[] = {d->entered, d->left, d->staged, d->encoded};
    if (d->shard) d->b->kernels->shard_destroy(d->shard);
    for (size_t i = 0; i < LH_COUNT(there); i++)
        if (there[i]) m->release(there[i]);
    for (size_t i = 0; i < LH_COUNT(here); i++)
        if (here[i]) m->pinned_release(here[i]);
    for (size_t i = 0; i < LH_COUNT(events); i++)
        if (events[i]) s->event_destroy(events[i]);
    lk_inward_close(&d->in);
    if (d->stream) s->destroy(d->stream);
    free(d);
}

static const struct wk_shard_state_ops ops = {
    .start = start,
    .renew = renew,
    .copy = copy,
    .delta = delta,
    .begin = begin_push,
    .encode = encode,
    .committed = committed,
    .fold = fold,
    .agrees = agrees,
    .destroy = destroy,
};

static void *room(const struct device_state *d, size_t bytes, int *err)
{
    void *got = NULL;
    if (!*err) *err = d->b->memory->alloc(&got, bytes);
    return got;
}

static void *pinned(const struct device_state *d, size_t bytes, int *err)
{
    void *got = NULL;
    if (!*err) *err = d->b->memory->pinned_alloc(&got, bytes);
    return got;
}

static int take_memory(struct device_state *d, const struct lk_gpu_plan *plan)
{
    size_t bytes = plan->values * sizeof(float);
    size_t hashes = ranges_of(plan->values) * LK_GPU_HASH_BYTES;
    int err = d->b->use(d->conf.trainer.index);
    if (!err) err = d->b->streams->event_create(&d->entered);
    if (!err) err = d->b->streams->create(&d->stream);
    if (!err) err = d->b->streams->event_create(&d->left);
    if (!err) err = d->b->streams->event_create(&d->staged);
    if (!err) err = d->b->streams->event_create(&d->encoded);
    if (!err) err = d->b->streams->event_record(d->staged, d->stream);
    float **array[ARRAYS] = {&d->theta, &d->mass, &d->spare, &d->slot[0], &d->slot[1]};
    for (size_t i = 0; i < ARRAYS; i++) *array[i] = room(d, bytes, &err);
    d->payload = room(d, plan->bytes_max, &err);
    d->incoming = room(d, plan->bytes_max, &err);
    d->result = room(d, sizeof *d->result, &err);
    d->hashes = room(d, hashes, &err);
    d->host_incoming = pinned(d, plan->bytes_max, &err);
    d->host_hashes = pinned(d, hashes, &err);
    d->host_result = pinned(d, sizeof *d->host_result, &err);
    size_t half = bytes < LK_CROSSING_BYTES ? bytes : LK_CROSSING_BYTES;
    if (!err) err = lk_inward_open(&d->in, d->b, half);
    d->payload_max = d->incoming_room = plan->bytes_max;
    return err ? err : d->b->kernels->shard_create(plan, &d->shard);
}

lh_err wk_device_state_need(const struct wk_device_state_conf *conf, uint64_t *arrays,
                            uint64_t *scratch)
{
    struct lk_gpu_plan plan;
    LH_TRY(lk_gpu_plan_create(&conf->codec, conf->layout, &plan));
    *arrays = ARRAYS * plan.values * sizeof(float);
    *scratch = plan.chunks ? 2 * plan.bytes_max + sizeof(struct lk_gpu_result) +
                                 ranges_of(plan.values) * LK_GPU_HASH_BYTES +
                                 conf->trainer.gpu->kernels->shard_bytes(&plan)
                           : 0;
    lk_gpu_plan_free(&plan);
    return LH_OK;
}

lh_err wk_device_state_create(const struct wk_device_state_conf *conf, struct wk_shard_state **out)
{
    struct lk_gpu_plan plan;
    struct device_state *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return LH_ERR_NO_MEMORY;
    d->base.ops = &ops;
    d->base.conf.layout = conf->layout;
    d->conf = *conf;
    d->b = conf->trainer.gpu;
    lh_err err = lk_gpu_plan_create(&conf->codec, conf->layout, &plan);
    if (err) {
        free(d);
        return err;
    }
    d->info = (struct lk_payload_info){plan.chunks, plan.values_carried, 0};
    int failed = plan.chunks ? take_memory(d, &plan) : 0;
    lk_gpu_plan_free(&plan);
    if (!failed) {
        *out = &d->base;
        return LH_OK;
    }
    err = lh_fail(LH_ERR_UNSUPPORTED, "the state of shard %u on %s: %s", conf->layout->shard,
                  conf->trainer.name, d->b->error_text(failed));
    destroy(&d->base);
    return err;
}
