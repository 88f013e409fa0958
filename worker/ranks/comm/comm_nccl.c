// Collectives by NCCL. See comm_nccl.h.
//
// init() makes all resources of an epoch (communicator, stream, buffers) and end() frees them, so
// no memory that an aborted operation might still write to is reused; if a device holds the arrays,
// end() waits for the stream. Calls of NCCL and of the device only queue work, and most end at
// once: every wait polls the communicator's error and `stop`, without a pause for 200 us and then
// each millisecond. Gradients that are summed in bf16 are converted while they are copied to and
// from pinned memory, so only half as many bytes cross PCIe.
#include "worker/ranks/comm/comm_nccl.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "kernels/convert.h"
#include "kernels/cuda/loader.h"
#include "worker/ranks/comm/nccl.h"

enum {
    SLOTS = WK_COMM_NCCL_SLOTS,
    LOOKS = 64, // polls before the clock is read
    SPIN_NS = 200000,
    LOOK_MS = 1,
    ENVIRONMENT_BYTES = 4096,
};

struct slot { // a bucket in flight
    void *device, *pinned;
    lk_gpu_event event;
    void *to;     // host address of the result; NULL: none
    size_t bytes; // size on the device
    bool narrow;  // bf16 on the device, fp32 on the host
    bool busy;
};

struct device_comm {
    struct wk_comm base; // first
    struct wk_nccl nccl;
    struct lk_gpu gpu;
    int device;
    unsigned buckets;  // buckets summed; they alternate between the slots
    wk_nccl_comm comm; // NULL: none
    lk_gpu_stream stream;
    struct slot slot[SLOTS];
    void *narrow; // a bucket in bf16, for arrays in device memory; NULL: none
};

static struct device_comm *comm_of(struct wk_comm *c)
{
    return (struct device_comm *)c;
}

// ---------------------------------------------------------------- errors, waits

// A device failure is permanent: no CUDA call works in this process any more.
static LH_MUST lh_err device_err(const struct device_comm *d, int err, const char *what)
{
    if (!err) return LH_OK;
    return lh_fail(LH_ERR_IO, "GPU %d: %s: %s", d->device, what, d->gpu.backend->error_text(err));
}

static LH_MUST lh_err nccl_err(const struct device_comm *d, int result, const char *what)
{
    if (!result) return LH_OK;
    return lh_fail(LH_ERR_UNAVAILABLE, "NCCL: %s: %s", what, d->nccl.api.error_text(result));
}

// A wait, from its first poll on.
struct patience {
    unsigned looks;
    int64_t since_ns; // the clock at its first reading; 0: not read yet
    bool call;        // true: an NCCL call, not a bucket
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * LH_SECOND + t.tv_nsec;
}

// Pauses between two polls. With a sleep each, a thousand small calls cost a second per step.
static LH_MUST lh_err pause_for(struct device_comm *d, struct patience *p)
{
    struct pollfd bell = {d->base.bell, POLLIN, 0};
    if (wk_comm_stopped(&d->base)) return wk_comm_leaves();
    if (p->looks++ < LOOKS) return LH_OK;
    if (!p->since_ns) p->since_ns = now_ns();
    if (now_ns() - p->since_ns < SPIN_NS) return LH_OK;
    if (p->call) wk_comm_slept(&d->base);
    poll(&bell, 1, LOOK_MS);
    return wk_comm_stopped(&d->base) ? wk_comm_leaves() : LH_OK;
}

// Waits until an NCCL call that runs asynchronously is settled.
static LH_MUST lh_err settle(struct device_comm *d, int result, const char *what)
{
    struct patience p = {.call = true};
    while (result == WK_NCCL_IN_PROGRESS) {
        int asked = d->nccl.api.async_error(d->comm, &result);
        if (asked) result = asked;
        if (result == WK_NCCL_IN_PROGRESS) LH_TRY(pause_for(d, &p));
    }
    return nccl_err(d, result, what);
}

static LH_MUST lh_err look(struct device_comm *d)
{
    int is = WK_NCCL_OK, asked = d->nccl.api.async_error(d->comm, &is);
    if (is == WK_NCCL_IN_PROGRESS) is = WK_NCCL_OK;
    return nccl_err(d, asked ? asked : is, "the communicator");
}

