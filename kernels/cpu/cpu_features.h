// Says which form of the CPU kernels this processor can run. Files named *_avx2.c are entered only
// where lk_cpu_has_avx2() said yes.
#ifndef LK_CPU_CPU_FEATURES_H
#define LK_CPU_CPU_FEATURES_H

#include <stdbool.h>

// AVX2 with what its machines also have and our build switches on for *_avx2.c: BMI1, BMI2, LZCNT,
// POPCNT, F16C. Asks the operating system too (saved registers). Always false off x86-64.
bool lk_cpu_has_avx2(void);
// The same, and AVX-512 F, BW, DQ, VL, VBMI and VBMI2 (Ice Lake, Zen 4), for *_avx512.c.
bool lk_cpu_has_avx512(void);

#endif
