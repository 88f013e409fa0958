// The boundary on a Unix socket and a memfd: the file descriptors of external.c. See external.h.
//
// Threads. A thread waits for the listener, the connections and the trainers' pidfds, and posts
// their events to the loop. `lock` guards the list of connections and the queue of events; it is
// not held during a blocking system call or a hook.
//
//  1. A pidfd reports a trainer's death: its forked children keep the socket open. Messages sent
//     before the death are delivered first.
//  2. The loop closes a connection's files after the thread has stopped reading them.
//  3. Only processes of the same user are admitted; the directory's modes control who may connect.
//  4. The memory is fully allocated and sealed before it is shared: it can't shrink under a reader
//     or turn out to be missing.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "worker/external/external.h"
#include "worker/external/message.h"
#include "worker/external/socket.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum { BACKLOG = 128, CONNECTIONS_MAX = 160, EVENTS_MAX = 1024 };
static const int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

enum event_kind { OPENED, MESSAGE, CLOSED };
struct event {
    struct event *next;
    enum event_kind kind;
    uint64_t connection;
    size_t n;
    uint8_t bytes[];
};

struct connection {
    struct connection *next;
    uint64_t number;
    int sock, pidfd, memory; // memory: received with the greeting; -1: none
    bool dropped;            // its events are ignored
    bool quiet;              // the thread has stopped reading it
};

struct world {
    struct wk_external_io io; // first
    struct lh_env *env;
    struct wk_external *x;
    char path[LH_PATH_BYTES];
    int listener, bell; // bell: an eventfd that wakes the thread
    pthread_t thread;
    pthread_mutex_t lock;
    struct connection *first;
    struct event *event, **last;
    size_t events;
    uint64_t numbers;
    bool quit, posted, over, hushed;
    // used by the loop only
    int memory;
    void *base;
    uint64_t bytes;
};

static struct world *world_of(struct wk_external_io *io)
{
    return (struct world *)io;
}

static void ring_bell(struct world *w)
{
    uint64_t one = 1;
    ssize_t n = write(w->bell, &one, sizeof one);
    (void)n; // it fails only if the thread is already woken
}

static void free_world(struct world *w)
{
    pthread_mutex_destroy(&w->lock);
    free(w);
}

// ---------------------------------------------------------------- events, to the loop

static struct connection *find(struct world *w, uint64_t number)
{
    struct connection *c = w->first;
    while (c && c->number != number) c = c->next;
    return c;
}

static void close_connection(struct world *w, uint64_t number)
{
    pthread_mutex_lock(&w->lock);
    struct connection **at = &w->first;
    while (*at && (*at)->number != number) at = &(*at)->next;
    struct connection *c = *at;
    if (c) *at = c->next;
    pthread_mutex_unlock(&w->lock);
    if (!c) return;
    close(c->sock);
    if (c->pidfd >= 0) close(c->pidfd);
    if (c->memory >= 0) close(c->memory);
    free(c);
}

static void tell(struct world *w, struct event *e)
{
    pthread_mutex_lock(&w->lock);
    struct connection *c = find(w, e->connection);
    bool dropped = c && c->dropped;
    pthread_mutex_unlock(&w->lock);
    if (e->kind == OPENED) wk_external_opened(w->x, e->connection);
    if (e->kind == MESSAGE && !dropped)
        wk_external_message(w->x, e->connection, lh_span(e->bytes, e->n));
    if (e->kind == CLOSED) {
        if (!dropped) wk_external_closed(w->x, e->connection);
        close_connection(w, e->connection);
    }
}

static void deliver(void *arg)
{
    struct world *w = arg;
    pthread_mutex_lock(&w->lock);
    struct event *e = w->event;
    w->event = NULL;
    w->last = &w->event;
    w->events = 0;
    w->posted = false;
    pthread_mutex_unlock(&w->lock);
    bool over = w->over;
    if (!over) ring_bell(w); // the queue has space again
    while (e) {
        struct event *next = e->next;
        if (!over) tell(w, e);
        free(e);
        e = next;
    }
    if (over) free_world(w);
}

