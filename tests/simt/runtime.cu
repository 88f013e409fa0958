// The emulator's streams, events and memory. See simt.h.
//
// Invariants: 1. an operation runs after those before it in its stream and after the event that its
// stream was told to wait for; nothing else orders it; 2. device memory can be reached by kernels
// and copies alone (under AddressSanitizer a touch from the host is found); 3. a copy reads its
// source when it runs, and its destination holds poison until then; 4. one thread at a time is
// inside, whoever calls: the emulator has one processor.
#include "kernels/cuda/plugin.h"
#include "tests/simt/fibre.h"

#include <stdio.h>
#include <stdlib.h>

#include <unistd.h>

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

struct simt_event {
    uint64_t recorded, reached; // tickets
};

struct operation {
    std::function<void()> run;
    simt_event *wait; // not before this event reached `ticket`
    uint64_t ticket;
    std::shared_ptr<std::atomic<bool>> outside; // not before work outside is over; may be none
};

struct simt_stream {
    std::deque<operation> queue;
};

static std::recursive_mutex inside; // a queued call may run others
#define ONE_AT_A_TIME std::lock_guard<std::recursive_mutex> one_at_a_time(inside)
static const size_t memory_bytes = (size_t)1 << 30;
static thread_local cudaError_t last; // what cudaGetLastError() gives, and forgets
static std::vector<simt_stream *> streams;
static std::map<char *, size_t> device;
static std::list<std::pair<const char *, size_t>>
    readings; // The host's memory that queued copies read.

static void fill(void *memory, size_t bytes)
{
    memset(memory, simt_choose(2) ? 0xff : 0xa5, bytes);
}

// Operations may touch device memory while one of these is there; a queued call may run others.
struct opened {
    static unsigned depth;
    opened()
    {
        if (depth++) return;
        for (auto &m : device) ASAN_UNPOISON_MEMORY_REGION(m.first, m.second);
    }
    ~opened()
    {
        if (--depth) return;
        for (auto &m : device) ASAN_POISON_MEMORY_REGION(m.first, m.second);
    }
};
unsigned opened::depth;

static void check_device(const void *at, size_t bytes, const char *what)
{
    char *from = (char *)at;
    auto m = device.upper_bound(from);
    if (m == device.begin()) simt_fail("%s: no device memory", what);
    --m;
    if (from + bytes > m->first + m->second)
        simt_fail("%s: %zu bytes from byte %zu of device memory of %zu bytes", what, bytes,
                  (size_t)(from - m->first), m->second);
}

static bool can_run(const simt_stream *s)
{
    if (s->queue.empty()) return false;
    const operation &o = s->queue.front();
    if (o.outside && !o.outside->load()) return false;
    return !o.wait || o.wait->reached >= o.ticket;
}

// One operation of any stream; false: none can run.
static bool step()
{
    simt_stream *able[64];
    unsigned n = 0;
    for (simt_stream *s : streams)
        if (can_run(s) && n < 64) able[n++] = s;
    if (!n) return false;
    simt_stream *s = able[simt_choose(n)];
    operation o = std::move(s->queue.front());
    s->queue.pop_front();
    simt_counting()->operations++;
    if (o.run) o.run();
    return true;
}

static void add(simt_stream *s, operation o)
{
    if (!s) simt_fail("the default stream is not used here");
    s->queue.push_back(std::move(o));
    // Mostly nothing has happened yet; sometimes the device is quick.
    unsigned n = simt_choose(3) ? 0 : simt_choose(4);
    if (!n) return;
    opened memory;
    for (; n && step(); n--) continue;
}

// Nothing can run: work outside may change that.
static void wait_outside(const char *else_what)
{
    for (simt_stream *s : streams)
        if (!s->queue.empty() && s->queue.front().outside) {
            usleep(100);
            return;
        }
    simt_fail("%s", else_what);
}

template <class F> static void steps_until(F over, const char *else_what)
{
    while (!over()) {
        {
            opened memory;
            while (!over() && step()) continue;
        }
        if (!over()) wait_outside(else_what);
    }
}

static void drain(const simt_stream *s)
{
    steps_until([=] { return s->queue.empty(); }, "a stream waits for ever for an event");
}

void simt_launch(const char *kernel, dim3 grid, dim3 block, cudaStream_t stream,
                 std::function<void()> body)
{
    ONE_AT_A_TIME;
    add(stream, operation{[=] { simt_run(kernel, grid, block, body); }, NULL, 0, NULL});
}

