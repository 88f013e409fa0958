// The emulator's streams, events and memory. See simt.h.
//
// Invariants: 1. an operation runs after those before it in its stream and after the event that its
// stream was told to wait for; nothing else orders it; 2. device memory can be reached by kernels
// and copies alone (under AddressSanitizer a touch from the host is found); 3. a copy reads its
// source when it runs, and its destination holds poison until then; 4. one thread at a time is
// inside, from any caller: the emulator has one processor; 5. an operation sees the memory of its
// own device and of those that it was given access to: a touch of another's ends the program.
//
// There are LH_SIMT_DEVICES devices (1), and with LH_SIMT_PEERS=1 each may be given access to the
// others. The next operation is chosen at random from those that may run. With LH_SIMT_LATE=1 only
// what is waited for runs: each other operation is as late as streams and events permit.
#include "kernels/cuda/plugin.h"
#include "tests/simt/fibre.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
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

struct simt_stream;

struct simt_event {
    int device;
    uint64_t recorded, reached; // tickets
    simt_stream *in;            // it was recorded last in this one, which may be gone
};

struct operation {
    std::function<void()> run;
    simt_event *wait; // not before this event has reached `ticket`
    uint64_t ticket;
    std::shared_ptr<std::atomic<bool>> outside; // not before work outside is over; may be none
    int with = -1;                              // a copy between devices: the other one
    simt_stream *in = NULL;                     // the stream that `ticket` was recorded in
};

struct simt_stream {
    int device;
    std::deque<operation> queue;
};

struct allocation {
    size_t bytes, room; // room: whole pages
    int device;
    bool hidden;
};

static std::recursive_mutex inside; // a queued call may run others
#define ONE_AT_A_TIME std::lock_guard<std::recursive_mutex> one_at_a_time(inside)
static const size_t memory_bytes = (size_t)1 << 30; // each device has it
static const size_t page_bytes = 4096;
enum { DEVICES_MAX = 16 };
static thread_local cudaError_t last; // cudaGetLastError() returns and clears it
static thread_local int current;
static bool given[DEVICES_MAX][DEVICES_MAX]; // the first has access to the second's memory
static int seen = -1, seen_with = -1;        // arguments of the last see(); -1: unknown
static std::vector<simt_stream *> streams;
static std::map<char *, allocation> device;
static std::list<std::pair<const char *, size_t>>
    readings; // The host's memory that queued copies read.

static void fill(void *memory, size_t bytes)
{
    memset(memory, simt_choose(2) ? 0xff : 0xa5, bytes);
}

// While one of these exists, operations may touch device memory; a queued call may run others.
struct opened {
    static unsigned depth;
    opened()
    {
        if (depth++) return;
        for (auto &m : device) ASAN_UNPOISON_MEMORY_REGION(m.first, m.second.bytes);
    }
    ~opened()
    {
        if (--depth) return;
        for (auto &m : device) ASAN_POISON_MEMORY_REGION(m.first, m.second.room);
    }
};
unsigned opened::depth;

// ---- several devices
static int variable(const char *name, int otherwise, int most)
{
    const char *value = getenv(name);
    char *end = nullptr;
    long is = value ? strtol(value, &end, 10) : 0;
    return end == value || *end || is < 0 || is > most ? otherwise : (int)is;
}

static int device_count()
{
    static int count = variable("LH_SIMT_DEVICES", 1, DEVICES_MAX);
    return count;
}

static void touched(int, siginfo_t *info, void *)
{
    for (auto &m : device) {
        char *at = (char *)info->si_addr;
        if (m.second.hidden && at >= m.first && at < m.first + m.second.room)
            simt_fail("device %d touches memory of device %d, to which it has no access", seen,
                      m.second.device);
    }
    signal(SIGSEGV, SIG_DFL); // the access faults again and ends the process
}

static void hide(char *memory, allocation *a, bool is_hidden)
{
    if (a->hidden == is_hidden) return;
    a->hidden = is_hidden;
    if (mprotect(memory, a->room, is_hidden ? PROT_NONE : PROT_READ | PROT_WRITE))
        simt_fail("mprotect of %zu bytes", a->room);
}

// Hides the memory that work of device `is` must not touch; it may touch that of `with`.
static void see(int is, int with)
{
    static bool caught;
    if (device_count() == 1 || (seen == is && seen_with == with)) return;
    struct sigaction action = {};
    action.sa_sigaction = touched;
    action.sa_flags = SA_SIGINFO;
    if (!caught) sigaction(SIGSEGV, &action, NULL);
    caught = true;
    seen = is;
    seen_with = with;
    for (auto &m : device) {
        int of = m.second.device;
        hide(m.first, &m.second, of != is && of != with && !given[is][of]);
    }
}

