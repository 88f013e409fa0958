// The entry point that every fuzz target defines. No input may make it crash, leak or hang.
//
// Always returns 0: a refused input is as good as an accepted one. Further checks, for example
// encode(decode(x)) == x, are assertions in the target.
#ifndef LH_TESTS_FUZZ_H
#define LH_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
