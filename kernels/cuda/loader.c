// Opens the CUDA plugin. See loader.h.
//
// Invariant: the plugin is believed only after it has named this ABI and the size of its table.
#include "kernels/cuda/loader.h"

#include <dlfcn.h>
#include <string.h>

static lh_err refuse(struct lk_gpu *gpu, const char *path, const char *why)
{
    lh_err err = lh_fail(LH_ERR_UNSUPPORTED, "CUDA plugin %s: %s; the CPU is used", path, why);
    lk_gpu_close(gpu);
    return err;
}

void lk_gpu_close(struct lk_gpu *gpu)
{
    if (gpu->library) dlclose(gpu->library);
    *gpu = (struct lk_gpu){.library = NULL};
}

lh_err lk_gpu_open(const char *path, struct lk_gpu *out)
{
    const char *name = path ? path : LK_GPU_PLUGIN;
    *out = (struct lk_gpu){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!out->library) return refuse(out, name, dlerror());
    lk_gpu_query_function *query;
    void *symbol = dlsym(out->library, LK_GPU_QUERY);
    if (!symbol) return refuse(out, name, "it is another library, without " LK_GPU_QUERY);
    memcpy(&query, &symbol, sizeof query); // POSIX: a function's address in an object's pointer
    out->backend = query(LK_GPU_ABI);
    if (!out->backend || out->backend->abi != LK_GPU_ABI ||
        out->backend->bytes != sizeof *out->backend)
        return refuse(out, name, "it was built for another version of this program");
    int err = out->backend->devices(&out->devices);
    if (err) return refuse(out, name, out->backend->error_text(err));
    return LH_OK;
}
