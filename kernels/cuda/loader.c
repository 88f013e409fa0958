// Opens the CUDA plugin. See loader.h.
//
// Invariant: the plugin is accepted only if it reports this ABI and the size of its table. Of an
// unknown table only abi and bytes are read: they come first in every version.
#include "kernels/cuda/loader.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void forget(struct lk_gpu *gpu)
{
    if (gpu->library) dlclose(gpu->library);
    gpu->library = NULL;
    gpu->backend = NULL;
    gpu->devices = 0;
}

__attribute__((format(printf, 2, 3))) static lh_err refuse(struct lk_gpu *gpu, const char *why, ...)
{
    char text[512];
    va_list list;
    va_start(list, why);
    vsnprintf(text, sizeof text, why, list);
    va_end(list);
    lh_err err =
        lh_fail(LH_ERR_UNSUPPORTED, "CUDA plugin %s: %s; the CPU is used", gpu->path, text);
    forget(gpu);
    return err;
}

void lk_gpu_close(struct lk_gpu *gpu)
{
    forget(gpu);
}

// The folder of this program, with its last slash; 0: unknown, or too long.
static size_t folder_of_program(char out[LK_GPU_PATH_BYTES])
{
    ssize_t n = readlink("/proc/self/exe", out, LK_GPU_PATH_BYTES - 64);
    while (n > 0 && out[n - 1] != '/') n--;
    return n > 0 && n < LK_GPU_PATH_BYTES - 64 ? (size_t)n : 0;
}

// Removes the "../" in it.
static void shorten(char path[LK_GPU_PATH_BYTES])
{
    char *real = realpath(path, NULL);
    if (real && strlen(real) < LK_GPU_PATH_BYTES) memcpy(path, real, strlen(real) + 1);
    free(real);
}

void lk_plugin_find(const char *path, const char *variable, const char *name,
                    char out[LK_GPU_PATH_BYTES])
{
    static const char *const beside[] = {"", "../", "../lib/longhaul/"};
    const char *said = path && *path ? path : getenv(variable);
    if (said && *said) {
        snprintf(out, LK_GPU_PATH_BYTES, "%s", said);
        return;
    }
    size_t n = folder_of_program(out);
    for (size_t i = 0; n && i < sizeof beside / sizeof beside[0]; i++) {
        snprintf(out + n, LK_GPU_PATH_BYTES - n, "%s%s", beside[i], name);
        if (access(out, R_OK) == 0) {
            shorten(out);
            return;
        }
    }
    snprintf(out, LK_GPU_PATH_BYTES, "%s", name);
}

void lk_gpu_find(const char *path, char out[LK_GPU_PATH_BYTES])
{
    lk_plugin_find(path, LK_GPU_PLUGIN_VARIABLE, LK_GPU_PLUGIN, out);
}

const char *lk_plugin_why(const char *path, const char *said)
{
    size_t n = strlen(path);
    if (!said) return "no reason is known";
    return !strncmp(said, path, n) && !strncmp(said + n, ": ", 2) ? said + n + 2 : said;
}

lh_err lk_gpu_open_table(const char *path, struct lk_gpu *out)
{
    *out = (struct lk_gpu){.library = NULL};
    lk_gpu_find(path, out->path);
    out->library = dlopen(out->path, RTLD_NOW | RTLD_LOCAL);
    if (!out->library) return refuse(out, "%s", lk_plugin_why(out->path, dlerror()));
    lk_gpu_query_function *query;
    void *symbol = dlsym(out->library, LK_GPU_QUERY);
    if (!symbol) return refuse(out, "it is another library, without " LK_GPU_QUERY);
    memcpy(&query, &symbol, sizeof query); // POSIX: an object pointer can hold a function's address
    out->backend = query(LK_GPU_ABI);
    if (!out->backend) return refuse(out, "it does not speak ABI %d of this program", LK_GPU_ABI);
    if (out->backend->abi != LK_GPU_ABI)
        return refuse(out, "it speaks ABI %u, this program %d", out->backend->abi, LK_GPU_ABI);
    if (out->backend->bytes != sizeof *out->backend)
        return refuse(out, "its table has %u bytes, this program's %zu", out->backend->bytes,
                      sizeof *out->backend);
    if (out->backend->devices(&out->devices)) out->devices = 0;
    return LH_OK;
}

lh_err lk_gpu_open(const char *path, struct lk_gpu *out)
{
    LH_TRY(lk_gpu_open_table(path, out));
    int err = out->backend->devices(&out->devices);
    if (err) return refuse(out, "%s", out->backend->error_text(err));
    if (out->devices < 1) return refuse(out, "the driver sees no device");
    return LH_OK;
}
