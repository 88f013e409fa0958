// The in-process transport: calls between nodes of one process, as posts between their loops.
//
// Two modes: with real envs each node has its thread and messages cross by lh_post() (used under
// TSan); with fake envs the fabric is a simulated network, and a lh_fate_fn decides each call's
// fate.
#ifndef LH_COMMON_TRANSPORT_MEM_H
#define LH_COMMON_TRANSPORT_MEM_H

#include "common/net/leader.h"
#include "common/net/transport.h"

struct lh_fabric; // address -> node; one per cluster, destroyed after its transports

struct lh_fabric *lh_fabric_create(void);
void lh_fabric_destroy(struct lh_fabric *f);

// The faults of one call; zeros: none. Times are in ns, one way. With real envs it only matters
// whether they are 0, and delayed messages arrive at once.
struct lh_fate {
    int64_t delay_ns;  // delay of each message
    bool lose_request; // the server gets nothing
    bool lose_reply;   // the server gets all, the client nothing
    bool corrupt;      // a bit of the client's bulk bytes flips on the way
    int cut_after;     // > 0: the call breaks after that many messages from the client
    int64_t break_ns;  // > 0: the call breaks after this time
    int64_t again_ns;  // > 0: its messages arrive again this much later, as a call without a client
    const char *instead; // NULL: none; else the call reaches this address, as if two nodes had the
                         // dialled one
};
// Called on the client's loop for each call, one at a time. from/to are node names; false:
// unreachable.
typedef bool (*lh_fate_fn)(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                           struct lh_fate *fate);
void lh_fabric_fates(struct lh_fabric *f, lh_fate_fn fn, void *arg); // before its nodes

// For tests: called for each message that a server half sends, before the fate applies. `head` is
// the message without its bulk bytes.
typedef void (*lh_tap_fn)(void *arg, const struct lh_transport *from, const char *to,
                          enum lh_rpc rpc, struct lh_span head);
void lh_fabric_tap(struct lh_fabric *f, lh_tap_fn fn, void *arg); // before its nodes

// For tests: called for each word that a client takes of a coordinator, with its leader's number.
typedef void (*lh_taken_fn)(void *arg, const struct lh_transport *by, uint64_t number);
void lh_fabric_taken(struct lh_fabric *f, lh_taken_fn fn, void *arg); // before its nodes

// Time that a message takes beyond the call's delay: the path's rate, its queue, retransmissions.
// Messages of one call and direction stay in order, and the sender's on_sent follows after this
// time. (Without it on_sent follows when the other side reads the message, which limits messages
// per round trip.) With fake envs only.
typedef int64_t (*lh_pace_fn)(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                              size_t head_bytes, size_t bulk_bytes);
void lh_fabric_pace(struct lh_fabric *f, lh_pace_fn fn, void *arg); // before its nodes

// Breaks every call that is open between two nodes; both sides get LH_ERR_UNAVAILABLE.
void lh_fabric_sever(struct lh_fabric *f, const char *a, const char *b);

// A node's transport. `self` is its authenticated identity; `fake`: `env` is a fake one.
LH_MUST lh_err lh_transport_mem_create(struct lh_fabric *f, struct lh_env *env,
                                       const struct lh_peer *self, bool fake,
                                       struct lh_transport **out);
// As with gRPC, a link may be dialled with a list of addresses (at most 127 bytes): a call without
// an answer, or refused as unavailable, makes the next call try the next one. leads(): the number
// that this coordinator's answers say. leader(): which answers of coordinators this client takes;
// NULL: any. Borrowed.
void lh_transport_mem_leads(struct lh_transport *t, uint64_t number);
void lh_transport_mem_leader(struct lh_transport *t, struct lh_leader *leader);
// The node died: its own halves close with LH_ERR_KILLED (to free their memory) and can do nothing.
// With `silent` (a power cut, a cut wire) its peers learn of it only by keepalive or deadlines.
void lh_transport_mem_kill(struct lh_transport *t, bool silent);

#endif
