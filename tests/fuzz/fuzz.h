// Every fuzz target defines this: one input from anywhere, which must not crash, leak or hang.
//
// Returns 0, always: an input that is refused is as good as one that is accepted. What a target
// checks beyond that (encode(decode(x)) == x, say), it asserts.
#ifndef LH_TESTS_FUZZ_H
#define LH_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
