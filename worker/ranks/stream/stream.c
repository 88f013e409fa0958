// A connection between two processes of a region. See stream.h.
#include "worker/ranks/stream/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static LH_MUST lh_err begin(struct wk_stream *s, struct wk_tls *tls, bool accepts)
{
    int one = 1; // fails on a Unix socket, which sends at once anyway
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    s->shakes = tls != NULL;
    lh_err err = tls ? wk_tls_begin(tls, s->fd, accepts, &s->tls) : LH_OK;
    if (err) wk_stream_close(s);
    return err;
}

lh_err wk_stream_connect(const struct sockaddr *to, socklen_t size, struct wk_tls *tls,
                         struct wk_stream *out)
{
    *out = wk_stream_none();
    out->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (out->fd < 0) return lh_fail_errno(errno, "a socket");
    int failed = connect(out->fd, to, size) ? errno : 0;
    out->connects = failed == EINPROGRESS;
    if (!failed || out->connects) return begin(out, tls, false);
    wk_stream_close(out);
    return lh_fail(LH_ERR_UNAVAILABLE, "no connection: %s", strerror(failed));
}

lh_err wk_stream_accept(int fd, struct wk_tls *tls, struct wk_stream *out)
{
    *out = wk_stream_none();
    out->fd = fd;
    return begin(out, tls, true);
}

void wk_stream_close(struct wk_stream *s)
{
    wk_tls_end(s->tls);
    if (s->fd >= 0) close(s->fd);
    *s = wk_stream_none();
}

static LH_MUST lh_err connected(struct wk_stream *s)
{
    struct pollfd p = {s->fd, POLLOUT, 0};
    int failed = 0;
    socklen_t size = sizeof failed;
    if (poll(&p, 1, 0) < 1) return LH_ERR_BEHIND;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &failed, &size);
    if (failed) return lh_fail(LH_ERR_UNAVAILABLE, "no connection: %s", strerror(failed));
    s->connects = false;
    return LH_OK;
}

lh_err wk_stream_ready(struct wk_stream *s)
{
    if (s->connects) LH_TRY(connected(s));
    if (!s->shakes) return LH_OK;
    LH_TRY(wk_tls_shake(s->tls, &s->writes));
    s->shakes = false;
    return LH_OK;
}

short wk_stream_events(const struct wk_stream *s)
{
    return s->connects || (s->shakes && s->writes) ? POLLOUT : POLLIN;
}

ssize_t wk_stream_send(struct wk_stream *s, const void *data, size_t bytes, bool more)
{
    if (s->tls) return wk_tls_send(s->tls, data, bytes);
    return send(s->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
}

ssize_t wk_stream_recv(struct wk_stream *s, void *to, size_t bytes)
{
    if (s->tls) return wk_tls_recv(s->tls, to, bytes);
    return recv(s->fd, to, bytes, MSG_DONTWAIT);
}

void wk_stream_watch(struct wk_stream *s, int seconds)
{
    int one = 1, probes = 3, every = seconds / (probes + 1), ms = seconds * 1000;
    setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof every);
    setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

bool wk_stream_is_ours(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}
