// Opens the plugin of matrix products (gemm.h) if training on a device is requested.
#ifndef LK_CUDA_GEMM_LOADER_H
#define LK_CUDA_GEMM_LOADER_H

#include "common/base/err.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/loader.h"

#define LK_GEMM_PLUGIN "liblonghaul_cublaslt.so"
#define LK_GEMM_PLUGIN_VARIABLE "LONGHAUL_GEMM_PLUGIN" // environment variable: a plugin's file

struct lk_gemm_library {
    void *library;                // NULL: none
    char path[LK_GPU_PATH_BYTES]; // the file tried
    const struct lk_gemm_table *table;
};

// Tries `path`, LK_GEMM_PLUGIN_VARIABLE, and LK_GEMM_PLUGIN in the places where lk_gpu_find()
// searches for the CUDA plugin. LH_ERR_UNSUPPORTED with one line that says why. `out` can be closed
// either way.
LH_MUST lh_err lk_gemm_open(const char *path, struct lk_gemm_library *out);
void lk_gemm_close(struct lk_gemm_library *library);

#endif
