// A CUDA runtime for tests without a GPU; its device memory is the host's. A stream does its work
// as late as its order allows, so that a caller that does not wait for the work is found out:
//
//  1. A stream does its work in order, and after the events that it was told to wait for. All of
//     the work is done when somebody waits for it, and none earlier.
//  2. Host memory that a copy will write holds NaN until the copy is done.
//  3. Only copies of pinned memory are late. Other memory is copied before the call returns, as in
//     the real runtime.
//  4. cudaEventQuery() reports an event as done at its third call.
//  5. The default stream does its work at once, like a device that has caught up. With
//     CUDART=caller_late it is the default stream that is late, and others do at once what they
//     may.
//  6. A step, which is a copy on the device, checks the thread's last error as frameworks do.
//  7. The default stream belongs to the thread's current device. Parameters are on device 0, or on
//     device 1 with CUDART_DEVICE=1. Destroying a stream or an event while another device is
//     current would create a context there.
//
// CUDART_MEMORY is the kind of all memory, `host` or `managed`; otherwise it is device memory. With
// CUDART_PINS=nothing no memory can be pinned, with `every_other` a thread's second range and each
// second one after it cannot.
//
// cudart_fail(n) makes the n-th call from then on fail; cudart_held() counts what is not released.
// CUDART_FAULT names a call that does nothing, as if it had been forgotten; faults.py lists them.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_READY = 600, ASKED = 3, STREAMS = 32, EVENTS = 64, WORK = 256, PINNED = 64 };

struct event {
    bool used;
    int device;
    uint64_t recorded, done; // numbers of records, not clock times
    int stream;              // stream of the last record
    int asked;
};

enum kind { COPY, RECORD, FOLLOW };

struct work {
    enum kind kind;
    void *to;
    const void *from;
    size_t n;
    struct event *event;
    uint64_t time; // number of the event's record
};

struct stream {
    bool used;
    int device;
    struct work work[WORK];
    int first, count;
};

static struct {
    pthread_mutex_t lock;
    struct stream stream[STREAMS]; // 0: the default stream
    struct event event[EVENTS];
    struct {
        uint8_t *at;
        size_t n;
    } pinned[PINNED];
} cuda = {.lock = PTHREAD_MUTEX_INITIALIZER, .stream[0].used = true};

static _Thread_local int current, last; // device; error

#define CALL __attribute__((visibility("default"))) int
CALL cudaGetDeviceCount(int *count);
CALL cudaGetDevice(int *device);
CALL cudaSetDevice(int device);
CALL cudaPointerGetAttributes(void *out, const void *pointer);
CALL cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream);
CALL cudaStreamCreateWithFlags(void **out, unsigned flags);
CALL cudaStreamDestroy(void *stream);
CALL cudaStreamSynchronize(void *stream);
CALL cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
CALL cudaEventCreateWithFlags(void **out, unsigned flags);
CALL cudaEventDestroy(void *event);
CALL cudaEventRecord(void *event, void *stream);
CALL cudaEventQuery(void *event);
CALL cudaHostRegister(void *memory, size_t n, unsigned flags);
CALL cudaHostUnregister(void *memory);
CALL cudaGetLastError(void);

static bool is(const char *name, const char *value)
{
    const char *said = getenv(name);
    return said && strcmp(said, value) == 0;
}

static bool forgotten(const char *call)
{
    return is("CUDART_FAULT", call);
}

static void must(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "cudart: %s\n", what);
    abort();
}

static int number_of(const void *stream)
{
    return (int)(intptr_t)stream;
}

static int device_of_parameters(void)
{
    return is("CUDART_DEVICE", "1");
}

// Checks that the default stream is used only while the parameters' device is current.
static void must_be_chosen(const void *stream)
{
    must(stream || current == device_of_parameters(), "the default stream of another device");
}

// ---------------------------------------------------------------- failures and leaks

static struct {
    int in; // calls until the one that fails; 0: none does
    const char *call;
} failure;

#define EXPORT __attribute__((visibility("default")))
EXPORT void cudart_fail(int n);
EXPORT const char *cudart_failed(void);
EXPORT int cudart_held(void);

// From now the n-th call fails, from 1 on.
void cudart_fail(int n)
{
    failure.in = n;
    failure.call = NULL;
}

const char *cudart_failed(void)
{
    return failure.call;
}

int cudart_held(void)
{
    int held = 0;
    for (int i = 1; i < STREAMS; i++) held += cuda.stream[i].used;
    for (int i = 0; i < EVENTS; i++) held += cuda.event[i].used;
    for (int i = 0; i < PINNED; i++) held += cuda.pinned[i].n > 0;
    return held;
}

// Calls that only wait or release something do their work and report the failure afterwards.
static bool fails(const char *call)
{
    enum { UNKNOWN = 999 };
    if (!failure.in || --failure.in) return false;
    failure.call = call;
    last = UNKNOWN;
    return true;
}

