// Seeds: the inputs that fuzz_seeds writes, one source file for each kind of format.
#ifndef LH_TESTS_FUZZ_SEEDS_H
#define LH_TESTS_FUZZ_SEEDS_H

#include "common/base/buf.h"
#include "tests/fuzz/disk.h"

#define FUZZ_JOB "fuzz" // the run of all seeds

struct fuzz_seeds {
    const char *corpus; // the folder
    struct fuzz_disk disk;
};

// Writes corpus/FORMAT/NAME: `head`, the target's choice bytes, then `bytes`.
void fuzz_seed(const struct fuzz_seeds *o, const char *format, const char *name,
               struct lh_span head, struct lh_span bytes);

void fuzz_seeds_disk(struct fuzz_seeds *o, struct lh_span frame, struct lh_span plan,
                     struct lh_span fence);
void fuzz_seeds_channel(const struct fuzz_seeds *o);

#endif
