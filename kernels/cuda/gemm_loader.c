// Opens the plugin of matrix products. See gemm_loader.h.
#include "kernels/cuda/gemm_loader.h"

#include <dlfcn.h>
#include <string.h>

void lk_gemm_close(struct lk_gemm_library *library)
{
    if (library->library) dlclose(library->library);
    library->library = NULL;
    library->table = NULL;
}

static lh_err refuse(struct lk_gemm_library *l, const char *why)
{
    lh_err err = lh_fail(LH_ERR_UNSUPPORTED, "plugin of matrix products %s: %s", l->path, why);
    lk_gemm_close(l);
    return err;
}

lh_err lk_gemm_open(const char *path, struct lk_gemm_library *out)
{
    *out = (struct lk_gemm_library){.library = NULL};
    lk_plugin_find(path, LK_GEMM_PLUGIN_VARIABLE, LK_GEMM_PLUGIN, out->path);
    out->library = dlopen(out->path, RTLD_NOW | RTLD_LOCAL);
    if (!out->library) return refuse(out, lk_plugin_why(out->path, dlerror()));
    lk_gemm_query_function *query;
    void *symbol = dlsym(out->library, LK_GEMM_QUERY);
    if (!symbol) return refuse(out, "it is another library, without " LK_GEMM_QUERY);
    memcpy(&query, &symbol, sizeof query); // POSIX: an object pointer can hold a function's address
    out->table = query(LK_GEMM_ABI);
    if (!out->table || out->table->abi != LK_GEMM_ABI || out->table->bytes != sizeof *out->table)
        return refuse(out, "it does not speak this program's ABI");
    return LH_OK;
}
