// Arrays on their way to the host: more copies than slots, on a stream of their own, some dropped
// unread; whole arrays in pieces, both ways; and the round of a push: cut, encode, fold the
// payload, renew the view.
#include "tests/parity/device.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/crossing.h"

enum { SLOTS = 2, PUSHES = 7 };

static struct lk_gpu_shard *shard_of(const struct device *dev, const struct lk_codec *codec,
                                     const struct lh_shard_layout *layout, struct lk_gpu_plan *plan)
{
    struct lk_gpu_shard *shard;
    must(lk_gpu_plan_create(codec, layout, plan) == LH_OK, "no plan");
    must_succeed(dev, dev->b->kernels->shard_create(plan, &shard), "shard_create");
    return shard;
}

// Encodes pushes of one residual, each of what the last one left, into two buffers by turns; two
// copies are under way at a time.
static void ring(const struct device *dev, uint64_t seed)
{
    static const uint64_t lens[] = {700, 300, 1, 0};
    struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};
    struct layout_case c;
    struct lk_gpu_plan plan;
    struct lk_gpu_slots *slots;
    const struct lk_gpu_transfer *t = dev->b->transfer;
    lk_gpu_event encoded;
    simt_seed(seed);
    case_layout(&c, lens);
    struct lk_gpu_shard *shard = shard_of(dev, &codec, &c.layout, &plan);
    must_succeed(dev, t->create(SLOTS, plan.bytes_max, &slots), "create slots");
    must_succeed(dev, dev->b->streams->event_create(&encoded), "create an event");
    size_t bytes = c.layout.values * sizeof(float);
    float *e = made(CASE_GAUSSIAN, c.layout.values, seed);
    float *there = device_put(dev, e, bytes);
    uint8_t *payload_there[SLOTS];
    struct lk_gpu_result *result_there = device_room(dev, sizeof *result_there);
    int32_t slot[PUSHES], full;
    struct lh_buf should[PUSHES];
    for (int i = 0; i < SLOTS; i++) payload_there[i] = device_room(dev, plan.bytes_max);
    for (int i = 0; i < PUSHES + SLOTS; i++) {
        int old = i - SLOTS;
        bool dropped = old % 3 == 2; // thrown away unread
        if (old >= 0 && !dropped) {
            const uint8_t *payload;
            must_succeed(dev, t->take(slots, slot[old], &payload), "take");
            must_equal(payload, should[old].data, should[old].len, "push %d of seed %llu", old,
                       (unsigned long long)seed);
        }
        if (old >= 0) t->give_back(slots, slot[old]);
        if (i >= PUSHES) continue;
        struct lk_payload_info info;
        should[i] = lh_buf(1 << 20);
        must(lk_encode(&codec, &c.layout, e, &should[i], &info) == LH_OK, "encode");
        struct lk_gpu_encode in = {there, payload_there[i % SLOTS], result_there};
        must_succeed(dev, dev->b->kernels->encode(shard, &in, dev->stream), "encode");
        must_succeed(dev, dev->b->streams->event_record(encoded, dev->stream), "record");
        must_succeed(dev,
                     t->copy(slots, payload_there[i % SLOTS], should[i].len, encoded, &slot[i]),
                     "copy");
        must(slot[i] >= 0, "no slot for push %d", i);
        if (i % SLOTS == 1) {
            must_succeed(dev, t->copy(slots, there, 1, encoded, &full), "copy");
            must(full == -1, "a third slot of two");
        }
    }
    must(t->copy(slots, there, plan.bytes_max + 1, encoded, &full) != 0 && full == -1,
         "a copy that is larger than its slot");
    for (int i = 0; i < PUSHES; i++) lh_buf_free(&should[i]);
    free(e);
    for (int i = 0; i < SLOTS; i++) device_free(dev, payload_there[i]);
    device_free(dev, result_there);
    device_free(dev, there);
    dev->b->streams->event_destroy(encoded);
    t->destroy(slots);
    dev->b->kernels->shard_destroy(shard);
    lk_gpu_plan_free(&plan);
}