static void post(struct world *w, enum event_kind kind, uint64_t connection, const void *bytes,
                 size_t n)
{
    struct event *e = malloc(sizeof *e + n);
    LH_ASSERT(e); // a hand-off cannot be refused; EVENTS_MAX bounds it
    *e = (struct event){.kind = kind, .connection = connection, .n = n};
    if (n) memcpy(e->bytes, bytes, n);
    pthread_mutex_lock(&w->lock);
    *w->last = e;
    w->last = &e->next;
    w->events++;
    bool first = !w->posted;
    w->posted = true;
    pthread_mutex_unlock(&w->lock);
    if (first) lh_post(w->env, deliver, w);
}

// ---------------------------------------------------------------- the thread

static int peer_pidfd(int sock)
{
    int fd = -1;
    socklen_t size = sizeof fd;
    struct ucred peer;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        return fd;
    }
    size = sizeof peer; // before Linux 6.5: another process may have this number by now
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid <= 0) return -1;
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

static void let_in(struct world *w)
{
    int sock = accept4(w->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (sock < 0) return;
    bool ours =
        getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
    struct connection *c = ours ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        close(sock);
        return;
    }
    *c = (struct connection){.sock = sock, .pidfd = peer_pidfd(sock), .memory = -1};
    pthread_mutex_lock(&w->lock);
    c->number = ++w->numbers;
    c->next = w->first;
    w->first = c;
    pthread_mutex_unlock(&w->lock);
    post(w, OPENED, c->number, NULL, 0);
}

static void keep_memory(struct world *w, struct connection *c, int file)
{
    pthread_mutex_lock(&w->lock);
    int before = c->memory;
    c->memory = file;
    pthread_mutex_unlock(&w->lock);
    if (before >= 0) close(before);
}

// Reads one message. False: no more messages.
static bool hear(struct world *w, struct connection *c)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE + 1];
    int file;
    ssize_t n = wk_message_receive(c->sock, bytes, sizeof bytes, &file);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (file >= 0) keep_memory(w, c, file);
    if (n > 0) post(w, MESSAGE, c->number, bytes, (size_t)n);
    return n > 0;
}

static bool readable(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) > 0;
}

static void silence(struct world *w, struct connection *c)
{
    pthread_mutex_lock(&w->lock);
    c->quiet = true;
    pthread_mutex_unlock(&w->lock);
    post(w, CLOSED, c->number, NULL, 0);
}

// The process is dead: reads the messages that it sent before.
static void hear_last(struct world *w, struct connection *c)
{
    while (readable(c->sock) && hear(w, c)) continue;
    silence(w, c);
}

// Collects the descriptors to poll; `of` holds the connection of each.
static nfds_t gather(struct world *w, struct pollfd *p, struct connection **of, bool *quit)
{
    nfds_t n = 2;
    p[0] = (struct pollfd){w->bell, POLLIN, 0};
    pthread_mutex_lock(&w->lock);
    *quit = w->quit;
    bool full = w->events >= EVENTS_MAX;
    size_t count = 0;
    for (struct connection *c = w->first; c; c = c->next) {
        count++;
        if (c->quiet || n + 2 > 2 + 2 * CONNECTIONS_MAX) continue;
        of[n] = c;
        p[n++] = (struct pollfd){full ? -1 : c->sock, POLLIN, 0};
        of[n] = c;
        p[n++] = (struct pollfd){full ? -1 : c->pidfd, POLLIN, 0};
    }
    p[1] = (struct pollfd){full || count >= CONNECTIONS_MAX ? -1 : w->listener, POLLIN, 0};
    pthread_mutex_unlock(&w->lock);
    return n;
}

