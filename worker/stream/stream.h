// A connection between two processes of a region: a socket that never waits, plain or under TLS.
#ifndef WK_STREAM_H
#define WK_STREAM_H

#include "worker/stream/address.h"
#include "worker/stream/tls.h"

struct wk_stream {
    int fd;                     // -1: none
    struct wk_tls_session *tls; // NULL: plain
    bool connects;              // TCP is not through yet
    bool shakes;                // TLS is not
    bool writes;                // what TLS waits for
};

static inline struct wk_stream wk_stream_none(void)
{
    return (struct wk_stream){.fd = -1};
}

// Begins a connection; wk_stream_ready() goes on with it. `tls` NULL: plain.
LH_MUST lh_err wk_stream_connect(const struct sockaddr *to, socklen_t size, struct wk_tls *tls,
                                 struct wk_stream *out);
// Takes the socket of who came, on failure too.
LH_MUST lh_err wk_stream_accept(int fd, struct wk_tls *tls, struct wk_stream *out);
void wk_stream_close(struct wk_stream *s); // One that is none is allowed.

// LH_ERR_BEHIND: not yet, wait for wk_stream_events(). LH_ERR_UNAVAILABLE, and those of
// wk_tls_shake(). Nothing is sent or received before LH_OK.
LH_MUST lh_err wk_stream_ready(struct wk_stream *s);
short wk_stream_events(const struct wk_stream *s);
// As send(2) and recv(2), never waiting. `more`: more follows at once.
ssize_t wk_stream_send(struct wk_stream *s, const void *data, size_t bytes, bool more);
ssize_t wk_stream_recv(struct wk_stream *s, void *to, size_t bytes);

// A TCP connection whose peer's host says nothing for so long ends: for streams on which both ends
// always read.
void wk_stream_watch(struct wk_stream *s, int seconds);
// The process at the other end of a Unix socket is of the same user.
bool wk_stream_is_ours(int fd);

#endif
