// Makes a push's payload. See backend.h.
//
// Invariants: 1. The loop owns `why` of the start. The lane writes its text once, before it sets
// `failed`, and it is read only afterwards. 2. Only the encode lane uses an encoder.
#include "worker/backend.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/encoder.h"

struct wk_backend {
    struct wk_backend_conf conf;
    struct lk_gpu gpu;
    struct lk_gpu_encoder **encoder; // [shards]; NULL: the CPU
    char device[256], why[512];
    char lane_why[512]; // why the device was abandoned; valid once `failed` is set
    _Atomic bool failed;
    bool said;
    _Atomic uint64_t encoded;
};

static void close_encoders(struct wk_backend *b)
{
    for (uint32_t i = 0; b->encoder && i < b->conf.manifest->shards; i++)
        lk_gpu_encoder_destroy(b->encoder[i]);
    free(b->encoder);
    b->encoder = NULL;
}

static lh_err open_encoders(struct wk_backend *b)
{
    const struct lh_manifest *m = b->conf.manifest;
    b->encoder = calloc(m->shards, sizeof *b->encoder);
    if (!b->encoder) return LH_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < m->shards; i++)
        LH_TRY(lk_gpu_encoder_create(&b->gpu, &b->conf.codec, &m->shard[i], &b->encoder[i]));
    return LH_OK;
}

static lh_err open_gpu(struct wk_backend *b)
{
    struct lk_gpu_device is;
    LH_TRY(lk_gpu_open(b->conf.plugin, &b->gpu));
    int err = b->gpu.backend->use(0); // this thread may have used another one for training
    if (!err) err = b->gpu.backend->device(0, &is);
    if (err)
        return lh_fail(LH_ERR_UNSUPPORTED, "GPU 0: %s; the CPU is used",
                       b->gpu.backend->error_text(err));
    snprintf(b->device, sizeof b->device, "%s", is.name);
    LH_TRY(lk_gpu_encoder_check(&b->gpu, &b->conf.codec));
    return open_encoders(b);
}

static bool on_device(const struct wk_backend *b)
{
    return b && b->encoder && !atomic_load(&b->failed);
}

// Encodes on the device, or on the CPU if the device failed.
static lh_err encode(struct wk_backend *b, const struct lh_shard_layout *layout, float *e,
                     struct lh_buf *out, struct lk_payload_info *info)
{
    if (!on_device(b)) return lk_encode_on(b->conf.threads, &b->conf.codec, layout, e, out, info);
    lh_err err = lk_gpu_encoder_run(b->encoder[layout->shard], e, out, info);
    if (!err) atomic_fetch_add(&b->encoded, 1);
    if (err != LH_ERR_UNSUPPORTED) return err;
    snprintf(b->lane_why, sizeof b->lane_why, "%s", lh_err_text(err));
    atomic_store(&b->failed, true);
    return lk_encode_on(b->conf.threads, &b->conf.codec, layout, e, out, info);
}

static void leave_device(struct wk_backend *b)
{
    close_encoders(b);
    lk_gpu_close(&b->gpu);
}

lh_err wk_backend_open(const struct wk_backend_conf *conf, struct wk_backend **out)
{
    struct wk_backend *b = calloc(1, sizeof *b);
    *out = b;
    if (!b) return LH_ERR_NO_MEMORY;
    b->conf = *conf;
    if (conf->kind == WK_BACKEND_CPU) return LH_OK;
    lh_err err = open_gpu(b);
    if (!err) {
        lh_logf(conf->log, LH_INFO, "backend.cuda", "pushes are encoded on %s", b->device);
        return LH_OK;
    }
    snprintf(b->why, sizeof b->why, "%s", lh_err_text(err));
    leave_device(b);
    b->device[0] = 0;
    if (err != LH_ERR_UNSUPPORTED) {
        free(b);
        *out = NULL;
        return err;
    }
    enum lh_level level = conf->kind == WK_BACKEND_CUDA ? LH_WARN : LH_INFO;
    lh_logf(conf->log, level, "backend.cpu", "%s", b->why);
    return LH_OK;
}

void wk_backend_close(struct wk_backend *b)
{
    if (!b) return;
    leave_device(b);
    free(b);
}

lh_err wk_backend_encode(struct wk_backend *b, const struct lk_codec *codec,
                         const struct lh_shard_layout *layout, float *e, struct lh_buf *out,
                         struct lk_payload_info *info)
{
    if (!b) return lk_encode_on(1, codec, layout, e, out, info);
    if (codec->density != b->conf.codec.density)
        return lk_encode_on(b->conf.threads, codec, layout, e, out, info);
    return encode(b, layout, e, out, info);
}

bool wk_backend_feeds(const struct wk_backend *b, const struct lk_codec *codec)
{
    return !on_device(b) || codec->density != b->conf.codec.density;
}

lh_err wk_backend_encode_fed(const struct wk_backend *b, const struct lk_codec *codec,
                             const struct lh_shard_layout *layout, const struct lk_feed *feed,
                             float *e, struct lh_buf *out, struct lk_payload_info *info)
{
    return lk_encode_fed(b ? b->conf.threads : 1, codec, layout, feed, e, out, info);
}

void wk_backend_watch(struct wk_backend *b)
{
    if (!b || b->said || !atomic_load(&b->failed)) return;
    b->said = true;
    lh_logf(b->conf.log, LH_WARN, "backend.cpu", "%s", b->lane_why);
}

json_t *wk_backend_status(const struct wk_backend *b)
{
    bool failed = b && atomic_load(&b->failed), cuda = b && b->encoder && !failed;
    return json_pack("{s:s s:s s:s s:I s:I}", "name", cuda ? "cuda" : "cpu", "why",
                     failed ? b->lane_why
                     : b    ? b->why
                            : "",
                     "device", cuda ? b->device : "", "encoded",
                     b ? (json_int_t)atomic_load(&b->encoded) : 0, "threads",
                     b && b->conf.threads ? (json_int_t)b->conf.threads : 1);
}
