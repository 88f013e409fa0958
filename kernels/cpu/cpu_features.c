// Reads cpuid. No state: the caller stores its choice.
#include "kernels/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>

bool lk_cpu_has_avx2(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C) || !(c & bit_POPCNT)) return false;
    if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || !(c & bit_LZCNT)) return false;
    // These also check XGETBV, that is, that the operating system saves the wide registers.
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

bool lk_cpu_has_avx512(void)
{
    return lk_cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vbmi2");
}
#else
bool lk_cpu_has_avx2(void)
{
    return false;
}

bool lk_cpu_has_avx512(void)
{
    return false;
}
#endif
