// NCCL's names, over Unix sockets: the calls of worker/ranks/comm/nccl.h, for tests without a GPU.
//
// A communicator is a star: rank 0 receives the others' values, sums them in the order of ranks,
// and sends the result. Operations run on their stream (fake.h), so they are queued, and late: an
// array is copied from the device, overwritten there, and written back when the operation is over.
// As with the real NCCL, an operation whose peer is gone never ends by itself: the communicator's
// error shows it, and abort frees it. Faults (fake_fault): at init, "init" (it fails at once) and
// "never" (it never ends); at an operation, "call" (the call fails), "error" (the communicator
// fails) and "hang"; and "abort", which hangs. With LH_FAKE_NCCL_ASKS=N each operation is in
// progress until the communicator was asked N times, as the real one's calls are at first. With
// LH_FAKE_NCCL_ONE_GPU it refuses a second rank, as the real one refuses two ranks on one device of
// a host, and says so in its log file.
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/nccl/fake.h"
#include "worker/ranks/comm/nccl.h"

#define SHOWN __attribute__((visibility("default")))

enum { RANKS_MAX = 16, LOOK_MS = 5, NAME_BYTES = 48 };

struct wk_nccl_comm {
    struct wk_nccl_comm *next; // every communicator made; none is freed
    struct wk_nccl_id id;
    int ranks, rank, listener, fd[RANKS_MAX]; // -1: none
    _Atomic int error, asks;                  // asks: left until a call is over
    atomic_bool aborted, never;
    pthread_t thread; // creates the communicator
};

