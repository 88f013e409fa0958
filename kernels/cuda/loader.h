// Opens the CUDA plugin where it is and can be used; every process does without it as well.
#ifndef LK_CUDA_LOADER_H
#define LK_CUDA_LOADER_H

#include "common/base/err.h"
#include "kernels/cuda/plugin.h"

#define LK_GPU_PLUGIN "liblonghaul_cuda.so"
#define LK_GPU_PLUGIN_VARIABLE "LONGHAUL_CUDA_PLUGIN" // the environment's: a plugin's file

enum { LK_GPU_PATH_BYTES = 512 };

struct lk_gpu {
    void *library;                // NULL: the CPU is used
    char path[LK_GPU_PATH_BYTES]; // the file that was tried
    const struct lk_gpu_backend *backend;
    int devices;
};

// Names the plugin's file: `path` where it says one, else what LK_GPU_PLUGIN_VARIABLE says, else
// LK_GPU_PLUGIN beside the program, in the folder above it (a build's), in ../lib/longhaul (an
// installation's), else wherever the system looks.
void lk_gpu_find(const char *path, char out[LK_GPU_PATH_BYTES]);
// The same for a plugin of any name, with a variable of its own.
void lk_plugin_find(const char *path, const char *variable, const char *name,
                    char out[LK_GPU_PATH_BYTES]);
// The text of dlerror() without the file's name at its start.
const char *lk_plugin_why(const char *path, const char *said);
// Opens that file and believes it once it has named this ABI and this size of its table. Fails with
// LH_ERR_UNSUPPORTED and one line that says why the CPU is used: no plugin, another ABI, a short
// table, no driver, no device. `out` can be closed either way, and says which file was tried. One
// thread, at the start of a process.
LH_MUST lh_err lk_gpu_open(const char *path, struct lk_gpu *out);
// The same as far as the table, to know which driver and devices there are: a library without a
// device is no failure, and devices is 0.
LH_MUST lh_err lk_gpu_open_table(const char *path, struct lk_gpu *out);
void lk_gpu_close(struct lk_gpu *gpu);

#endif
