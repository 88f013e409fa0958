// CUDA memory, through the runtime library of the process, opened when it is first needed. Copies
// go through the host a block at a time; the caller's stream orders them behind its own work.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "worker/client/handle.h"

// glibc 2.34 moved these from libdl into libc, under a new version. The old version is there in
// every glibc; with it the library runs where glibc is 2.28 (docs: worker/python/README.md).
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define OLD "GLIBC_2.2.5"
#else
#define OLD "GLIBC_2.17"
#endif
__asm__(".symver dlopen,dlopen@" OLD);
__asm__(".symver dlsym,dlsym@" OLD);
__asm__(".symver dlclose,dlclose@" OLD);
#endif

static void *open_library(void)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    const char *named = getenv("LONGHAUL_CUDART");
    if (named && *named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}

int wk_device_open(struct longhaul *c)
{
    struct wk_cuda *d = &c->cuda;
    if (d->library) return LONGHAUL_OK;
    int (*count)(int *) = NULL;
    int devices = 0;
    d->library = open_library();
    if (!d->library)
        return wk_client_fail(
            c, LONGHAUL_E_UNSUPPORTED,
            "a parameter lies on a CUDA device, and there is no libcudart on this "
            "host (LONGHAUL_CUDART names another)");
    void *copy = dlsym(d->library, "cudaMemcpyAsync");
    void *sync = dlsym(d->library, "cudaStreamSynchronize");
    void *number = dlsym(d->library, "cudaGetDeviceCount");
    memcpy(&d->copy, &copy, sizeof copy); // POSIX: an object pointer holds a function's
    memcpy(&d->sync, &sync, sizeof sync);
    memcpy(&count, &number, sizeof number);
    if (copy && sync && number && count(&devices) == 0 && devices > 0) return LONGHAUL_OK;
    wk_device_close(c);
    return wk_client_fail(c, LONGHAUL_E_UNSUPPORTED,
                          "a parameter lies on a CUDA device, and CUDA finds no device here");
}

void wk_device_close(struct longhaul *c)
{
    if (c->cuda.library) dlclose(c->cuda.library);
    c->cuda = (struct wk_cuda){0};
}

static uint8_t *address_of(const struct wk_extent *e, uint64_t from, size_t *bytes)
{
    size_t width = e->tensor.dtype == WK_CHANNEL_BF16 ? 2 : 4;
    *bytes *= width;
    return (uint8_t *)e->data + (from - e->at) * width;
}

static int copied(const struct wk_cuda *d, int failed, void *stream)
{
    return failed || d->sync(stream) ? LONGHAUL_E_SYSTEM : LONGHAUL_OK;
}

int wk_device_get(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to, size_t n)
{
    const struct wk_cuda *d = &c->cuda;
    const uint8_t *p = address_of(e, from, &n);
    return copied(d, d->copy(to, p, n, WK_CUDA_TO_HOST, e->stream), e->stream);
}

int wk_device_set(struct longhaul *c, const struct wk_extent *e, uint64_t from, const void *p,
                  size_t n)
{
    const struct wk_cuda *d = &c->cuda;
    uint8_t *to = address_of(e, from, &n);
    return copied(d, d->copy(to, p, n, WK_CUDA_TO_DEVICE, e->stream), e->stream);
}
