// OpenBLAS chooses its kernels at load time by the processor's model; for a model newer than the
// library it takes those of 2004. On an Emerald Rapids core with OpenBLAS 0.3.21 the demo's model
// trains 3.6 times as fast with the AVX-512 kernels.
#ifndef LK_BLAS_H
#define LK_BLAS_H

// Call it first in main(), before any thread or open file. If OpenBLAS does not know this
// processor, restarts the program with OPENBLAS_CORETYPE set to the best core type that the
// processor supports. A core type that is already set stays. On failure the program continues,
// slower.
void lk_blas_choose(char **argv);

// The core type that OpenBLAS uses: "SkylakeX", "Haswell", "Prescott". Name it with every compared
// loss, because another core type sums in another order.
const char *lk_blas_core(void);

// The core type that this processor should use instead of `core`; NULL: `core` is right, or there
// is no better one.
const char *lk_blas_better(const char *core);

#endif
