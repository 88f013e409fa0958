// The door of a region process's listener: guests (new connections) wait there until they have
// greeted, several at once, so that a silent guest delays no other.
//
// A guest has WK_DOOR_PATIENCE_S for TLS and greeting. When all places are taken, a new guest
// replaces the oldest one that has had WK_DOOR_GRACE_S; until then it waits in the kernel's queue.
// So a flood slows new ranks down but does not affect connections that have greeted. One thread, no
// call blocks.
#ifndef WK_DOOR_H
#define WK_DOOR_H

#include <poll.h>

#include "worker/ranks/stream/stream.h"

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
    bool same_user; // accept only processes of this user: a Unix socket
    // A guest was refused for this reason: limit the rate of your reaction. NULL is allowed.
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
void wk_door_close(struct wk_door *d); // may be called again
// Lists the descriptors to poll, for WK_DOOR_GRACE_S at most; returns their number.
nfds_t wk_door_polls(const struct wk_door *d, struct pollfd p[WK_DOOR_POLLS]);
// Gives a guest that has greeted, with its stream; false: none now. Call it until then.
bool wk_door_next(struct wk_door *d, int64_t now_ns, struct wk_guest *out);
// Refuses the guest that wk_door_next() gave.
void wk_door_refuse(struct wk_door *d, struct wk_guest *g, const char *why);

#endif
