// Payloads of every codec: lk_payload_check; accepted ones are then folded, added and cleared.
//
// Byte 0 chooses the codec (mod 8: lk_codec_word, then a fragment), byte 1 density (mod 4) and
// shard (then mod 4); the rest is the payload.
#include "common/base/check.h"
#include "kernels/codec.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>

enum { CODECS = 7 };
static const uint64_t lens[4][3] = {{300, 21}, {4096 * 17 + 5, 1}, {1}, {100, 4096, 3}};
static const float densities[] = {64.0f / 4096, 0.075f, 0.4f, 1};

struct shard {
    struct lh_extent extent[3];
    struct lh_shard_layout layout;
};

static void cut(struct shard *s, const uint64_t *len)
{
    *s = (struct shard){.layout = {.extent = s->extent}};
    for (uint32_t i = 0; i < 3 && len[i]; i++) {
        s->extent[i] = (struct lh_extent){i, s->layout.values, len[i]};
        s->layout.values += len[i];
        s->layout.chunks += (len[i] + LH_CHUNK - 1) / LH_CHUNK;
        s->layout.extents = i + 1;
    }
}

static void mark(const struct lk_codec *codec, const struct lh_shard_layout *l,
                 struct lh_span payload, const struct lk_payload_info *info)
{
    uint64_t words = (l->values + 63) / 64, *bits = calloc(words + !words, sizeof *bits), marks = 0;
    LH_ASSERT(bits);
    lk_payload_mark(codec, l, payload, bits);
    for (uint64_t i = 0; i < words; i++) marks += (uint64_t)__builtin_popcountll(bits[i]);
    LH_ASSERT(marks == info->values);
    free(bits);
}

// 0 - q + q is 0 for every finite q; lk_payload_clear zeroes exactly the payload's values.
static void use(const struct lk_codec *codec, const struct lh_shard_layout *l,
                struct lh_span payload, const struct lk_payload_info *info)
{
    float *x = calloc(l->values, sizeof *x); // exact size, so that a sanitizer sees overruns
    LH_ASSERT(x);
    lh_err err = lk_fold(codec, l, payload, 1, x);
    LH_ASSERT(err == LH_OK);
    for (uint64_t i = 0; i < l->values; i++) LH_ASSERT(isfinite(x[i]));
    err = lk_payload_add(codec, l, payload, x);
    LH_ASSERT(err == LH_OK);
    for (uint64_t i = 0; i < l->values; i++) LH_ASSERT(x[i] == 0);
    for (uint64_t i = 0; i < l->values; i++) x[i] = 1;
    err = lk_payload_clear(codec, l, payload, x);
    LH_ASSERT(err == LH_OK);
    uint64_t zeros = 0;
    for (uint64_t i = 0; i < l->values; i++) zeros += x[i] == 0;
    LH_ASSERT(zeros == info->values);
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    struct lk_codec codec = {.density = densities[data[1] % LH_COUNT(densities)]};
    unsigned word = data[0] % (CODECS + 1);
    if (word == CODECS) {
        codec.index = LK_INDEX_FRAGMENT;
        codec.value = LK_VALUE_FP32;
    } else {
        LH_ASSERT(lk_codec_parse(lk_codec_word(word), &codec) == LH_OK);
    }
    LH_ASSERT(!lk_codec_word(CODECS));
    struct shard s;
    cut(&s, lens[data[1] / LH_COUNT(densities) % LH_COUNT(lens)]);
    struct lh_span payload = lh_span(data + 2, size - 2);
    struct lk_payload_info info;
    lh_err err = lk_payload_check(&codec, &s.layout, payload, &info);
    if (err == LH_OK) {
        LH_ASSERT(info.chunks == s.layout.chunks && info.values <= s.layout.values);
        LH_ASSERT(isfinite(info.sum_squares) && info.sum_squares >= 0);
        use(&codec, &s.layout, payload, &info);
        mark(&codec, &s.layout, payload, &info);
    } else {
        LH_ASSERT(err == LH_ERR_MALFORMED || err == LH_ERR_NON_FINITE);
    }
    return 0;
}
