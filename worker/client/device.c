// CUDA memory, through the process's runtime library, opened at its first use.
//
//  1. A lane is a device and a stream of the caller. This file adds its own stream for the copies
//     of a cut, which waits only for wk_device_fence().
//  2. A copy of a cut follows all work that the caller's stream had at the fence. Work queued on
//     the caller's stream after wk_device_hold() follows the copies. Neither call blocks the host.
//  3. Memory that the copies write is not read before wk_device_landed() reports their end. Before
//     it is given back, the streams of the copies and of each parameter's `add` are waited for:
//     both may still use it.
//  4. Copies of a renewal go through the host a block at a time, on the caller's stream, unless the
//     parameter has its own `add`.
//  5. Results that are no error here (not ready, not pinned) are also cleared in the runtime: a
//     framework checks its last error after its own launches, and would find them.
//  6. Each call restores the calling thread's current device.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "worker/client/handle.h"

// glibc 2.34 moved these from libdl into libc, under a new version. Every glibc still has the old
// version; with it the library runs on glibc 2.28 and later (docs: worker/python/README.md).
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

enum { // values of cuda_runtime_api.h
    TO_DEVICE = 1,
    TO_HOST = 2,
    ON_DEVICE = 2, // cudaMemoryType
    MANAGED = 3,
    NOT_READY = 600,
    NON_BLOCKING = 1,   // cudaStreamNonBlocking: no implicit wait by the default stream
    WITHOUT_TIMING = 2, // cudaEventDisableTiming
    PORTABLE = 1,       // cudaHostRegisterPortable: pinned for every device
};

struct attributes { // cudaPointerAttributes; later versions are longer
    int type, device;
    void *pointers[2];
    long more[16];
};

// ---------------------------------------------------------------- the library

static bool find_all(struct wk_cuda *d)
{
    const struct {
        const char *name;
        void *at; // address of a function pointer
    } wanted[] = {
        {"cudaGetDeviceCount", &d->count},     {"cudaGetDevice", &d->current},
        {"cudaSetDevice", &d->choose},         {"cudaPointerGetAttributes", &d->attributes},
        {"cudaMemcpyAsync", &d->copy},         {"cudaStreamCreateWithFlags", &d->stream},
        {"cudaStreamDestroy", &d->stream_end}, {"cudaStreamSynchronize", &d->sync},
        {"cudaStreamWaitEvent", &d->follow},   {"cudaEventCreateWithFlags", &d->event},
        {"cudaEventDestroy", &d->event_end},   {"cudaEventRecord", &d->record},
        {"cudaEventQuery", &d->query},         {"cudaHostRegister", &d->pin},
        {"cudaHostUnregister", &d->unpin},     {"cudaGetLastError", &d->forget},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(d->library, wanted[i].name);
        if (!found) return false;
        memcpy(wanted[i].at, &found,
               sizeof found); // POSIX: an object pointer can hold a function's address
    }
    return true;
}

// True: this library finds a device. A library of a newer CUDA than the driver finds none, but an
// older one may. Sets `there` if the host has the library.
static bool take_library(struct longhaul *c, const char *name, bool *there)
{
    struct wk_cuda *d = &c->cuda;
    int devices = 0;
    d->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!d->library) return false;
    *there = true;
    if (find_all(d) && d->count(&devices) == 0 && devices > 0) return true;
    wk_client_device_close(c);
    return false;
}

int wk_client_device_open(struct longhaul *c)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    const char *named = getenv("LONGHAUL_CUDART"), *const *name = names;
    size_t count = sizeof names / sizeof *names;
    bool there = false;
    if (c->cuda.library) return LONGHAUL_OK;
    if (named && *named) name = &named, count = 1;
    for (size_t i = 0; i < count; i++)
        if (take_library(c, name[i], &there)) return LONGHAUL_OK;
    return wk_client_fail(c, LONGHAUL_E_UNSUPPORTED,
                          there ? "a parameter is on a CUDA device, but CUDA finds no device here"
                                : "a parameter is on a CUDA device, but this host has no libcudart "
                                  "(LONGHAUL_CUDART names another)");
}

// ---------------------------------------------------------------- lanes

static int enter(const struct wk_cuda *d, const struct wk_lane *l, int *before)
{
    return d->current(before) || (*before != l->device && d->choose(l->device));
}

static void leave(const struct wk_cuda *d, const struct wk_lane *l, int before)
{
    if (before != l->device) d->choose(before);
}

static int make_lane(const struct wk_cuda *d, struct wk_lane *l)
{
    int before, failed = enter(d, l, &before);
    if (failed) return failed;
    failed = d->stream(&l->copies, NON_BLOCKING) || d->event(&l->ready, WITHOUT_TIMING) ||
             d->event(&l->copied, WITHOUT_TIMING);
    leave(d, l, before);
    return failed;
}

