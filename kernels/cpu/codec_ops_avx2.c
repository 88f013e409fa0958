// The codecs' inner loops, eight values at a time. Same bytes as codec_ops_scalar.c: elementwise
// operations round alike, and selection is defined by integers, not by the way it is searched.
//
// select(): one pass marks the candidates, everything not far below the threshold that the chunk
// before ended with; the exact k-th key is then bisected among these few. Too few candidates: look
// again lower down, at last from zero, where every value is one.
#include "kernels/cpu/codec_ops.h"

#if defined(__AVX2__)
#include <immintrin.h>

#include "common/check.h"
#include "common/manifest.h"
#include "kernels/cpu/codec_codes_avx2.h"

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

static bool stays_finite(float beta, const float *d, const float *e, size_t n)
{
    __m256 b = _mm256_set1_ps(beta);
    __m256i worst = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(b, _mm256_loadu_ps(e + i));
        if (d) v = _mm256_add_ps(v, _mm256_loadu_ps(d + i));
        worst = _mm256_max_epi32(worst, keys_of(v));
    }
    bool rest = lk_codec_ops_scalar.finite(beta, d ? d + i : NULL, e + i, n - i);
    return max_lane(worst) < LK_KEY_INFINITE && rest;
}

static void feedback(float beta, const float *d, float *e, size_t n)
{
    __m256 b = _mm256_set1_ps(beta);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(b, _mm256_loadu_ps(e + i));
        if (d) v = _mm256_add_ps(v, _mm256_loadu_ps(d + i));
        _mm256_storeu_ps(e + i, v);
    }
    lk_codec_ops_scalar.feedback(beta, d ? d + i : NULL, e + i, n - i);
}

// ---- selection
enum { WORDS = LH_CHUNK / 64, CANDIDATES = LH_CHUNK + 16 };

struct candidates {
    uint32_t count;
    uint16_t index[CANDIDATES]; // rising
    uint32_t key[CANDIDATES];   // filled up to a multiple of 8 with NONE
};
static const uint32_t NONE = 0xffffffffu; // as a signed number below every key

// A bit for every value whose key is >= low. Returns how many.
static uint32_t mark(const float *e, uint32_t n, uint32_t low, uint64_t mask[WORDS])
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
    if (n % 64) {
        uint64_t bits = 0;
        for (uint32_t i = 64 * words; i < n; i++) bits |= (uint64_t)(lk_key(e[i]) >= low) << i % 64;
        mask[words] = bits;
        count += (uint32_t)_mm_popcnt_u64(bits);
    }
    return count;
}

// Positions of the set bits; returns how many. Four at a time without looking: most words have a
// few.
static uint32_t list(const uint64_t *mask, uint32_t n, uint16_t *out)
{
    uint32_t count = 0;
    for (uint32_t w = 0; 64 * w < n; w++) {
        uint64_t bits = mask[w];
        uint16_t *at = out + count, base = (uint16_t)(64 * w);
        count += (uint32_t)_mm_popcnt_u64(bits);
        while (bits) {
            for (int i = 0; i < 4; i++) {
                *at++ = (uint16_t)(base + _tzcnt_u64(bits));
                bits = _blsr_u64(bits);
            }
        }
    }
    return count;
}

static uint32_t count_from(const struct candidates *c, uint32_t key)
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

static void gather(const float *e, uint32_t n, const uint64_t *mask, struct candidates *c)
{
    uint32_t listed = list(mask, n, c->index);
    LH_ASSERT(listed == c->count);
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.ArraySubscript): listed above, all of them
    for (uint32_t i = 0; i < c->count; i++) c->key[i] = lk_key(e[c->index[i]]);
    for (uint32_t i = c->count; i % 8; i++) c->key[i] = NONE;
}

