// The form of the CPU kernels that this processor supports. Functions in *_avx2.c may be called
// only if lk_cpu_has_avx2() is true.
#ifndef LK_CPU_CPU_FEATURES_H
#define LK_CPU_CPU_FEATURES_H

#include <stdbool.h>

// AVX2 and the features that our build enables for *_avx2.c: BMI1, BMI2, LZCNT, POPCNT, F16C.
// Checks the operating system too (saved registers). Always false except on x86-64.
bool lk_cpu_has_avx2(void);
// The same, and AVX-512 F, BW, DQ, VL, VBMI and VBMI2 (Ice Lake, Zen 4), for *_avx512.c.
bool lk_cpu_has_avx512(void);

#endif
