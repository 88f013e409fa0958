// OpenBLAS picks its kernels by the processor's model when it is loaded. A model of Intel's newer
// than the library gets those of 2004, one of AMD's those of AVX2: with OpenBLAS 0.3.21 and the
// kernels of AVX-512 the demo's model trains 3.6 times as fast on an Emerald Rapids core, and its
// matrix products are 1.9 times as fast on a Zen 5 core.
#ifndef LK_BLAS_H
#define LK_BLAS_H

// First thing in main(), before any thread and any open file. Where OpenBLAS runs less than the
// processor can it starts the program again, with OPENBLAS_CORETYPE set to what it can run;
// a core type that is set already stays. Where that fails the program goes on, slower.
void lk_blas_choose(char **argv);

// The core type that OpenBLAS runs with: "SkylakeX", "Haswell", "Prescott". It belongs to every
// loss that is compared, because sums are in another order with another one.
const char *lk_blas_core(void);

// The core type that this processor should have instead of `core`; NULL: `core` is right, or this
// processor has no better one.
const char *lk_blas_better(const char *core);

#endif