// Largest key that at least k candidates reach; *reached says how many do (more than k: ties).
static uint32_t kth_key(const struct candidates *c, uint32_t k, uint32_t low, uint32_t *reached)
{
    __m256i max = _mm256_set1_epi32(-1);
    for (uint32_t i = 0; i < c->count; i += 8)
        max = _mm256_max_epi32(max, _mm256_loadu_si256((const __m256i *)(c->key + i)));
    int32_t lane[8], high = -1;
    _mm256_storeu_si256((__m256i *)lane, max);
    for (int i = 0; i < 8; i++) high = lane[i] > high ? lane[i] : high;
    uint32_t above = (uint32_t)high + 1; // nobody reaches it
    *reached = c->count;
    while (*reached != k && above - low > 1) {
        uint32_t middle = low + (above - low) / 2, count = count_from(c, middle);
        if (count >= k) {
            low = middle;
            *reached = count;
        } else {
            above = middle;
        }
    }
    return low;
}

// Candidates for k: at least k of them. Returns the key they start from.
static uint32_t find(const float *e, uint32_t n, uint32_t k, const struct lk_hint *hint,
                     struct candidates *c)
{
    uint64_t mask[WORDS];
    float from = hint->threshold * (1.0f - hint->margin);
    for (int tries = 0;; tries++) {
        uint32_t low = tries < 4 ? lk_key(from) : 0;
        from *= 0.75f;
        c->count = mark(e, n, low, mask);
        if (c->count >= k) {
            gather(e, n, mask, c);
            return low;
        }
    }
}

static void remember(struct lk_hint *hint, uint32_t low, uint32_t count, uint32_t k)
{
    float threshold;
    memcpy(&threshold, &low, sizeof threshold);
    bool far = threshold > 2 * hint->threshold || threshold < 0.5f * hint->threshold;
    hint->threshold = far ? threshold : 0.75f * hint->threshold + 0.25f * threshold;
    if (far) hint->margin = 0.1f;
    // About a third more candidates than needed keeps a second look rare and the first one short.
    float wanted = 1.3f * (float)k + 12;
    hint->margin *= (float)count > wanted ? 0.97f : 1.06f;
    hint->margin = hint->margin < 0.001f ? 0.001f : hint->margin > 0.5f ? 0.5f : hint->margin;
}

// Both write first and keep by counting, without a branch: so the entry after the last is written.
static uint32_t take_from(const struct candidates *c, uint32_t low, uint16_t *index)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        index[taken] = c->index[i];
        taken += c->key[i] >= low;
    }
    return taken;
}

// Everything above `low`, and from the left as many equal to it as are missing.
static uint32_t take_ties(const struct candidates *c, uint32_t low, uint32_t k, uint16_t *index)
{
    uint32_t equal = k - count_from(c, low + 1), taken = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t tie = c->key[i] == low, take = (c->key[i] > low) | (tie & (equal > 0));
        index[taken] = c->index[i];
        taken += take;
        equal -= tie & take;
    }
    return taken;
}

static void select_top(const float *e, uint32_t n, uint32_t k, struct lk_hint *hint,
                       uint16_t *index)
{
    LH_ASSERT(k >= 1 && k <= n && n <= LH_CHUNK);
    struct candidates c;
    uint32_t reached, low = find(e, n, k, hint, &c);
    uint32_t found = c.count;
    low = kth_key(&c, k, low, &reached);
    uint32_t taken = reached == k ? take_from(&c, low, index) : take_ties(&c, low, k, index);
    LH_ASSERT(taken == k);
    remember(hint, low, found, k);
}

static uint32_t collect(const float *e, uint32_t n, uint32_t low, uint16_t *index, float *value)
{
    uint64_t mask[WORDS];
    uint32_t count = mark(e, n, low, mask), listed = list(mask, n, index);
    LH_ASSERT(listed == count);
    for (uint32_t i = 0; i < count; i++) value[i] = e[index[i]];
    return count;
}

static uint32_t key_max(const float *e, size_t n)
{
    __m256i max = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) max = _mm256_max_epi32(max, keys_of(_mm256_loadu_ps(e + i)));
    uint32_t a = max_lane(max), b = lk_codec_ops_scalar.key_max(e + i, n - i);
    return a > b ? a : b;
}

