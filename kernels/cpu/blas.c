// A restart is the only way: the library has chosen its kernels before main() runs.
#include "kernels/blas.h"

#include <cblas.h>
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

const char *lk_blas_better(const char *core)
{
    // OpenBLAS' names of cores without AVX2, including its fallbacks.
    static const char *const old[] = {"Prescott", "Core2",     "Penryn",      "Dunnington",
                                      "Nehalem",  "Atom",      "Sandybridge", "Nano",
                                      "Opteron",  "Barcelona", "Bobcat"};
    if (!lk_cpu_has_avx2()) return NULL;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        if (!strcmp(core, old[i])) return lk_cpu_has_avx512() ? "SkylakeX" : "Haswell";
    return NULL;
}

void lk_blas_choose(char **argv)
{
    const char *better = lk_blas_better(lk_blas_core());
    if (better == NULL || getenv(CORE_TYPE) != NULL) return;
    // Uses the original path, so the process keeps its name.
    char path[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (setenv(CORE_TYPE, better, 0)) return;
    execv(path, argv);
    unsetenv(CORE_TYPE);
}