static bool late(int stream)
{
    return (stream == 0) == is("CUDART", "caller_late");
}

// ---------------------------------------------------------------- work

static bool may(const struct work *w)
{
    return w->kind != FOLLOW || w->event->done >= w->time;
}

static void do_first(struct stream *s)
{
    const struct work *w = &s->work[s->first];
    if (w->kind == COPY) memmove(w->to, w->from, w->n);
    if (w->kind == RECORD && w->event->done < w->time) w->event->done = w->time;
    s->first++;
    if (--s->count == 0) s->first = 0;
}

// Works until the stream has done everything, or `event`; first does what the stream waits for.
static void do_until(int stream, const struct event *event, uint64_t time)
{
    struct stream *s = &cuda.stream[stream];
    while (s->count && !(event && event->done >= time)) {
        const struct work w = s->work[s->first];
        if (!may(&w)) do_until(w.event->stream, w.event, w.time);
        do_first(s);
    }
}

// Lets streams that are not late do everything that they may.
static void catch_up(void)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < STREAMS; i++) {
            struct stream *s = &cuda.stream[i];
            if (!s->used || late(i)) continue;
            if (i == 0) do_until(0, NULL, 0);
            while (s->count && may(&s->work[s->first])) do_first(s), more = true;
        }
    }
}

static void give(int stream, struct work w)
{
    struct stream *s = &cuda.stream[stream];
    must(s->used && s->first + s->count < WORK, "a stream that is none, or has too much to do");
    s->work[s->first + s->count++] = w;
    catch_up();
}

CALL cudaGetLastError(void)
{
    int was = last;
    if (!forgotten("errors_are_cleared")) last = 0;
    return was;
}

// ---------------------------------------------------------------- devices and memory

CALL cudaGetDeviceCount(int *count)
{
    if (fails(__func__)) return last;
#ifdef CUDART_NONE // a CUDA newer than the driver's
    *count = 0;
    return last = 35; // cudaErrorInsufficientDriver
#endif
    *count = 2;
    return 0;
}

CALL cudaGetDevice(int *device)
{
    if (fails(__func__)) return last;
    *device = current;
    return 0;
}

CALL cudaSetDevice(int device)
{
    if (fails(__func__)) return last;
    current = device;
    return device < 0 || device > 1;
}

CALL cudaPointerGetAttributes(void *out, const void *pointer)
{
    if (fails(__func__)) return last;
    const int type = is("CUDART_MEMORY", "host") ? 1 : is("CUDART_MEMORY", "managed") ? 3 : 2;
    const struct {
        int type, device;
        const void *at[2];
    } a = {type, device_of_parameters(), {pointer, pointer}};
    memcpy(out, &a, sizeof a);
    return 0;
}

static bool overlaps_pinned(const uint8_t *p, size_t n)
{
    for (int i = 0; i < PINNED; i++)
        if (cuda.pinned[i].n && p < cuda.pinned[i].at + cuda.pinned[i].n &&
            cuda.pinned[i].at < p + n)
            return true;
    return false;
}

static bool pinned(const uint8_t *p, size_t n)
{
    for (int i = 0; i < PINNED; i++)
        if (cuda.pinned[i].n && p >= cuda.pinned[i].at &&
            p + n <= cuda.pinned[i].at + cuda.pinned[i].n)
            return true;
    return false;
}

CALL cudaHostRegister(void *memory, size_t n, unsigned flags)
{
    if (fails(__func__)) return last;
    (void)flags;
    static _Thread_local int asked;
    if (is("CUDART_PINS", "nothing") || (is("CUDART_PINS", "every_other") && asked++ % 2))
        return last = 801; // cudaErrorNotSupported
    pthread_mutex_lock(&cuda.lock);
    must((uintptr_t)memory % 4096 == 0 && n, "memory that is pinned begins with a page");
    must(!overlaps_pinned(memory, n), "memory is pinned twice");
    int i = 0;
    while (i < PINNED && cuda.pinned[i].n) i++;
    must(i < PINNED, "too much is pinned");
    cuda.pinned[i].at = memory;
    cuda.pinned[i].n = n;
    pthread_mutex_unlock(&cuda.lock);
    return 0;
}

CALL cudaHostUnregister(void *memory)
{
    pthread_mutex_lock(&cuda.lock);
    int i = 0;
    while (i < PINNED && cuda.pinned[i].at != memory) i++;
    must(i < PINNED, "memory that was not pinned");
    for (int s = 0; s < STREAMS; s++)
        for (int k = 0; k < cuda.stream[s].count; k++) {
            const struct work *w = &cuda.stream[s].work[cuda.stream[s].first + k];
            must(w->kind != COPY || (!pinned(w->to, 1) && !pinned(w->from, 1)),
                 "a copy is on its way into this memory, or out of it");
        }
    cuda.pinned[i].at = NULL;
    cuda.pinned[i].n = 0;
    pthread_mutex_unlock(&cuda.lock);
    return fails(__func__) ? last : 0;
}

