// NCCL, found at run time. See nccl.h.
//
// Invariant: a library is used only if it has every call of the table and a version that the table
// supports; each call is looked up by name, not inferred from the version.
#include "worker/ranks/comm/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"

static const struct {
    const char *name;
    size_t at;
} calls[] = {
    {"ncclGetVersion", offsetof(struct wk_nccl_api, version)},
    {"ncclGetUniqueId", offsetof(struct wk_nccl_api, unique_id)},
    {"ncclGetErrorString", offsetof(struct wk_nccl_api, error_text)},
    {"ncclCommInitRankConfig", offsetof(struct wk_nccl_api, init)},
    {"ncclCommGetAsyncError", offsetof(struct wk_nccl_api, async_error)},
    {"ncclCommFinalize", offsetof(struct wk_nccl_api, finalize)},
    {"ncclCommDestroy", offsetof(struct wk_nccl_api, destroy)},
    {"ncclCommAbort", offsetof(struct wk_nccl_api, abort)},
    {"ncclAllReduce", offsetof(struct wk_nccl_api, all_reduce)},
    {"ncclBroadcast", offsetof(struct wk_nccl_api, broadcast)},
};
LH_STATIC_ASSERT(LH_COUNT(calls) * sizeof(void *) == sizeof(struct wk_nccl_api),
                 "every entry of the table has a name");

const char *wk_nccl_version_text(int version, char out[32])
{
    snprintf(out, 32, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return out;
}

void wk_nccl_close(struct wk_nccl *n)
{
    if (n->library) dlclose(n->library);
    n->library = NULL;
    n->version = 0;
    n->api = (struct wk_nccl_api){.version = NULL};
}

static lh_err find_calls(struct wk_nccl *n)
{
    for (size_t i = 0; i < LH_COUNT(calls); i++) {
        void *symbol = dlsym(n->library, calls[i].name);
        if (!symbol)
            return lh_fail(LH_ERR_UNSUPPORTED, "NCCL %s: it lacks %s; 2.18 or newer has it",
                           n->path, calls[i].name);
        memcpy((char *)&n->api + calls[i].at, &symbol, sizeof symbol);
    }
    return LH_OK;
}

static lh_err check_version(struct wk_nccl *n)
{
    char text[32];
    int result = n->api.version(&n->version);
    if (result)
        return lh_fail(LH_ERR_UNSUPPORTED, "NCCL %s: its version: %s", n->path,
                       n->api.error_text(result));
    if (n->version < WK_NCCL_VERSION_MIN)
        return lh_fail(LH_ERR_UNSUPPORTED, "NCCL %s is version %s; 2.18 or newer is needed",
                       n->path, wk_nccl_version_text(n->version, text));
    return LH_OK;
}

lh_err wk_nccl_open(const char *path, struct wk_nccl *out)
{
    const char *said = path && *path ? path : getenv(WK_NCCL_VARIABLE);
    *out = (struct wk_nccl){.library = NULL};
    snprintf(out->path, sizeof out->path, "%s", said && *said ? said : WK_NCCL_SONAME);
    out->library = dlopen(out->path, RTLD_NOW | RTLD_LOCAL);
    if (!out->library) {
        const char *why = dlerror();
        return lh_fail(LH_ERR_UNSUPPORTED, "no NCCL: %s", why ? why : out->path);
    }
    lh_err err = find_calls(out);
    if (!err) err = check_version(out);
    if (err) wk_nccl_close(out);
    return err;
}

void wk_nccl_defaults(const char *interface, const char *log_file)
{
    setenv("NCCL_RAS_ENABLE", "0", 0);
    if (interface && *interface) setenv("NCCL_SOCKET_IFNAME", interface, 0);
    if (!log_file || !*log_file) return;
    setenv("NCCL_DEBUG", "WARN", 0);
    setenv("NCCL_DEBUG_FILE", log_file, 0);
}

void wk_nccl_environment(struct lh_buf *out)
{
    size_t start = out->len;
    for (char **v = environ; v && *v; v++) {
        if (strncmp(*v, "NCCL_", 5) != 0) continue;
        if (out->len > start) lh_put_u8(out, ' ');
        lh_put(out, *v, strlen(*v));
    }
}
