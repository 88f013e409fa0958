// The inner loops of the codecs, in scalar and vector forms. Each handles one chunk (or any run) of
// packed fp32; no allocation, no failure, no state. codec_ops_scalar.c is the specification; the
// other forms give the same bytes for every valid input.
//
// fp32 everywhere: round to nearest even, one rounding per operation, denormals kept.
#ifndef LK_CPU_CODEC_OPS_H
#define LK_CPU_CODEC_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/codec_values.h"
#include "kernels/cpu/rice.h"

// State of select() from chunk to chunk that shortens its search. It affects only speed.
// Zero-initialise.
struct lk_hint {
    float threshold; // about the smallest magnitude of the last selection; 0: unknown
    float margin;    // candidates start at threshold * (1 - margin)
};

enum { LK_INDEX_SLACK = 8 }; // select() may write this many extra entries

// Sums are fp64 in eight lanes: value i adds to lane i mod 8; at the end the other lanes are added
// to lane 0 in order.
enum { LK_LANES = 8 };

static inline double lk_add_lanes(const double lane[LK_LANES])
{
    double sum = lane[0];
    for (int i = 1; i < LK_LANES; i++) sum += lane[i];
    return sum;
}

struct lk_codec_ops {
    const char *name;
    // The k largest magnitudes of e[0..n), the lower index first among equals, as rising indices.
    // 1 <= k <= n <= LH_CHUNK, e finite.
    void (*select)(const float *e, uint32_t n, uint32_t k, struct lk_hint *hint, uint16_t *index);
    // Largest lk_key(); 0 for n = 0.
    uint32_t (*key_max)(const float *e, size_t n);
    // Sums of magnitudes and of squares.
    double (*sum_sizes)(const float *x, size_t n);
    double (*sum_squares)(const float *x, size_t n);
    // n values as codes of lk_code_bits() each (codec_values.h), lowest bit first; the last byte
    // is filled with zeros. And back.
    void (*pack)(uint8_t value, float level, const float *x, size_t n, uint8_t *out);
    void (*unpack)(uint8_t value, float level, const uint8_t *in, size_t n, float *q);
    // lk_rice_get(), which is its specification; it may read `slack` bytes behind the fields. index
    // and code hold LH_CHUNK entries.
    bool (*indices)(const struct lk_rice *rice, struct lh_span fields, size_t slack,
                    struct lk_unary *unary, uint32_t len, uint32_t k, uint16_t *index,
                    uint16_t *code);
    // The codes of k values, of at most 16 bits, each in its own uint16_t; and back. k <= LH_CHUNK.
    void (*codes)(uint8_t value, float level, const float *x, uint32_t k, uint16_t *code);
    void (*values)(uint8_t value, float level, const uint16_t *code, uint32_t k, float *q);
    // to -= scale*q: one rounding for the product, one for the difference.
    void (*subtract)(float scale, const float *q, float *to, size_t n);
};

extern const struct lk_codec_ops lk_codec_ops_scalar;
#if defined(__x86_64__)
extern const struct lk_codec_ops lk_codec_ops_avx2;   // only after lk_cpu_has_avx2()
extern const struct lk_codec_ops lk_codec_ops_avx512; // only after lk_cpu_has_avx512()
#elif defined(__aarch64__)
extern const struct lk_codec_ops lk_codec_ops_neon; // every processor of this kind has it
#endif

// The forms that this processor supports, best first, scalar last; then NULL.
const struct lk_codec_ops *lk_codec_form(size_t i);
// The form in use (see lk_codec_force).
const struct lk_codec_ops *lk_codec_ops(void);

static inline bool lk_all_finite(const float *x, size_t n)
{
    return lk_codec_ops()->key_max(x, n) < LK_KEY_INFINITE;
}

#endif
