// Opens the CUDA plugin where it is and can be used; every process does without it as well.
#ifndef LK_CUDA_LOADER_H
#define LK_CUDA_LOADER_H

#include "common/base/err.h"
#include "kernels/cuda/plugin.h"

#define LK_GPU_PLUGIN "liblonghaul_cuda.so"

struct lk_gpu {
    void *library; // NULL: the CPU is used
    const struct lk_gpu_backend *backend;
    int devices;
};

// `path` names the plugin's file; NULL takes LK_GPU_PLUGIN from where the system looks. Fails with
// LH_ERR_UNSUPPORTED and one line that says why the CPU is used: no plugin, another ABI, no driver,
// no device. `out` can be closed either way. One thread, at the start of a process.
LH_MUST lh_err lk_gpu_open(const char *path, struct lk_gpu *out);
void lk_gpu_close(struct lk_gpu *gpu);

#endif
