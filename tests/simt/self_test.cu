// The emulator's own test: each wrong use of the dialect aborts with the text that names it, and
// what CUDA leaves open happens in more than one order.
#include "tests/simt/fibre.h"

#include <initializer_list>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64 };

static void early_leave(int)
{
    if (threadIdx.x == 5) return;
    __syncthreads();
}

static void divergent(int)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

static void not_in_mask(int)
{
    __ballot_sync(0xfffffffeu, 1);
}

static void lane_left(int)
{
    if (threadIdx.x % 32 == 3) return;
    __shfl_sync(0xffffffffu, 1u, 0);
}

static void different_masks(int)
{
    unsigned mask = threadIdx.x % 2 ? 0xffffffffu : 0x55555555u;
    __ballot_sync(mask, 1);
}

static void different_operations(int)
{
    if (threadIdx.x % 2)
        __ballot_sync(0xffffffffu, 1);
    else
        __reduce_add_sync(0xffffffffu, 1u);
}

static void reads_outside_mask(int)
{
    if (threadIdx.x % 32 < 16) __shfl_sync(0x0000ffffu, 1u, 20);
}

static void barrier_and_warp(int)
{
    if (threadIdx.x % 32 == 0)
        __syncthreads();
    else
        __ballot_sync(0xffffffffu, 1);
}

static void run(void (*kernel)(int), unsigned threads)
{
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    LK_LAUNCH(kernel, 2, threads, stream, 0);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
}

static void copy_too_far()
{
    cudaStream_t stream;
    void *device;
    char host[8];
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&device, 4);
    cudaMemcpyAsync(host, device, 8, cudaMemcpyDeviceToHost, stream);
}

// AddressSanitizer would end it before the emulator does.
__attribute__((no_sanitize_address)) static void put_beyond(char *out)
{
    if (threadIdx.x == 0) out[5] = 7;
}

static void write_too_far()
{
    cudaStream_t stream;
    void *device;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&device, 4);
    LK_LAUNCH(put_beyond, 1, THREADS, stream, (char *)device);
    cudaStreamSynchronize(stream);
    cudaFree(device);
}

// Runs `wrong` in a process of its own, and looks for `text` in its output as it aborts.
static void must_abort(const std::function<void()> &wrong, const char *text)
{
    char said[4096];
    size_t n = 0;
    ssize_t got;
    int pipes[2], status;
    if (pipe(pipes)) abort();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 2);
        close(pipes[0]);
        close(pipes[1]);
        wrong();
        _exit(0);
    }
    close(pipes[1]);
    while (n < sizeof said - 1 && (got = read(pipes[0], said + n, sizeof said - 1 - n)) > 0)
        n += (size_t)got;
    said[n] = 0;
    close(pipes[0]);
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        fprintf(stderr, "nothing was found where \"%s\" was expected\n", text);
        exit(1);
    }
    if (!strstr(said, "simt: ") || !strstr(said, text)) {
        fprintf(stderr, "\"%s\" was expected, not: %s\n", text, said);
        exit(1);
    }
}

