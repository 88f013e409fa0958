// The first bytes on the connections between a region's ranks. They are in greeting.c.
#ifndef WK_GREETING_H
#define WK_GREETING_H

#include "worker/ranks/region_message.h"
#include "worker/stream/address.h"

enum {
    WK_REGION_NAME_BYTES = 64,
    WK_CHANNEL_GREETING_BYTES = 8, // on one host
    WK_CHANNEL_GREETING_HOSTS_BYTES = WK_CHANNEL_GREETING_BYTES + WK_REGION_NAME_BYTES,
    WK_RING_GREETING_BYTES = 40, // on one host
    WK_RING_GREETING_HOSTS_BYTES = WK_RING_GREETING_BYTES + WK_HOST_BYTES,
};

// A rank greets the leader with it, on the channel.
struct wk_channel_greeting {
    uint8_t rank;
    bool hosts;                      // it has the name
    char name[WK_REGION_NAME_BYTES]; // the region's, zeros behind it
};
void wk_channel_greeting_put(struct lh_buf *out, const struct wk_channel_greeting *g);
// `hosts` is the reader's: it says how many bytes there are. LH_ERR_MALFORMED.
LH_MUST lh_err wk_channel_greeting_get(struct lh_span bytes, bool hosts,
                                       struct wk_channel_greeting *out);

// Ranks that make a ring greet each other with it.
enum wk_ring_greeting_kind { WK_RING_COMES = 1, WK_RING_BEFORE = 2 };
struct wk_ring_greeting {
    enum wk_ring_greeting_kind kind; // it comes to rank 0, or is the rank before in the ring
    uint8_t rank;
    bool hosts;                // it has the host of the address
    struct wk_address address; // The sender listens there.
    struct lh_hash secret;     // the communicator's
};
void wk_ring_greeting_put(struct lh_buf *out, const struct wk_ring_greeting *g);
LH_MUST lh_err wk_ring_greeting_get(struct lh_span bytes, bool hosts, struct wk_ring_greeting *out);

#endif
