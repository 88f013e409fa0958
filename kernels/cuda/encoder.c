// A shard's encoding on the device. See encoder.h.
//
// Invariants: 1. The caller's `e` and `out` change only after the device has finished. 2. The CPU
// reports a non-finite value, in its words. 3. The device never gets pageable memory: all copies go
// through pinned memory (crossing.h), one piece in transfer while the host copies another.
#include "kernels/cuda/encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/crossing.h"
#include "kernels/cuda/plan.h"

enum { CHECK_VALUES = 3 * LK_GPU_CHUNK + 1000 };

struct lk_gpu_encoder {
    const struct lk_gpu_backend *b;
    const struct lh_shard_layout *layout;
    struct lk_codec codec;
    struct lk_gpu_shard *shard; // NULL: the shard has no values
    lk_gpu_stream stream;
    float *device_e;
    uint8_t *device_payload;
    struct lk_gpu_result *device_result;
    lk_gpu_event encoded;
    struct lk_inward in;
    struct lk_outward out;
    struct lk_payload_info info; // known before the values are
    size_t payload_max;
};

static lh_err say(const struct lk_gpu_encoder *x, const char *what, int err)
{
    return lh_fail(LH_ERR_UNSUPPORTED, "GPU, shard %u: %s: %s; the CPU is used", x->layout->shard,
                   what, x->b->error_text(err));
}

void lk_gpu_encoder_destroy(struct lk_gpu_encoder *x)
{
    if (!x) return;
    if (x->shard) x->b->kernels->shard_destroy(x->shard);
    if (x->device_e) x->b->memory->release(x->device_e);
    if (x->device_payload) x->b->memory->release(x->device_payload);
    if (x->device_result) x->b->memory->release(x->device_result);
    if (x->stream) (void)x->b->streams->wait(x->stream);
    lk_inward_close(&x->in);
    lk_outward_close(&x->out);
    if (x->encoded) x->b->streams->event_destroy(x->encoded);
    if (x->stream) x->b->streams->destroy(x->stream);
    free(x);
}

static int take_memory(struct lk_gpu_encoder *x, const struct lk_gpu_plan *plan)
{
    const struct lk_gpu_memory *m = x->b->memory;
    void *got[3] = {NULL};
    size_t bytes[3] = {plan->values * sizeof(float), plan->bytes_max, sizeof *x->device_result};
    int err = x->b->streams->create(&x->stream);
    for (int i = 0; !err && i < 3; i++) err = m->alloc(&got[i], bytes[i]);
    x->device_e = got[0];
    x->device_payload = got[1];
    x->device_result = got[2];
    if (!err) err = x->b->streams->event_create(&x->encoded);
    uint64_t piece = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    if (piece > LK_CROSSING_BYTES) piece = LK_CROSSING_BYTES;
    if (!err) err = lk_inward_open(&x->in, x->b, piece);
    if (!err) err = lk_outward_open(&x->out, x->b, LK_CROSSING_SLOTS, piece);
    if (!err) err = x->b->kernels->shard_create(plan, &x->shard);
    return err;
}

lh_err lk_gpu_encoder_create(const struct lk_gpu *gpu, const struct lk_codec *codec,
                             const struct lh_shard_layout *layout, struct lk_gpu_encoder **out)
{
    struct lk_gpu_plan plan;
    struct lk_gpu_encoder *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x) return LH_ERR_NO_MEMORY;
    x->b = gpu->backend;
    x->layout = layout;
    x->codec = *codec;
    lh_err err = lk_gpu_plan_create(codec, layout, &plan);
    if (err) {
        free(x);
        return err;
    }
    x->info = (struct lk_payload_info){plan.chunks, plan.values_carried, 0};
    x->payload_max = plan.bytes_max;
    int failed = plan.chunks ? take_memory(x, &plan) : 0;
    if (failed) {
        char what[96];
        snprintf(what, sizeof what, "%llu MiB and scratch for %llu values",
                 (unsigned long long)((plan.values * sizeof(float) + plan.bytes_max) >> 20),
                 (unsigned long long)plan.values);
        err = say(x, what, failed);
        lk_gpu_encoder_destroy(x);
        x = NULL;
    }
    lk_gpu_plan_free(&plan);
    *out = x;
    return err;
}

// ---------------------------------------------------------------- crossing

// Fetches up to two device arrays, behind the encoding.
static int to_host(struct lk_gpu_encoder *x, struct lk_way first, struct lk_way second)
{
    const struct lk_way way[] = {first, second};
    return lk_outward_copy(&x->out, x->encoded, way, LH_COUNT(way));
}

