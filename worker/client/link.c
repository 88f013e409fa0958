// The socket to the worker, and the worker's death and return. See handle.h and
// worker/docs/0001-boundary.md.
//
//  1. The pidfd reports death: a socket stays open in forked children.
//  2. Once a life has begun no call here blocks: an absent worker is retried at boundaries, at most
//     every TRY_NS, and its answer is read at a later one.
//  3. The memory belongs to the life, not to a worker's process: the next process gets it.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "worker/client/handle.h"
#include "worker/external/message.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static const int64_t MS = 1000000, TRY_NS = 20 * INT64_C(1000000);
enum { SEND_MS = 1000, PAUSE_MS = 20, END_MS = 100 };

int64_t wk_link_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 * MS + t.tv_nsec;
}

void wk_link_sleep(const _Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
    struct timespec t = {ns / (1000 * MS), ns % (1000 * MS)};
    if (ns > 0) syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

void wk_link_wake(const _Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

// ---------------------------------------------------------------- messages

static int send_message(struct longhaul *c, const struct wk_channel_message *m, int file)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    size_t n = wk_channel_encode(m, bytes);
    if (!n) return wk_client_fail(c, LONGHAUL_E_INVALID, "a description that is too long");
    if (wk_message_send(c->sock, bytes, n, file, true)) return LONGHAUL_OK;
    return wk_client_fail(c, LONGHAUL_E_TIMEOUT, "the worker went: %s", strerror(errno));
}

void wk_link_report(struct longhaul *c, const char *name, double value)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_REPORT};
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    m.as.report.value = value;
    snprintf(m.as.report.name, sizeof m.as.report.name, "%s", name);
    size_t n = wk_channel_encode(&m, bytes); // 0: the value is not finite
    if (n && c->link == WK_LINK_UP) send(c->sock, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int wk_link_damaged(struct longhaul *c, uint64_t unit)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_DAMAGED};
    m.as.damaged = unit;
    if (c->link != WK_LINK_UP)
        return wk_client_fail(c, LONGHAUL_E_AGAIN, "the worker is away: call this again");
    return send_message(c, &m, -1);
}

// False: nothing arrived, or no valid message. The caller owns the file that came with it.
static bool receive(int sock, struct wk_channel_message *m, int *file)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    ssize_t n = wk_message_receive(sock, bytes, sizeof bytes, file);
    return n > 0 && wk_channel_decode(bytes, (size_t)n, m);
}

void wk_link_ring(struct longhaul *c)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_RING};
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    size_t n = wk_channel_encode(&m, bytes);
    // A full queue already wakes the worker, which checks the memory after every message.
    if (c->link == WK_LINK_UP) send(c->sock, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// ---------------------------------------------------------------- connecting

static void drop(struct longhaul *c)
{
    if (c->sock >= 0) close(c->sock);
    if (c->worker >= 0) close(c->worker);
    c->sock = c->worker = -1;
}

static int peer_pidfd(int sock)
{
    int fd = -1;
    socklen_t size = sizeof fd;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        return fd;
    }
    struct ucred peer;
    size = sizeof peer;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid <= 0) return -1;
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

static bool same_user(int sock)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// LONGHAUL_E_AGAIN: no process listens there.
static int dial(struct longhaul *c)
{
    const char *path = getenv("LONGHAUL_SOCKET");
    struct sockaddr_un address;
    int folder;
    if (!path || !*path)
        return wk_client_fail(c, LONGHAUL_E_INVALID,
                              "LONGHAUL_SOCKET must name the worker's socket");
    drop(c);
    if (!wk_message_address(path, &address, &folder))
        return wk_client_fail(c, errno == ENOENT ? LONGHAUL_E_AGAIN : LONGHAUL_E_INVALID,
                              "no worker at %s: %s", path, strerror(errno));
    c->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (c->sock < 0) {
        int why = errno;
        if (folder >= 0) close(folder);
        return wk_client_fail(c, LONGHAUL_E_SYSTEM, "socket: %s", strerror(why));
    }
    struct timeval most = {SEND_MS / 1000, 0};
    setsockopt(c->sock, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    bool there = connect(c->sock, (struct sockaddr *)&address, sizeof address) == 0;
    int why = errno;
    if (folder >= 0) close(folder);
    if (!there) {
        drop(c);
        return wk_client_fail(c, LONGHAUL_E_AGAIN, "no worker at %s: %s", path, strerror(why));
    }
    if (!same_user(c->sock)) {
        drop(c);
        return wk_client_fail(c, LONGHAUL_E_REFUSED, "%s belongs to another user", path);
    }
    c->worker = peer_pidfd(c->sock);
    return LONGHAUL_OK;
}

static int introduce(struct longhaul *c, bool resumes)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_HELLO};
    m.as.hello = (struct wk_channel_hello){
        .rank = c->rank, .ranks = c->ranks, .tensors = c->extents, .resumes = resumes};
    if (resumes) memcpy(m.as.hello.life, c->life, sizeof c->life);
    int err = send_message(c, &m, resumes ? c->memory : -1);
    for (uint32_t i = 0; !err && i < c->extents; i++) {
        m = (struct wk_channel_message){.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_TENSOR};
        m.as.tensor = c->extent[i].tensor;
        err = send_message(c, &m, -1);
    }
    m = (struct wk_channel_message){.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_DESCRIBED};
    return err ? err : send_message(c, &m, -1);
}

