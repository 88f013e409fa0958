// The codecs' inner loops on 64-bit ARM, eight values at a time; every such processor supports it.
// Same bytes as codec_ops_scalar.c, for the reasons in codec_ops_avx2.c. Reading indices uses the
// scalar form, because there is no fast bit deposit.
//
// Verified to the byte only under an emulator (tests/arm); its speed is not measured.
#include "kernels/cpu/codec_ops.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels/cpu/codec_vector.h"

// Eight values, or results computed from them.
struct eight {
    float32x4_t low, high;
};
struct eight_keys {
    uint32x4_t low, high;
};

static inline struct eight load(const float *x)
{
    return (struct eight){vld1q_f32(x), vld1q_f32(x + 4)};
}

static inline void store(float *x, struct eight v)
{
    vst1q_f32(x, v.low);
    vst1q_f32(x + 4, v.high);
}

static inline uint32x4_t keys_of_four(float32x4_t v)
{
    return vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7fffffff));
}

static inline struct eight_keys keys_of(struct eight v)
{
    return (struct eight_keys){keys_of_four(v.low), keys_of_four(v.high)};
}

static inline uint32x4_t larger(struct eight_keys k)
{
    return vmaxq_u32(k.low, k.high);
}

static void subtract(float scale, const float *q, float *to, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        struct eight v = load(q + i), from = load(to + i);
        v = (struct eight){vmulq_n_f32(v.low, scale), vmulq_n_f32(v.high, scale)};
        store(to + i, (struct eight){vsubq_f32(from.low, v.low), vsubq_f32(from.high, v.high)});
    }
    lk_codec_ops_scalar.subtract(scale, q + i, to + i, n - i);
}

// ---- selection

// All ones or zeros in eight lanes: bytes that are so.
static inline uint8x8_t narrow(uint32x4_t low, uint32x4_t high)
{
    return vmovn_u16(vcombine_u16(vmovn_u32(low), vmovn_u32(high)));
}

static const uint8_t places[8] = {1, 2, 4, 8, 16, 32, 64, 128};

// A bit each for 64 values: eight vectors of eight bytes are added in pairs until one is left.
static inline uint64_t mark_64(const float *e, uint32x4_t low)
{
    uint8x8_t place = vld1_u8(places), sum[8];
    for (int j = 0; j < 8; j++) {
        struct eight_keys k = keys_of(load(e + 8 * j));
        sum[j] = vand_u8(narrow(vcgeq_u32(k.low, low), vcgeq_u32(k.high, low)), place);
    }
    for (int n = 4; n; n /= 2)
        for (int j = 0; j < n; j++) sum[j] = vpadd_u8(sum[2 * j], sum[2 * j + 1]);
    return vget_lane_u64(vreinterpret_u64_u8(sum[0]), 0);
}

static uint32_t mark(const float *e, uint32_t n, uint32_t low, uint64_t *mask)
{
    uint32x4_t from = vdupq_n_u32(low);
    uint32_t count = 0, words = n / 64;
    for (uint32_t w = 0; w < words; w++) {
        mask[w] = mark_64(e + 64 * w, from);
        count += (uint32_t)__builtin_popcountll(mask[w]);
    }
    return count + lk_mark_rest(e, n, low, mask);
}

static uint32_t count_from(const struct lk_candidates *c, uint32_t key)
{
    int32x4_t at = vdupq_n_s32((int32_t)key);
    uint32x4_t sum = vdupq_n_u32(0); // minus one for each
    for (uint32_t i = 0; i < c->count; i += 4)
        sum = vaddq_u32(sum, vcgeq_s32(vreinterpretq_s32_u32(vld1q_u32(c->key + i)), at));
    return 0 - vaddvq_u32(sum);
}

static void select_top(const float *e, uint32_t n, uint32_t k, struct lk_hint *hint,
                       uint16_t *index)
{
    lk_select_by(mark, count_from, e, n, k, hint, index);
}

static uint32_t key_max(const float *e, size_t n)
{
    uint32x4_t max = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) max = vmaxq_u32(max, larger(keys_of(load(e + i))));
    uint32_t a = vmaxvq_u32(max), b = lk_codec_ops_scalar.key_max(e + i, n - i);
    return a > b ? a : b;
}

