// Checks that a bucket is summed while the backward pass goes on. Two ranks of one process sum on
// the emulated device, by the tests' NCCL. Each one's stream gets a whole pass before anything is
// summed, as a host queues it ahead of a device: a layer's values, then the next layer, which first
// copies the values of the layer before. With work delayed as long as possible (LH_SIMT_LATE=1)
// that copy has the sum if the bucket followed its own layer, and the layer's own values if it
// waited for all.
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/check.h"
#include "kernels/cuda/loader.h"
#include "tests/test.h"
#include "worker/ranks/comm/comm_nccl.h"

enum { RANKS = 2, LAYERS = 4, LAYER = 500, VALUES = LAYERS * LAYER, BEHIND = 7 };

struct rank {
    struct lk_gpu gpu;
    struct wk_ready *ready;
    struct wk_comm *comm;
    lk_gpu_stream stream;
    float *gradient, *seen; // on the device, [VALUES] each
    float *pinned;          // [VALUES]
    float last[BEHIND];
    struct wk_comm_device device;
    int told;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

static void *room(struct rank *k, bool pinned)
{
    const struct lk_gpu_memory *m = k->gpu.backend->memory;
    void *out;
    size_t bytes = VALUES * sizeof(float);
    assert_int_equal(pinned ? m->pinned_alloc(&out, bytes) : m->alloc(&out, bytes), 0);
    return out;
}

static void open_rank(struct rank *k, uint32_t rank, enum wk_sum_type type)
{
    const char *file = variable("LH_TEST_NCCL");
    const struct wk_comm_nccl_conf conf = {
        .library = file, .plugin = file, .interface = "lo", .log_file = "", .rank = rank};
    assert_int_equal(lk_gpu_open(file, &k->gpu), LH_OK);
    assert_int_equal(k->gpu.backend->use(0), 0);
    assert_int_equal(k->gpu.backend->streams->create(&k->stream), 0);
    assert_int_equal(wk_ready_create(k->gpu.backend, &k->ready), LH_OK);
    k->gradient = room(k, false);
    k->seen = room(k, false);
    k->pinned = room(k, true);
    k->device = (struct wk_comm_device){k->gpu.backend, 0, k->ready};
    assert_int_equal(wk_comm_nccl_create(&conf, &k->comm), LH_OK);
    const struct wk_comm_arrays arrays = {.part = {{k->gradient, VALUES * sizeof(float)}},
                                          .parts = 1,
                                          .there = 1,
                                          .sum = k->gradient,
                                          .sums = VALUES + BEHIND,
                                          .behind = BEHIND,
                                          .last = k->last,
                                          .device = &k->device,
                                          .bucket_bytes = LAYER * wk_sum_bytes(type),
                                          .type = type};
    k->told = eventfd(0, EFD_CLOEXEC);
    wk_comm_bind(k->comm, &arrays, k->told);
}

static void close_rank(struct rank *k)
{
    const struct lk_gpu_memory *m = k->gpu.backend->memory;
    wk_comm_destroy(k->comm);
    m->release(k->gradient);
    m->release(k->seen);
    m->pinned_release(k->pinned);
    wk_ready_destroy(k->ready);
    k->gpu.backend->streams->destroy(k->stream);
    lk_gpu_close(&k->gpu);
    close(k->told);
}

static void all_well(struct rank *k)
{
    eventfd_t count;
    for (int i = 0; i < RANKS; i++) {
        while (wk_comm_region.poll(k[i].comm) == WK_REGION_BUSY)
            assert_int_equal(eventfd_read(k[i].told, &count), 0);
        if (wk_comm_region.poll(k[i].comm) != WK_REGION_OK)
            fail_msg("rank %d: %s", i, wk_comm_region.why(k[i].comm));
    }
}

// Last layer first. Each copies the values of the layer before it, then writes its own.
static void queue_a_pass(struct rank *k)
{
    const struct lk_gpu_memory *m = k->gpu.backend->memory;
    size_t bytes = LAYER * sizeof(float);
    wk_ready_forget(k->ready);
    for (int i = 0; i < VALUES; i++) k->pinned[i] = (float)(i % 100 + 1);
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        float *own = k->gradient + layer * LAYER;
        if (layer + 1 < LAYERS)
            assert_int_equal(
                m->copy_within(k->seen + (layer + 1) * LAYER, own + LAYER, bytes, k->stream), 0);
        assert_int_equal(m->copy_in(own, k->pinned + layer * LAYER, bytes, k->stream), 0);
        assert_int_equal(wk_ready_record(k->ready, k->stream, (uint64_t)(LAYERS - layer) * LAYER),
                         0);
    }
    assert_int_equal(wk_ready_record(k->ready, k->stream, WK_READY_ALL), 0);
}

static void check(struct rank *k)
{
    const float *from[] = {k->gradient, k->seen + LAYER};
    for (size_t i = 0; i < LH_COUNT(from); i++) {
        int n = i ? VALUES - LAYER : VALUES, first = i ? LAYER : 0;
        const struct lk_gpu_memory *m = k->gpu.backend->memory;
        size_t part = (size_t)n * sizeof *k->pinned;
        assert_int_equal(m->copy_out(k->pinned, from[i], part, k->stream), 0);
        assert_int_equal(k->gpu.backend->streams->wait(k->stream), 0);
        for (int j = 0; j < n; j++)
            assert_float_equal(k->pinned[j], (float)(RANKS * ((first + j) % 100 + 1)), 0);
    }
}

TEST(each_bucket_leaves_behind_its_own_layer)
{
    static struct rank k[RANKS];
    for (enum wk_sum_type type = WK_SUM_FP32; type <= WK_SUM_BF16; type++) {
        struct wk_nccl_id id;
        for (uint32_t i = 0; i < RANKS; i++) open_rank(&k[i], i, type);
        assert_int_equal(wk_comm_region.unique_id(k[0].comm, &id), LH_OK);
        for (uint32_t i = 0; i < RANKS; i++) wk_comm_region.init(k[i].comm, &id, RANKS, i);
        all_well(k);
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < RANKS; i++) queue_a_pass(&k[i]);
            for (int i = 0; i < RANKS; i++) wk_comm_region.reduce(k[i].comm, UINT64_MAX);
            all_well(k);
            for (int i = 0; i < RANKS; i++) check(&k[i]);
        }
        for (int i = 0; i < RANKS; i++) close_rank(&k[i]);
    }
}
