// Codes of values, and the indices beside them, eight at a time; the same bytes and the same
// refusals as the scalar form.
//
// indices: index(i) = (zeros before the i-th one << b) + sum of the low bits up to i + i, all
// within the chunk: positions of ones are listed first, then eight sums are taken at once. Indices
// rise, so the last one alone is compared with the chunk's length.
#include "kernels/cpu/codec_codes_avx2.h"

#if defined(__AVX2__)
#include <immintrin.h>

#include "common/format/manifest.h"

// ---- codes. Each packs or unpacks the first n - n % 8 values and returns their number.
static size_t pack_sign(const float *x, size_t n, uint8_t *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 negative = _mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_setzero_ps(), _CMP_LT_OQ);
        out[i / 8] = (uint8_t)_mm256_movemask_ps(negative);
    }
    return i;
}

static inline __m256i levels_of(__m256 v, __m256 scale)
{
    __m256 max = _mm256_set1_ps(LK_Q4_MAX), least = _mm256_set1_ps(-LK_Q4_MAX);
    __m256 level = _mm256_max_ps(_mm256_min_ps(_mm256_div_ps(v, scale), max), least);
    return _mm256_cvtps_epi32(
        _mm256_round_ps(level, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static size_t pack_q4(const float *x, size_t n, float scale, uint8_t *out)
{
    const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i nibble = _mm256_set1_epi32(15);
    __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; scale != 0 && i + 8 <= n; i += 8) {
        __m256i v = _mm256_and_si256(levels_of(_mm256_loadu_ps(x + i), s), nibble);
        v = _mm256_sllv_epi32(v, shift);
        __m128i r = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        r = _mm_or_si128(r, _mm_unpackhi_epi64(r, r));
        uint32_t word = (uint32_t)_mm_cvtsi128_si32(_mm_or_si128(r, _mm_srli_epi64(r, 32)));
        memcpy(out + i / 2, &word, sizeof word);
    }
    return i;
}

static inline __m128i halves_of(__m256 v)
{
    v = _mm256_max_ps(_mm256_set1_ps(-65504), _mm256_min_ps(_mm256_set1_ps(65504), v));
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static size_t pack_fp16(const float *x, size_t n, uint8_t *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(out + 2 * i), halves_of(_mm256_loadu_ps(x + i)));
    return i;
}

void lk_pack_avx2(uint8_t value, float level, const float *x, size_t n, uint8_t *out)
{
    size_t done = 0;
    switch (value) {
    case LK_VALUE_SIGN: done = pack_sign(x, n, out); break;
    case LK_VALUE_Q4: done = pack_q4(x, n, level, out); break;
    case LK_VALUE_FP16: done = pack_fp16(x, n, out); break;
    default: memcpy(out, x, n * sizeof *x); return;
    }
    lk_codec_ops_scalar.pack(value, level, x + done, n - done,
                             out + done / 8 * lk_code_bits(value));
}

static size_t unpack_sign(const uint8_t *in, size_t n, float magnitude, float *q)
{
    const __m256i shift = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    const __m256i top = _mm256_set1_epi32((int)0x80000000u);
    __m256i value = _mm256_castps_si256(_mm256_set1_ps(magnitude));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i sign = _mm256_sllv_epi32(_mm256_set1_epi32(in[i / 8]), shift);
        __m256i v = _mm256_xor_si256(value, _mm256_and_si256(sign, top));
        _mm256_storeu_ps(q + i, _mm256_castsi256_ps(v));
    }
    return i;
}

static size_t unpack_q4(const uint8_t *in, size_t n, float scale, float *q)
{
    const __m256i shift = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint32_t word;
        memcpy(&word, in + i / 2, sizeof word);
        __m256i v = _mm256_sllv_epi32(_mm256_set1_epi32((int)word), shift);
        __m256 level = _mm256_cvtepi32_ps(_mm256_srai_epi32(v, 28));
        _mm256_storeu_ps(q + i, _mm256_mul_ps(level, s));
    }
    return i;
}

