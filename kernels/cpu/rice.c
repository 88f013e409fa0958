// Rice-coded index gaps. See rice.h for the split and kernels/docs/0001-payload.md for the bits.
//
// gap(i) = index(i) - index(i-1) - 1, with index(-1) = -1. A unary code is (gap >> b) zeros and a
// one; bits count from the lowest of byte 0. Both streams read the same on any machine.
#include "kernels/cpu/rice.h"

#include <string.h>

static uint64_t load_le(const uint8_t *at, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)at[i] << (8 * i);
    return v;
}

static uint64_t load_le_up_to_8(const uint8_t *at, size_t left)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (left >= 8) {
        uint64_t v;
        memcpy(&v, at, sizeof v);
        return v;
    }
#endif
    return load_le(at, left < 8 ? left : 8);
}

size_t lk_rice_put(const struct lk_rice *rice, const uint16_t *index, const uint16_t *code,
                   uint32_t k, uint8_t *fields, uint8_t *unary, size_t at)
{
    uint32_t low_mask = (1u << rice->low_bits) - 1, expected = 0, bits = 0;
    uint64_t word = 0; // unwritten fields: `bits` of them, fewer than 8 between rounds
    for (uint32_t i = 0; i < k; i++) {
        uint32_t gap = index[i] - expected;
        expected = index[i] + 1u;
        at += gap >> rice->low_bits;
        unary[at >> 3] = (uint8_t)(unary[at >> 3] | 1u << (at & 7));
        at++;
        uint64_t field = gap & low_mask;
        if (code) field |= (uint64_t)code[i] << rice->low_bits;
        word |= field << bits;
        for (bits += rice->field_bits; bits >= 8; bits -= 8, word >>= 8) *fields++ = (uint8_t)word;
    }
    if (bits) *fields = (uint8_t)word;
    return at;
}

struct lk_unary lk_unary(struct lh_span bytes)
{
    return (struct lk_unary){.bytes = bytes};
}

bool lk_unary_load(struct lk_unary *u)
{
    if (u->loaded >= u->bytes.len) return false;
    u->base = 8 * u->loaded;
    u->word = load_le_up_to_8(u->bytes.data + u->loaded, u->bytes.len - u->loaded);
    u->loaded += 8;
    return true;
}

// Position of the next one; false at the end.
static inline bool next_one(struct lk_unary *u, size_t *at)
{
    while (!u->word)
        if (!lk_unary_load(u)) return false;
    *at = u->base + (size_t)__builtin_ctzll(u->word);
    u->word &= u->word - 1;
    return true;
}

bool lk_rice_get(const struct lk_rice *rice, struct lh_span fields, struct lk_unary *unary,
                 uint32_t len, uint32_t k, uint16_t *index, uint16_t *code)
{
    uint32_t b = rice->low_bits, width = rice->field_bits;
    uint64_t low_mask = (1u << b) - 1, code_mask = (1u << (width - b)) - 1;
    size_t expected = 0, bit = 0;
    struct lk_unary u = *unary;
    for (uint32_t i = 0; i < k; i++, bit += width) {
        size_t one;
        if (!next_one(&u, &one)) return false;
        // Uses at most 7 + 12 + 16 of the loaded bits.
        size_t byte = bit >> 3;
        uint64_t field = load_le_up_to_8(fields.data + byte, fields.len - byte) >> (bit & 7);
        size_t at = expected + ((one - u.next) << b) + (field & low_mask);
        if (at >= len) return false;
        index[i] = (uint16_t)at;
        if (width > b) code[i] = (uint16_t)(field >> b & code_mask);
        expected = at + 1;
        u.next = one + 1;
    }
    *unary = u;
    return bit % 8 == 0 || fields.data[bit >> 3] >> (bit & 7) == 0;
}

bool lk_unary_ended(const struct lk_unary *u)
{
    return u->word == 0 && u->loaded >= u->bytes.len && u->bytes.len == (u->next + 7) / 8;
}
