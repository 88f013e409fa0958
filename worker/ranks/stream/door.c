// The door of a listener. See door.h.
#include "worker/ranks/stream/door.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"

void wk_door_open(struct wk_door *d, const struct wk_door_conf *conf)
{
    LH_ASSERT(conf->greeting_bytes && conf->greeting_bytes <= WK_DOOR_GREETING_MAX);
    *d = (struct wk_door){.conf = *conf};
    for (int i = 0; i < WK_DOOR_GUESTS; i++) d->guest[i].stream = wk_stream_none();
}

void wk_door_close(struct wk_door *d)
{
    for (int i = 0; i < WK_DOOR_GUESTS; i++) wk_stream_close(&d->guest[i].stream);
    if (d->conf.listener >= 0) close(d->conf.listener);
    d->conf.listener = -1;
}

void wk_door_refuse(struct wk_door *d, struct wk_guest *g, const char *why)
{
    wk_stream_close(&g->stream);
    if (d->conf.refused) d->conf.refused(d->conf.arg, why);
}

// A free place for a new guest, or that of a guest whose time is over; NULL: all guests have time
// left.
static struct wk_guest *place(struct wk_door *d, int64_t now)
{
    struct wk_guest *first = &d->guest[0];
    for (int i = 0; i < WK_DOOR_GUESTS; i++) {
        struct wk_guest *g = &d->guest[i];
        if (g->stream.fd < 0) return g;
        if (g->since_ns < first->since_ns) first = g;
    }
    return now - first->since_ns < WK_DOOR_GRACE_S * LH_SECOND ? NULL : first;
}

static void let_in(struct wk_door *d, int64_t now)
{
    struct wk_guest *g;
    while ((g = place(d, now)) != NULL) {
        int fd = accept4(d->conf.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (d->conf.same_user && !wk_stream_is_ours(fd)) {
            close(fd);
            continue;
        }
        if (g->stream.fd >= 0) wk_door_refuse(d, g, "it said nothing, and others wait");
        *g = (struct wk_guest){.since_ns = now};
        lh_err err = wk_stream_accept(fd, d->conf.tls, &g->stream);
        if (err) wk_door_refuse(d, g, lh_err_text(err));
    }
}

static LH_MUST lh_err hear(struct wk_door *d, struct wk_guest *g)
{
    LH_TRY(wk_stream_ready(&g->stream));
    while (g->come < d->conf.greeting_bytes) {
        ssize_t n =
            wk_stream_recv(&g->stream, g->greeting + g->come, d->conf.greeting_bytes - g->come);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return LH_ERR_BEHIND;
        if (n <= 0) return lh_fail(LH_ERR_UNAVAILABLE, "it went before it had greeted");
        g->come += (size_t)n;
    }
    return LH_OK;
}

nfds_t wk_door_polls(const struct wk_door *d, struct pollfd p[WK_DOOR_POLLS])
{
    nfds_t n = 0;
    for (int i = 0; i < WK_DOOR_GUESTS; i++) {
        const struct wk_stream *s = &d->guest[i].stream;
        if (s->fd >= 0) p[n++] = (struct pollfd){s->fd, wk_stream_events(s), 0};
    }
    // With all places taken no guest is accepted before another guest's time is over.
    if (d->conf.listener >= 0 && n < WK_DOOR_GUESTS)
        p[n++] = (struct pollfd){d->conf.listener, POLLIN, 0};
    return n;
}

bool wk_door_next(struct wk_door *d, int64_t now_ns, struct wk_guest *out)
{
    if (d->conf.listener < 0) return false;
    let_in(d, now_ns);
    for (int i = 0; i < WK_DOOR_GUESTS; i++) {
        struct wk_guest *g = &d->guest[i];
        if (g->stream.fd < 0) continue;
        lh_err err = hear(d, g);
        if (!err) {
            *out = *g;
            g->stream = wk_stream_none();
            return true;
        }
        if (err != LH_ERR_BEHIND)
            wk_door_refuse(d, g, lh_err_text(err));
        else if (now_ns - g->since_ns > WK_DOOR_PATIENCE_S * LH_SECOND)
            wk_door_refuse(d, g, "it took too long to greet");
    }
    return false;
}
