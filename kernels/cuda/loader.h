// Opens the CUDA plugin if it exists and works; every process also runs without it.
#ifndef LK_CUDA_LOADER_H
#define LK_CUDA_LOADER_H

#include "common/base/err.h"
#include "kernels/cuda/plugin.h"

#define LK_GPU_PLUGIN "liblonghaul_cuda.so"
#define LK_GPU_PLUGIN_VARIABLE "LONGHAUL_CUDA_PLUGIN" // environment variable: a plugin's file

enum { LK_GPU_PATH_BYTES = 512 };

struct lk_gpu {
    void *library;                // NULL: the CPU is used
    char path[LK_GPU_PATH_BYTES]; // the file tried
    const struct lk_gpu_backend *backend;
    int devices;
};

// Finds the plugin's file: `path` if set, else the value of LK_GPU_PLUGIN_VARIABLE, else
// LK_GPU_PLUGIN beside the program, in the folder above it (a build), in ../lib/longhaul (an
// installation), else in the system's search path.
void lk_gpu_find(const char *path, char out[LK_GPU_PATH_BYTES]);
// The same for a plugin of any name, with its own variable.
void lk_plugin_find(const char *path, const char *variable, const char *name,
                    char out[LK_GPU_PATH_BYTES]);
// The text of dlerror() without the file's name at its start.
const char *lk_plugin_why(const char *path, const char *said);
// Opens that file and accepts it if it reports this ABI and this size of its table. Fails with
// LH_ERR_UNSUPPORTED and one line that says why the CPU is used: no plugin, another ABI, a short
// table, no driver, no device. `out` can be closed either way, and holds the tried file. One
// thread, at the start of a process.
LH_MUST lh_err lk_gpu_open(const char *path, struct lk_gpu *out);
// The same, only to learn the driver and the devices: a library without a device is no failure, and
// devices is 0.
LH_MUST lh_err lk_gpu_open_table(const char *path, struct lk_gpu *out);
void lk_gpu_close(struct lk_gpu *gpu);

#endif