static void end_lane(const struct wk_cuda *d, struct wk_lane *l)
{
    int before;
    if (enter(d, l, &before)) return;
    if (l->copies) d->sync(l->copies), d->stream_end(l->copies);
    if (l->ready) d->event_end(l->ready);
    if (l->copied) d->event_end(l->copied);
    leave(d, l, before);
}

int wk_device_lane(struct longhaul *c, const void *data, void *stream, uint32_t *lane)
{
    struct wk_cuda *d = &c->cuda;
    struct attributes a = {0};
    if (data && (d->attributes(&a, data) || (a.type != ON_DEVICE && a.type != MANAGED)))
        return wk_client_fail(c, LONGHAUL_E_INVALID, "CUDA finds no device memory there");
    for (*lane = 0; *lane < d->lanes; ++*lane) {
        const struct wk_lane *l = &d->lane[*lane];
        if (!data || (l->device == a.device && l->caller == stream)) return LONGHAUL_OK;
    }
    if (d->lanes == sizeof d->lane / sizeof *d->lane)
        return wk_client_fail(c, LONGHAUL_E_INVALID, "parameters of more than %u streams",
                              d->lanes);
    struct wk_lane *l = &d->lane[d->lanes];
    *l = (struct wk_lane){.device = a.device, .caller = stream};
    if (make_lane(d, l)) {
        end_lane(d, l);
        return wk_client_fail(c, LONGHAUL_E_SYSTEM, "a stream on CUDA device %d", a.device);
    }
    d->lanes++;
    return LONGHAUL_OK;
}

void wk_client_device_close(struct longhaul *c)
{
    struct wk_cuda *d = &c->cuda;
    wk_device_unpin(c);
    for (uint32_t i = 0; i < d->lanes; i++) end_lane(d, &d->lane[i]);
    if (d->library) dlclose(d->library);
    *d = (struct wk_cuda){0};
}

// ---------------------------------------------------------------- pinned memory

static void release_pins(struct wk_cuda *d)
{
    for (uint32_t i = 0; i < d->pins; i++) d->unpin(d->pinned[i].at);
    free(d->pinned);
    d->pinned = NULL;
    d->pins = 0;
    d->pinned_bytes = 0;
}

// Notes the whole pages around this memory, which lies behind all ranges noted before. The list has
// space for all ranges.
static void note_pages(struct longhaul *c, uint64_t from, uint64_t until)
{
    struct wk_cuda *d = &c->cuda;
    struct wk_pin *last = d->pins ? &d->pinned[d->pins - 1] : NULL;
    from = from / WK_CHANNEL_PAGE * WK_CHANNEL_PAGE;
    until = (until + WK_CHANNEL_PAGE - 1) / WK_CHANNEL_PAGE * WK_CHANNEL_PAGE;
    if (until > c->channel.layout.bytes) until = c->channel.layout.bytes;
    uint8_t *at = c->channel.base + from;
    if (last && last->at + last->bytes >= at)
        last->bytes = (uint64_t)(c->channel.base + until - last->at);
    else
        d->pinned[d->pins++] = (struct wk_pin){at, until - from};
}

static void note_values(struct longhaul *c, uint64_t from, uint64_t until, int slot)
{
    uint64_t at = c->channel.layout.slot_at[slot];
    note_pages(c, at + from * sizeof(float), at + until * sizeof(float));
}

static void note_first(struct longhaul *c, uint64_t from, uint64_t until)
{
    note_values(c, from, until, 0);
}

static void note_second(struct longhaul *c, uint64_t from, uint64_t until)
{
    note_values(c, from, until, 1);
}

// An extent has at most one range in each of its parts.
static bool room_for_pins(struct longhaul *c)
{
    size_t most = 2 * ((size_t)c->extents + c->channel.shape.parts) + 1;
    c->cuda.pinned = calloc(most, sizeof *c->cuda.pinned);
    return c->cuda.pinned != NULL;
}

void wk_device_pin(struct longhaul *c)
{
    struct wk_cuda *d = &c->cuda;
    const struct wk_channel_layout *l = &c->channel.layout;
    uint32_t done = 0;
    if (!d->lanes || d->pinned || !room_for_pins(c)) return;
    wk_pieces_cut_here(c, note_first);
    wk_pieces_cut_here(c, note_second);
    if (c->ranks == 1) note_pages(c, l->ring_at, l->bytes);
    while (done < d->pins && d->pin(d->pinned[done].at, d->pinned[done].bytes, PORTABLE) == 0)
        done++;
    for (uint32_t i = 0; i < done; i++) d->pinned_bytes += d->pinned[i].bytes;
    if (done == d->pins) return;
    d->forget();
    d->pins = done;
    release_pins(d);
}

