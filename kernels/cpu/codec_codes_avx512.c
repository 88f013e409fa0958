// Reads indices sixteen at a time: the only inner loop that gains from AVX-512. One byte
// compression turns a word of the unary stream into the positions of its ones, and one byte
// permutation moves sixteen fields into their lanes. Encoding and dense codecs are memory-bound
// even with AVX2; the other loops are that form's.
#include "kernels/cpu/codec_codes_avx2.h"

#if defined(__AVX512VBMI2__)
#include <immintrin.h>

#include "common/format/manifest.h"

enum { LANES = 16, WIDTH_MAX = 25, SLACK = 64 };

static const uint8_t places[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
};

// Positions of the next k ones of the stream; false: it has fewer. Writes up to 63 extra entries.
static bool list_ones(struct lk_unary *u, uint32_t k, uint32_t *one)
{
    const __m512i all = _mm512_loadu_si512(places);
    for (uint32_t n = 0; n < k;) {
        if (!u->word) {
            if (!lk_unary_load(u)) return false;
            continue;
        }
        __m512i base = _mm512_set1_epi32((int)u->base);
        __m512i at = _mm512_maskz_compress_epi8(u->word, all);
        uint32_t count = (uint32_t)_mm_popcnt_u64(u->word);
        for (uint32_t i = 0; i < count; i += LANES) {
            __m512i four = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(at));
            _mm512_storeu_si512(one + n + i, _mm512_add_epi32(base, four));
            at = _mm512_alignr_epi64(at, at, 2);
        }
        if (n + count > k) { // the chunk ends within the word
            u->word &= 0 - _pdep_u64(1ull << (k - n), u->word);
            return true;
        }
        n += count;
        u->word = 0;
    }
    return true;
}

// Loads sixteen fields of at most 25 bits, which start at a byte, into lanes of 32 bits.
struct unfold {
    __m512i bytes, shift, low_mask, code_mask;
    __m128i low_bits;
};

static struct unfold unfold_of(const struct lk_rice *rice)
{
    uint32_t w = rice->field_bits, b = rice->low_bits;
    __m512i bit = _mm512_mullo_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)places)),
                                     _mm512_set1_epi32((int)w));
    __m512i from = _mm512_mullo_epi32(_mm512_srli_epi32(bit, 3), _mm512_set1_epi32(0x01010101));
    return (struct unfold){
        .bytes = _mm512_add_epi32(from, _mm512_set1_epi32(0x03020100)),
        .shift = _mm512_and_epi32(bit, _mm512_set1_epi32(7)),
        .low_mask = _mm512_set1_epi32((int)((1u << b) - 1)),
        .code_mask = _mm512_set1_epi32((int)((1u << (w - b)) - 1)),
        .low_bits = _mm_cvtsi32_si128((int)b),
    };
}

static inline __m512i sums_up_to(__m512i v)
{
    const __m512i zero = _mm512_setzero_si512();
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 15));
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 14));
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 12));
    return _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 8));
}

bool lk_indices_avx512(const struct lk_rice *rice, struct lh_span fields, size_t slack,
                       struct lk_unary *unary, uint32_t len, uint32_t k, uint16_t *index,
                       uint16_t *code)
{
    uint32_t one[LH_CHUNK + 64], last[LANES];
    struct lk_unary u = *unary;
    if (rice->field_bits > WIDTH_MAX || slack < SLACK || k < LANES)
        return lk_indices_avx2(rice, fields, slack, unary, len, k, index, code);
    if (!list_ones(&u, k, one)) return false;
    for (uint32_t i = k; i % LANES; i++) one[i] = one[k - 1];
    struct unfold how = unfold_of(rice);
    __m512i place = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)places));
    __m512i start = _mm512_set1_epi32((int)u.next), at = start, carry = _mm512_setzero_si512();
    const uint8_t *field = fields.data;
    for (uint32_t i = 0; i < k; i += LANES, field += 2 * (size_t)rice->field_bits) {
        __m512i v = _mm512_permutexvar_epi8(how.bytes, _mm512_loadu_si512(field));
        v = _mm512_srlv_epi32(v, how.shift);
        __m512i low = _mm512_add_epi32(sums_up_to(_mm512_and_epi32(v, how.low_mask)), carry);
        carry = _mm512_permutexvar_epi32(_mm512_set1_epi32(15), low);
        __m512i zeros = _mm512_sub_epi32(_mm512_loadu_si512(one + i), start);
        zeros = _mm512_sub_epi32(zeros, place);
        at = _mm512_add_epi32(_mm512_sll_epi32(zeros, how.low_bits), low);
        at = _mm512_add_epi32(at, place);
        place = _mm512_add_epi32(place, _mm512_set1_epi32(LANES));
        _mm256_storeu_si256((__m256i *)(index + i), _mm512_cvtepi32_epi16(at));
        v = _mm512_and_epi32(_mm512_srl_epi32(v, how.low_bits), how.code_mask);
        if (code) _mm256_storeu_si256((__m256i *)(code + i), _mm512_cvtepi32_epi16(v));
    }
    _mm512_storeu_si512(last, at);
    size_t bits = (size_t)k * rice->field_bits;
    if (last[(k - 1) % LANES] >= len) return false;
    if (bits % 8 && fields.data[bits / 8] >> (bits % 8)) return false;
    u.next = one[k - 1] + 1;
    *unary = u;
    return true;
}
#else
typedef int lk_no_avx512_here; // C wants one declaration a file
#endif
