// Implements made_device.h.
#include "tests/sim/made_device.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/crossing.h"
#include "worker/state/states.h"

struct sim_device {
    struct wk_states *states;
};

// Stands before each allocation, with the bytes last copied to its start.
struct head {
    size_t bytes;
    uint64_t aligned;
};

static int allocate(void **out, size_t bytes)
{
    struct head *h = malloc(sizeof *h + bytes);
    LH_ASSERT(h);
    h->bytes = bytes;
    memset(h + 1, 0xff, bytes);
    *out = h + 1;
    return 0;
}

static void release(void *memory)
{
    free((struct head *)memory - 1);
}

static int copy(void *to, const void *from, size_t bytes, lk_gpu_stream stream)
{
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

static int copy_in(void *to, const void *from, size_t bytes, lk_gpu_stream stream)
{
    ((struct head *)to - 1)->bytes = bytes;
    return copy(to, from, bytes, stream);
}

static int create(void **out)
{
    *out = out;
    return 0;
}

static void destroy(void *handle)
{
    (void)handle;
}

static int wait(lk_gpu_stream stream)
{
    (void)stream;
    return 0;
}

static int record(lk_gpu_event event, lk_gpu_stream stream)
{
    (void)event, (void)stream;
    return 0;
}

static int follow(lk_gpu_stream stream, lk_gpu_event event)
{
    (void)event, (void)stream;
    return 0;
}

static int done(lk_gpu_event event, int *out)
{
    (void)event;
    *out = 1;
    return 0;
}

static int reached(lk_gpu_event event)
{
    (void)event;
    return 0;
}

// ---------------------------------------------------------------- slots

struct lk_gpu_slots {
    uint32_t count, next;
    uint64_t bytes;
    bool taken[LK_CROSSING_SLOTS_MAX];
    uint8_t *memory;
};

static int slots_create(uint32_t count, uint64_t bytes, struct lk_gpu_slots **out)
{
    struct lk_gpu_slots *s = calloc(1, sizeof *s);
    LH_ASSERT(s && count <= LK_CROSSING_SLOTS_MAX);
    *s = (struct lk_gpu_slots){.count = count, .bytes = bytes, .memory = malloc(count * bytes)};
    LH_ASSERT(s->memory);
    *out = s;
    return 0;
}

static void slots_destroy(struct lk_gpu_slots *s)
{
    free(s->memory);
    free(s);
}

static int slots_copy(struct lk_gpu_slots *s, const void *from, uint64_t bytes, lk_gpu_event after,
                      int32_t *slot)
{
    uint32_t n = s->next % s->count;
    (void)after;
    *slot = -1;
    if (s->taken[n]) return 0;
    LH_ASSERT(bytes <= s->bytes);
    memcpy(s->memory + n * s->bytes, from, bytes);
    s->taken[n] = true;
    s->next++;
    *slot = (int32_t)n;
    return 0;
}

static int slots_take(struct lk_gpu_slots *s, int32_t slot, const uint8_t **bytes)
{
    *bytes = s->memory + (uint64_t)slot * s->bytes;
    return 0;
}

static void slots_give_back(struct lk_gpu_slots *s, int32_t slot)
{
    s->taken[slot] = false;
}

// ---------------------------------------------------------------- kernels

struct lk_gpu_shard {
    struct lk_codec codec;
    struct lh_shard_layout layout;
};

static struct lk_codec codec_of(const struct lk_gpu_codec *c)
{
    return (struct lk_codec){c->index, c->value, c->density};
}

static int shard_create(const struct lk_gpu_plan *plan, struct lk_gpu_shard **out)
{
    struct lk_gpu_shard *s = calloc(1, sizeof *s);
    LH_ASSERT(s);
    s->codec = codec_of(&plan->codec);
    s->layout = (struct lh_shard_layout){.values = plan->values,
                                         .chunks = (uint32_t)plan->chunks,
                                         .extent = calloc(plan->chunks, sizeof *s->layout.extent),
                                         .extents = (uint32_t)plan->chunks};
    LH_ASSERT(s->layout.extent);
    for (uint64_t i = 0; i < plan->chunks; i++) {
        s->layout.extent[i].offset = plan->chunk[i].at;
        s->layout.extent[i].len = plan->chunk[i].len;
    }
    *out = s;
    return 0;
}

static void shard_destroy(struct lk_gpu_shard *s)
{
    free(s->layout.extent);
    free(s);
}

static uint64_t shard_bytes(const struct lk_gpu_plan *plan)
{
    return plan->bytes_max;
}

static int encode(struct lk_gpu_shard *s, const struct lk_gpu_encode *in, lk_gpu_stream stream)
{
    struct lh_buf out = lh_buf(1 << 24);
    struct lk_payload_info info = {0};
    (void)stream;
    lh_err err = lk_encode(&s->codec, &s->layout, in->device_e, &out, &info);
    *in->device_result = (struct lk_gpu_result){
        .bytes = out.len, .bad = err ? 0 : LK_GPU_FINE, .sum_squares = info.sum_squares};
    if (!err) memcpy(in->device_payload, out.data, out.len);
    lh_buf_free(&out);
    return 0;
}

static int fold(struct lk_gpu_shard *s, const struct lk_gpu_record *r, uint32_t records,
                uint64_t below, float *to, lk_gpu_stream stream)
{
    struct lk_codec codec = codec_of(&r->codec);
    const struct head *h = (const struct head *)(const void *)r->device_payload - 1;
    (void)stream;
    LH_ASSERT(records == 1 && below == s->layout.values);
    return lk_fold(&codec, &s->layout, lh_span(r->device_payload, h->bytes), r->scale, to) != LH_OK;
}

static void move(const struct lk_gpu_arrays *p)
{
    float *view = malloc(p->n * sizeof *view);
    uint64_t *changed = calloc(p->n / 64 + 1, sizeof *changed);
    LH_ASSERT(view && changed);
    lk_view_make(p->a, p->s, p->b, p->y, view, changed, p->n);
    lk_view_move(p->y, view, changed, p->x, p->n);
    memcpy(p->y, view, p->n * sizeof *view);
    free(view);
    free(changed);
}

static int each(enum lk_gpu_op op, const struct lk_gpu_arrays *p, lk_gpu_stream stream)
{
    (void)stream;
    if (op == LK_GPU_VIEW_START) {
        lk_view_of(p->a, p->s, p->b, p->x, p->n);
        lk_view_of(p->a, p->s, p->b, p->y, p->n);
    } else if (op == LK_GPU_VIEW_DELTA)
        lk_view_delta(p->s, p->a, p->y, p->b, p->x, p->n);
    else if (op == LK_GPU_VIEW_MOVE)
        move(p);
    else
        return 1;
    return 0;
}

static int digest(const void *device, uint64_t bytes, uint8_t *hashes, lk_gpu_stream stream)
{
    (void)stream;
    for (uint64_t at = 0; at < bytes; at += LK_GPU_DIGEST_RANGE, hashes += LK_GPU_HASH_BYTES) {
        uint64_t left = bytes - at;
        struct lh_span range = lh_span((const uint8_t *)device + at,
                                       left < LK_GPU_DIGEST_RANGE ? left : LK_GPU_DIGEST_RANGE);
        struct lh_hash h = lh_hash_of((struct lh_span){0}, &range, 1);
        memcpy(hashes, h.b, sizeof h.b);
    }
    return 0;
}

// ---------------------------------------------------------------- the table

static const char *error_text(int err)
{
    return err ? "not made up" : "fine";
}

static int device(int index, struct lk_gpu_device *out)
{
    (void)index;
    *out = (struct lk_gpu_device){.bytes = 1 << 30, .free_bytes = 1 << 30};
    return 0;
}

static int use(int index)
{
    return index != 0;
}

static const struct lk_gpu_memory memory = {allocate, release, allocate, release,
                                            copy_in,  copy,    copy};
static const struct lk_gpu_streams streams = {create, destroy, wait, create, destroy,
                                              record, follow,  done, reached};
static const struct lk_gpu_transfer transfer = {slots_create, slots_destroy, slots_copy, slots_take,
                                                slots_give_back};
static const struct lk_gpu_kernels kernels = {.shard_create = shard_create,
                                              .shard_destroy = shard_destroy,
                                              .encode = encode,
                                              .fold = fold,
                                              .each = each,
                                              .digest = digest,
                                              .shard_bytes = shard_bytes};
static const struct lk_gpu_backend table = {.abi = LK_GPU_ABI,
                                            .bytes = sizeof table,
                                            .name = "made up",
                                            .error_text = error_text,
                                            .memory = &memory,
                                            .streams = &streams,
                                            .kernels = &kernels,
                                            .transfer = &transfer,
                                            .device = device,
                                            .use = use};

struct sim_device *sim_device_open(struct wk_conf *conf, float *value)
{
    struct sim_device *d = calloc(1, sizeof *d);
    const struct wk_states_conf states = {
        .trainer = {.gpu = &table, .value = value, .stream = d, .name = "a made-up device"},
        .manifest = conf->manifest,
        .codec = conf->codec};
    LH_ASSERT(d);
    lh_err err = wk_states_open(&states, &d->states);
    if (err) fprintf(stderr, "sim: %s\n", lh_err_text(err));
    LH_ASSERT(!err);
    conf->state_open = wk_states_give;
    conf->state_arg = d->states;
    return d;
}

void sim_device_close(struct sim_device *d, uint64_t *compared)
{
    if (!d) return;
    json_t *status = wk_states_status(d->states, "");
    LH_ASSERT(json_integer_value(json_object_get(status, "differed")) == 0);
    *compared += (uint64_t)json_integer_value(json_object_get(status, "compared"));
    json_decref(status);
    wk_states_close(d->states);
    free(d);
}
