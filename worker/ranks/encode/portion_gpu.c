// Portions of a push on a device. See portion_gpu.h.
//
// Invariant: an encoder belongs to one codec and to one layout, whose copy lies beside it.
#include "worker/ranks/encode/portion_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/encoder.h"
#include "worker/ranks/encode/encoding.h"

struct kept {
    struct lk_gpu_encoder *encoder; // NULL: the place is free
    struct lk_codec codec;
    struct lh_shard_layout layout;
    struct lh_extent extent[WK_ENCODING_CHUNKS];
    uint64_t used; // The number of the last portion that it encoded.
};

struct wk_portion_gpu {
    struct lk_gpu gpu; // its table alone
    int index;
    struct lh_log *log;
    bool off; // The CPU encodes from now on.
    bool checked;
    struct lk_codec codec; // The codec that was checked last.
    struct kept kept[WK_PORTION_GPU_LAYOUTS];
    uint64_t portions;
};

lh_err wk_portion_gpu_create(const struct lk_gpu_backend *backend, int index, struct lh_log *log,
                             struct wk_portion_gpu **out)
{
    struct wk_portion_gpu *x = calloc(1, sizeof *x);
    *out = x;
    if (!x) return lh_fail(LH_ERR_NO_MEMORY, "portions on a GPU");
    x->gpu.backend = backend;
    x->index = index;
    x->log = log;
    return LH_OK;
}

static void drop(struct wk_portion_gpu *x)
{
    for (int i = 0; i < WK_PORTION_GPU_LAYOUTS; i++) {
        lk_gpu_encoder_destroy(x->kept[i].encoder);
        x->kept[i] = (struct kept){.encoder = NULL};
    }
}

void wk_portion_gpu_destroy(struct wk_portion_gpu *x)
{
    if (!x) return;
    (void)x->gpu.backend->use(x->index); // what can't be used has nothing to be freed
    drop(x);
    free(x);
}

bool wk_portion_gpu_works(const struct wk_portion_gpu *x)
{
    return x && !x->off;
}

static bool same_codec(const struct lk_codec *a, const struct lk_codec *b)
{
    return a->index == b->index && a->value == b->value && a->density == b->density;
}

static bool same_layout(const struct lh_shard_layout *a, const struct lh_shard_layout *b)
{
    if (a->extents != b->extents) return false;
    for (uint32_t i = 0; i < a->extents; i++)
        if (a->extent[i].len != b->extent[i].len) return false;
    return true;
}

// The place of this codec and layout; NULL: there is none.
static struct kept *find(struct wk_portion_gpu *x, const struct lk_codec *codec,
                         const struct lh_shard_layout *layout)
{
    for (int i = 0; i < WK_PORTION_GPU_LAYOUTS; i++) {
        struct kept *k = &x->kept[i];
        if (k->encoder && same_codec(&k->codec, codec) && same_layout(&k->layout, layout)) return k;
    }
    return NULL;
}

// A free place, or that of the encoder that was used least lately.
static struct kept *oldest(struct wk_portion_gpu *x)
{
    struct kept *k = &x->kept[0];
    for (int i = 1; i < WK_PORTION_GPU_LAYOUTS; i++)
        if (x->kept[i].used < k->used) k = &x->kept[i];
    return k;
}

static LH_MUST lh_err make(struct wk_portion_gpu *x, const struct lk_codec *codec,
                           const struct lh_shard_layout *layout, struct kept **out)
{
    struct kept *k = *out = oldest(x);
    LH_ASSERT(layout->extents <= WK_ENCODING_CHUNKS);
    lk_gpu_encoder_destroy(k->encoder);
    *k = (struct kept){.codec = *codec, .layout = *layout};
    memcpy(k->extent, layout->extent, layout->extents * sizeof *k->extent);
    k->layout.extent = k->extent;
    return lk_gpu_encoder_create(&x->gpu, codec, &k->layout, &k->encoder);
}

static LH_MUST lh_err check(struct wk_portion_gpu *x, const struct lk_codec *codec)
{
    if (x->checked && same_codec(&x->codec, codec)) return LH_OK;
    LH_TRY(lk_gpu_encoder_check(&x->gpu, codec));
    x->checked = true;
    x->codec = *codec;
    return LH_OK;
}

static LH_MUST lh_err on_device(struct wk_portion_gpu *x, const struct lk_codec *codec,
                                const struct lh_shard_layout *layout, float *values,
                                struct lh_buf *out, bool *there)
{
    int failed = x->gpu.backend->use(x->index);
    if (failed)
        return lh_fail(LH_ERR_UNSUPPORTED, "GPU %d: %s; the CPU is used", x->index,
                       x->gpu.backend->error_text(failed));
    LH_TRY(check(x, codec));
    struct kept *k = find(x, codec, layout);
    if (!k) LH_TRY(make(x, codec, layout, &k));
    k->used = ++x->portions;
    return lk_gpu_encoder_payload(k->encoder, values, out, there);
}

lh_err wk_portion_gpu_encode(struct wk_portion_gpu *x, const struct lk_codec *codec,
                             const struct lh_shard_layout *layout, float *values,
                             struct lh_buf *out, bool *there)
{
    // A codec that is none is told of in lk_encode()'s words, and is no fault of the device's.
    bool known = lk_payload_max(codec, layout) > 0;
    *there = false;
    if (known && !x->off) {
        lh_err err = on_device(x, codec, layout, values, out, there);
        if (err != LH_ERR_UNSUPPORTED) return err;
        lh_logf(x->log, LH_WARN, "compress.cpu", "portions of the leader's pushes: %s",
                lh_err_text(err));
        x->off = true;
        *there = false;
        drop(x);
    }
    return lk_encode(codec, layout, 1, NULL, values, out, NULL);
}