// Copies arrays that are larger than all slots, and than both halves, there and back while kernels
// change them. Of those to the host one is empty, and one ends within a value.
static void crossing(const struct device *dev, uint64_t seed)
{
    enum { N = 5000, SLOT_BYTES = 1000, HALF_BYTES = 1200 };
    struct lk_outward out;
    struct lk_inward in;
    lk_gpu_event scaled;
    size_t bytes = N * sizeof(float);
    simt_seed(seed);
    must_succeed(dev, lk_outward_open(&out, dev->b, 1 + (uint32_t)(seed % 3), SLOT_BYTES), "open");
    must_succeed(dev, lk_inward_open(&in, dev->b, HALF_BYTES), "open");
    must_succeed(dev, dev->b->streams->event_create(&scaled), "create an event");
    float *x = made(CASE_GAUSSIAN, N, seed), *y = made(CASE_SMALL, N, seed),
          *got = malloc(2 * bytes);
    float *gone = malloc(bytes), *x_there = device_room(dev, bytes),
          *y_there = device_room(dev, bytes);
    must(got && gone, "no memory");
    for (int round = 0; round < 3; round++) {
        const struct lk_gpu_arrays twice = {x_there, x_there, x_there, x_there, 2, N}; // 2x + 0
        memcpy(gone, x, bytes);
        must_succeed(dev, lk_inward_copy(&in, x_there, gone, bytes, dev->stream), "to the device");
        memset(gone, 0xa5, bytes); // nobody reads it any more
        must_succeed(dev, lk_inward_copy(&in, y_there, y, bytes, dev->stream), "to the device");
        must_succeed(dev, dev->b->kernels->each(LK_GPU_VIEW_DELTA, &twice, dev->stream), "each");
        must_succeed(dev, dev->b->streams->event_record(scaled, dev->stream), "record");
        const struct lk_way way[] = {
            {x_there, got, bytes}, {y_there, got, 0}, {y_there, got + N, bytes - 1}};
        must_succeed(dev, lk_outward_copy(&out, scaled, way, 3), "to the host");
        for (int i = 0; i < N; i++) x[i] *= 2;
        must_equal(got, x, bytes, "scaled values of seed %llu", (unsigned long long)seed);
        must_equal(got + N, y, bytes - 1, "values of seed %llu", (unsigned long long)seed);
    }
    must_succeed(dev, dev->b->streams->wait(dev->stream), "wait");
    for (int i = 0; i < 2; i++) { // the second time there is nothing to close
        lk_inward_close(&in);
        lk_outward_close(&out);
    }
    dev->b->streams->event_destroy(scaled);
    free(x);
    free(y);
    free(got);
    free(gone);
    device_free(dev, x_there);
    device_free(dev, y_there);
}

