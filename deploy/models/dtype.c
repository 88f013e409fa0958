// Stored values, from and to fp32. See dtype.h.
//
// F16 and BF16 are computed from the bits, so every machine rounds alike. tests/oracle/models.py
// compares every value of both, and their neighbours, with PyTorch.
#include "deploy/models/dtype.h"

#include <math.h>
#include <string.h>

#include "common/base/check.h"

static const struct {
    const char *name;
    unsigned bits;
    bool trained;
} table[DP_DTYPE_COUNT] = {
#define ROW(id, name_, bits_, trained_) [DP_DTYPE_##id] = {name_, bits_, trained_},
    DP_DTYPES(ROW)
#undef ROW
};

const char *dp_dtype_name(enum dp_dtype type)
{
    return table[type].name;
}

unsigned dp_dtype_bits(enum dp_dtype type)
{
    return table[type].bits;
}

bool dp_dtype_trained(enum dp_dtype type)
{
    return table[type].trained;
}

bool dp_dtype_is_float(enum dp_dtype type)
{
    return table[type].name[0] == 'F' || type == DP_DTYPE_BF16;
}

bool dp_dtype_parse(const char *name, enum dp_dtype *out)
{
    for (int i = 0; i < DP_DTYPE_COUNT; i++)
        if (!strcmp(table[i].name, name)) {
            *out = (enum dp_dtype)i;
            return true;
        }
    return false;
}

// ---------------------------------------------------------------- one value

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

enum { HALF_INFINITY = 0x7c00, HALF_NAN = 0x7e00, BRAIN_NAN = 0x7fc0 };

static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= HALF_INFINITY) return of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return of_bits(sign | ((rest << 13) + (112u << 23)));
    float tiny = (float)rest * 0x1p-24f; // exact: below 2^-14 the step is 2^-24
    return sign ? -tiny : tiny;
}

static uint16_t half_of(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    uint32_t half;
    if (rest > 0x7f800000)
        half = HALF_NAN;
    else if (rest >= 0x477ff000) // 65520: from here on the nearest is infinity
        half = HALF_INFINITY;
    else if (rest >= 0x38800000) // 2^-14: 13 bits fewer, and another exponent bias
        half = (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13;
    else // the sum's last bit is 2^-24, so the addition rounds as required
        half = bits_of(of_bits(rest) + 0.5f) - bits_of(0.5f);
    return (uint16_t)(sign | half);
}

static uint16_t brain_of(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16 & 0x8000) | BRAIN_NAN);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ---------------------------------------------------------------- arrays

static uint16_t get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static void put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

// The machine is little endian, as everywhere in this tree.
static float from_double(const uint8_t *at)
{
    double value;
    memcpy(&value, at, sizeof value);
    return (float)value;
}

void dp_dtype_to_f32(enum dp_dtype type, const uint8_t *from, size_t n, float *to)
{
    LH_ASSERT(dp_dtype_trained(type));
    switch (type) {
    case DP_DTYPE_F64:
        for (size_t i = 0; i < n; i++) to[i] = from_double(from + 8 * i);
        return;
    case DP_DTYPE_F16:
        for (size_t i = 0; i < n; i++) to[i] = half_to_float(get_u16(from + 2 * i));
        return;
    case DP_DTYPE_BF16:
        for (size_t i = 0; i < n; i++) to[i] = of_bits((uint32_t)get_u16(from + 2 * i) << 16);
        return;
    default: memcpy(to, from, n * sizeof *to); return;
    }
}

bool dp_dtype_from_f32(enum dp_dtype type, const float *from, size_t n, uint8_t *to)
{
    bool fits = true;
    LH_ASSERT(dp_dtype_trained(type));
    switch (type) {
    case DP_DTYPE_F64:
        for (size_t i = 0; i < n; i++) {
            double value = (double)from[i];
            memcpy(to + 8 * i, &value, sizeof value);
        }
        return true;
    case DP_DTYPE_F16:
        for (size_t i = 0; i < n; i++) {
            uint16_t half = half_of(from[i]);
            fits &= (half & 0x7fff) != HALF_INFINITY || isinf(from[i]);
            put_u16(to + 2 * i, half);
        }
        return fits;
    case DP_DTYPE_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t brain = brain_of(from[i]);
            fits &= (brain & 0x7fff) != 0x7f80 || isinf(from[i]);
            put_u16(to + 2 * i, brain);
        }
        return fits;
    default: memcpy(to, from, n * sizeof *from); return true;
    }
}