// ---- sums: four accumulators of two are the eight lanes
struct lanes {
    float64x2_t pair[4];
};

static inline struct lanes wide(struct eight v)
{
    return (struct lanes){{vcvt_f64_f32(vget_low_f32(v.low)), vcvt_high_f64_f32(v.low),
                           vcvt_f64_f32(vget_low_f32(v.high)), vcvt_high_f64_f32(v.high)}};
}

static inline void lanes_add(struct lanes *s, struct lanes v)
{
    for (int i = 0; i < 4; i++) s->pair[i] = vaddq_f64(s->pair[i], v.pair[i]);
}

static void lanes_store(const struct lanes *s, double lane[LK_LANES])
{
    for (int i = 0; i < 4; i++) vst1q_f64(lane + 2 * i, s->pair[i]);
}

static double sum_sizes(const float *x, size_t n)
{
    struct lanes sum = {{vdupq_n_f64(0)}};
    double lane[LK_LANES];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        struct eight v = load(x + i);
        lanes_add(&sum, wide((struct eight){vabsq_f32(v.low), vabsq_f32(v.high)}));
    }
    lanes_store(&sum, lane);
    for (size_t j = i; j < n; j++) lane[j - i] += (double)lk_signed(x[j], false);
    return lk_add_lanes(lane);
}

static double sum_squares(const float *x, size_t n)
{
    struct lanes sum = {{vdupq_n_f64(0)}};
    double lane[LK_LANES];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        struct lanes v = wide(load(x + i));
        for (int j = 0; j < 4; j++) v.pair[j] = vmulq_f64(v.pair[j], v.pair[j]);
        lanes_add(&sum, v);
    }
    lanes_store(&sum, lane);
    for (size_t j = i; j < n; j++) lane[j - i] += (double)x[j] * (double)x[j];
    return lk_add_lanes(lane);
}

// ---- codes of eight values as 16-bit numbers, and back; not for fp32

// True: `codes_of` and `values_of` support `value` with this level.
static bool here(uint8_t value, float level)
{
    return value == LK_VALUE_SIGN || value == LK_VALUE_FP16 || (value == LK_VALUE_Q4 && level != 0);
}

static inline int16x4_t levels_of(float32x4_t v, float scale)
{
    float32x4_t level = vdivq_f32(v, vdupq_n_f32(scale));
    level = vmaxq_f32(vminq_f32(level, vdupq_n_f32(LK_Q4_MAX)), vdupq_n_f32(-LK_Q4_MAX));
    return vmovn_s32(vcvtnq_s32_f32(level)); // rounds to nearest, ties to even
}

static inline uint16x4_t halves_of(float32x4_t v)
{
    v = vmaxq_f32(vdupq_n_f32(-65504), vminq_f32(vdupq_n_f32(65504), v));
    return vreinterpret_u16_f16(vcvt_f16_f32(v));
}

static inline uint16x8_t codes_of(uint8_t value, float level, const float *x)
{
    struct eight v = load(x);
    if (value == LK_VALUE_SIGN) {
        uint16x4_t low = vmovn_u32(vcltzq_f32(v.low)), high = vmovn_u32(vcltzq_f32(v.high));
        return vshrq_n_u16(vcombine_u16(low, high), 15);
    }
    if (value == LK_VALUE_FP16) return vcombine_u16(halves_of(v.low), halves_of(v.high));
    int16x8_t levels = vcombine_s16(levels_of(v.low, level), levels_of(v.high, level));
    return vandq_u16(vreinterpretq_u16_s16(levels), vdupq_n_u16(15));
}

static inline struct eight values_of(uint8_t value, float level, uint16x8_t code)
{
    if (value == LK_VALUE_FP16) {
        float16x8_t half = vreinterpretq_f16_u16(code);
        return (struct eight){vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)};
    }
    if (value == LK_VALUE_SIGN) {
        uint32x4_t size = vdupq_n_u32(lk_float_bits(level));
        uint32x4_t low = vshll_n_u16(vget_low_u16(code), 16), high = vshll_high_n_u16(code, 16);
        return (struct eight){
            vreinterpretq_f32_u32(veorq_u32(size, vshlq_n_u32(low, 15))),
            vreinterpretq_f32_u32(veorq_u32(size, vshlq_n_u32(high, 15))),
        };
    }
    // The code's sign on top, then down again.
    int16x8_t levels = vshrq_n_s16(vshlq_n_s16(vreinterpretq_s16_u16(code), 12), 12);
    return (struct eight){
        vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(levels))), level),
        vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(levels)), level),
    };
}