// Waits for the slot's bucket and takes its result.
static LH_MUST lh_err finish(struct device_comm *d, struct slot *s)
{
    const struct lk_gpu_streams *streams = d->gpu.backend->streams;
    struct patience p = {0};
    int done = 0;
    if (!s->busy) return LH_OK;
    for (;;) {
        LH_TRY(device_err(d, streams->event_done(s->event, &done), "a bucket"));
        if (done) break;
        LH_TRY(look(d));
        LH_TRY(pause_for(d, &p));
    }
    if (s->to && s->narrow)
        lk_fp32_of_bf16(s->pinned, s->to, s->bytes / sizeof(uint16_t));
    else if (s->to)
        memcpy(s->to, s->pinned, s->bytes);
    s->busy = false;
    return LH_OK;
}

static LH_MUST lh_err finish_all(struct device_comm *d)
{
    for (int i = 0; i < SLOTS; i++) LH_TRY(finish(d, &d->slot[i]));
    return LH_OK;
}

// ---------------------------------------------------------------- buckets

// Bytes of a slot. If a device holds the arrays, only the last values and shared host parts use
// slots.
static size_t slot_bytes(const struct wk_comm_arrays *a)
{
    size_t behind = a->behind * sizeof(float);
    size_t most = behind > WK_COMM_NCCL_SLOT_BYTES ? behind : WK_COMM_NCCL_SLOT_BYTES;
    return a->device && a->bucket_bytes > most ? most : a->bucket_bytes;
}

uint64_t wk_comm_nccl_device_bytes(uint64_t bucket_bytes, enum wk_sum_type type)
{
    uint64_t slot = bucket_bytes < WK_COMM_NCCL_SLOT_BYTES ? bucket_bytes : WK_COMM_NCCL_SLOT_BYTES;
    return SLOTS * slot + (type == WK_SUM_BF16 ? bucket_bytes : 0);
}

// Prepares the slot for its next use.
static LH_MUST lh_err begin(struct device_comm *d, struct slot *s, size_t bytes, bool narrow)
{
    LH_TRY(finish(d, s));
    s->bytes = bytes;
    s->narrow = narrow;
    return LH_OK;
}

// Copies the bucket into the slot.
static LH_MUST lh_err put(struct device_comm *d, struct slot *s, const void *from)
{
    LH_ASSERT(s->bytes <= slot_bytes(&d->base.arrays));
    if (s->narrow)
        lk_bf16_of_fp32(from, s->pinned, s->bytes / sizeof(uint16_t));
    else
        memcpy(s->pinned, from, s->bytes);
    return device_err(d, d->gpu.backend->memory->copy_in(s->device, s->pinned, s->bytes, d->stream),
                      "a copy to it");
}

static LH_MUST lh_err fetch(struct device_comm *d, struct slot *s, void *to)
{
    const struct lk_gpu_backend *b = d->gpu.backend;
    s->to = to;
    s->busy = true;
    if (to)
        LH_TRY(device_err(d, b->memory->copy_out(s->pinned, s->device, s->bytes, d->stream),
                          "a copy from it"));
    return device_err(d, b->streams->event_record(s->event, d->stream), "an event");
}

static struct slot *next_slot(struct device_comm *d)
{
    return &d->slot[d->buckets++ % SLOTS];
}

static LH_MUST lh_err add_up(struct device_comm *d, void *at, uint64_t values, int type)
{
    return settle(d, d->nccl.api.all_reduce(at, at, values, type, WK_NCCL_SUM, d->comm, d->stream),
                  "AllReduce");
}

static LH_MUST lh_err send_to_all(struct device_comm *d, void *at, size_t bytes)
{
    return settle(d, d->nccl.api.broadcast(at, at, bytes, WK_NCCL_UINT8, 0, d->comm, d->stream),
                  "Broadcast");
}

// Finishes a bucket's sum while the next one is in flight.
static lh_err reduce(struct wk_comm *c, float *bucket, uint64_t values, bool last)
{
    struct device_comm *d = comm_of(c);
    bool narrow = c->arrays.type == WK_SUM_BF16;
    struct slot *s = next_slot(d);
    size_t bytes = values * wk_sum_bytes(c->arrays.type);
    LH_TRY(begin(d, s, bytes, narrow));
    LH_TRY(put(d, s, bucket));
    LH_TRY(add_up(d, s->device, values, narrow ? WK_NCCL_BF16 : WK_NCCL_FP32));
    LH_TRY(fetch(d, s, bucket));
    return last ? finish_all(d) : LH_OK;
}