static uint32_t count_keys(const float *e, uint32_t n, uint32_t key)
{
    __m256i below = _mm256_set1_epi32((int)key - 1), sum = _mm256_setzero_si256();
    uint32_t lane[8], count = 0, i = 0;
    for (; i + 8 <= n; i += 8)
        sum = _mm256_sub_epi32(sum, _mm256_cmpgt_epi32(keys_of(_mm256_loadu_ps(e + i)), below));
    _mm256_storeu_si256((__m256i *)lane, sum);
    for (int j = 0; j < 8; j++) count += lane[j];
    return count + lk_codec_ops_scalar.count(e + i, n - i, key);
}

// Few values reach `low` when it was guessed well: eight are passed over in one look.
static void histogram(const float *e, uint32_t n, uint32_t low, uint32_t shift, uint64_t *bin)
{
    __m256i below = _mm256_set1_epi32((int)low - 1);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i hit = _mm256_cmpgt_epi32(keys_of(_mm256_loadu_ps(e + i)), below);
        unsigned bits = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit));
        for (; bits; bits &= bits - 1) {
            uint32_t b = (lk_key(e[i + (unsigned)__builtin_ctz(bits)]) - low) >> shift;
            bin[b < LK_BINS ? b : LK_BINS]++;
        }
    }
    lk_codec_ops_scalar.histogram(e + i, n - i, low, shift, bin);
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

static void lanes_store(const struct lanes *s, double lane[8])
{
    _mm256_storeu_pd(lane, s->low);
    _mm256_storeu_pd(lane + 4, s->high);
}

static double add_lanes(const double lane[8])
{
    double sum = lane[0];
    for (int i = 1; i < 8; i++) sum += lane[i];
    return sum;
}

static struct lk_sums sums(const float *x, size_t n, float split)
{
    struct lk_sums s = {.count = {0}};
    struct lanes sum[2] = {{_mm256_setzero_pd(), _mm256_setzero_pd()},
                           {_mm256_setzero_pd(), _mm256_setzero_pd()}};
    __m256 at = _mm256_set1_ps(split),
           magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));
    double lane[2][8];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 size = _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude);
        __m256 upper = _mm256_cmp_ps(size, at, _CMP_GE_OQ);
        lanes_add(&sum[1], _mm256_and_ps(size, upper)); // +0 for the others changes no sum
        lanes_add(&sum[0], _mm256_andnot_ps(upper, size));
        s.count[1] += (uint32_t)_mm_popcnt_u32((unsigned)_mm256_movemask_ps(upper));
    }
    for (int c = 0; c < 2; c++) lanes_store(&sum[c], lane[c]);
    for (size_t j = i; j < n; j++) {
        float size = lk_signed(x[j], false);
        lane[size >= split][j - i] += (double)size;
        s.count[1] += size >= split;
    }
    s.count[0] = (uint32_t)n - s.count[1];
    for (int c = 0; c < 2; c++) s.sum[c] = add_lanes(lane[c]);
    return s;
}

static double sum_squares(const float *x, size_t n)
{
    struct lanes sum = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    double lane[8];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256d low = _mm256_cvtps_pd(_mm_loadu_ps(x + i));
        __m256d high = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4));
        sum.low = _mm256_add_pd(sum.low, _mm256_mul_pd(low, low));
        sum.high = _mm256_add_pd(sum.high, _mm256_mul_pd(high, high));
    }
    lanes_store(&sum, lane);
    for (size_t j = i; j < n; j++) lane[j - i] += (double)x[j] * (double)x[j];
    return add_lanes(lane);
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
        .name = (name_), .finite = stays_finite, .feedback = feedback, .select = select_top,       \
        .key_max = key_max, .count = count_keys, .collect = collect, .histogram = histogram,       \
        .sums = sums, .sum_squares = sum_squares, .pack = lk_pack_avx2, .unpack = lk_unpack_avx2,  \
        .indices = (indices_), .codes = lk_codes_avx2, .values = lk_values_avx2,                   \
        .subtract = subtract,                                                                      \
    }
const struct lk_codec_ops lk_codec_ops_avx2 = FORM("avx2", lk_indices_avx2);
const struct lk_codec_ops lk_codec_ops_avx512 = FORM("avx512", lk_indices_avx512);
#else
typedef int lk_no_avx2_here; // C wants one declaration a file
#endif
