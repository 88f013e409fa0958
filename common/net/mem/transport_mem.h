// The in-process transport: calls between nodes of one process, posted from loop to loop.
//
// Two drivers: with real envs each node has its thread and messages cross by lh_post() (what TSan
// runs on); with fake envs the fabric is a simulated network, and `link` decides each call's fate.
#ifndef LH_COMMON_TRANSPORT_MEM_H
#define LH_COMMON_TRANSPORT_MEM_H

#include "common/net/transport.h"

struct lh_fabric; // address -> node; create one per cluster, destroy it after its transports

struct lh_fabric *lh_fabric_create(void);
void lh_fabric_destroy(struct lh_fabric *f);

// The network's treatment of one call; zeros: nothing happens to it. Times are in ns, one way. With
// real envs only whether they are 0 counts, and delayed messages come at once.
struct lh_fate {
    int64_t delay_ns;    // delay of every message of this call
    bool lose_request;   // the server never hears of it
    bool lose_reply;     // the server hears all, the client nothing
    bool corrupt;        // a bit of the client's bulk bytes flips on the way
    int cut_after;       // > 0: the call breaks after that many messages from the client
    int64_t break_ns;    // > 0: it breaks after that long, whatever was said
    int64_t again_ns;    // > 0: its messages arrive once more, that much later, as a call of nobody
    const char *instead; // the address that the call reaches, not NULL: two have the one it dialed
};
// Asked on the client's loop for each call, one at a time. from/to are node names; false: not
// reachable.
typedef bool (*lh_fate_fn)(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                           struct lh_fate *fate);
void lh_fabric_fates(struct lh_fabric *f, lh_fate_fn fn, void *arg); // before its nodes

// Told of each message that a node answers a call with, as it leaves, whatever its fate: tests look
// on. `head` is the message without its bulk bytes.
typedef void (*lh_tap_fn)(void *arg, const struct lh_transport *from, const char *to,
                          enum lh_rpc rpc, struct lh_span head);
void lh_fabric_tap(struct lh_fabric *f, lh_tap_fn fn, void *arg); // before its nodes

// How long a message of one call takes beyond the call's delay: the rate of its path, what waits
// before it, what is lost on the way. Messages of one call and direction stay in their order, and
// a sender hears of each that has left after that long. (Without it it hears when the other side
// read one: so many messages a round trip at most.) With fake envs alone.
typedef int64_t (*lh_pace_fn)(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                              size_t head_bytes, size_t bulk_bytes);
void lh_fabric_pace(struct lh_fabric *f, lh_pace_fn fn, void *arg); // before its nodes

// Breaks every call that is open between two nodes; both sides hear LH_ERR_UNAVAILABLE.
void lh_fabric_sever(struct lh_fabric *f, const char *a, const char *b);

// A node's transport. `self` is its authenticated identity, `fake` tells the kind of its env.
LH_MUST lh_err lh_transport_mem_create(struct lh_fabric *f, struct lh_env *env,
                                       const struct lh_peer *self, bool fake,
                                       struct lh_transport **out);
// The node died: its own halves hear LH_ERR_KILLED (to free what they hold) and can do nothing.
// With `silent` (power cut, the wire is cut) its peers don't hear either, until their deadlines.
void lh_transport_mem_kill(struct lh_transport *t, bool silent);

#endif
