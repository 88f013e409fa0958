// Codecs: names, the choice of a form, and calls of encoding and decoding (kernels/cpu).
//
// Invariants: 1. `e` does not change before everything that can fail has succeeded, unless it is
// fed. 2. fold, add, clear and mark use the same walk as lk_payload_check.
#include "kernels/codec.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/nearest.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/codec_walk.h"
#include "kernels/cpu/cpu_features.h"

static const struct {
    const char *name;
    uint8_t index, value;
} codecs[] = {
    {"topk-sign", LK_INDEX_RICE, LK_VALUE_SIGN},   {"topk-q4", LK_INDEX_RICE, LK_VALUE_Q4},
    {"topk-fp16", LK_INDEX_RICE, LK_VALUE_FP16},   {"topk-fp32", LK_INDEX_RICE, LK_VALUE_FP32},
    {"dense-sign", LK_INDEX_DENSE, LK_VALUE_SIGN}, {"dense-q4", LK_INDEX_DENSE, LK_VALUE_Q4},
    {"dense-fp32", LK_INDEX_DENSE, LK_VALUE_FP32},
};

const char *lk_codec_word(size_t i)
{
    return i < LH_COUNT(codecs) ? codecs[i].name : NULL;
}

lh_err lk_codec_parse(const char *name, struct lk_codec *out)
{
    struct lh_nearest near = lh_nearest(name);
    char all[128];
    size_t len = 0;
    for (size_t i = 0; i < LH_COUNT(codecs); i++) {
        if (strcmp(name, codecs[i].name) == 0) {
            out->index = codecs[i].index;
            out->value = codecs[i].value;
            return LH_OK;
        }
        lh_nearest_try(&near, codecs[i].name);
        len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", codecs[i].name);
        LH_ASSERT(len < sizeof all);
    }
    return lh_fail(LH_ERR_CONFIG, "codec \"%s\" is unknown%s%s%s; the codecs are %s", name,
                   near.best ? "; did you mean " : "", near.best ? near.best : "",
                   near.best ? "?" : "", all);
}

const char *lk_codec_name(const struct lk_codec *codec)
{
    if (codec->index == LK_INDEX_FRAGMENT && codec->value == LK_VALUE_FP32) return "fragment-fp32";
    for (size_t i = 0; i < LH_COUNT(codecs); i++)
        if (codec->index == codecs[i].index && codec->value == codecs[i].value)
            return codecs[i].name;
    return "unknown";
}

// ---- the form in use. This part's only variable: it changes only speed, never a byte. The first
// caller (all would write the same) and tests write it.
static _Atomic(const struct lk_codec_ops *) chosen;

const struct lk_codec_ops *lk_codec_form(size_t i)
{
    const struct lk_codec_ops *form[3] = {NULL};
    size_t n = 0;
#if defined(__x86_64__)
    if (lk_cpu_has_avx512()) form[n++] = &lk_codec_ops_avx512;
    if (lk_cpu_has_avx2()) form[n++] = &lk_codec_ops_avx2;
#elif defined(__aarch64__)
    form[n++] = &lk_codec_ops_neon;
#endif
    form[n++] = &lk_codec_ops_scalar;
    return i < n ? form[i] : NULL;
}

const struct lk_codec_ops *lk_codec_ops(void)
{
    const struct lk_codec_ops *ops = atomic_load_explicit(&chosen, memory_order_acquire);
    if (ops) return ops;
    ops = lk_codec_form(0);
    atomic_store_explicit(&chosen, ops, memory_order_release);
    return ops;
}

const char *lk_codec_force(const char *name)
{
    const struct lk_codec_ops *ops = lk_codec_form(0), *form;
    for (size_t i = 0; name && (form = lk_codec_form(i)) != NULL; i++)
        if (strcmp(name, form->name) == 0) ops = form;
    atomic_store_explicit(&chosen, ops, memory_order_release);
    return ops->name;
}

size_t lk_payload_max(const struct lk_codec *codec, const struct lh_shard_layout *layout)
{
    struct lk_coding coding;
    struct lk_sizes sizes;
    if (lk_coding_of(codec, &coding)) return 0;
    lk_measure(&coding, layout, &sizes);
    return sizes.bytes_max;
}

