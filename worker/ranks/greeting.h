// The first bytes on the connections between a region's ranks. Layout: greeting.c.
#ifndef WK_GREETING_H
#define WK_GREETING_H

#include "worker/ranks/region_message.h"
#include "worker/ranks/stream/address.h"

enum {
    WK_REGION_NAME_BYTES = 64,
    WK_CHANNEL_GREETING_BYTES = 8, // on one host
    WK_CHANNEL_GREETING_HOSTS_BYTES = WK_CHANNEL_GREETING_BYTES + WK_REGION_NAME_BYTES,
    WK_RING_GREETING_BYTES = 40, // on one host
    WK_RING_GREETING_HOSTS_BYTES = WK_RING_GREETING_BYTES + WK_HOST_BYTES,
};

// A rank sends this to the leader on the channel.
struct wk_channel_greeting {
    uint8_t rank;
    bool hosts;                      // it includes the name
    char name[WK_REGION_NAME_BYTES]; // the region's name, padded with zeros
};
void wk_channel_greeting_put(struct lh_buf *out, const struct wk_channel_greeting *g);
// `hosts` is the reader's setting and determines the length. LH_ERR_MALFORMED.
LH_MUST lh_err wk_channel_greeting_get(struct lh_span bytes, bool hosts,
                                       struct wk_channel_greeting *out);

// Ranks that form a ring send this to each other.
enum wk_ring_greeting_kind { WK_RING_COMES = 1, WK_RING_BEFORE = 2 };
struct wk_ring_greeting {
    enum wk_ring_greeting_kind
        kind; // it goes to rank 0, or comes from the previous rank in the ring
    uint8_t rank;
    bool hosts;                // the address includes its host
    struct wk_address address; // the sender's listening address
    struct lh_hash secret;     // the communicator's secret
};
void wk_ring_greeting_put(struct lh_buf *out, const struct wk_ring_greeting *g);
LH_MUST lh_err wk_ring_greeting_get(struct lh_span bytes, bool hosts, struct wk_ring_greeting *out);

#endif
