// A CUDA plugin that is wrong in the way that $LH_FAKE_PLUGIN names. What works of it is the
// emulated plugin's ($LH_FAKE_PLUGIN_REAL), with single calls exchanged.
//
//   abi      does not speak the ABI it is asked for
//   renamed  answers with a table of another ABI
//   short    answers with a table that lacks its end
//   driver   its devices() fails: no driver
//   none     the driver sees no device
//   memory   the device has none
//   later    the third shard's encoding and all after it fail
//   bytes    its payloads differ from the CPU's in one bit
#include "kernels/cuda/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DRIVER = 1, NO_MEMORY = 2, BROKEN = 3 };

static struct lk_gpu_backend table;
static struct lk_gpu_memory memory;
static struct lk_gpu_kernels kernels;
static const struct lk_gpu_backend *real;
static const char *how;
static int encodings;

static int devices(int *count)
{
    *count = 0;
    if (!strcmp(how, "driver")) return NO_DRIVER;
    if (!strcmp(how, "none")) return 0;
    return real->devices(count);
}

static const char *error_text(int err)
{
    static const char *const text[] = {"fine", "this machine has no NVIDIA driver", "out of memory",
                                       "the device fell off the bus"};
    return text[err >= 0 && err <= BROKEN ? err : 0];
}

static void versions(struct lk_gpu_versions *out)
{
    *out = (struct lk_gpu_versions){0, 13000};
}

static int no_memory(void **device, size_t bytes)
{
    (void)bytes;
    *device = NULL;
    return NO_MEMORY;
}

static int encode(struct lk_gpu_shard *shard, const struct lk_gpu_encode *in, lk_gpu_stream stream)
{
    if (++encodings > 2) return BROKEN;
    return real->kernels->encode(shard, in, stream);
}

static int flip(void *host, const void *device, size_t bytes, lk_gpu_stream stream)
{
    int err = real->memory->copy_out(host, device, bytes, stream);
    if (!err) err = real->streams->wait(stream);
    if (!err && bytes > 100) ((unsigned char *)host)[bytes / 2] ^= 1;
    return err;
}

static void borrow(void)
{
    const char *path = getenv("LH_FAKE_PLUGIN_REAL");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL, *symbol;
    lk_gpu_query_function *query;
    if (!library || !(symbol = dlsym(library, LK_GPU_QUERY))) abort();
    memcpy(&query, &symbol, sizeof query);
    real = query(LK_GPU_ABI);
    table = *real;
    memory = *real->memory;
    kernels = *real->kernels;
}

__attribute__((visibility("default"))) const struct lk_gpu_backend *lk_gpu_query(uint32_t abi)
{
    how = getenv("LH_FAKE_PLUGIN");
    if (!how || !strcmp(how, "abi")) return NULL;
    if (strcmp(how, "driver") != 0) borrow();
    table.abi = abi + !strcmp(how, "renamed");
    table.bytes = (uint32_t)(sizeof table - (!strcmp(how, "short") ? sizeof(void *) : 0));
    table.devices = devices;
    table.error_text = error_text;
    table.versions = versions;
    if (!strcmp(how, "memory")) memory.alloc = no_memory;
    if (!strcmp(how, "later")) kernels.encode = encode;
    if (!strcmp(how, "bytes")) memory.copy_out = flip;
    table.memory = &memory;
    table.kernels = &kernels;
    return &table;
}