static bool is_dropped(struct world *w, const struct connection *c)
{
    pthread_mutex_lock(&w->lock);
    bool dropped = c->dropped;
    pthread_mutex_unlock(&w->lock);
    return dropped;
}

static void serve(struct world *w, struct connection *c, bool spoke, bool died)
{
    if (is_dropped(w, c))
        silence(w, c);
    else if (died)
        hear_last(w, c);
    else if (spoke && !hear(w, c))
        silence(w, c);
}

static void *watch(void *arg)
{
    struct world *w = arg;
    struct pollfd p[2 + 2 * CONNECTIONS_MAX];
    struct connection *of[2 + 2 * CONNECTIONS_MAX];
    for (;;) {
        bool quit;
        nfds_t n = gather(w, p, of, &quit);
        if (quit) return NULL;
        if (poll(p, n, -1) < 0) continue;
        uint64_t count;
        if (p[0].revents && read(w->bell, &count, sizeof count) < 0) continue;
        for (nfds_t i = 2; i < n; i += 2) serve(w, of[i], p[i].revents != 0, p[i + 1].revents != 0);
        if (p[1].revents) let_in(w);
    }
}

// ---------------------------------------------------------------- what external.c asks for

static void forget(struct wk_external_io *io)
{
    struct world *w = world_of(io);
    if (w->base) munmap(w->base, w->bytes);
    if (w->memory >= 0) close(w->memory);
    w->base = NULL;
    w->memory = -1;
}

static LH_MUST lh_err map(struct world *w, void **out)
{
    void *p = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->memory, 0);
    if (p == MAP_FAILED)
        return lh_fail_errno(errno, "mapping %llu bytes", (unsigned long long)w->bytes);
    *out = w->base = p;
    return LH_OK;
}