// Returns the device whose memory this is.
static int check_device(const void *at, size_t bytes, const char *what)
{
    char *from = (char *)at;
    auto m = device.upper_bound(from);
    if (m == device.begin()) simt_fail("%s: no device memory", what);
    --m;
    if (from + bytes > m->first + m->second.bytes)
        simt_fail("%s: %zu bytes from byte %zu of device memory of %zu bytes", what, bytes,
                  (size_t)(from - m->first), m->second.bytes);
    return m->second.device;
}

// CUDA permits copies on a stream of another device. Here they are a mistake.
static void check_own(const void *at, size_t bytes, const simt_stream *s, const char *what)
{
    int of = check_device(at, bytes, what);
    if (s && of != s->device)
        simt_fail("%s: memory of device %d on a stream of device %d", what, of, s->device);
}

static bool can_run(const simt_stream *s)
{
    if (s->queue.empty()) return false;
    const operation &o = s->queue.front();
    if (o.outside && !o.outside->load()) return false;
    return !o.wait || o.wait->reached >= o.ticket;
}

static bool is_late()
{
    static bool late = variable("LH_SIMT_LATE", 0, 1) == 1;
    return late;
}

static bool lives(const simt_stream *s)
{
    for (const simt_stream *one : streams)
        if (one == s) return true;
    return false;
}

// The stream whose next operation `s` needs; NULL: none can run.
static simt_stream *needed_by(simt_stream *s)
{
    for (size_t i = 0; i <= streams.size() && s && lives(s); i++) {
        if (can_run(s)) return s;
        if (s->queue.empty() || s->queue.front().outside) return NULL;
        s = s->queue.front().in;
    }
    return NULL;
}

static simt_stream *any()
{
    simt_stream *able[64];
    unsigned n = 0;
    for (simt_stream *s : streams)
        if (can_run(s) && n < 64) able[n++] = s;
    return n ? able[simt_choose(n)] : NULL;
}

// Runs one operation, if late one that `wanted` needs. False: none can run.
static bool step(simt_stream *wanted)
{
    simt_stream *s = is_late() ? needed_by(wanted) : any();
    if (!s) return false;
    operation o = std::move(s->queue.front());
    s->queue.pop_front();
    simt_counting()->operations++;
    if (!o.run) return true;
    static unsigned running; // an operation may wait for other work
    int before = seen, before_with = seen_with;
    see(s->device, o.with);
    running++;
    o.run();
    if (--running && before >= 0) see(before, before_with);
    return true;
}

static void add(simt_stream *s, operation o)
{
    if (!s) simt_fail("the default stream is not used here");
    s->queue.push_back(std::move(o));
    // Mostly nothing has happened yet; sometimes the device is quick.
    unsigned n = is_late() || simt_choose(3) ? 0 : simt_choose(4);
    if (!n) return;
    opened memory;
    for (; n && step(s); n--) continue;
}

// Nothing can run, unless work outside changes that.
static void wait_outside(const char *else_what)
{
    for (simt_stream *s : streams)
        if (!s->queue.empty() && s->queue.front().outside) {
            usleep(100);
            return;
        }
    simt_fail("%s", else_what);
}

template <class F> static void steps_until(F over, simt_stream *wanted, const char *else_what)
{
    while (!over()) {
        {
            opened memory;
            while (!over() && step(wanted)) continue;
        }
        if (!over()) wait_outside(else_what);
    }
}

static void drain(simt_stream *s)
{
    steps_until([=] { return s->queue.empty(); }, s, "a stream waits for ever for an event");
}

