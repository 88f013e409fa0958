// The codecs' inner loops, plain C: the specification of every other form. See codec_ops.h.
#include "kernels/cpu/codec_ops.h"

#include <math.h>

#include "kernels/cpu/half.h"

static bool stays_finite(float beta, const float *d, const float *e, size_t n)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        float v = beta * e[i];
        if (d) v += d[i];
        worst = lk_key(v) > worst ? lk_key(v) : worst;
    }
    return worst < LK_KEY_INFINITE;
}

static void feedback(float beta, const float *d, float *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v = beta * e[i];
        e[i] = d ? v + d[i] : v;
    }
}

static uint32_t count_from(const float *e, uint32_t n, uint32_t key)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += lk_key(e[i]) >= key;
    return count;
}

// Bisection for the k-th largest key, then one walk that takes everything above it and as many
// equal ones, from the left, as are still missing. Always: count_from(low) >= k > count_from(high).
static void select_top(const float *e, uint32_t n, uint32_t k, struct lk_hint *hint,
                       uint16_t *index)
{
    (void)hint;
    uint32_t low = 0, high = LK_KEY_INFINITE;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2, count = count_from(e, n, middle);
        if (count >= k) {
            low = middle;
            if (count == k) break;
        } else {
            high = middle;
        }
    }
    uint32_t equal = k - count_from(e, n, low + 1), taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = lk_key(e[i]);
        if (key < low || (key == low && equal == 0)) continue;
        equal -= key == low;
        index[taken++] = (uint16_t)i;
    }
}

static uint32_t key_max(const float *e, size_t n)
{
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) max = lk_key(e[i]) > max ? lk_key(e[i]) : max;
    return max;
}

static void pack_sign(const float *e, size_t n, uint8_t *out)
{
    memset(out, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i++) out[i / 8] |= (uint8_t)((e[i] < 0) << (i % 8));
}

static void unpack_sign(const uint8_t *bits, size_t n, float magnitude, float *q)
{
    for (size_t i = 0; i < n; i++) q[i] = bits[i / 8] >> (i % 8) & 1 ? -magnitude : magnitude;
}

static unsigned level_q4(float e, float scale)
{
    if (scale == 0) return 0;
    float level = e / scale;
    unsigned size = lk_round_even(fabsf(level) < 7 ? fabsf(level) : 7);
    return (level < 0 ? 16 - size : size) & 15u;
}

static void pack_q4(const float *e, size_t n, float scale, uint8_t *out)
{
    for (size_t i = 0; i < n; i += 2) {
        unsigned odd = i + 1 < n ? level_q4(e[i + 1], scale) : 0;
        out[i / 2] = (uint8_t)(level_q4(e[i], scale) | odd << 4);
    }
}

static void unpack_q4(const uint8_t *nibbles, size_t n, float scale, float *q)
{
    for (size_t i = 0; i < n; i++) {
        int level = nibbles[i / 2] >> (4 * (i % 2)) & 15;
        if (level >= 8) level -= 16;
        q[i] = (float)level * scale;
    }
}

static void subtract(float scale, const float *q, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float product = scale * q[i];
        to[i] -= product;
    }
}

const struct lk_codec_ops lk_codec_ops_scalar = {
    .name = "scalar",
    .finite = stays_finite,
    .feedback = feedback,
    .select = select_top,
    .key_max = key_max,
    .pack_sign = pack_sign,
    .unpack_sign = unpack_sign,
    .pack_q4 = pack_q4,
    .unpack_q4 = unpack_q4,
    .subtract = subtract,
};
