// Seeds of formats that have a file of their own.
#ifndef LH_TESTS_FUZZ_SEEDS_H
#define LH_TESTS_FUZZ_SEEDS_H

#include "common/base/buf.h"

// Writes one input: `head` bytes of choice before the format's own.
typedef void (*fuzz_put)(const void *arg, const char *name, struct lh_span head,
                         struct lh_span bytes);
void fuzz_channel_seeds(fuzz_put put, const void *arg);

#endif
