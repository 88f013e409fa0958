// The codecs' inner loops, eight values at a time. Same bytes as codec_ops_scalar.c: elementwise
// operations round alike, and integers define the selection, not the search.
#include "kernels/cpu/codec_ops.h"

#if defined(__AVX2__)
#include <immintrin.h>

#include "common/format/manifest.h"
#include "kernels/cpu/codec_codes_avx2.h"
#include "kernels/cpu/codec_vector.h"

static inline __m256i keys_of(__m256 v)
{
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

static uint32_t max_lane(__m256i v)
{
    uint32_t lane[8], max = 0;
    _mm256_storeu_si256((__m256i *)lane, v);
    for (int i = 0; i < 8; i++) max = lane[i] > max ? lane[i] : max;
    return max;
}

// ---- selection
// Sets a bit for every value whose key is >= low. Returns their number.
static uint32_t mark(const float *e, uint32_t n, uint32_t low, uint64_t *mask)
{
    __m256i below = _mm256_set1_epi32((int)low - 1);
    uint32_t count = 0, words = n / 64;
    for (uint32_t w = 0; w < words; w++) {
        uint64_t bits = 0;
        for (unsigned j = 0; j < 8; j++) {
            __m256i key = keys_of(_mm256_loadu_ps(e + 64 * w + 8 * j));
            int hit = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(key, below)));
            bits |= (uint64_t)(uint32_t)hit << (8 * j);
        }
        mask[w] = bits;
        count += (uint32_t)_mm_popcnt_u64(bits);
    }
    return count + lk_mark_rest(e, n, low, mask);
}

static uint32_t count_from(const struct lk_candidates *c, uint32_t key)
{
    __m256i below = _mm256_set1_epi32((int)key - 1), sum = _mm256_setzero_si256();
    for (uint32_t i = 0; i < c->count; i += 8) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(c->key + i));
        sum = _mm256_sub_epi32(sum, _mm256_cmpgt_epi32(v, below));
    }
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_hadd_epi32(half, half);
    return (uint32_t)_mm_cvtsi128_si32(_mm_hadd_epi32(half, half));
}

static void select_top(const float *e, uint32_t n, uint32_t k, struct lk_hint *hint,
                       uint16_t *index)
{
    lk_select_by(mark, count_from, e, n, k, hint, index);
}

static uint32_t key_max(const float *e, size_t n)
{
    __m256i max = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) max = _mm256_max_epi32(max, keys_of(_mm256_loadu_ps(e + i)));
    uint32_t a = max_lane(max), b = lk_codec_ops_scalar.key_max(e + i, n - i);
    return a > b ? a : b;
}

// ---- sums: two accumulators of four are the eight lanes
struct lanes {
    __m256d low, high;
};

static inline void lanes_add(struct lanes *s, __m256 v)
{
    s->low = _mm256_add_pd(s->low, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    s->high = _mm256_add_pd(s->high, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

static void lanes_store(const struct lanes *s, double lane[LK_LANES])
{
    _mm256_storeu_pd(lane, s->low);
    _mm256_storeu_pd(lane + 4, s->high);
}

static double sum_sizes(const float *x, size_t n)
{
    __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));
    struct lanes sum = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    double lane[LK_LANES];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) lanes_add(&sum, _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude));
    lanes_store(&sum, lane);
    for (size_t j = i; j < n; j++) lane[j - i] += (double)lk_signed(x[j], false);
    return lk_add_lanes(lane);
}

static double sum_squares(const float *x, size_t n)
{
    struct lanes sum = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    double lane[LK_LANES];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256d low = _mm256_cvtps_pd(_mm_loadu_ps(x + i));
        __m256d high = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4));
        sum.low = _mm256_add_pd(sum.low, _mm256_mul_pd(low, low));
        sum.high = _mm256_add_pd(sum.high, _mm256_mul_pd(high, high));
    }
    lanes_store(&sum, lane);
    for (size_t j = i; j < n; j++) lane[j - i] += (double)x[j] * (double)x[j];
    return lk_add_lanes(lane);
}

static void subtract(float scale, const float *q, float *to, size_t n)
{
    __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 product = _mm256_mul_ps(s, _mm256_loadu_ps(q + i));
        _mm256_storeu_ps(to + i, _mm256_sub_ps(_mm256_loadu_ps(to + i), product));
    }
    lk_codec_ops_scalar.subtract(scale, q + i, to + i, n - i);
}

#define FORM(name_, indices_)                                                                      \
    {                                                                                              \
        .name = (name_), .select = select_top, .key_max = key_max, .sum_sizes = sum_sizes,         \
        .sum_squares = sum_squares, .pack = lk_pack_avx2, .unpack = lk_unpack_avx2,                \
        .indices = (indices_), .codes = lk_codes_avx2, .values = lk_values_avx2,                   \
        .subtract = subtract,                                                                      \
    }
const struct lk_codec_ops lk_codec_ops_avx2 = FORM("avx2", lk_indices_avx2);
const struct lk_codec_ops lk_codec_ops_avx512 = FORM("avx512", lk_indices_avx512);
#else
typedef int lk_no_avx2_here; // C wants one declaration a file
#endif