static lh_err create(struct wk_external_io *io, uint64_t bytes, void **out)
{
    struct world *w = world_of(io);
    forget(io);
    w->bytes = bytes;
    w->memory = memfd_create("longhaul-boundary", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (w->memory < 0) return lh_fail_errno(errno, "memory for the trainer");
    int failed = posix_fallocate(w->memory, 0, (off_t)bytes);
    if (failed)
        return lh_fail(LH_ERR_NO_MEMORY, "%llu MiB of memory shared with the trainer: %s",
                       (unsigned long long)(bytes >> 20) + 1, strerror(failed));
    if (fcntl(w->memory, F_ADD_SEALS, SEALS)) return lh_fail_errno(errno, "sealing memory");
    return map(w, out);
}

static lh_err adopt(struct wk_external_io *io, uint64_t from, void **out, uint64_t *bytes)
{
    struct world *w = world_of(io);
    struct stat is;
    forget(io);
    pthread_mutex_lock(&w->lock);
    struct connection *c = find(w, from);
    if (c) w->memory = c->memory, c->memory = -1;
    pthread_mutex_unlock(&w->lock);
    if (w->memory < 0) return LH_ERR_MALFORMED;
    int seals = fcntl(w->memory, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(w->memory, &is) || is.st_size <= 0)
        return LH_ERR_MALFORMED;
    *bytes = w->bytes = (uint64_t)is.st_size;
    return map(w, out);
}

static void send_message(struct wk_external_io *io, uint64_t to, struct lh_span message,
                         bool memory)
{
    struct world *w = world_of(io);
    pthread_mutex_lock(&w->lock);
    struct connection *c = find(w, to);
    int sock = c ? c->sock : -1; // only the loop closes it
    pthread_mutex_unlock(&w->lock);
    int file = memory ? w->memory : -1;
    if (sock >= 0 && !wk_message_send(sock, message.data, message.len, file, false))
        shutdown(sock, SHUT_RDWR);
}

static void drop(struct wk_external_io *io, uint64_t connection)
{
    struct world *w = world_of(io);
    pthread_mutex_lock(&w->lock);
    struct connection *c = find(w, connection);
    if (c) c->dropped = true;
    pthread_mutex_unlock(&w->lock);
    if (c) shutdown(c->sock, SHUT_WR); // delivers what was sent, then end of file
    ring_bell(w);
}

static void wake(struct wk_external_io *io, const _Atomic uint32_t *word)
{
    (void)io;
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static const struct wk_external_io_ops io_ops = {create, adopt, forget, send_message, drop, wake};

// ---------------------------------------------------------------- listen, stop

// Removes a dead process's socket file; keeps one that has a listener.
static LH_MUST lh_err clear_path(const char *path, const struct sockaddr_un *address)
{
    struct stat is;
    if (lstat(path, &is)) return LH_OK;
    if (!S_ISSOCK(is.st_mode)) return lh_fail(LH_ERR_EXISTS, "%s exists and is not a socket", path);
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool lives =
        probe >= 0 &&
        (connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN);
    if (probe >= 0) close(probe);
    if (lives) return lh_fail(LH_ERR_BUSY, "another worker listens on %s", path);
    unlink(path);
    return LH_OK;
}

static LH_MUST lh_err bind_at(struct world *w, const char *path, const struct sockaddr_un *address)
{
    LH_TRY(clear_path(path, address));
    w->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->listener < 0 || bind(w->listener, (const struct sockaddr *)address, sizeof *address) ||
        listen(w->listener, BACKLOG))
        return lh_fail_errno(errno, "%s", path);
    memcpy(w->path, path, strlen(path) + 1);
    return LH_OK;
}

static LH_MUST lh_err listen_at(struct world *w, const char *path)
{
    struct sockaddr_un address;
    int folder;
    if (strlen(path) >= sizeof w->path)
        return lh_fail(LH_ERR_CONFIG, "trainer.sock: %s: at most %zu bytes; use a shorter dir",
                       path, sizeof w->path - 1);
    if (!wk_message_address(path, &address, &folder))
        return lh_fail_errno(errno, "trainer.sock: %s", path);
    lh_err err = bind_at(w, path, &address);
    if (folder >= 0) close(folder);
    return err;
}

static void close_world(struct world *w)
{
    if (w->path[0]) unlink(w->path);
    if (w->listener >= 0) close(w->listener);
    if (w->bell >= 0) close(w->bell);
}

static LH_MUST lh_err start(struct world *w, const char *path)
{
    w->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->bell < 0) return lh_fail_errno(errno, "eventfd");
    LH_TRY(listen_at(w, path));
    int failed = pthread_create(&w->thread, NULL, watch, w);
    return failed ? lh_fail_errno(failed, "a thread for %s", path) : LH_OK;
}

lh_err wk_external_listen(const struct wk_external_conf *conf, const struct wk_external_ops *ops,
                          void *arg, const char *path, struct wk_external **out)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w) return lh_fail(LH_ERR_NO_MEMORY, "the trainer's socket");
    w->io.ops = &io_ops;
    w->env = conf->env;
    w->listener = w->bell = w->memory = -1;
    w->last = &w->event;
    pthread_mutex_init(&w->lock, NULL);
    lh_err err = wk_external_create(conf, ops, arg, &w->io, &w->x);
    if (!err) err = start(w, path);
    if (err) {
        wk_external_destroy(w->x);
        close_world(w);
        free_world(w);
        return err;
    }
    *out = w->x;
    return LH_OK;
}

void wk_external_hush(struct wk_external *x)
{
    struct world *w = world_of(wk_external_world(x));
    if (w->hushed) return;
    w->hushed = true;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_mutex_unlock(&w->lock);
    ring_bell(w);
    pthread_join(w->thread, NULL);
}

void wk_external_stop(struct wk_external *x)
{
    struct world *w = world_of(wk_external_world(x));
    wk_external_hush(x);
    wk_external_destroy(x);
    forget(&w->io);
    while (w->first) close_connection(w, w->first->number);
    close_world(w);
    w->over = true;
    if (!w->posted) free_world(w); // otherwise deliver() frees it
}
