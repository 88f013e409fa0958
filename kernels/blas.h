// Which kernels OpenBLAS runs. It picks them by the processor's model when it is loaded, and a
// model that is newer than the library gets those of 2004: 2 to 4 times slower where AVX-512 would
// do.
#ifndef LK_BLAS_H
#define LK_BLAS_H

// First thing in main(), before any thread and any open file. Where OpenBLAS does not know this
// processor it starts the program again, with OPENBLAS_CORETYPE set to what the processor can run;
// a core type that is set already stays. Where that fails the program goes on, slower.
void lk_blas_choose(char **argv);

// What OpenBLAS runs now: "SkylakeX", "Haswell", "Prescott"; for logs, and with every loss that is
// compared, because sums are in another order with another core type.
const char *lk_blas_core(void);

// The core type that this processor should have instead of `core`; NULL: `core` is right, or this
// processor has no better one.
const char *lk_blas_better(const char *core);

#endif
