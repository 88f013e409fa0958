// The codecs' inner loops, plain C: the specification of every other form. See codec_ops.h.
#include "kernels/cpu/codec_ops.h"

static uint32_t count_from(const float *e, uint32_t n, uint32_t key)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += lk_key(e[i]) >= key;
    return count;
}

// Bisects for the k-th largest key, then takes everything above it in one walk, and the first equal
// ones until k are taken. Invariant: count_from(low) >= k > count_from(high).
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

static double sum_sizes(const float *x, size_t n)
{
    double lane[LK_LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % LK_LANES] += (double)lk_signed(x[i], false);
    return lk_add_lanes(lane);
}

static double sum_squares(const float *x, size_t n)
{
    double lane[LK_LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % LK_LANES] += (double)x[i] * (double)x[i];
    return lk_add_lanes(lane);
}

static void pack(uint8_t value, float level, const float *x, size_t n, uint8_t *out)
{
    size_t bits = lk_code_bits(value), each = bits < 8 ? 8 / bits : 1; // codes a byte
    if (bits < 8) memset(out, 0, (n + each - 1) / each);
    for (size_t i = 0; i < n; i++) {
        uint32_t code = lk_code(value, level, x[i]);
        if (bits < 8)
            out[i / each] |= (uint8_t)(code << (i % each * bits));
        else
            for (size_t b = 0; b < bits / 8; b++) *out++ = (uint8_t)(code >> (8 * b));
    }
}

static void unpack(uint8_t value, float level, const uint8_t *in, size_t n, float *q)
{
    size_t bits = lk_code_bits(value), each = bits < 8 ? 8 / bits : 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t code = 0;
        if (bits < 8)
            code = (uint32_t)in[i / each] >> (i % each * bits) & ((1u << bits) - 1);
        else
            for (size_t b = 0; b < bits / 8; b++) code |= (uint32_t)*in++ << (8 * b);
        q[i] = lk_value(value, level, code);
    }
}

static bool indices(const struct lk_rice *rice, struct lh_span fields, size_t slack,
                    struct lk_unary *unary, uint32_t len, uint32_t k, uint16_t *index,
                    uint16_t *code)
{
    (void)slack;
    return lk_rice_get(rice, fields, unary, len, k, index, code);
}

static void codes(uint8_t value, float level, const float *x, uint32_t k, uint16_t *code)
{
    for (uint32_t i = 0; i < k; i++) code[i] = (uint16_t)lk_code(value, level, x[i]);
}

static void values(uint8_t value, float level, const uint16_t *code, uint32_t k, float *q)
{
    for (uint32_t i = 0; i < k; i++) q[i] = lk_value(value, level, code[i]);
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