// ---------------------------------------------------------------- the memory

void wk_link_forget(struct longhaul *c)
{
    if (c->channel.base) munmap(c->channel.base, c->channel.layout.bytes);
    wk_channel_close(&c->channel);
    free(c->due);
    c->due = NULL;
    if (c->memory >= 0) close(c->memory);
    c->memory = -1;
    c->started = false;
    c->link = WK_LINK_NONE;
}

static int fits(struct longhaul *c, const struct wk_channel_welcome *w)
{
    struct wk_channel *ch = &c->channel;
    if (memcmp(wk_channel_head(ch)->life, w->life, WK_CHANNEL_LIFE) ||
        ch->shape.ranks != c->ranks || ch->shape.values != c->values)
        return wk_client_fail(c, LONGHAUL_E_DAMAGED,
                              "the worker's memory belongs to another model");
    c->due = calloc(ch->shape.parts, sizeof *c->due);
    return c->due ? LONGHAUL_OK : wk_client_fail(c, LONGHAUL_E_NO_MEMORY, "out of memory");
}

static int map(struct longhaul *c, int file, const struct wk_channel_welcome *w)
{
    off_t bytes = lseek(file, 0, SEEK_END); // fstat() would be a symbol of glibc 2.33
    int seals = fcntl(file, F_GET_SEALS), want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (bytes < 0 || (uint64_t)bytes != w->bytes || (seals & want) != want) {
        close(file);
        return wk_client_fail(c, LONGHAUL_E_DAMAGED, "the worker's memory is not sealed");
    }
    void *p = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (p == MAP_FAILED) {
        close(file);
        return wk_client_fail(c, LONGHAUL_E_NO_MEMORY, "mapping %llu bytes: %s",
                              (unsigned long long)w->bytes, strerror(errno));
    }
    madvise(p, w->bytes, MADV_DONTFORK);
    const char *wrong = wk_channel_read(&c->channel, p, w->bytes);
    if (wrong) {
        munmap(p, w->bytes);
        close(file);
        return wk_client_fail(c, LONGHAUL_E_DAMAGED, "the worker's memory is %s", wrong);
    }
    c->memory = file;
    memcpy(c->life, w->life, sizeof c->life);
    return fits(c, w);
}

// ---------------------------------------------------------------- answers

static int refused(struct longhaul *c, const struct wk_channel_refused *r)
{
    static const int meaning[WK_CHANNEL_REFUSALS] = {
        [WK_CHANNEL_OTHER_VERSION] = LONGHAUL_E_VERSION,
        [WK_CHANNEL_OTHER_MODEL] = LONGHAUL_E_MODEL,
        [WK_CHANNEL_BUSY] = LONGHAUL_E_BUSY,
        [WK_CHANNEL_AGAIN] = LONGHAUL_E_RESTART,
        [WK_CHANNEL_BAD] = LONGHAUL_E_REFUSED,
        [WK_CHANNEL_NOT_FINITE] = LONGHAUL_E_RESTART,
    };
    if (meaning[r->why] == LONGHAUL_E_RESTART) snprintf(c->over, sizeof c->over, "%s", r->text);
    return wk_client_fail(c, meaning[r->why], "the worker refuses: %s", r->text);
}

