// The inner loops of the codecs: what has a scalar and a vector form. One chunk (or any run) of
// packed fp32 at a time; no allocation, no failure, no state. codec_ops_scalar.c is the
// specification; the other forms give the same bytes for every input that is allowed.
//
// fp32 everywhere: round to nearest even, one rounding per operation, denormals kept.
#ifndef LK_CPU_CODEC_OPS_H
#define LK_CPU_CODEC_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Magnitude as an integer: rises with |x|, so that comparisons and ties are exact.
static inline uint32_t lk_key(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}
enum { LK_KEY_INFINITE = 0x7f800000 }; // finite numbers have smaller keys

// -magnitude or magnitude, without a branch that half of all values would mispredict. magnitude >=
// 0.
static inline float lk_signed(float magnitude, bool negative)
{
    uint32_t bits = lk_key(magnitude) | (uint32_t)negative << 31;
    memcpy(&magnitude, &bits, sizeof magnitude);
    return magnitude;
}

// What select() remembers from chunk to chunk so as to search less. It changes nothing but speed.
// Zero-initialise.
struct lk_hint {
    float threshold; // about the smallest magnitude selected last; 0: unknown
    float margin;    // candidates are looked for down to threshold * (1 - margin)
};

enum { LK_INDEX_SLACK = 8 }; // select() may write this many entries beyond index[k]

struct lk_codec_ops {
    const char *name;
    // Would feedback() leave finite values only?
    bool (*finite)(float beta, const float *d, const float *e, size_t n);
    // e = beta*e + d, two roundings; d NULL: e = beta*e.
    void (*feedback)(float beta, const float *d, float *e, size_t n);
    // The k largest magnitudes of e[0..n), the lower index first among equals, as rising indices.
    // 1 <= k <= n <= LH_CHUNK, e finite.
    void (*select)(const float *e, uint32_t n, uint32_t k, struct lk_hint *hint, uint16_t *index);
    // Largest lk_key(); 0 for n = 0.
    uint32_t (*key_max)(const float *e, size_t n);
    // A bit a value, lowest bit first, 1 where e < 0 (so -0 is +); the last byte filled with zeros.
    void (*pack_sign)(const float *e, size_t n, uint8_t *out);
    void (*unpack_sign)(const uint8_t *bits, size_t n, float magnitude, float *q);
    // Four bits a value, two's complement, even index in the low half of the byte:
    // clamp(round_even(e / scale), -7, 7), or 0 for scale = 0.
    void (*pack_q4)(const float *e, size_t n, float scale, uint8_t *out);
    void (*unpack_q4)(const uint8_t *nibbles, size_t n, float scale, float *q);
    // to -= scale*q: one rounding for the product, one for the difference.
    void (*subtract)(float scale, const float *q, float *to, size_t n);
};

extern const struct lk_codec_ops lk_codec_ops_scalar;
#if defined(__x86_64__)
extern const struct lk_codec_ops lk_codec_ops_avx2; // only after lk_cpu_has_avx2()
#endif

// The form in use (see lk_codec_force).
const struct lk_codec_ops *lk_codec_ops(void);

#endif
