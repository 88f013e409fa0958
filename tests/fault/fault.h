// Failures on demand: the n-th allocation of the product's code, or the n-th call of its files.
//
// Programs of this folder are linked with --wrap for malloc, calloc, realloc and poll, so that only
// allocations of the code under test fail; those of the injected world inside a file call are not
// counted. Only waits may be used from several threads.
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

#include "common/env/env.h"

// Returns an env with the files of `inner`, plus the failures that are set below.
struct lh_env *fault_env(struct lh_env *inner);

// The n-th call from now (from 0) fails, and the `more` after it. A failing file call returns err.
// Each function replaces the failure set before.
void fault_alloc(long n);
void fault_alloc_of(size_t least, size_t most); // the next one of so many bytes fails
void fault_files(long n, long more, lh_err err);
// The next poll() with exactly this timeout, on any thread, ends at once with nothing ready.
// fault_waited() tells whether one has.
void fault_wait(int ms);
bool fault_waited(void);
// Stops all failures. Returns whether a call failed since they were set.
bool fault_over(void);

#endif