void simt_queue(cudaStream_t stream, std::function<void()> work)
{
    ONE_AT_A_TIME;
    add(stream, operation{work, NULL, 0, NULL});
}

void simt_queue_outside(cudaStream_t stream, std::function<void()> work)
{
    ONE_AT_A_TIME;
    auto over = std::make_shared<std::atomic<bool>>(false);
    add(stream, operation{[=] {
                              std::thread([=] {
                                  work();
                                  over->store(true);
                              }).detach();
                          },
                          NULL, 0, NULL});
    add(stream, operation{{}, NULL, 0, over});
}

// A call's result; an error is kept as well, as CUDA does.
static cudaError_t said(cudaError_t err)
{
    if (err) last = err;
    return err;
}

static size_t memory_left()
{
    size_t left = memory_bytes;
    for (auto &m : device) left -= m.second < left ? m.second : left;
    return left;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *index)
{
    *index = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    return said(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int index)
{
    if (index != 0) return said(cudaErrorInvalidDevice);
    *out = cudaDeviceProp{LK_GPU_EMULATED, 9, 0, 1};
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int index)
{
    if (index != 0) return said(cudaErrorInvalidDevice);
    snprintf(out, (size_t)bytes, "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    ONE_AT_A_TIME;
    *all = memory_bytes;
    *left = memory_left();
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t err)
{
    return err == cudaSuccess ? "no error" : err == cudaErrorNotReady ? "not ready" : "an error";
}

cudaError_t cudaGetLastError()
{
    cudaError_t err = last;
    last = cudaSuccess;
    return err;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    ONE_AT_A_TIME;
    *out = bytes > memory_left() ? NULL : malloc(bytes ? bytes : 1);
    if (!*out) return said(cudaErrorMemoryAllocation);
    fill(*out, bytes);
    device[(char *)*out] = bytes;
    ASAN_POISON_MEMORY_REGION(*out, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    ONE_AT_A_TIME;
    if (!memory) return cudaSuccess;
    for (simt_stream *s : streams) drain(s); // as the real one does
    auto m = device.find((char *)memory);
    if (m == device.end()) simt_fail("cudaFree of what is no device memory");
    ASAN_UNPOISON_MEMORY_REGION(m->first, m->second);
    device.erase(m);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    ONE_AT_A_TIME;
    *out = malloc(bytes ? bytes : 1);
    if (*out) fill(*out, bytes);
    return said(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *memory)
{
    ONE_AT_A_TIME;
    for (simt_stream *s : streams) drain(s);
    free(memory);
    return cudaSuccess;
}

// A queued copy still reads some of this memory of the host's: a copy to it that is queued behind
// must leave it as it is.
static bool is_read(const char *at, size_t bytes)
{
    for (auto &r : readings)
        if (at < r.first + r.second && r.first < at + bytes) return true;
    return false;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ONE_AT_A_TIME;
    check_device(kind == cudaMemcpyDeviceToHost ? from : to, bytes, "cudaMemcpyAsync");
    if (kind == cudaMemcpyDeviceToDevice) check_device(from, bytes, "cudaMemcpyAsync");
    const char *from_host = kind == cudaMemcpyHostToDevice ? (const char *)from : NULL;
    if (kind == cudaMemcpyDeviceToHost && !is_read((const char *)to, bytes)) fill(to, bytes);
    auto reading = from_host ? readings.insert(readings.end(), {from_host, bytes}) : readings.end();
    add(stream, operation{[=] {
                              memcpy(to, from, bytes);
                              if (from_host) readings.erase(reading);
                          },
                          NULL, 0, NULL});
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    check_device(to, bytes, "cudaMemsetAsync");
    add(stream, operation{[=] { memset(to, value, bytes); }, NULL, 0, NULL});
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    ONE_AT_A_TIME;
    (void)flags;
    *out = new simt_stream;
    streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (!stream) return cudaSuccess;
    drain(stream);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream) streams.erase(streams.begin() + (long)i);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ONE_AT_A_TIME;
    drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    ONE_AT_A_TIME;
    (void)flags;
    add(stream, operation{{}, event, event->recorded, NULL});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = new simt_event{0, 0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    for (simt_stream *s : streams) drain(s);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    uint64_t ticket = ++event->recorded;
    add(stream, operation{[=] { event->reached = ticket; }, NULL, 0, NULL});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    steps_until([=] { return event->reached >= event->recorded; },
                "an event is waited for that nothing will reach");
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    if (event->reached < event->recorded) {
        opened memory;
        step();
    }
    return said(event->reached < event->recorded ? cudaErrorNotReady : cudaSuccess);
}
