// Tables of wire.c: a row for each field of a message, in the order of the fields' numbers. Only
// files that hold such tables include this.
#ifndef LH_COMMON_WIRE_TABLE_H
#define LH_COMMON_WIRE_TABLE_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/check.h"
#include "common/net/wire.h"

enum lh_wire_kind {
    LH_WIRE_U32,
    LH_WIRE_U64,
    LH_WIRE_BOOL,
    LH_WIRE_F32,
    LH_WIRE_F64,
    LH_WIRE_TEXT,     // const char *, `size` bytes at most without its zero
    LH_WIRE_NAME,     // char[size]; a longer text is cut, unprintable characters become '?'
    LH_WIRE_BYTES,    // struct lh_span, `size` bytes at most
    LH_WIRE_FIXED,    // uint8_t[size]: all or absent
    LH_WIRE_NEEDED,   // uint8_t[size]: all, never absent
    LH_WIRE_SUB,      // a struct
    LH_WIRE_TRIP,     // struct lh_trip
    LH_WIRE_ESTIMATE, // struct lh_estimate
    // Arrays of at most `size` elements.
    LH_WIRE_U32S,
    LH_WIRE_U64S,
    LH_WIRE_SPANS,
    LH_WIRE_SUBS,
};

struct lh_wire_row {
    uint32_t number; // number of the protobuf field
    enum lh_wire_kind kind;
    uint32_t size; // bytes or elements, see the kinds; 0: the message's size is the bound
    size_t at;     // offset of the member
    // Offset + 1 of `has_x` of a sub-message, or of `chained` of a FIXED; 0: there is none. Of an
    // array: offset + 1 of its count.
    size_t has;
    const struct lh_wire_type *sub; // type of a SUB or an element of SUBS
};

struct lh_wire_type {
    const ProtobufCMessageDescriptor *of;
    size_t size; // size of the plain struct
    const struct lh_wire_row *row;
    size_t rows;
};

// Offset of a member, which must have this type.
#define LH_WIRE_AT(member, type)                                                                   \
    (offsetof(T, member) + 0 * sizeof(char[_Generic(((T *)0)->member, type : 1)]))
#define LH_WIRE_SIZED(member) (uint32_t)sizeof(((T *)0)->member)

#define LH_WIRE_ROW(n, kind, size, at, has, sub)                                                   \
    {                                                                                              \
        n, LH_WIRE_##kind, size, at, has, sub                                                      \
    }
// An array, with its count beside it.
#define LH_WIRE_ARRAY(n, kind, m, most, type, sub)                                                 \
    LH_WIRE_ROW(n, kind, most, LH_WIRE_AT(m, const type *), 1 + LH_WIRE_AT(n_##m, size_t), sub)
#define U32(n, m) LH_WIRE_ROW(n, U32, 0, LH_WIRE_AT(m, uint32_t), 0, NULL)
#define U64(n, m) LH_WIRE_ROW(n, U64, 0, LH_WIRE_AT(m, uint64_t), 0, NULL)
#define BOOL(n, m) LH_WIRE_ROW(n, BOOL, 0, LH_WIRE_AT(m, bool), 0, NULL)
#define F32(n, m) LH_WIRE_ROW(n, F32, 0, LH_WIRE_AT(m, float), 0, NULL)
#define F64(n, m) LH_WIRE_ROW(n, F64, 0, LH_WIRE_AT(m, double), 0, NULL)
#define TEXT(n, m, most) LH_WIRE_ROW(n, TEXT, most, LH_WIRE_AT(m, const char *), 0, NULL)
#define NAME(n, m) LH_WIRE_ROW(n, NAME, LH_WIRE_SIZED(m), offsetof(T, m), 0, NULL)
#define BYTES(n, m, most) LH_WIRE_ROW(n, BYTES, most, LH_WIRE_AT(m, struct lh_span), 0, NULL)
#define FIXED(n, m) LH_WIRE_ROW(n, FIXED, LH_WIRE_SIZED(m), offsetof(T, m), 0, NULL)
#define FIXED_IF(n, m, has_m)                                                                      \
    LH_WIRE_ROW(n, FIXED, LH_WIRE_SIZED(m), offsetof(T, m), 1 + LH_WIRE_AT(has_m, bool), NULL)
#define NEEDED(n, m) LH_WIRE_ROW(n, NEEDED, LH_WIRE_SIZED(m), offsetof(T, m), 0, NULL)
// A sub-message of type `type`: lh_wire_type and struct lh_type.
#define SUB(n, m, type) LH_WIRE_ROW(n, SUB, 0, LH_WIRE_AT(m, struct lh_##type), 0, &lh_wire_##type)
#define SUB_IF(n, m, type)                                                                         \
    LH_WIRE_ROW(n, SUB, 0, LH_WIRE_AT(m, struct lh_##type), 1 + LH_WIRE_AT(has_##m, bool),         \
                &lh_wire_##type)
#define TRIP(n, m) LH_WIRE_ROW(n, TRIP, 0, LH_WIRE_AT(m, struct lh_trip), 0, NULL)
#define ESTIMATE(n, m) LH_WIRE_ROW(n, ESTIMATE, 0, LH_WIRE_AT(m, struct lh_estimate), 0, NULL)
#define U32S(n, m, most) LH_WIRE_ARRAY(n, U32S, m, most, uint32_t, NULL)
#define U64S(n, m, most) LH_WIRE_ARRAY(n, U64S, m, most, uint64_t, NULL)
#define SPANS(n, m, most) LH_WIRE_ARRAY(n, SPANS, m, most, struct lh_span, NULL)
#define SUBS(n, m, type, most) LH_WIRE_ARRAY(n, SUBS, m, most, struct lh_##type, &lh_wire_##type)

// The type of struct lh_name, with the table name_rows.
#define LH_WIRE_TYPE(name, package)                                                                \
    const struct lh_wire_type lh_wire_##name = {&package##__##name##__descriptor,                  \
                                                sizeof(struct lh_##name), name##_rows,             \
                                                LH_COUNT(name##_rows)}

extern const struct lh_wire_type lh_wire_versions, lh_wire_shard_point;

#endif