static size_t unpack_fp16(const uint8_t *in, size_t n, float *q)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(q + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + 2 * i))));
    return i;
}

void lk_unpack_avx2(uint8_t value, float level, const uint8_t *in, size_t n, float *q)
{
    size_t done = 0;
    switch (value) {
    case LK_VALUE_SIGN: done = unpack_sign(in, n, level, q); break;
    case LK_VALUE_Q4: done = unpack_q4(in, n, level, q); break;
    case LK_VALUE_FP16: done = unpack_fp16(in, n, q); break;
    default: memcpy(q, in, n * sizeof *q); return;
    }
    lk_codec_ops_scalar.unpack(value, level, in + done / 8 * lk_code_bits(value), n - done,
                               q + done);
}

static inline void store_words(uint16_t *out, __m256i v)
{
    __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    _mm_storeu_si128((__m128i *)out, _mm_packus_epi32(low, high));
}

void lk_codes_avx2(uint8_t value, float level, const float *x, uint32_t k, uint16_t *code)
{
    const __m256i nibble = _mm256_set1_epi32(15);
    __m256 scale = _mm256_set1_ps(level);
    uint32_t i = 0;
    for (; i + 8 <= k && !(value == LK_VALUE_Q4 && level == 0); i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        __m256i negative = _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ));
        if (value == LK_VALUE_SIGN)
            store_words(code + i, _mm256_srli_epi32(negative, 31));
        else if (value == LK_VALUE_Q4)
            store_words(code + i, _mm256_and_si256(levels_of(v, scale), nibble));
        else
            _mm_storeu_si128((__m128i *)(code + i), halves_of(v));
    }
    lk_codec_ops_scalar.codes(value, level, x + i, k - i, code + i);
}

// Eight codes in lanes of 32 bits.
static inline __m256i lanes_of(const uint16_t *code)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)code));
}

void lk_values_avx2(uint8_t value, float level, const uint16_t *code, uint32_t k, float *q)
{
    __m256 scale = _mm256_set1_ps(level);
    uint32_t i = 0;
    for (; i + 8 <= k; i += 8) {
        __m256i c = lanes_of(code + i);
        __m256 v;
        if (value == LK_VALUE_SIGN) {
            v = _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_slli_epi32(c, 31)));
        } else if (value == LK_VALUE_FP16) {
            v = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(code + i)));
        } else { // q4: the code's sign on top, then down again
            __m256i levels = _mm256_srai_epi32(_mm256_slli_epi32(c, 28), 28);
            v = _mm256_mul_ps(_mm256_cvtepi32_ps(levels), scale);
        }
        _mm256_storeu_ps(q + i, v);
    }
    lk_codec_ops_scalar.values(value, level, code + i, k - i, q + i);
}

// Positions of the next k ones of the stream; false: it has fewer. Writes up to 4 extra entries.
static bool list_ones(struct lk_unary *u, uint32_t k, uint32_t *one)
{
    for (uint32_t n = 0; n < k;) {
        if (!u->word) {
            if (!lk_unary_load(u)) return false;
            continue;
        }
        uint64_t word = u->word;
        uint32_t count = (uint32_t)_mm_popcnt_u64(word), base = (uint32_t)u->base, *at = one + n;
        if (n + count > k) { // the chunk ends within the word
            uint64_t first_left = _pdep_u64(1ull << (k - n), word);
            u->word = word & (0 - first_left);
            word ^= u->word;
            count = k - n;
        } else {
            u->word = 0;
        }
        n += count;
        for (uint32_t i = 0; i < count; i += 4)
            for (int j = 0; j < 4; j++) {
                *at++ = base + (uint32_t)_tzcnt_u64(word);
                word = _blsr_u64(word);
            }
    }
    return true;
}

// Loads eight fields of `width` <= 25 bits, which start at a byte, into lanes of 32 bits: each half
// takes four bytes per lane out of the 16 after its own first byte.
struct unfold {
    __m256i bytes, shift, low_mask, code_mask;
    __m128i low_bits;
    size_t upper; // offset of the upper half's first byte
};

