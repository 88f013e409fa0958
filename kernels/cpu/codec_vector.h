// Shared by the vector forms of the codecs' inner loops: they provide the loops over many values at
// once, and this file the rest.
//
// Selection of the k largest magnitudes of a chunk: one pass marks the candidates, all values not
// far below the threshold of the previous chunk; then the exact k-th key is bisected among these
// few. With too few candidates it searches again from a lower key, at last from zero, where every
// value is a candidate. Integers define the result (codec_ops.h), not the search, so every form
// selects alike.
#ifndef LK_CPU_CODEC_VECTOR_H
#define LK_CPU_CODEC_VECTOR_H

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "kernels/cpu/codec_ops.h"

enum { LK_MASK_WORDS = LH_CHUNK / 64, LK_CANDIDATES = LH_CHUNK + 16 };

struct lk_candidates {
    uint32_t count;
    uint16_t index[LK_CANDIDATES]; // indices rise
    uint32_t key[LK_CANDIDATES];   // filled up to a multiple of 8 with LK_NO_KEY
};
enum { LK_NO_KEY = -1 }; // as a signed number below every key

// Sets a bit in `mask` for every value whose key is >= low; n <= LH_CHUNK. Returns their number.
typedef uint32_t lk_mark(const float *e, uint32_t n, uint32_t low, uint64_t *mask);
// Number of candidates whose keys are >= key.
typedef uint32_t lk_count_from(const struct lk_candidates *c, uint32_t key);

// The form's loops are inlined below, where their addresses are constants.
#define LK_INLINE static inline __attribute__((always_inline))

// Marks the values beyond the last full 64. Returns the number of bits set.
LK_INLINE uint32_t lk_mark_rest(const float *e, uint32_t n, uint32_t low, uint64_t *mask)
{
    uint64_t bits = 0;
    for (uint32_t i = n / 64 * 64; i < n; i++) bits |= (uint64_t)(lk_key(e[i]) >= low) << i % 64;
    if (n % 64) mask[n / 64] = bits;
    return (uint32_t)__builtin_popcountll(bits);
}

// Number of the lowest set bit; 64: none.
LK_INLINE uint32_t lk_lowest_bit(uint64_t bits)
{
    return bits ? (uint32_t)__builtin_ctzll(bits) : 64;
}

// Positions of the set bits; returns their number. Writes four at a time without a check, because
// most words have a few. Writes up to three extra entries.
LK_INLINE uint32_t lk_list(const uint64_t *mask, uint32_t n, uint16_t *out)
{
    uint32_t count = 0;
    for (uint32_t w = 0; 64 * w < n; w++) {
        uint64_t bits = mask[w];
        uint16_t *at = out + count, base = (uint16_t)(64 * w);
        count += (uint32_t)__builtin_popcountll(bits);
        while (bits) {
            for (int i = 0; i < 4; i++) {
                *at++ = (uint16_t)(base + lk_lowest_bit(bits));
                bits &= bits - 1;
            }
        }
    }
    return count;
}

LK_INLINE void lk_gather(const float *e, uint32_t n, const uint64_t *mask, struct lk_candidates *c)
{
    uint32_t listed = lk_list(mask, n, c->index);
    LH_ASSERT(listed == c->count);
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.ArraySubscript): listed above, all of them
    for (uint32_t i = 0; i < c->count; i++) c->key[i] = lk_key(e[c->index[i]]);
    for (uint32_t i = c->count; i % 8; i++) c->key[i] = (uint32_t)LK_NO_KEY;
}

// Collects at least k candidates. Returns the key that they start from.
LK_INLINE uint32_t lk_find(lk_mark *mark, const float *e, uint32_t n, uint32_t k,
                           const struct lk_hint *hint, struct lk_candidates *c)
{
    uint64_t mask[LK_MASK_WORDS];
    float from = hint->threshold * (1.0f - hint->margin);
    for (int tries = 0;; tries++) {
        uint32_t low = tries < 4 ? lk_key(from) : 0;
        from *= 0.75f;
        c->count = mark(e, n, low, mask);
        if (c->count >= k) {
            lk_gather(e, n, mask, c);
            return low;
        }
    }
}

// Largest key that at least k candidates reach; *reached is their number (more than k: ties).
LK_INLINE uint32_t lk_kth_key(lk_count_from *count_from, const struct lk_candidates *c, uint32_t k,
                              uint32_t low, uint32_t *reached)
{
    int32_t high = LK_NO_KEY;
    uint32_t padded = (c->count + 7) / 8 * 8;
#pragma omp simd reduction(max : high)
    for (uint32_t i = 0; i < padded; i++)
        high = (int32_t)c->key[i] > high ? (int32_t)c->key[i] : high;
    uint32_t above = (uint32_t)high + 1; // no candidate reaches it
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

LK_INLINE void lk_remember(struct lk_hint *hint, uint32_t low, uint32_t count, uint32_t k)
{
    float threshold = lk_float_of(low);
    bool far = threshold > 2 * hint->threshold || threshold < 0.5f * hint->threshold;
    hint->threshold = far ? threshold : 0.75f * hint->threshold + 0.25f * threshold;
    if (far) hint->margin = 0.1f;
    // About a third more candidates than needed keeps a second look rare and the first one short.
    float wanted = 1.3f * (float)k + 12;
    hint->margin *= (float)count > wanted ? 0.97f : 1.06f;
    hint->margin = hint->margin < 0.001f ? 0.001f : hint->margin > 0.5f ? 0.5f : hint->margin;
}

// Both write first and advance by counting, branch-free: so they write the entry after the last.
LK_INLINE uint32_t lk_take_from(const struct lk_candidates *c, uint32_t low, uint16_t *index)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        index[taken] = c->index[i];
        taken += c->key[i] >= low;
    }
    return taken;
}

// Takes everything above `low`, and the first of those equal to it until k are taken.
LK_INLINE uint32_t lk_take_ties(lk_count_from *count_from, const struct lk_candidates *c,
                                uint32_t low, uint32_t k, uint16_t *index)
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

// select() of codec_ops.h.
LK_INLINE void lk_select_by(lk_mark *mark, lk_count_from *count_from, const float *e, uint32_t n,
                            uint32_t k, struct lk_hint *hint, uint16_t *index)
{
    LH_ASSERT(k >= 1 && k <= n && n <= LH_CHUNK);
    struct lk_candidates c;
    uint32_t reached, low = lk_find(mark, e, n, k, hint, &c);
    uint32_t found = c.count;
    low = lk_kth_key(count_from, &c, k, low, &reached);
    uint32_t taken =
        reached == k ? lk_take_from(&c, low, index) : lk_take_ties(count_from, &c, low, k, index);
    LH_ASSERT(taken == k);
    lk_remember(hint, low, found, k);
}

#endif