static int encode(struct lk_gpu_encoder *x, const float *e, struct lk_gpu_result *is)
{
    const struct lk_gpu_encode in = {x->device_e, x->device_payload, x->device_result};
    const struct lk_way result = {x->device_result, is, sizeof *is}, none = {.bytes = 0};
    int err = lk_inward_copy(&x->in, x->device_e, e, x->layout->values * sizeof *e, x->stream);
    if (!err) err = x->b->kernels->encode(x->shard, &in, x->stream);
    if (!err) err = x->b->streams->event_record(x->encoded, x->stream);
    return err ? err : to_host(x, result, none);
}

// Appends the payload. *there: the device made it, and `left` is the remainder of `e`; otherwise
// the CPU did, in `e` itself.
static LH_MUST lh_err payload_of(struct lk_gpu_encoder *x, float *e, float *left,
                                 struct lh_buf *out, struct lk_payload_info *info, bool *there)
{
    struct lk_gpu_result is = {.bad = LK_GPU_FINE};
    *there = x->shard != NULL;
    int failed = *there ? encode(x, e, &is) : 0;
    if (failed) return say(x, "encoding", failed);
    if (!*there || is.bad != LK_GPU_FINE) {
        *there = false;
        return lk_encode(&x->codec, x->layout, e, out, info);
    }
    if (is.bytes > x->payload_max)
        return lh_fail(LH_ERR_UNSUPPORTED,
                       "GPU, shard %u: a payload of %llu bytes, at most %zu; "
                       "the CPU is used",
                       x->layout->shard, (unsigned long long)is.bytes, x->payload_max);
    size_t before = out->len, bytes = x->layout->values * sizeof *e;
    uint8_t *at = lh_buf_grow(out, is.bytes);
    if (!at) return lh_buf_err(out);
    failed = to_host(x, (struct lk_way){x->device_payload, at, is.bytes},
                     (struct lk_way){x->device_e, left, bytes});
    if (failed) {
        out->len = before;
        return say(x, "what was encoded", failed);
    }
    if (info) *info = x->info;
    if (info) info->sum_squares = is.sum_squares;
    return LH_OK;
}

lh_err lk_gpu_encoder_run(struct lk_gpu_encoder *x, float *e, struct lh_buf *out,
                          struct lk_payload_info *info)
{
    // Not into `e`: a failed copy would leave neither the old residual nor the new one.
    size_t bytes = x->layout->values * sizeof *e;
    float *left = malloc(bytes + 1);
    bool there;
    if (!left) return LH_ERR_NO_MEMORY;
    lh_err err = payload_of(x, e, left, out, info, &there);
    if (!err && there) memcpy(e, left, bytes);
    free(left);
    return err;
}

// ---------------------------------------------------------------- the check

// Makes values with ties, zeros and magnitudes from 2^-20 to 2^11.
static void make_up(float *e)
{
    uint64_t seed = 20;
    for (size_t i = 0; i < CHECK_VALUES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int size = (int)(seed >> 59) - 20;
        float value = ldexpf((float)((int)(seed >> 40 & 15) - 7), size);
        e[i] = i % 11 ? value : 0;
    }
}

static lh_err compare(struct lk_gpu_encoder *x, float *ours, float *theirs)
{
    struct lh_buf cpu = lh_buf(x->payload_max), gpu = lh_buf(x->payload_max);
    struct lk_payload_info a = {0}, b = {0};
    make_up(ours);
    make_up(theirs);
    lh_err err = lk_encode(&x->codec, x->layout, ours, &cpu, &a);
    if (!err) err = lk_gpu_encoder_run(x, theirs, &gpu, &b);
    bool same = !err && cpu.len == gpu.len && !memcmp(cpu.data, gpu.data, cpu.len) &&
                !memcmp(ours, theirs, CHECK_VALUES * sizeof *ours) && a.values == b.values &&
                a.chunks == b.chunks && !memcmp(&a.sum_squares, &b.sum_squares, sizeof(double));
    if (!err && !same)
        err = lh_fail(LH_ERR_UNSUPPORTED,
                      "GPU: its %s of test values differs from the CPU's; the CPU is used",
                      lk_codec_name(&x->codec));
    lh_buf_free(&cpu);
    lh_buf_free(&gpu);
    return err;
}

lh_err lk_gpu_encoder_check(const struct lk_gpu *gpu, const struct lk_codec *codec)
{
    struct lh_extent extent = {.len = CHECK_VALUES};
    struct lh_shard_layout layout = {.values = CHECK_VALUES,
                                     .chunks = (CHECK_VALUES + LH_CHUNK - 1) / LH_CHUNK,
                                     .extent = &extent,
                                     .extents = 1};
    struct lk_gpu_encoder *x;
    LH_TRY(lk_gpu_encoder_create(gpu, codec, &layout, &x));
    float *ours = malloc(CHECK_VALUES * sizeof *ours),
          *theirs = malloc(CHECK_VALUES * sizeof *ours);
    lh_err err = ours && theirs ? compare(x, ours, theirs) : LH_ERR_NO_MEMORY;
    free(ours);
    free(theirs);
    lk_gpu_encoder_destroy(x);
    return err;
}