// Reads the worker's next message. LONGHAUL_E_AGAIN: none yet; LONGHAUL_E_TIMEOUT: the worker left.
static int listen_once(struct longhaul *c)
{
    struct wk_channel_message m;
    int file;
    char end;
    if (!receive(c->sock, &m, &file)) {
        if (file >= 0) close(file);
        bool open = recv(c->sock, &end, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
        return open ? LONGHAUL_E_AGAIN
                    : wk_client_fail(c, LONGHAUL_E_TIMEOUT, "the worker closed the connection");
    }
    if (m.abi != WK_CHANNEL_ABI) {
        if (file >= 0) close(file);
        return wk_client_fail(c, LONGHAUL_E_VERSION,
                              "the worker speaks version %u, this library %u", m.abi,
                              WK_CHANNEL_ABI);
    }
    bool wanted = m.kind == WK_CHANNEL_WELCOME && !m.as.welcome.resumed && file >= 0;
    if (m.kind == WK_CHANNEL_WELCOME) c->greeted = true;
    if (wanted && c->link == WK_LINK_NONE) return map(c, file, &m.as.welcome);
    if (file >= 0) close(file);
    if (m.kind == WK_CHANNEL_REFUSED) return refused(c, &m.as.refused);
    return LONGHAUL_OK;
}

static int await_welcome(struct longhaul *c, int64_t until)
{
    for (c->greeted = false; !c->greeted;) {
        int err = listen_once(c);
        int64_t left = until - wk_link_now();
        if (err && err != LONGHAUL_E_AGAIN) return err;
        if (c->greeted) break;
        if (left <= 0)
            return wk_client_fail(c, LONGHAUL_E_TIMEOUT,
                                  "the worker is running but has not let this loop in yet: it "
                                  "waits for all %u ranks, or for its own state",
                                  c->ranks);
        struct pollfd p = {c->sock, POLLIN, 0};
        poll(&p, 1, (int)(left / MS) + 1);
    }
    return c->channel.base ? LONGHAUL_OK
                           : wk_client_fail(c, LONGHAUL_E_DAMAGED, "a welcome without a memory");
}

static bool comes_later(int err)
{
    return err == LONGHAUL_E_AGAIN || err == LONGHAUL_E_BUSY || err == LONGHAUL_E_TIMEOUT ||
           err == LONGHAUL_E_RESTART;
}

// Retries a refusal too, because another trainer may be leaving; the last refusal is then the
// error.
int wk_link_connect(struct longhaul *c, int timeout_ms)
{
    int64_t until = wk_link_now() + timeout_ms * MS;
    char busy[sizeof c->text] = "";
    drop(c);
    wk_link_forget(c);
    c->over[0] = 0;
    for (;;) {
        int err = dial(c);
        if (!err) err = introduce(c, false);
        if (!err) err = await_welcome(c, until);
        if (!err) break;
        drop(c);
        wk_link_forget(c);
        if (!comes_later(err)) return err;
        if (err == LONGHAUL_E_BUSY) memcpy(busy, c->text, sizeof busy);
        if (err == LONGHAUL_E_AGAIN) busy[0] = 0; // the listener is gone
        if (wk_link_now() >= until)               // the text of the last try
            return busy[0] ? wk_client_fail(c, LONGHAUL_E_BUSY, "%s", busy) : LONGHAUL_E_TIMEOUT;
        poll(NULL, 0, PAUSE_MS);
    }
    c->link = WK_LINK_UP;
    return LONGHAUL_OK;
}

// ---------------------------------------------------------------- living on

static bool gone(const struct longhaul *c)
{
    struct pollfd p = {c->worker, POLLIN, 0};
    return c->worker >= 0 && poll(&p, 1, 0) > 0;
}

static void call_again(struct longhaul *c)
{
    int64_t now = wk_link_now();
    if (now - c->tried_ns < TRY_NS) return;
    c->tried_ns = now;
    if (dial(c)) return;
    if (introduce(c, true)) {
        drop(c);
        return;
    }
    c->greeted = false;
    c->link = WK_LINK_CALLING;
}

void wk_link_look(struct longhaul *c, uint64_t step)
{
    if (c->link == WK_LINK_UP || c->link == WK_LINK_CALLING) {
        int err = gone(c) ? LONGHAUL_E_TIMEOUT : listen_once(c);
        if (err && err != LONGHAUL_E_AGAIN) {
            // It may have been killed and not know this trainer any more, or not know it yet.
            bool over = err == LONGHAUL_E_RESTART || err == LONGHAUL_E_MODEL;
            if (c->link == WK_LINK_UP) c->away_from = step;
            c->link = over ? WK_LINK_OVER : WK_LINK_AWAY;
            drop(c);
        } else if (c->link == WK_LINK_CALLING && c->greeted) {
            c->link = WK_LINK_UP;
            c->returns++;
            wk_link_ring(c);
        }
    }
    if (c->link == WK_LINK_AWAY) call_again(c);
}

void wk_link_hear_end(struct longhaul *c)
{
    struct pollfd p = {c->sock, POLLIN, 0};
    if (c->link != WK_LINK_UP || c->sock < 0) return;
    while (!c->over[0] && poll(&p, 1, END_MS) > 0)
        if (listen_once(c)) break;
}

void wk_link_close(struct longhaul *c, bool orderly)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_LEAVE};
    if (orderly && c->link == WK_LINK_UP) send_message(c, &m, -1);
    drop(c);
    wk_link_forget(c);
}