static struct unfold unfold_of(const struct lk_rice *rice)
{
    uint32_t w = rice->field_bits, b = rice->low_bits, shift[8];
    uint8_t byte[32];
    struct unfold u = {.upper = 4 * w / 8};
    for (uint32_t i = 0; i < 8; i++) {
        size_t from = i * w / 8 - (i < 4 ? 0 : u.upper);
        for (uint32_t j = 0; j < 4; j++) byte[4 * i + j] = (uint8_t)(from + j);
        shift[i] = i * w % 8;
    }
    u.bytes = _mm256_loadu_si256((const __m256i *)byte);
    u.shift = _mm256_loadu_si256((const __m256i *)shift);
    u.low_mask = _mm256_set1_epi32((int)((1u << b) - 1));
    u.code_mask = _mm256_set1_epi32((int)((1u << (w - b)) - 1));
    u.low_bits = _mm_cvtsi32_si128((int)b);
    return u;
}

static inline __m256i unfold(const struct unfold *u, const uint8_t *at)
{
    __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)at));
    v = _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)(at + u->upper)), 1);
    return _mm256_srlv_epi32(_mm256_shuffle_epi8(v, u->bytes), u->shift);
}

static inline __m256i sums_up_to(__m256i v)
{
    v = _mm256_add_epi32(v, _mm256_slli_si256(v, 4));
    v = _mm256_add_epi32(v, _mm256_slli_si256(v, 8));
    __m256i half = _mm256_permute4x64_epi64(_mm256_shuffle_epi32(v, 0xff), 0x40);
    return _mm256_add_epi32(v, _mm256_blend_epi32(_mm256_setzero_si256(), half, 0xf0));
}

enum { UNFOLD_WIDTH = 25, UNFOLD_SLACK = 32 };

bool lk_indices_avx2(const struct lk_rice *rice, struct lh_span fields, size_t slack,
                     struct lk_unary *unary, uint32_t len, uint32_t k, uint16_t *index,
                     uint16_t *code)
{
    uint32_t one[LH_CHUNK + 8], last[8];
    struct lk_unary u = *unary;
    if (rice->field_bits > UNFOLD_WIDTH || slack < UNFOLD_SLACK || k < 8)
        return lk_rice_get(rice, fields, unary, len, k, index, code);
    if (!list_ones(&u, k, one)) return false;
    for (uint32_t i = k; i % 8; i++) one[i] = one[k - 1];
    struct unfold how = unfold_of(rice);
    __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), eight = _mm256_set1_epi32(8);
    __m256i start = _mm256_set1_epi32((int)u.next), at, carry = _mm256_setzero_si256();
    const uint8_t *field = fields.data;
    for (uint32_t i = 0; i < k; i += 8, field += rice->field_bits) {
        __m256i v = unfold(&how, field);
        __m256i low = _mm256_add_epi32(sums_up_to(_mm256_and_si256(v, how.low_mask)), carry);
        carry = _mm256_permutevar8x32_epi32(low, _mm256_set1_epi32(7));
        __m256i zeros = _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(one + i)), start);
        zeros = _mm256_sub_epi32(zeros, place);
        at = _mm256_add_epi32(_mm256_sll_epi32(zeros, how.low_bits), low);
        at = _mm256_add_epi32(at, place);
        place = _mm256_add_epi32(place, eight);
        store_words(index + i, at);
        if (code)
            store_words(code + i,
                        _mm256_and_si256(_mm256_srl_epi32(v, how.low_bits), how.code_mask));
        _mm256_storeu_si256((__m256i *)last, at);
    }
    size_t bits = (size_t)k * rice->field_bits;
    if (last[(k - 1) % 8] >= len) return false;
    if (bits % 8 && fields.data[bits / 8] >> (bits % 8)) return false;
    u.next = one[k - 1] + 1;
    *unary = u;
    return true;
}
#else
typedef int lk_no_avx2_codes_here; // C wants one declaration a file
#endif