// ---------------------------------------------------------------- shares

static LH_MUST lh_err share_part(struct device_comm *d, const struct wk_comm_part *part)
{
    bool root = d->base.rank == 0;
    for (size_t at = 0, n = 0; at < part->bytes; n++) {
        size_t bytes = part->bytes - at;
        struct slot *s = &d->slot[n % SLOTS];
        uint8_t *here = (uint8_t *)part->data + at;
        if (bytes > slot_bytes(&d->base.arrays)) bytes = slot_bytes(&d->base.arrays);
        LH_TRY(begin(d, s, bytes, false));
        if (root) LH_TRY(put(d, s, here));
        LH_TRY(send_to_all(d, s->device, bytes));
        LH_TRY(fetch(d, s, root ? NULL : here));
        at += bytes;
    }
    return finish_all(d);
}

static lh_err share(struct wk_comm *c, const struct wk_comm_part *part, uint32_t parts)
{
    for (uint32_t i = 0; i < parts; i++) LH_TRY(share_part(comm_of(c), &part[i]));
    return LH_OK;
}

// ---------------------------------------------------------------- in the device's memory

// Queues the stream's next operations behind the event that covers `needed` values of the sum.
static LH_MUST lh_err follow(struct device_comm *d, uint64_t needed)
{
    return device_err(d, wk_ready_follow(d->base.arrays.device->ready, d->stream, needed),
                      "an event");
}

static LH_MUST lh_err convert(struct device_comm *d, enum lk_gpu_op op, const void *from, void *to,
                              uint64_t values)
{
    const struct lk_gpu_arrays arrays = {.a = from, .x = to, .n = values};
    return device_err(d, d->gpu.backend->kernels->each(op, &arrays, d->stream), "a conversion");
}

// Sums in place; bf16 goes through a bucket of device memory. The last bucket of the sum is on the
// host (comm.h), and its wait covers all earlier ones.
static lh_err reduce_there(struct wk_comm *c, float *bucket, uint64_t values)
{
    struct device_comm *d = comm_of(c);
    void *narrow = d->narrow;
    LH_TRY(follow(d, wk_comm_needed(&c->arrays, (uint64_t)(bucket - c->arrays.sum))));
    if (c->arrays.type != WK_SUM_BF16) return add_up(d, bucket, values, WK_NCCL_FP32);
    LH_ASSERT(values * sizeof(uint16_t) <= c->arrays.bucket_bytes);
    LH_TRY(convert(d, LK_GPU_BF16_OF_FP32, bucket, narrow, values));
    LH_TRY(add_up(d, narrow, values, WK_NCCL_BF16));
    return convert(d, LK_GPU_FP32_OF_BF16, narrow, bucket, values);
}

static lh_err share_there(struct wk_comm *c, const struct wk_comm_part *part)
{
    struct device_comm *d = comm_of(c);
    struct slot *s = &d->slot[0];
    LH_TRY(follow(d, WK_READY_ALL));
    LH_TRY(begin(d, s, 0, false));
    LH_TRY(send_to_all(d, part->data, part->bytes));
    LH_TRY(fetch(d, s, NULL));
    return finish_all(d);
}

// ---------------------------------------------------------------- a communicator

static uint32_t version(struct wk_comm *c)
{
    return (uint32_t)comm_of(c)->nccl.version;
}

static lh_err unique_id(struct wk_comm *c, struct wk_nccl_id *out)
{
    return nccl_err(comm_of(c), comm_of(c)->nccl.api.unique_id(out), "an id for a communicator");
}