static void must(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

// Every thread writes its number to one word; the last write stays.
static void last_one(unsigned *out)
{
    simt_yield();
    *out = threadIdx.x;
}

struct pair {
    unsigned a[THREADS];
};

// Reads the neighbour's value without a barrier between: sometimes it is not there yet.
static void no_barrier(unsigned *out)
{
    LK_SHARED(struct pair, s);
    s.a[threadIdx.x] = threadIdx.x;
    if (s.a[(threadIdx.x + 1) % THREADS] != (threadIdx.x + 1) % THREADS) atomicAdd(out, 1u);
}

static void with_barrier(unsigned *out)
{
    LK_SHARED(struct pair, s);
    s.a[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (s.a[(threadIdx.x + 1) % THREADS] != (threadIdx.x + 1) % THREADS) atomicAdd(out, 1u);
}

static void sums(unsigned *out)
{
    unsigned lane = threadIdx.x % 32, up = __shfl_up_sync(0xffffffffu, lane, 1);
    bool right = up == (lane ? lane - 1 : 0) && __reduce_add_sync(0xffffffffu, lane) == 496 &&
                 __ballot_sync(0xffffffffu, lane == 3) == 8 &&
                 __shfl_xor_sync(0xffffffffu, lane, 1) == (lane ^ 1) &&
                 __reduce_max_sync(0xffffffffu, lane) == 31 &&
                 __syncthreads_count(lane == 0) == THREADS / 32;
    if (!right) atomicAdd(out, 1u);
}

// Runs `kernel` on a word that is 0, and returns the word.
static unsigned word_after(void (*kernel)(unsigned *), uint64_t seed)
{
    cudaStream_t stream;
    void *device;
    unsigned word = 0;
    simt_seed(seed);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&device, sizeof word);
    cudaMemsetAsync(device, 0, sizeof word, stream);
    LK_LAUNCH(kernel, 1, THREADS, stream, (unsigned *)device);
    cudaMemcpyAsync(&word, device, sizeof word, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    cudaFree(device);
    return word;
}

// Two streams copy into one word; with an event between them the second is always last.
static unsigned later_stream(bool ordered, uint64_t seed)
{
    cudaStream_t stream[2];
    cudaEvent_t event;
    void *device;
    unsigned word[2] = {1, 2}, out;
    simt_seed(seed);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (int i = 0; i < 2; i++) cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking);
    cudaMalloc(&device, sizeof out);
    cudaMemcpyAsync(device, &word[0], sizeof out, cudaMemcpyHostToDevice, stream[0]);
    cudaEventRecord(event, stream[0]);
    if (ordered) cudaStreamWaitEvent(stream[1], event, 0);
    cudaMemcpyAsync(device, &word[1], sizeof out, cudaMemcpyHostToDevice, stream[1]);
    for (int i = 0; i < 2; i++) cudaStreamSynchronize(stream[i]);
    cudaMemcpyAsync(&out, device, sizeof out, cudaMemcpyDeviceToHost, stream[0]);
    cudaStreamSynchronize(stream[0]);
    for (int i = 0; i < 2; i++) cudaStreamDestroy(stream[i]);
    cudaEventDestroy(event);
    cudaFree(device);
    return out;
}

// A copy to the host is poison until it is waited for, and reads its source late.
static void deferred()
{
    unsigned early = 0, late_source = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        cudaStream_t stream;
        void *device;
        unsigned source = 7, out = 0;
        simt_seed(seed);
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaMalloc(&device, sizeof out);
        cudaMemcpyAsync(device, &source, sizeof out, cudaMemcpyHostToDevice, stream);
        cudaMemcpyAsync(&out, device, sizeof out, cudaMemcpyDeviceToHost, stream);
        early += out != 7;
        source = 8;
        cudaStreamSynchronize(stream);
        late_source += out == 8;
        must(out == 7 || out == 8, "a copy brought something else");
        cudaStreamDestroy(stream);
        cudaFree(device);
    }
    must(early > 50 && early < 200, "copies are not sometimes early, sometimes late");
    must(late_source > 50, "a source that changed too early is never seen");
}

// ---- two devices
struct there { // memory, a stream and an event of a device, which becomes the current one
    void *memory;
    cudaStream_t stream;
    cudaEvent_t event;
};

static there on(int device)
{
    there t;
    must(cudaSetDevice(device) == cudaSuccess, "there is no second device");
    cudaMalloc(&t.memory, 4);
    cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&t.event, cudaEventDisableTiming);
    return t;
}

static void give_back(std::initializer_list<there> all)
{
    for (auto t : all) {
        cudaStreamDestroy(t.stream);
        cudaEventDestroy(t.event);
        cudaFree(t.memory);
    }
}