void simt_launch(const char *kernel, dim3 grid, dim3 block, cudaStream_t stream,
                 std::function<void()> body)
{
    ONE_AT_A_TIME;
    if (stream && stream->device != current)
        last = cudaErrorInvalidResourceHandle;
    else
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

// Returns a call's result, and keeps an error, as CUDA does.
static cudaError_t said(cudaError_t err)
{
    if (err) last = err;
    return err;
}

static size_t memory_left()
{
    size_t left = memory_bytes;
    for (auto &m : device)
        if (m.second.device == current) left -= m.second.bytes < left ? m.second.bytes : left;
    return left;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
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
    *index = current;
    return cudaSuccess;
}

static bool is_device(int index)
{
    return index >= 0 && index < device_count();
}

cudaError_t cudaSetDevice(int index)
{
    if (!is_device(index)) return said(cudaErrorInvalidDevice);
    current = index;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int index, int peer)
{
    if (!is_device(index) || !is_device(peer)) return said(cudaErrorInvalidDevice);
    *can = index != peer && variable("LH_SIMT_PEERS", 0, 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    ONE_AT_A_TIME;
    int can = 0;
    if (flags) return said(cudaErrorInvalidValue);
    cudaError_t err = cudaDeviceCanAccessPeer(&can, current, peer);
    if (err) return err;
    if (!can) return said(cudaErrorPeerAccessUnsupported);
    if (given[current][peer]) return said(cudaErrorPeerAccessAlreadyEnabled);
    given[current][peer] = true;
    seen = -1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int index)
{
    if (!is_device(index)) return said(cudaErrorInvalidDevice);
    int sm = variable("LH_SIMT_SM", 90, 999); // compute capability, as in sm_90
    *out = cudaDeviceProp{LK_GPU_EMULATED, sm / 10, sm % 10, 1};
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int index)
{
    if (!is_device(index)) return said(cudaErrorInvalidDevice);
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", (unsigned)index);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    ONE_AT_A_TIME;
    *all = memory_bytes;
    *left = memory_left();
    return cudaSuccess;
}

cudaError_t cudaGetLastError()
{
    cudaError_t err = last;
    last = cudaSuccess;
    return err;
}

// The bytes between an array's end and its page's end. cudaFree() finds a write there.
static const uint8_t beyond_the_end = 0x5c;

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    ONE_AT_A_TIME;
    size_t room = (bytes / page_bytes + 1) * page_bytes;
    *out = bytes > memory_left() ? NULL : aligned_alloc(page_bytes, room);
    if (!*out) return said(cudaErrorMemoryAllocation);
    fill(*out, bytes);
    memset((char *)*out + bytes, beyond_the_end, room - bytes);
    device[(char *)*out] = allocation{bytes, room, current, false};
    simt_counting()->held++;
    seen = -1;
    ASAN_POISON_MEMORY_REGION(*out, room);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    ONE_AT_A_TIME;
    if (!memory) return cudaSuccess;
    for (simt_stream *s : streams) drain(s); // as the real one does
    auto m = device.find((char *)memory);
    if (m == device.end()) simt_fail("cudaFree of what is no device memory");
    ASAN_UNPOISON_MEMORY_REGION(m->first, m->second.room);
    hide(m->first, &m->second, false);
    for (size_t i = m->second.bytes; i < m->second.room; i++)
        if ((uint8_t)m->first[i] != beyond_the_end)
            simt_fail("an array of %zu bytes was written at %zu", m->second.bytes, i);
    device.erase(m);
    free(memory);
    simt_counting()->held--;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    ONE_AT_A_TIME;
    *out = malloc(bytes ? bytes : 1);
    if (*out) fill(*out, bytes);
    if (*out) simt_counting()->held++;
    return said(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *memory)
{
    ONE_AT_A_TIME;
    if (!memory) return cudaSuccess;
    for (simt_stream *s : streams) drain(s);
    free(memory);
    simt_counting()->held--;
    return cudaSuccess;
}

// Whether a queued copy still reads some of this host memory: then a copy to it that is queued
// later must not poison it yet.
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
    check_own(kind == cudaMemcpyDeviceToHost ? from : to, bytes, stream, "cudaMemcpyAsync");
    if (kind == cudaMemcpyDeviceToDevice) check_own(from, bytes, stream, "cudaMemcpyAsync");
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

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    int to_is = check_device(to, bytes, "cudaMemcpyPeerAsync");
    int from_is = check_device(from, bytes, "cudaMemcpyPeerAsync");
    if (to_is != to_device || from_is != from_device)
        simt_fail("cudaMemcpyPeerAsync: memory of devices %d and %d is not of %d and %d", to_is,
                  from_is, to_device, from_device);
    if (stream && stream->device != to_is && stream->device != from_is)
        simt_fail("cudaMemcpyPeerAsync: devices %d and %d, a stream of device %d", to_is, from_is,
                  stream->device);
    operation copy{[=] { memcpy(to, from, bytes); }, NULL, 0, NULL};
    copy.with = stream && stream->device == to_is ? from_is : to_is;
    add(stream, copy);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    check_own(to, bytes, stream, "cudaMemsetAsync");
    if (stream && stream->device != current) return said(cudaErrorInvalidResourceHandle);
    add(stream, operation{[=] { memset(to, value, bytes); }, NULL, 0, NULL});
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    ONE_AT_A_TIME;
    (void)flags;
    *out = new simt_stream{current, {}};
    streams.push_back(*out);
    simt_counting()->held++;
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
    simt_counting()->held--;
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
    operation wait{{}, event, event->recorded, NULL};
    wait.in = event->in;
    add(stream, wait);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    ONE_AT_A_TIME;
    (void)flags;
    *out = new simt_event{current, 0, 0, NULL};
    simt_counting()->held++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    if (!event) return cudaSuccess;
    for (simt_stream *s : streams) drain(s);
    delete event;
    simt_counting()->held--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (stream && stream->device != event->device) return said(cudaErrorInvalidResourceHandle);
    uint64_t ticket = ++event->recorded;
    event->in = stream;
    add(stream, operation{[=] { event->reached = ticket; }, NULL, 0, NULL});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    steps_until([=] { return event->reached >= event->recorded; }, event->in,
                "an event is waited for that nothing will reach");
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ONE_AT_A_TIME;
    if (event->reached < event->recorded) {
        opened memory;
        step(event->in);
    }
    return said(event->reached < event->recorded ? cudaErrorNotReady : cudaSuccess);
}