enum kind { SUM, GIVE };
struct operation {
    struct wk_nccl_comm *comm;
    enum kind kind;
    const void *from;
    void *to;
    size_t bytes;
    bool bf16; // a sum's values; else fp32
    char fault[16];
    const uint8_t *source; // on the device, like `array`; `bytes` of each
    uint8_t *array, *copy; // The operation works on `copy`, on the host.
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wk_nccl_comm *all;
static int waiting = -1; // a listener whose communicator is not begun yet
static char waiting_name[NAME_BYTES];

bool fake_fault(const char *of, char word[16])
{
    const char *folder = getenv("LH_FAKE_NCCL_FAULTS");
    char path[512];
    word[0] = 0;
    if (!folder) return false;
    snprintf(path, sizeof path, "%s/fault-%d", folder, (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool read = fscanf(file, "%15s", word) == 1 && strstr(of, word);
    fclose(file);
    if (read) unlink(path);
    if (!read) word[0] = 0;
    return read;
}

// ---------------------------------------------------------------- bytes

static bool wait_for(const struct wk_nccl_comm *c, int fd, short events)
{
    struct pollfd p = {fd, events, 0};
    while (poll(&p, 1, LOOK_MS) <= 0)
        if (atomic_load(&c->aborted)) return false;
    return !atomic_load(&c->aborted);
}

static bool move(const struct wk_nccl_comm *c, int fd, void *bytes, size_t n, bool out)
{
    for (size_t at = 0; at < n;) {
        if (!wait_for(c, fd, out ? POLLOUT : POLLIN)) return false;
        ssize_t m = out ? send(fd, (char *)bytes + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(fd, (char *)bytes + at, n - at, MSG_DONTWAIT);
        if (m == 0 || (m < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (m > 0) at += (size_t)m;
    }
    return true;
}

// ---------------------------------------------------------------- a communicator

static socklen_t address(const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

SHOWN int ncclGetVersion(int *out);
int ncclGetVersion(int *out)
{
    *out = 22809;
    return WK_NCCL_OK;
}

SHOWN const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
    return result == WK_NCCL_REMOTE   ? "remote process exited or there was a network error"
           : result == WK_NCCL_SYSTEM ? "unhandled system error"
                                      : "made-up NCCL error";
}

SHOWN int ncclGetUniqueId(struct wk_nccl_id *out);
int ncclGetUniqueId(struct wk_nccl_id *out)
{
    static unsigned count;
    struct sockaddr_un a;
    pthread_mutex_lock(&lock);
    if (waiting >= 0) close(waiting);
    snprintf(waiting_name, sizeof waiting_name, "fake-nccl-%d-%u", (int)getpid(), count++);
    socklen_t bytes = address(waiting_name, &a);
    waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine =
        waiting >= 0 && !bind(waiting, (struct sockaddr *)&a, bytes) && !listen(waiting, RANKS_MAX);
    *out = (struct wk_nccl_id){{0}};
    snprintf(out->bytes, sizeof out->bytes, "%s", waiting_name);
    pthread_mutex_unlock(&lock);
    return fine ? WK_NCCL_OK : WK_NCCL_SYSTEM;
}

static bool let_all_in(struct wk_nccl_comm *c)
{
    for (int come = 1; come < c->ranks; come++) {
        int rank;
        if (!wait_for(c, c->listener, POLLIN)) return false;
        int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || !move(c, fd, &rank, sizeof rank, false)) return false;
        c->fd[rank] = fd;
    }
    for (int rank = 1; rank < c->ranks; rank++)
        if (!move(c, c->fd[rank], &c->ranks, sizeof c->ranks, true)) return false;
    return true;
}

static bool go_in(struct wk_nccl_comm *c)
{
    struct sockaddr_un a;
    socklen_t bytes = address(c->id.bytes, &a);
    int ranks;
    c->fd[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return c->fd[0] >= 0 && !connect(c->fd[0], (struct sockaddr *)&a, bytes) &&
           move(c, c->fd[0], &c->rank, sizeof c->rank, true) &&
           move(c, c->fd[0], &ranks, sizeof ranks, false);
}

static void *make(void *arg)
{
    struct wk_nccl_comm *c = arg;
    bool made = !atomic_load(&c->never) && (c->rank ? go_in(c) : let_all_in(c));
    while (atomic_load(&c->never) && !atomic_load(&c->aborted)) usleep(1000);
    atomic_store(&c->error, made ? WK_NCCL_OK : WK_NCCL_REMOTE);
    return NULL;
}

static bool refuses(int ranks)
{
    const char *path = getenv("NCCL_DEBUG_FILE");
    if (ranks < 2 || !getenv("LH_FAKE_NCCL_ONE_GPU")) return false;
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return true;
    fputs("NCCL WARN Duplicate GPU detected\n", log);
    fclose(log);
    return true;
}

SHOWN int ncclCommInitRankConfig(struct wk_nccl_comm **out, int ranks, struct wk_nccl_id id,
                                 int rank, struct wk_nccl_config *config);
int ncclCommInitRankConfig(struct wk_nccl_comm **out, int ranks, struct wk_nccl_id id, int rank,
                           struct wk_nccl_config *config)
{
    char fault[16];
    *out = NULL;
    if (ranks > RANKS_MAX || config->magic != 0xcafebeefu || config->blocking)
        return WK_NCCL_ARGUMENT;
    fake_fault("init never", fault);
    if (!strcmp(fault, "init")) return WK_NCCL_SYSTEM;
    if (refuses(ranks)) return WK_NCCL_USAGE;
    struct wk_nccl_comm *c = calloc(1, sizeof *c);
    if (!c) return WK_NCCL_SYSTEM;
    *c = (struct wk_nccl_comm){.id = id, .ranks = ranks, .rank = rank, .listener = -1};
    for (int i = 0; i < RANKS_MAX; i++) c->fd[i] = -1;
    atomic_store(&c->error, WK_NCCL_IN_PROGRESS);
    atomic_store(&c->never, !strcmp(fault, "never"));
    pthread_mutex_lock(&lock);
    c->next = all;
    all = c;
    if (!rank) {
        c->listener = waiting;
        waiting = -1;
    }
    pthread_mutex_unlock(&lock);
    if (pthread_create(&c->thread, NULL, make, c)) abort();
    *out = c;
    return WK_NCCL_IN_PROGRESS;
}

SHOWN int ncclCommGetAsyncError(struct wk_nccl_comm *c, int *out);
int ncclCommGetAsyncError(struct wk_nccl_comm *c, int *out)
{
    int asks = atomic_load(&c->asks);
    *out = atomic_load(&c->error);
    if (asks > 0) atomic_store(&c->asks, asks - 1);
    if (asks > 1 && *out == WK_NCCL_OK) *out = WK_NCCL_IN_PROGRESS;
    return WK_NCCL_OK;
}

SHOWN int ncclCommAbort(struct wk_nccl_comm *c);
int ncclCommAbort(struct wk_nccl_comm *c)
{
    char fault[16];
    while (fake_fault("abort", fault)) pause();
    atomic_store(&c->aborted, true);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < RANKS_MAX; i++)
        if (c->fd[i] >= 0) shutdown(c->fd[i], SHUT_RDWR);
    if (c->listener >= 0) close(c->listener);
    return WK_NCCL_OK; // an operation may still look at it
}

SHOWN int ncclCommFinalize(struct wk_nccl_comm *c);
int ncclCommFinalize(struct wk_nccl_comm *c)
{
    (void)c;
    return WK_NCCL_USAGE; // the worker calls abort instead
}

SHOWN int ncclCommDestroy(struct wk_nccl_comm *c);
int ncclCommDestroy(struct wk_nccl_comm *c)
{
    (void)c;
    return WK_NCCL_USAGE; // likewise
}

// ---------------------------------------------------------------- operations

static float wide(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

// Rounds to nearest, ties to even.
static uint16_t narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t half = bits & 0xffff, low = bits >> 16;
    if (x != x) return (uint16_t)(low | 0x40);
    return (uint16_t)(low + (half > 0x8000 || (half == 0x8000 && (low & 1))));
}

static void add(const struct operation *o, void *sum, const void *theirs, size_t bytes)
{
    float *x = sum;
    uint16_t *small = sum;
    for (size_t i = 0; !o->bf16 && i < bytes / sizeof *x; i++) x[i] += ((const float *)theirs)[i];
    for (size_t i = 0; o->bf16 && i < bytes / sizeof *small; i++)
        small[i] = narrow(wide(small[i]) + wide(((const uint16_t *)theirs)[i]));
}

// On rank 0: sums what all ranks have at `from`.
static bool sum_up(const struct operation *o, void *sum, size_t bytes)
{
    struct wk_nccl_comm *c = o->comm;
    void *theirs = malloc(bytes + 1);
    bool fine = theirs != NULL;
    memmove(sum, o->from, bytes);
    for (int rank = 1; fine && rank < c->ranks; rank++) {
        fine = move(c, c->fd[rank], theirs, bytes, false);
        if (fine) add(o, sum, theirs, bytes);
    }
    free(theirs);
    return fine;
}

static bool give_all(const struct operation *o)
{
    struct wk_nccl_comm *c = o->comm;
    bool fine = true;
    for (int rank = 1; fine && rank < c->ranks; rank++)
        fine = move(c, c->fd[rank], o->to, o->bytes, true);
    return fine;
}

// Rank 0 sends the whole result to each rank.
static bool carry_out(const struct operation *o)
{
    struct wk_nccl_comm *c = o->comm;
    if (!strcmp(o->fault, "hang")) return false;
    if (!c->rank) return (o->kind != SUM || sum_up(o, o->to, o->bytes)) && give_all(o);
    if (o->kind == SUM && !move(c, c->fd[0], (void *)(uintptr_t)o->from, o->bytes, true))
        return false;
    return move(c, c->fd[0], o->to, o->bytes, false);
}

// A Broadcast's root only reads.
static bool writes(const struct operation *o)
{
    return o->kind != GIVE || o->comm->rank;
}

// Runs on the stream, like put() and run().
static void take(void *arg)
{
    struct operation *o = arg;
    memcpy(o->copy, o->source, o->bytes);
    if (writes(o)) memset(o->array, 0xff, o->bytes); // NaNs: nobody may read them
}

static void put(void *arg)
{
    struct operation *o = arg;
    if (writes(o)) memcpy(o->array, o->copy, o->bytes);
    free(o->copy);
    free(o);
}

// An operation that fails holds the stream up until the abort.
static void run(void *arg)
{
    struct operation *o = arg;
    struct wk_nccl_comm *c = o->comm;
    bool error = !strcmp(o->fault, "error"), hang = !strcmp(o->fault, "hang");
    if (error || !carry_out(o)) {
        if (!hang && !atomic_load(&c->aborted)) atomic_store(&c->error, WK_NCCL_REMOTE);
        while (!atomic_load(&c->aborted)) usleep(1000);
        memset(o->copy, 0xff, o->bytes);
    }
}

static int queue(struct operation o, wk_nccl_stream stream)
{
    if (atomic_load(&o.comm->error)) return WK_NCCL_USAGE;
    fake_fault("call error hang", o.fault);
    if (!strcmp(o.fault, "call")) return WK_NCCL_INTERNAL;
    o.array = o.to;
    o.source = o.from;
    o.copy = malloc(o.bytes + 1);
    struct operation *kept = malloc(sizeof *kept);
    if (!kept || !o.copy) return WK_NCCL_SYSTEM;
    *kept = o;
    kept->from = kept->to = o.copy;
    fake_stream_queue(stream, take, kept);
    fake_stream_outside(stream, run, kept);
    fake_stream_queue(stream, put, kept);
    const char *asks = getenv("LH_FAKE_NCCL_ASKS");
    if (!asks) return WK_NCCL_OK;
    atomic_store(&o.comm->asks, (int)strtol(asks, NULL, 10));
    return WK_NCCL_IN_PROGRESS;
}

SHOWN int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                        struct wk_nccl_comm *comm, wk_nccl_stream stream);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                  struct wk_nccl_comm *comm, wk_nccl_stream stream)
{
    bool bf16 = type == WK_NCCL_BF16;
    if ((type != WK_NCCL_FP32 && !bf16) || op != WK_NCCL_SUM) return WK_NCCL_ARGUMENT;
    return queue(
        (struct operation){comm, SUM, from, to, count * (bf16 ? 2 : 4), bf16, "", NULL, NULL, NULL},
        stream);
}

SHOWN int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                        struct wk_nccl_comm *comm, wk_nccl_stream stream);
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                  struct wk_nccl_comm *comm, wk_nccl_stream stream)
{
    if (type != WK_NCCL_UINT8 || root != 0 || from != to) return WK_NCCL_ARGUMENT;
    return queue((struct operation){comm, GIVE, from, to, count, false, "", NULL, NULL, NULL},
                 stream);
}