static void put_seven(unsigned *out)
{
    if (threadIdx.x == 0) *out = 7;
}

// A kernel of device 1 writes to the memory of device 0.
static void reach_over()
{
    there a = on(0), b = on(1);
    LK_LAUNCH(put_seven, 1, THREADS, b.stream, (unsigned *)a.memory);
    cudaStreamSynchronize(b.stream);
}

static void copy_as_if_own()
{
    there a = on(0), b = on(1);
    cudaMemcpyAsync(b.memory, a.memory, 4, cudaMemcpyDeviceToDevice, b.stream);
}

static void copy_of_another()
{
    there a = on(0), b = on(1);
    cudaMemcpyPeerAsync(b.memory, 1, a.memory, 1, 4, b.stream);
}

// Device 1 gets a copy of what device 0 wrote, ordered by an event of device 0 or not.
static unsigned copied_over(bool ordered, uint64_t seed)
{
    unsigned out = 0;
    simt_seed(seed);
    there a = on(0), b = on(1);
    cudaSetDevice(0);
    LK_LAUNCH(put_seven, 1, THREADS, a.stream, (unsigned *)a.memory);
    must(cudaEventRecord(a.event, a.stream) == cudaSuccess, "an event of its own device");
    cudaSetDevice(1);
    if (ordered) cudaStreamWaitEvent(b.stream, a.event, 0);
    cudaMemcpyPeerAsync(b.memory, 1, a.memory, 0, 4, b.stream);
    cudaMemcpyAsync(&out, b.memory, 4, cudaMemcpyDeviceToHost, b.stream);
    cudaStreamSynchronize(b.stream);
    give_back({a, b});
    return out;
}

static void wrong_device()
{
    there a = on(0), b = on(1);
    LK_LAUNCH(put_seven, 1, THREADS, a.stream, (unsigned *)a.memory);
    must(cudaGetLastError() == cudaErrorInvalidResourceHandle, "a launch with another device");
    must(cudaEventRecord(a.event, b.stream) == cudaErrorInvalidResourceHandle, "another's event");
    must(cudaMemsetAsync(a.memory, 0, 4, a.stream) == cudaErrorInvalidResourceHandle, "a memset");
    must(cudaSetDevice(2) == cudaErrorInvalidDevice, "a device that is not there");
    int can = 1;
    cudaDeviceCanAccessPeer(&can, 1, 0);
    must(!can && cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessUnsupported, "access");
    setenv("LH_SIMT_PEERS", "1", 1);
    must(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess, "no access is given");
    must(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled, "given twice");
    LK_LAUNCH(put_seven, 1, THREADS, b.stream, (unsigned *)a.memory);
    cudaStreamSynchronize(b.stream);
    must(cudaGetLastError() == cudaErrorPeerAccessAlreadyEnabled, "an error is kept");
    give_back({a, b});
}

static void two_devices()
{
    unsigned early = 0;
    must_abort(reach_over, "device 1 touches memory of device 0");
    must_abort(copy_as_if_own, "memory of device 0 on a stream of device 1");
    must_abort(copy_of_another, "memory of devices 1 and 0 is not of 1 and 1");
    for (uint64_t seed = 1; seed <= 20; seed++) {
        must(copied_over(true, seed) == 7, "an event does not order two devices");
        early += copied_over(false, seed) != 7;
    }
    must(early > 2, "devices run in one order");
    wrong_device();
    cudaSetDevice(0);
}

