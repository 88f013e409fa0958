// Runs the same work on each part of a whole, on several threads at once.
#ifndef LH_COMMON_PARALLEL_H
#define LH_COMMON_PARALLEL_H

#include <stddef.h>

enum {
    LH_PARALLEL_MAX = 4,     // threads: this work is bound by memory, more would not help
    LH_PARALLEL_ON_MAX = 64, // threads of lh_parallel_on()
};

// Processors that this process may run on; at least 1.
size_t lh_processors(void);

// Calls part(arg, i) once for each i below n, in any order and on several threads, one of them the
// caller's; returns when all are done. Uses one thread per processor, at most LH_PARALLEL_MAX and
// n; fewer if the system refuses more. Parts must not share writable data or call an env. They
// report through `arg`: an error's text belongs to its thread (err.h).
void lh_parallel(size_t n, void (*part)(void *arg, size_t i), void *arg);
// The same on `threads` threads, at most LH_PARALLEL_ON_MAX, regardless of the processors.
void lh_parallel_on(size_t threads, size_t n, void (*part)(void *arg, size_t i), void *arg);

// memcpy() of many bytes in parallel parts: most of its time is spent on pages touched for the
// first time.
void lh_parallel_copy(void *to, const void *from, size_t n);

#endif