static LH_MUST lh_err make_buffers(struct device_comm *d)
{
    const struct lk_gpu_backend *b = d->gpu.backend;
    const struct wk_comm_arrays *a = &d->base.arrays;
    size_t bytes = slot_bytes(a);
    LH_TRY(device_err(d, b->use(d->device), "it can't be used"));
    LH_TRY(device_err(d, b->streams->create(&d->stream), "a stream"));
    if (a->device && a->type == WK_SUM_BF16)
        LH_TRY(device_err(d, b->memory->alloc(&d->narrow, a->bucket_bytes), "memory for a bucket"));
    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &d->slot[i];
        LH_TRY(device_err(d, b->memory->alloc(&s->device, bytes), "memory for a bucket"));
        LH_TRY(device_err(d, b->memory->pinned_alloc(&s->pinned, bytes),
                          "pinned memory for a bucket"));
        LH_TRY(device_err(d, b->streams->event_create(&s->event), "an event"));
    }
    return LH_OK;
}

static lh_err init(struct wk_comm *c, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    struct device_comm *d = comm_of(c);
    struct wk_nccl_config config = WK_NCCL_CONFIG;
    LH_TRY(make_buffers(d));
    int result = d->nccl.api.init(&d->comm, (int)ranks, *id, (int)rank, &config);
    return settle(d, result, "a communicator");
}

static lh_err idle(struct wk_comm *c)
{
    return look(comm_of(c));
}

// Aborts the communicator: an orderly destroy would wait for ranks that may be gone.
static void end(struct wk_comm *c)
{
    struct device_comm *d = comm_of(c);
    const struct lk_gpu_backend *b = d->gpu.backend;
    if (d->comm) (void)d->nccl.api.abort(d->comm); // an error here has no other remedy
    d->comm = NULL;
    // The gradient will be reused, so the stream's pending work must not write to it later.
    if (d->stream && c->arrays.device) (void)b->streams->wait(d->stream);
    if (d->stream) b->streams->destroy(d->stream);
    d->stream = NULL;
    if (d->narrow) b->memory->release(d->narrow);
    d->narrow = NULL;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &d->slot[i];
        if (s->event) b->streams->event_destroy(s->event);
        if (s->pinned) b->memory->pinned_release(s->pinned);
        if (s->device) b->memory->release(s->device);
        *s = (struct slot){.device = NULL};
    }
}

static void destroy(struct wk_comm *c)
{
    lk_gpu_close(&comm_of(c)->gpu);
    free(c);
}

// ---------------------------------------------------------------- opening

static LH_MUST lh_err open_libraries(const struct wk_comm_nccl_conf *conf, struct device_comm *d)
{
    static const char help[] = "set ranks.reduce to shm or tcp, or fix this";
    wk_nccl_defaults(conf->interface, conf->log_file);
    lh_err err = wk_nccl_open(conf->library, &d->nccl);
    if (!err) err = lk_gpu_open(conf->plugin, &d->gpu);
    if (err) return lh_fail(err, "ranks.reduce nccl: %s; %s", lh_err_text(err), help);
    d->device = (int)conf->rank % d->gpu.devices;
    return LH_OK;
}

static void tell(const struct wk_comm_nccl_conf *conf, const struct device_comm *d)
{
    struct lh_buf environment = lh_buf(ENVIRONMENT_BYTES);
    struct lk_gpu_device is = {.name = "unknown"};
    char number[32];
    wk_nccl_environment(&environment);
    if (d->gpu.backend->device(d->device, &is)) snprintf(is.name, sizeof is.name, "unknown");
    lh_logf(conf->log, LH_INFO, "nccl.open", "NCCL %s of %s, rank %u on GPU %d (%s, %s); %.*s",
            wk_nccl_version_text(d->nccl.version, number), d->nccl.path, conf->rank, d->device,
            is.name, is.bus, (int)environment.len, (const char *)environment.data);
    lh_buf_free(&environment);
}

lh_err wk_comm_nccl_create(const struct wk_comm_nccl_conf *conf, struct wk_comm **out)
{
    static const struct wk_comm_ops ops = {version, unique_id, init,    share,       reduce,
                                           idle,    end,       destroy, share_there, reduce_there};
    struct device_comm *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return lh_fail(LH_ERR_NO_MEMORY, "collectives");
    d->base.ops = &ops;
    lh_err err = open_libraries(conf, d);
    if (!err) tell(conf, d);
    if (!err) err = wk_comm_start(&d->base);
    if (!err) {
        *out = &d->base;
        return LH_OK;
    }
    lk_gpu_close(&d->gpu);
    free(d);
    return err;
}
