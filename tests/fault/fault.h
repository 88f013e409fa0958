// Failures on demand: the n-th allocation of the product's code, the n-th call of its files.
//
// Programs of this folder are linked with --wrap for malloc, calloc, realloc and poll, so that a
// failure is that of the code under test; what the injected world allocates inside a call of its
// files is not counted. One thread, but for waits.
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

#include "common/env/env.h"

// An env whose files are those of `inner`, but for the failures that are asked for.
struct lh_env *fault_env(struct lh_env *inner);

// From now the n-th call (from 0) fails, and the `more` after it; err is what a call of the files
// says. Each replaces what was asked for before.
void fault_alloc(long n);
void fault_alloc_of(size_t least, size_t most); // the next one of so many bytes fails
void fault_files(long n, long more, lh_err err);
// The next poll() that would wait for just so many milliseconds ends at once, and nothing is ready.
// Any thread's; did one since it was asked for?
void fault_wait(int ms);
bool fault_waited(void);
// Nothing fails any more. Whether something did since it was asked for.
bool fault_over(void);

#endif