// A worker's round on the device alone, compared at its end: view, cut, encoding, fold, view.
static void round_trip(const struct device *dev, uint64_t seed)
{
    static const uint64_t lens[] = {5000, 300, 0};
    struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};
    struct layout_case c;
    struct lk_gpu_plan plan;
    simt_seed(seed);
    case_layout(&c, lens);
    struct lk_gpu_shard *shard = shard_of(dev, &codec, &c.layout, &plan);
    uint64_t n = c.layout.values;
    size_t bytes = n * sizeof(float);
    float *theta = made(CASE_GAUSSIAN, n, seed), *e = made(CASE_SMALL, n, seed + 1);
    float *step = made(CASE_GAUSSIAN, n, seed + 2), *spare = calloc(n, sizeof *spare);
    float *local = calloc(n, sizeof *local), *anchor = calloc(n, sizeof *anchor);
    float *got = malloc(bytes);
    must(theta && e && step && spare && local && anchor && got, "no memory");
    float *g_theta = device_put(dev, theta, bytes), *g_e = device_put(dev, e, bytes);
    float *g_local = device_room(dev, bytes), *g_anchor = device_room(dev, bytes);
    float *g_spare = device_room(dev, bytes);
    uint8_t *payload = device_room(dev, plan.bytes_max);
    struct lk_gpu_result *result = device_room(dev, sizeof *result), is;
    const struct lk_gpu_kernels *k = dev->b->kernels;
    struct lk_gpu_arrays view = {g_theta, g_e, g_local, g_anchor, 0.5f, n};
    must_succeed(dev, k->each(LK_GPU_VIEW_START, &view, dev->stream), "each");
    lk_view_of(theta, 0.5f, e, local, n);
    lk_view_of(theta, 0.5f, e, anchor, n);
    // Trains on the host, which changes `local`.
    device_get(dev, got, g_local, bytes);
    must_equal(got, local, bytes, "local view, seed %llu", (unsigned long long)seed);
    for (uint64_t i = 0; i < n; i++) local[i] -= 0.01f * step[i];
    must_succeed(dev, dev->b->memory->copy_in(g_local, local, bytes, dev->stream), "copy in");
    must_succeed(dev, dev->b->streams->wait(dev->stream), "wait"); // `local` changes below
    struct lk_gpu_arrays cut = {g_e, g_local, g_spare, g_anchor, 0.95f, n};
    must_succeed(dev, k->each(LK_GPU_VIEW_DELTA, &cut, dev->stream), "each");
    struct lk_gpu_encode in = {g_spare, payload, result};
    must_succeed(dev, k->encode(shard, &in, dev->stream), "encode");
    struct lk_gpu_record record = {payload, plan.codec, 0.7f};
    must_succeed(dev, k->fold(shard, &record, 1, UINT64_MAX, g_theta, dev->stream), "fold");
    view.b = g_spare;
    must_succeed(dev, k->each(LK_GPU_VIEW_MOVE, &view, dev->stream), "each");
    struct lh_buf out = lh_buf(1 << 20);
    struct lk_payload_info info;
    lk_view_delta(0.95f, e, anchor, local, spare, n);
    must(lk_encode(&codec, &c.layout, spare, &out, &info) == LH_OK, "encode");
    must(lk_fold(&codec, &c.layout, lh_buf_span(&out), 0.7f, theta) == LH_OK, "fold");
    host_view_move(theta, 0.5f, spare, local, anchor, n);
    device_get(dev, &is, result, sizeof is);
    must(is.bytes == out.len, "%llu bytes", (unsigned long long)is.bytes);
    const float *cpu[] = {theta, spare, local, anchor},
                *gpu[] = {g_theta, g_spare, g_local, g_anchor};
    for (int i = 0; i < 4; i++) {
        device_get(dev, got, gpu[i], bytes);
        must_equal(got, cpu[i], bytes, "array %d after a round", i);
    }
    float *hosts[] = {theta, e, step, spare, local, anchor, got};
    float *devices[] = {g_theta, g_e, g_local, g_anchor, g_spare};
    for (int i = 0; i < 7; i++) free(hosts[i]);
    for (int i = 0; i < 5; i++) device_free(dev, devices[i]);
    device_free(dev, payload);
    device_free(dev, result);
    lh_buf_free(&out);
    k->shard_destroy(shard);
    lk_gpu_plan_free(&plan);
}

// A call that fails, or whose answer is "not yet", does not spoil the launches after it.
static void errors_end_with_their_call(const struct device *dev)
{
    const struct lk_gpu_streams *s = dev->b->streams;
    float value[] = {1, 2}, *there = device_put(dev, value, sizeof value);
    const struct lk_gpu_arrays scale = {there, there, there, there, 2, 2}; // 2x + 0
    void *none = NULL;
    lk_gpu_event event;
    must(dev->b->memory->alloc(&none, (size_t)1 << 46) != 0, "64 TiB were allocated");
    must_succeed(dev, dev->b->kernels->each(LK_GPU_VIEW_DELTA, &scale, dev->stream),
                 "after no memory");
    must(dev->b->use(1 << 20) != 0, "device 1048576 was used");
    must_succeed(dev, dev->b->kernels->each(LK_GPU_VIEW_DELTA, &scale, dev->stream),
                 "after no device");
    must_succeed(dev, s->event_create(&event), "create an event");
    int done = 0;
    for (int i = 0; i < 20; i++) { // mostly not yet
        must_succeed(dev, s->event_record(event, dev->stream), "record");
        must_succeed(dev, s->event_done(event, &done), "ask");
        must_succeed(dev, dev->b->kernels->each(LK_GPU_VIEW_DELTA, &scale, dev->stream),
                     "after that");
    }
    s->event_destroy(event);
    device_get(dev, value, there, sizeof value);
    must(value[0] == 0x1p22f, "scaled %g", (double)value[0]);
    device_free(dev, there);
}

void parity_transfer(void)
{
    struct device dev = device_create();
    errors_end_with_their_call(&dev);
    for (uint64_t seed = 1; seed <= seeds_of(12); seed++) ring(&dev, seed);
    for (uint64_t seed = 1; seed <= seeds_of(12); seed++) crossing(&dev, seed);
    for (uint64_t seed = 1; seed <= seeds_of(4); seed++) round_trip(&dev, seed);
    device_destroy(&dev);
}
