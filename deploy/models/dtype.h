// Types of stored values, with their names in safetensors, and conversion from and to fp32.
#ifndef DP_DTYPE_H
#define DP_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// X(id, name, bits of a value, whether a run trains it). The order is the reference
// implementation's (safetensors 0.8), where a writer puts the wide types first.
#define DP_DTYPES(X)                                                                               \
    X(BOOL, "BOOL", 8, false)                                                                      \
    X(F4, "F4", 4, false)                                                                          \
    X(F6_E2M3, "F6_E2M3", 6, false)                                                                \
    X(F6_E3M2, "F6_E3M2", 6, false)                                                                \
    X(U8, "U8", 8, false)                                                                          \
    X(I8, "I8", 8, false)                                                                          \
    X(F8_E5M2, "F8_E5M2", 8, false)                                                                \
    X(F8_E4M3, "F8_E4M3", 8, false)                                                                \
    X(F8_E8M0, "F8_E8M0", 8, false)                                                                \
    X(I16, "I16", 16, false)                                                                       \
    X(U16, "U16", 16, false)                                                                       \
    X(F16, "F16", 16, true)                                                                        \
    X(BF16, "BF16", 16, true)                                                                      \
    X(I32, "I32", 32, false)                                                                       \
    X(U32, "U32", 32, false)                                                                       \
    X(F32, "F32", 32, true)                                                                        \
    X(C64, "C64", 64, false)                                                                       \
    X(F64, "F64", 64, true)                                                                        \
    X(I64, "I64", 64, false)                                                                       \
    X(U64, "U64", 64, false)

#define DP_DTYPE_ENUM(id, name, bits, trained) DP_DTYPE_##id,
enum dp_dtype { DP_DTYPES(DP_DTYPE_ENUM) DP_DTYPE_COUNT };
#undef DP_DTYPE_ENUM

const char *dp_dtype_name(enum dp_dtype type);
unsigned dp_dtype_bits(enum dp_dtype type);
bool dp_dtype_parse(const char *name, enum dp_dtype *out); // false: no type has this name
// F64, F32, F16, BF16: the types the two functions below take. Narrower floats are quantised
// weights, whose scales are in other tensors.
bool dp_dtype_trained(enum dp_dtype type);
bool dp_dtype_is_float(enum dp_dtype type); // any float, also a quantised one

// n values, little endian, at any address. F16 and BF16 are exact; F64 is rounded to nearest even.
void dp_dtype_to_f32(enum dp_dtype type, const uint8_t *from, size_t n, float *to);
// n values, rounded to nearest even. False: a finite value is beyond the type's range and became an
// infinity.
bool dp_dtype_from_f32(enum dp_dtype type, const float *from, size_t n, uint8_t *to);

#endif
