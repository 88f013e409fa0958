// Rice-coded index gaps, cut in two: a field of fixed width for each value (the gap's low b bits,
// and above them the value's code), and one unary stream for all high parts.
#ifndef LK_CPU_RICE_H
#define LK_CPU_RICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

struct lk_rice {
    uint32_t low_bits;   // b: 0..12
    uint32_t field_bits; // b and those of a code, 0..16
};

// Reads the ones of a unary stream in order, never beyond its bytes.
struct lk_unary {
    struct lh_span bytes;
    uint64_t word; // unread bits of the word that starts at bit `base`
    size_t base;
    size_t loaded; // bytes up to and including `word`
    size_t next;   // first bit after the last one read
};

// Writes k rising indices: fields to `fields` ((k*field_bits + 7)/8 bytes, padded with zeros), high
// parts as ones into `unary` (zeroed by the caller) from bit `at` on. Returns the bit after the
// last one. code[i] fits its bits; NULL where fields hold none.
size_t lk_rice_put(const struct lk_rice *rice, const uint16_t *index, const uint16_t *code,
                   uint32_t k, uint8_t *fields, uint8_t *unary, size_t at);

struct lk_unary lk_unary(struct lh_span bytes);
// Loads the next word when this one has no bit left; false: there is none.
bool lk_unary_load(struct lk_unary *unary);
// Reads k indices of a chunk of `len` values; code may be NULL when fields hold none. False: an
// index out of range, the stream too short, padding not zero. fields.len as in lk_rice_put.
bool lk_rice_get(const struct lk_rice *rice, struct lh_span fields, struct lk_unary *unary,
                 uint32_t len, uint32_t k, uint16_t *index, uint16_t *code);
// True: everything is read, and the stream has no extra byte.
bool lk_unary_ended(const struct lk_unary *unary);

#endif