CALL cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream)
{
    if (fails(__func__)) return last;
    enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };
    if (kind < TO_DEVICE || kind > ON_DEVICE) return 1;
    must(kind != ON_DEVICE || !last, "a step finds an error that is not its own");
    must_be_chosen(stream);
    pthread_mutex_lock(&cuda.lock);
    bool now = (kind == TO_DEVICE && !pinned(from, n)) || (kind == TO_HOST && !pinned(to, n));
    if (kind == TO_HOST && !now) memset(to, 0xff, n); // NaN
    give(number_of(stream), (struct work){.kind = COPY, .to = to, .from = from, .n = n});
    if (now) do_until(number_of(stream), NULL, 0);
    catch_up();
    pthread_mutex_unlock(&cuda.lock);
    return 0;
}

// ---------------------------------------------------------------- streams and events

CALL cudaStreamCreateWithFlags(void **out, unsigned flags)
{
    if (fails(__func__)) return last;
    must(flags == 1, "a stream that the default stream would wait for");
    pthread_mutex_lock(&cuda.lock);
    int i = 1;
    while (i < STREAMS && cuda.stream[i].used) i++;
    must(i < STREAMS, "too many streams");
    cuda.stream[i] = (struct stream){.used = true, .device = current};
    *out = (void *)(intptr_t)i; // NOLINT(performance-no-int-to-ptr): a handle
    pthread_mutex_unlock(&cuda.lock);
    return 0;
}

CALL cudaStreamDestroy(void *stream)
{
    pthread_mutex_lock(&cuda.lock);
    const struct stream *s = &cuda.stream[number_of(stream)];
    must(stream && s->count == 0, "a stream that has work ends");
    must(s->device == current, "a stream ends while another device is chosen");
    cuda.stream[number_of(stream)].used = false;
    pthread_mutex_unlock(&cuda.lock);
    return fails(__func__) ? last : 0;
}

CALL cudaStreamSynchronize(void *stream)
{
    if (forgotten(stream ? "host_waits_for_copies" : "host_waits_for_caller")) return 0;
    must_be_chosen(stream);
    pthread_mutex_lock(&cuda.lock);
    do_until(number_of(stream), NULL, 0);
    catch_up();
    pthread_mutex_unlock(&cuda.lock);
    return fails(__func__) ? last : 0;
}

CALL cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    if (fails(__func__)) return last;
    struct event *e = event;
    (void)flags;
    if (forgotten(stream ? "copies_wait_for_caller" : "caller_waits_for_copies")) return 0;
    must_be_chosen(stream);
    pthread_mutex_lock(&cuda.lock);
    must(e->used, "an event that is none");
    give(number_of(stream), (struct work){.kind = FOLLOW, .event = e, .time = e->recorded});
    pthread_mutex_unlock(&cuda.lock);
    return 0;
}

CALL cudaEventCreateWithFlags(void **out, unsigned flags)
{
    if (fails(__func__)) return last;
    (void)flags;
    pthread_mutex_lock(&cuda.lock);
    int i = 0;
    while (i < EVENTS && cuda.event[i].used) i++;
    must(i < EVENTS, "too many events");
    cuda.event[i] = (struct event){.used = true, .device = current};
    *out = &cuda.event[i];
    pthread_mutex_unlock(&cuda.lock);
    return 0;
}

CALL cudaEventDestroy(void *event)
{
    struct event *e = event;
    must(e->device == current, "an event ends while another device is chosen");
    e->used = false;
    return fails(__func__) ? last : 0;
}

CALL cudaEventRecord(void *event, void *stream)
{
    if (fails(__func__)) return last;
    struct event *e = event;
    if (forgotten(stream ? "copies_are_marked" : "caller_is_marked")) return 0;
    pthread_mutex_lock(&cuda.lock);
    must(e->used, "an event that is none");
    must(e->device == (stream ? cuda.stream[number_of(stream)].device : current),
         "an event of another device");
    e->stream = number_of(stream);
    e->asked = 0;
    give(e->stream, (struct work){.kind = RECORD, .event = e, .time = ++e->recorded});
    pthread_mutex_unlock(&cuda.lock);
    return 0;
}

CALL cudaEventQuery(void *event)
{
    if (fails(__func__)) return last;
    struct event *e = event;
    if (forgotten("host_asks_for_copies")) return 0;
    pthread_mutex_lock(&cuda.lock);
    must(e->used, "an event that is none");
    if (++e->asked >= ASKED) do_until(e->stream, e, e->recorded);
    catch_up();
    int answer = e->done >= e->recorded ? 0 : NOT_READY;
    if (answer) last = answer;
    pthread_mutex_unlock(&cuda.lock);
    return answer;
}
