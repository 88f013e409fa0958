// The channel between a region's leader and its other ranks: whole messages in order
// (region_message.h). On one host a Unix socket with an abstract name, to others TCP under mutual
// TLS (worker/stream/tls.h).
//
// Bytes on a connection: the rank's greeting (greeting.h), then messages both ways, each a u32
// length, little endian, and so many bytes. Over a Unix socket only processes of the same user are
// heard, on both ends: an abstract name belongs to whoever takes it first.
// One thread, nothing waits.
#ifndef WK_PEERS_WIRE_H
#define WK_PEERS_WIRE_H

#include <poll.h>

#include "common/base/buf.h"
#include "worker/ranks/region_message.h"
#include "worker/stream/door.h"

enum { WK_WIRE_POLLS = WK_RANKS_MAX + WK_DOOR_POLLS };

struct wk_wire_hooks {
    void (*message)(void *arg, uint32_t rank, struct lh_span bytes);
    void (*lost)(void *arg, uint32_t rank);
    // Somebody is not let in, or the leader can't be reached or accepted: why, again and again.
    void (*refused)(void *arg, const char *why);
    void *arg;
};

struct wk_wire_conf {
    const char *name; // The region's; on one host the socket has it.
    uint32_t rank, ranks;
    // "host:port" at which rank 0 listens, and the others find it; "": all are on one host.
    const char *address;
    struct wk_tls_conf tls; // It counts with an address only.
    struct wk_wire_hooks hooks;
};

struct wk_wire;
// Rank 0 listens; LH_ERR_BUSY: another process does, LH_ERR_DENIED: another user's. Any other rank
// connects, again and again, whenever wk_wire_look() finds it without a connection. A name in the
// address is looked up here, once, which may wait.
LH_MUST lh_err wk_wire_open(const struct wk_wire_conf *conf, struct wk_wire **out);
void wk_wire_close(struct wk_wire *c); // NULL is allowed
// To a rank that is not connected: dropped.
void wk_wire_send(struct wk_wire *c, uint32_t rank, struct lh_span bytes);
// Lists what to wait for; their number. Then, when something is there or a little time passed, what
// came.
nfds_t wk_wire_polls(struct wk_wire *c, struct pollfd p[WK_WIRE_POLLS]);
void wk_wire_look(struct wk_wire *c, int64_t now_ns);
bool wk_wire_connected(const struct wk_wire *c, uint32_t rank);
uint16_t wk_wire_port(const struct wk_wire *c); // leader, with an address: of its listener

// The messages of a stream's bytes, for whoever reads one: the length of the first, LH_ERR_BEHIND
// where it is not whole yet, LH_ERR_MALFORMED where no message is so long.
LH_MUST lh_err wk_wire_first(struct lh_span stream, struct lh_span *message);

#endif
