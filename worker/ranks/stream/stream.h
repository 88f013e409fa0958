// A connection between two processes of a region: a non-blocking socket, plain or under TLS.
#ifndef WK_STREAM_H
#define WK_STREAM_H

#include "worker/ranks/stream/address.h"
#include "worker/ranks/stream/tls.h"

struct wk_stream {
    int fd;                     // -1: none
    struct wk_tls_session *tls; // NULL: plain
    bool connects;              // TCP is still connecting
    bool shakes;                // the TLS handshake is not done
    bool writes;                // TLS waits to write, not to read
};

static inline struct wk_stream wk_stream_none(void)
{
    return (struct wk_stream){.fd = -1};
}

// Begins a connection; wk_stream_ready() continues it. `tls` NULL: plain.
LH_MUST lh_err wk_stream_connect(const struct sockaddr *to, socklen_t size, struct wk_tls *tls,
                                 struct wk_stream *out);
// Takes ownership of the accepted socket, even on error.
LH_MUST lh_err wk_stream_accept(int fd, struct wk_tls *tls, struct wk_stream *out);
void wk_stream_close(struct wk_stream *s); // closing an unopened stream is allowed

// LH_ERR_BEHIND: not yet; wait for wk_stream_events(). LH_ERR_UNAVAILABLE, and the errors of
// wk_tls_shake(). Nothing is sent or received before LH_OK.
LH_MUST lh_err wk_stream_ready(struct wk_stream *s);
short wk_stream_events(const struct wk_stream *s);
// As send(2) and recv(2), without blocking. `more`: more data follows at once.
ssize_t wk_stream_send(struct wk_stream *s, const void *data, size_t bytes, bool more);
ssize_t wk_stream_recv(struct wk_stream *s, void *to, size_t bytes);

// Ends a TCP connection whose peer's host is silent for this long: for streams that both ends
// always read.
void wk_stream_watch(struct wk_stream *s, int seconds);
// True: the process at the other end of a Unix socket belongs to the same user.
bool wk_stream_is_ours(int fd);

#endif
