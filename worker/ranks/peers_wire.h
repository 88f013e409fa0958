// The channel between a region's leader and its other ranks: a Unix socket with an abstract name,
// whole messages in order (region_message.h).
//
// Bytes on a connection, little endian: the rank's greeting, u32 magic "WPER", u8 version 1, u8
// rank, u16 zeros; then messages both ways, each a u32 length and so many bytes. Only processes of
// the same user are heard, on both ends: an abstract name belongs to whoever takes it first.
// One thread, nothing waits.
#ifndef WK_PEERS_WIRE_H
#define WK_PEERS_WIRE_H

#include <poll.h>

#include "common/base/buf.h"
#include "worker/ranks/region_message.h"

enum { WK_WIRE_NAME_BYTES = 64, WK_WIRE_POLLS = WK_RANKS_MAX + 2 };

struct wk_wire_hooks {
    void (*message)(void *arg, uint32_t rank, struct lh_span bytes);
    void (*lost)(void *arg, uint32_t rank);
    void *arg;
};

struct wk_wire;
// Rank 0 listens under the name; LH_ERR_BUSY: another process does, LH_ERR_DENIED: another user's.
// Any other rank connects, again and again, whenever wk_wire_look() finds it without a
// connection.
LH_MUST lh_err wk_wire_open(const char *name, uint32_t rank, uint32_t ranks,
                            const struct wk_wire_hooks *hooks, struct wk_wire **out);
void wk_wire_close(struct wk_wire *c); // NULL is allowed
// To a rank that is not connected: dropped.
void wk_wire_send(struct wk_wire *c, uint32_t rank, struct lh_span bytes);
// Lists what to wait for; their number. Then, when something is there or time passed, what came.
nfds_t wk_wire_polls(struct wk_wire *c, struct pollfd p[WK_WIRE_POLLS]);
void wk_wire_look(struct wk_wire *c);
bool wk_wire_connected(const struct wk_wire *c, uint32_t rank);

// The messages of a stream's bytes, for whoever reads one: the length of the first, LH_ERR_BEHIND
// where it is not whole yet, LH_ERR_MALFORMED where no message is so long.
LH_MUST lh_err wk_wire_first(struct lh_span stream, struct lh_span *message);

#endif