static void codes(uint8_t value, float level, const float *x, uint32_t k, uint16_t *code)
{
    uint32_t i = 0;
    for (; here(value, level) && i + 8 <= k; i += 8)
        vst1q_u16(code + i, codes_of(value, level, x + i));
    lk_codec_ops_scalar.codes(value, level, x + i, k - i, code + i);
}

static void values(uint8_t value, float level, const uint16_t *code, uint32_t k, float *q)
{
    uint32_t i = 0;
    for (; here(value, level) && i + 8 <= k; i += 8)
        store(q + i, values_of(value, level, vld1q_u16(code + i)));
    lk_codec_ops_scalar.values(value, level, code + i, k - i, q + i);
}

// ---- the same, packed
static inline void pack_eight(uint8_t value, uint16x8_t code, uint8_t *out)
{
    uint8x8_t bytes = vmovn_u16(code);
    switch (value) {
    case LK_VALUE_SIGN: *out = vaddv_u8(vand_u8(vtst_u8(bytes, bytes), vld1_u8(places))); break;
    case LK_VALUE_Q4: // two neighbours to a byte
        bytes = vorr_u8(bytes, vreinterpret_u8_u64(vshr_n_u64(vreinterpret_u64_u8(bytes), 4)));
        bytes = vuzp1_u8(bytes, bytes);
        memcpy(out, &bytes, 4);
        break;
    default: memcpy(out, &code, sizeof code); break;
    }
}

static inline uint16x8_t unpack_eight(uint8_t value, const uint8_t *in)
{
    uint8x8_t bytes = vdup_n_u8(0);
    uint16x8_t code;
    switch (value) {
    case LK_VALUE_SIGN:
        bytes = vshr_n_u8(vtst_u8(vdup_n_u8(*in), vld1_u8(places)), 7);
        return vmovl_u8(bytes);
    case LK_VALUE_Q4:
        memcpy(&bytes, in, 4);
        bytes = vzip1_u8(vand_u8(bytes, vdup_n_u8(15)), vshr_n_u8(bytes, 4));
        return vmovl_u8(bytes);
    default: memcpy(&code, in, sizeof code); return code;
    }
}

static void pack(uint8_t value, float level, const float *x, size_t n, uint8_t *out)
{
    size_t i = 0, each = lk_code_bits(value); // bytes for eight values
    for (; here(value, level) && i + 8 <= n; i += 8, out += each)
        pack_eight(value, codes_of(value, level, x + i), out);
    lk_codec_ops_scalar.pack(value, level, x + i, n - i, out);
}

static void unpack(uint8_t value, float level, const uint8_t *in, size_t n, float *q)
{
    size_t i = 0, each = lk_code_bits(value);
    for (; here(value, level) && i + 8 <= n; i += 8, in += each)
        store(q + i, values_of(value, level, unpack_eight(value, in)));
    lk_codec_ops_scalar.unpack(value, level, in, n - i, q + i);
}

static bool indices(const struct lk_rice *rice, struct lh_span fields, size_t slack,
                    struct lk_unary *unary, uint32_t len, uint32_t k, uint16_t *index,
                    uint16_t *code)
{
    return lk_codec_ops_scalar.indices(rice, fields, slack, unary, len, k, index, code);
}

const struct lk_codec_ops lk_codec_ops_neon = {
    .name = "neon",
    .select = select_top,
    .key_max = key_max,
    .sum_sizes = sum_sizes,
    .sum_squares = sum_squares,
    .pack = pack,
    .unpack = unpack,
    .indices = indices,
    .codes = codes,
    .values = values,
    .subtract = subtract,
};
#else
typedef int lk_no_neon_here; // C wants one declaration a file
#endif