size_t lk_payload_most(const struct lh_shard_layout *layout)
{
    return lk_payload_max(&(struct lk_codec){LK_INDEX_RICE, LK_VALUE_FP32, 1}, layout);
}

// Finds the non-finite value; the fast test has shown that there is one.
static lh_err name_non_finite(const struct lh_shard_layout *layout, uint32_t extent, const float *e)
{
    const struct lh_extent *x = &layout->extent[extent];
    uint64_t i = 0;
    while (i < x->len && lk_all_finite(e + x->offset + i, 1)) i++;
    return lh_fail(LH_ERR_NON_FINITE,
                   "tensor %u (extent %u of shard %u): value %llu of the residual plus the delta "
                   "is not finite; the residual is as it was",
                   x->tensor, extent, layout->shard, (unsigned long long)i);
}

static lh_err check_finite(const struct lh_shard_layout *layout, const float *e)
{
    for (uint32_t i = 0; i < layout->extents; i++) {
        const struct lh_extent *x = &layout->extent[i];
        LH_ASSERT(x->offset <= layout->values && x->len <= layout->values - x->offset);
        if (!lk_all_finite(e + x->offset, x->len)) return name_non_finite(layout, i, e);
    }
    return LH_OK;
}

lh_err lk_encode_from(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                      const struct lk_feed *feed, float *e, struct lh_buf *out,
                      struct lk_payload_info *info)
{
    struct lk_coding coding;
    struct lk_sizes sizes;
    size_t used = 0;
    LH_TRY(lk_coding_of(codec, &coding));
    if (codec->index == LK_INDEX_FRAGMENT)
        return lh_fail(LH_ERR_UNSUPPORTED, "a fragment is written by lk_fragment_encode() alone");
    lk_measure(&coding, layout, &sizes);
    if (sizes.chunks > UINT32_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "shard %u has more than 2^32-1 chunks; use more shards",
                       layout->shard);
    if (!feed) LH_TRY(check_finite(layout, e));
    uint8_t *at = lh_buf_grow(out, sizes.bytes_max);
    if (!at) return lh_buf_err(out);
    lh_err err = lk_write_payload(&coding, &sizes, layout, feed, e, at, &used, info);
    LH_ASSERT(used <= sizes.bytes_max);
    out->len -= sizes.bytes_max - (err ? 0 : used);
    return err;
}

lh_err lk_encode(const struct lk_codec *codec, const struct lh_shard_layout *layout, float *e,
                 struct lh_buf *out, struct lk_payload_info *info)
{
    return lk_encode_from(codec, layout, NULL, e, out, info);
}

lh_err lk_payload_check(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                        struct lh_span payload, struct lk_payload_info *info)
{
    return lk_read_payload(codec, layout, payload, &(struct lk_target){.use = LK_USE_CHECK}, info);
}

// A checked payload reads again without an error; an error is our bug.
static void apply(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                  struct lh_span payload, const struct lk_target *target)
{
    lh_err err = lk_read_payload(codec, layout, payload, target, NULL);
    LH_ASSERT(err == LH_OK);
}

lh_err lk_fold(const struct lk_codec *codec, const struct lh_shard_layout *layout,
               struct lh_span payload, float scale, float *theta)
{
    return lk_fold_below(codec, layout, payload, scale, theta, UINT64_MAX);
}

lh_err lk_fold_below(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                     struct lh_span payload, float scale, float *theta, uint64_t below)
{
    if (!isfinite(scale)) return lh_fail(LH_ERR_NON_FINITE, "scale of the fold is not finite");
    apply(codec, layout, payload, &(struct lk_target){LK_USE_SUBTRACT, scale, theta, below, NULL});
    return LH_OK;
}

lh_err lk_payload_add(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                      struct lh_span payload, float *e)
{
    apply(codec, layout, payload, // x - (-1*q) is x + q, to the bit
          &(struct lk_target){LK_USE_SUBTRACT, -1, e, UINT64_MAX, NULL});
    return LH_OK;
}

lh_err lk_payload_clear(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                        struct lh_span payload, float *e)
{
    apply(codec, layout, payload, &(struct lk_target){.use = LK_USE_CLEAR, .to = e});
    return LH_OK;
}

void lk_payload_mark(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                     struct lh_span payload, uint64_t *mark)
{
    apply(codec, layout, payload, &(struct lk_target){.use = LK_USE_MARK, .mark = mark});
}