// A wait for an event waits for the copy before it, and not for the one behind it.
static void until_the_event()
{
    there a = on(0);
    unsigned source = 7, first = 0, second = 0;
    cudaMemcpyAsync(a.memory, &source, 4, cudaMemcpyHostToDevice, a.stream);
    cudaMemcpyAsync(&first, a.memory, 4, cudaMemcpyDeviceToHost, a.stream);
    cudaEventRecord(a.event, a.stream);
    cudaMemcpyAsync(&second, a.memory, 4, cudaMemcpyDeviceToHost, a.stream);
    must(first != 7 && second != 7, "something runs before it is waited for");
    cudaEventSynchronize(a.event);
    must(first == 7 && second != 7, "a wait for an event is not that for what is before it");
    cudaStreamSynchronize(a.stream);
    must(second == 7, "a wait for a stream leaves something behind");
    give_back({a});
}

// Recording an event again, in another stream, does not change what an earlier wait needs.
static void recorded_anew()
{
    there a = on(0);
    cudaStream_t other;
    unsigned source = 7, first = 0, second = 0;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaMemcpyAsync(a.memory, &source, 4, cudaMemcpyHostToDevice, a.stream);
    cudaEventRecord(a.event, a.stream);
    cudaStreamWaitEvent(other, a.event, 0);
    cudaMemcpyAsync(&first, a.memory, 4, cudaMemcpyDeviceToHost, other);
    cudaEventRecord(a.event, other);
    cudaStreamWaitEvent(a.stream, a.event, 0);
    cudaMemcpyAsync(&second, a.memory, 4, cudaMemcpyDeviceToHost, a.stream);
    cudaStreamSynchronize(other);
    must(first == 7 && second != 7, "a wait for an event that is recorded anew");
    cudaStreamSynchronize(a.stream);
    must(second == 7, "a wait for an event's second record");
    cudaStreamDestroy(other);
    give_back({a});
}

// With LH_SIMT_LATE=1, whatever the seed.
static int late()
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        must(copied_over(true, seed) == 7, "an event does not order two devices");
        must(copied_over(false, seed) != 7, "what nothing waits for has run");
        must(later_stream(true, seed) == 2, "an event does not order two streams");
        must(later_stream(false, seed) == 2, "the stream that is waited for last runs first");
        until_the_event();
        recorded_anew();
    }
    puts("simt: what is not waited for is late");
    return 0;
}

int main()
{
    setenv("LH_SIMT_DEVICES", "2", 1);
    if (getenv("LH_SIMT_LATE")) return late();
    struct {
        void (*kernel)(int);
        unsigned threads;
        const char *text;
    } wrong[] = {{early_leave, THREADS, "left early"},
                 {divergent, THREADS, "divergent barriers"},
                 {not_in_mask, THREADS, "leaves it out"},
                 {lane_left, THREADS, "has left"},
                 {different_masks, THREADS, "different warp operations"},
                 {different_operations, THREADS, "different warp operations"},
                 {reads_outside_mask, THREADS, "which is not in mask"},
                 {barrier_and_warp, THREADS, "barrier"},
                 {lane_left, 16, "lanes that the block does not have"}};
    for (auto &w : wrong) must_abort([&] { run(w.kernel, w.threads); }, w.text);
    must_abort([] { run(early_leave, 2000); }, "launch of");
    must_abort(copy_too_far, "of device memory of 4 bytes");
    must_abort(write_too_far, "an array of 4 bytes was written at 5");
    unsigned first = word_after(last_one, 1), others = 0, unseen = 0, orders[3] = {0, 0, 0};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        others += word_after(last_one, seed) != first;
        unseen += word_after(no_barrier, seed) > 0;
        must(word_after(with_barrier, seed) == 0, "a barrier does not hold");
        must(word_after(sums, seed) == 0, "a warp operation is wrong");
        orders[later_stream(false, seed)]++;
        must(later_stream(true, seed) == 2, "an event does not order two streams");
    }
    must(word_after(last_one, 1) == first, "a seed does not replay");
    must(others > 10, "threads come in one order");
    must(unseen == 20, "a missing barrier is not seen");
    must(orders[1] > 2 && orders[2] > 2, "streams run in one order");
    deferred();
    two_devices();
    puts("simt: all wrong uses were found");
    return 0;
}
