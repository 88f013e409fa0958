// Starting again is the only way: the library has chosen before main() runs.
#include "kernels/blas.h"

#include <cblas.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cpu_features.h"

#define CORE_TYPE "OPENBLAS_CORETYPE"
#define PATH_BYTES 4096

const char *lk_blas_core(void)
{
    return openblas_get_corename();
}

static bool among(const char *core, const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(core, name[i])) return true;
    return false;
}

const char *lk_blas_better(const char *core)
{
    // OpenBLAS' names of cores without AVX2, those that it falls back to among them, and of those
    // with AVX2 that it takes AMD's with AVX-512 for.
    static const char *const old[] = {"Prescott", "Core2",     "Penryn",      "Dunnington",
                                      "Nehalem",  "Atom",      "Sandybridge", "Nano",
                                      "Opteron",  "Barcelona", "Bobcat"};
    static const char *const avx2[] = {"Haswell", "Zen"};
    bool is_old = among(core, old, sizeof old / sizeof *old);
    if (lk_cpu_has_avx512() && (is_old || among(core, avx2, sizeof avx2 / sizeof *avx2)))
        return "SkylakeX";
    return is_old && lk_cpu_has_avx2() ? "Haswell" : NULL;
}

void lk_blas_choose(char **argv)
{
    const char *better = lk_blas_better(lk_blas_core());
    if (better == NULL || getenv(CORE_TYPE) != NULL) return;
    // By its own path, so that the process keeps its name.
    char path[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (setenv(CORE_TYPE, better, 0)) return;
    execv(path, argv);
    unsetenv(CORE_TYPE);
}
