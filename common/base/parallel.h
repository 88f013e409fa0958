// The same work on every part of a whole, on several threads at once.
#ifndef LH_COMMON_PARALLEL_H
#define LH_COMMON_PARALLEL_H

#include <stddef.h>

enum {
    LH_PARALLEL_MAX = 4,     // threads: what is done here waits for memory before it needs more
    LH_PARALLEL_ON_MAX = 64, // threads where the caller names their number
};

// Processors that this process may run on; at least 1.
size_t lh_processors(void);

// Calls part(arg, i) once for each i below n, in any order and on several threads, of which the
// caller is one; returns when all are done. As many threads as the process has processors, at most
// LH_PARALLEL_MAX and n; fewer where the system gives no more. Parts share nothing that one writes,
// call no env, and report through `arg`: an error's text belongs to its thread (err.h).
void lh_parallel(size_t n, void (*part)(void *arg, size_t i), void *arg);
// The same on so many threads, whatever processors there are; at most LH_PARALLEL_ON_MAX.
void lh_parallel_on(size_t threads, size_t n, void (*part)(void *arg, size_t i), void *arg);

// memcpy() of many bytes, in parts as above: most of its time goes into pages touched first.
void lh_parallel_copy(void *to, const void *from, size_t n);

#endif
