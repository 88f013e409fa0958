// Shared by the fixed-point worker and its checker: how much a token lowers a parameter.
#ifndef TESTS_CRASH_EXACT_H
#define TESTS_CRASH_EXACT_H

#include <stdint.h>

// 1 to 8 times 2^-7, by the parameter's flat index: different values give top-k a choice.
static inline double exact_mass(uint64_t parameter)
{
    return (double)(1 + (parameter * UINT64_C(0x9e3779b97f4a7c15) >> 61)) * 0x1p-7;
}

#endif