void wk_device_unpin(struct longhaul *c)
{
    struct wk_cuda *d = &c->cuda;
    for (uint32_t i = 0; i < d->lanes; i++) {
        int before;
        d->sync(d->lane[i].copies);
        if (enter(d, &d->lane[i], &before) == 0) {
            d->sync(d->lane[i].caller);
            leave(d, &d->lane[i], before);
        }
        d->lane[i].copies_fly = d->lane[i].unheld = false;
    }
    release_pins(d);
}

// ---------------------------------------------------------------- the copies of a cut

int wk_device_fence(struct longhaul *c)
{
    const struct wk_cuda *d = &c->cuda;
    int failed = 0;
    for (uint32_t i = 0; !failed && i < d->lanes; i++) {
        const struct wk_lane *l = &d->lane[i];
        int before;
        failed = enter(d, l, &before);
        if (failed) break;
        failed = d->record(l->ready, l->caller) || d->follow(l->copies, l->ready, 0);
        leave(d, l, before);
    }
    return failed ? LONGHAUL_E_SYSTEM : LONGHAUL_OK;
}

static uint8_t *address_of(const struct wk_extent *e, uint64_t from, size_t *bytes)
{
    size_t width = e->tensor.dtype == WK_CHANNEL_BF16 ? 2 : 4;
    *bytes *= width;
    return (uint8_t *)e->data + (from - e->at) * width;
}

int wk_device_queue(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to,
                    size_t n)
{
    const struct wk_cuda *d = &c->cuda;
    const struct wk_lane *l = &d->lane[e->lane];
    const uint8_t *p = address_of(e, from, &n);
    return d->copy(to, p, n, TO_HOST, l->copies) ? LONGHAUL_E_SYSTEM : LONGHAUL_OK;
}

int wk_device_queued(struct longhaul *c)
{
    struct wk_cuda *d = &c->cuda;
    int failed = 0;
    for (uint32_t i = 0; !failed && i < d->lanes; i++) {
        struct wk_lane *l = &d->lane[i];
        failed = d->record(l->copied, l->copies);
        l->copies_fly = l->unheld = true;
    }
    return failed ? LONGHAUL_E_SYSTEM : LONGHAUL_OK;
}

bool wk_device_unheld(const struct longhaul *c)
{
    bool unheld = false;
    for (uint32_t i = 0; i < c->cuda.lanes; i++) unheld = unheld || c->cuda.lane[i].unheld;
    return unheld;
}

int wk_device_hold(struct longhaul *c)
{
    struct wk_cuda *d = &c->cuda;
    int failed = 0;
    for (uint32_t i = 0; !failed && i < d->lanes; i++) {
        struct wk_lane *l = &d->lane[i];
        int before;
        if (!l->unheld) continue;
        failed = enter(d, l, &before);
        if (failed) break;
        failed = d->follow(l->caller, l->copied, 0);
        leave(d, l, before);
        l->unheld = failed;
    }
    return failed ? LONGHAUL_E_SYSTEM : LONGHAUL_OK;
}

int wk_device_landed(struct longhaul *c, bool wait, bool *landed)
{
    struct wk_cuda *d = &c->cuda;
    *landed = true;
    for (uint32_t i = 0; i < d->lanes; i++) {
        struct wk_lane *l = &d->lane[i];
        if (!l->copies_fly) continue;
        int failed = wait ? d->sync(l->copies) : d->query(l->copied);
        if (failed == NOT_READY) *landed = false, d->forget();
        if (failed && failed != NOT_READY)
            return wk_client_fail(c, LONGHAUL_E_SYSTEM, "a copy from CUDA device %d: error %d",
                                  l->device, failed);
        if (!failed) l->copies_fly = false;
    }
    return LONGHAUL_OK;
}

// ---------------------------------------------------------------- what the caller waits for

static int copied(const struct wk_cuda *d, const struct wk_extent *e, void *to, const void *from,
                  size_t n, int kind)
{
    const struct wk_lane *l = &d->lane[e->lane];
    int before, failed = enter(d, l, &before);
    if (failed) return LONGHAUL_E_SYSTEM;
    failed = d->copy(to, from, n, kind, l->caller) || d->sync(l->caller);
    leave(d, l, before);
    return failed ? LONGHAUL_E_SYSTEM : LONGHAUL_OK;
}

int wk_device_get(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to, size_t n)
{
    const uint8_t *p = address_of(e, from, &n);
    return copied(&c->cuda, e, to, p, n, TO_HOST);
}

int wk_device_set(struct longhaul *c, const struct wk_extent *e, uint64_t from, const void *p,
                  size_t n)
{
    uint8_t *to = address_of(e, from, &n);
    return copied(&c->cuda, e, to, p, n, TO_DEVICE);
}
