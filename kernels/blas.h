// OpenBLAS picks its kernels by the processor's model when it is loaded, and a model newer than the
// library gets those of 2004. On an Emerald Rapids core with OpenBLAS 0.3.21 the demo's model
// trains 3.6 times as fast with those of AVX-512.
#ifndef LK_BLAS_H
#define LK_BLAS_H

// First thing in main(), before any thread and any open file. Where OpenBLAS does not know this
// processor it starts the program again, with OPENBLAS_CORETYPE set to what the processor can run;
// a core type that is set already stays. Where that fails the program goes on, slower.
void lk_blas_choose(char **argv);

// The core type that OpenBLAS runs with: "SkylakeX", "Haswell", "Prescott". It belongs to every
// loss that is compared, because sums are in another order with another one.
const char *lk_blas_core(void);

// The core type that this processor should have instead of `core`; NULL: `core` is right, or this
// processor has no better one.
const char *lk_blas_better(const char *core);

#endif
