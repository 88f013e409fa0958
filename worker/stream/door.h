// The door of a listener of a region's process: guests stand there until they have greeted, several
// at once, so that one who says nothing holds up nobody.
//
// A guest has WK_DOOR_PATIENCE_S for TLS and greeting. When all places are taken, a new one gets
// that of the guest who came first, once that one had WK_DOOR_GRACE_S; until then it waits in the
// kernel's queue. So a flood slows new ranks down, and touches nobody who greeted.
// One thread, nothing waits.
#ifndef WK_DOOR_H
#define WK_DOOR_H

#include <poll.h>

#include "worker/stream/stream.h"

enum {
    WK_DOOR_GUESTS = 16,
    WK_DOOR_POLLS = WK_DOOR_GUESTS + 1,
    WK_DOOR_GREETING_MAX = 96,
    WK_DOOR_PATIENCE_S = 10,
    WK_DOOR_GRACE_S = 2,
};

struct wk_door_conf {
    int listener;       // takes
    struct wk_tls *tls; // borrows; NULL: plain
    size_t greeting_bytes;
    bool same_user; // only processes of this user are heard: a Unix socket
    // Somebody was turned away, and why: limit the rate of what comes of it. NULL is allowed.
    void (*refused)(void *arg, const char *why);
    void *arg;
};

struct wk_guest {
    struct wk_stream stream;
    int64_t since_ns;
    size_t come; // bytes of its greeting
    uint8_t greeting[WK_DOOR_GREETING_MAX];
};

struct wk_door {
    struct wk_door_conf conf;
    struct wk_guest guest[WK_DOOR_GUESTS];
};

void wk_door_open(struct wk_door *d, const struct wk_door_conf *conf);
void wk_door_close(struct wk_door *d); // once more is allowed
// Lists what to wait for, to be looked at WK_DOOR_GRACE_S later at the latest; their number.
nfds_t wk_door_polls(const struct wk_door *d, struct pollfd p[WK_DOOR_POLLS]);
// Gives a guest that has greeted, its stream with it; false: none has now. Call it until then.
bool wk_door_next(struct wk_door *d, int64_t now_ns, struct wk_guest *out);
// Turns the guest away that wk_door_next() gave.
void wk_door_refuse(struct wk_door *d, struct wk_guest *g, const char *why);

#endif
