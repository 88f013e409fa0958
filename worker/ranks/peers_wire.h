// The channel between a region's leader and its other ranks: whole messages in order
// (region_message.h). On one host it is a Unix socket with an abstract name; between hosts it is
// TCP under mutual TLS (worker/ranks/stream/tls.h).
//
// Bytes on a connection: the rank's greeting (greeting.h), then messages both ways, each a u32
// length, little endian, and that many bytes. On a Unix socket each end accepts only processes of
// the same user, because any process may take an abstract name first. One thread; no call waits.
#ifndef WK_PEERS_WIRE_H
#define WK_PEERS_WIRE_H

#include <poll.h>

#include "common/base/buf.h"
#include "worker/ranks/region_message.h"
#include "worker/ranks/stream/door.h"

enum { WK_WIRE_POLLS = WK_RANKS_MAX + WK_DOOR_POLLS };

struct wk_wire_hooks {
    void (*message)(void *arg, uint32_t rank, struct lh_span bytes);
    void (*lost)(void *arg, uint32_t rank);
    // A connection was refused, or the leader can't be reached; repeats while that lasts.
    void (*refused)(void *arg, const char *why);
    void *arg;
};

struct wk_wire_conf {
    const char *name; // region's name; on one host also the socket's
    uint32_t rank, ranks;
    // "host:port" at which rank 0 listens, for all ranks; "": all are on one host.
    const char *address;
    struct wk_tls_conf tls; // used only with an address
    struct wk_wire_hooks hooks;
};

struct wk_wire;
// Rank 0 listens; LH_ERR_BUSY: another process does, LH_ERR_DENIED: another user's. Any other rank
// connects, and reconnects when wk_wire_look() finds no connection. Resolves the name in the
// address once, which may block.
LH_MUST lh_err wk_wire_open(const struct wk_wire_conf *conf, struct wk_wire **out);
void wk_wire_close(struct wk_wire *c); // NULL is allowed
// Drops the message if the rank is not connected.
void wk_wire_send(struct wk_wire *c, uint32_t rank, struct lh_span bytes);
// Lists the descriptors to poll and returns their number. After an event or a short time call
// wk_wire_look().
nfds_t wk_wire_polls(struct wk_wire *c, struct pollfd p[WK_WIRE_POLLS]);
void wk_wire_look(struct wk_wire *c, int64_t now_ns);
bool wk_wire_connected(const struct wk_wire *c, uint32_t rank);
uint16_t wk_wire_port(const struct wk_wire *c); // leader, with an address: of its listener

// Finds the first message in a stream's bytes. LH_ERR_BEHIND: it is not complete yet;
// LH_ERR_MALFORMED: its length is invalid.
LH_MUST lh_err wk_wire_first(struct lh_span stream, struct lh_span *message);

#endif
