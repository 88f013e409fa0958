// The RPC interface of the cores: calls that carry messages both ways, with an authenticated peer.
//
// Two implementations: transport_grpc_*.c (gRPC C core, mutual TLS) and, for tests and benches,
// tests/world/transport_mem.c (messages are posted between the loops of nodes in one process; under
// the fake env it is a simulated network with faults). Every function is called on the loop thread
// of the node's env and every callback arrives there. A call is one RPC: the client opens it, both
// sides send messages, the server ends it with a status.
//
// Flow control by reading: a side receives one message per lh_call_read(), and may have
// LH_CALL_SENDS_MAX sent messages not yet reported by on_sent. A side that does not read puts
// backpressure on its peer.
//
// Lifetime: `struct lh_call` is valid until on_close returns. on_close is called exactly once for
// each opened or accepted call, and is its last callback.
#ifndef LH_COMMON_TRANSPORT_H
#define LH_COMMON_TRANSPORT_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/env/env.h"
#include "common/net/trace.h"
#include "common/net/trip.h"
#include "common/security/identity.h"

// The RPCs: X(id, "service/method", roles that may call it, types of its request and of its
// answer). The transport checks the role once per call, before on_call, and denies RPCs that are
// not listed. W = worker, S = server, C = coordinator, A = admin. The types are plain structs
// (wire.h); a stream repeats one of them.
#define LH_RPCS(X)                                                                                 \
    X(LH_RPC_JOIN, "longhaul.v1.Member/Join", LH_W, join_request, join_reply)                      \
    X(LH_RPC_LEASE, "longhaul.v1.Member/Lease", LH_W, lease_request, lease_reply)                  \
    X(LH_RPC_REPORT, "longhaul.v1.Member/Report", LH_S | LH_C, report_request, report_reply)       \
    X(LH_RPC_EPOCH, "longhaul.v1.Member/Epoch", LH_S | LH_C, epoch_request, epoch_reply)           \
    X(LH_RPC_INSYNC, "longhaul.v1.Member/InSync", LH_S | LH_C, in_sync_request, in_sync_reply)     \
    X(LH_RPC_STATUS, "longhaul.v1.Member/Status", LH_W | LH_S | LH_C | LH_A, status_request,       \
      status_reply)                                                                                \
    X(LH_RPC_DRAIN, "longhaul.v1.Member/Drain", LH_A, drain_request, drain_reply)                  \
    X(LH_RPC_PAUSE, "longhaul.v1.Member/Pause", LH_A, pause_request, pause_reply)                  \
    X(LH_RPC_MOVE, "longhaul.v1.Member/Move", LH_A, move_request, move_reply)                      \
    X(LH_RPC_EXPEL, "longhaul.v1.Member/Expel", LH_A, expel_request, expel_reply)                  \
    X(LH_RPC_ADOPT, "longhaul.v1.Member/Adopt", LH_A, adopt_request, adopt_reply)                  \
    X(LH_RPC_REFOLD, "longhaul.v1.Member/Refold", LH_A, refold_request, refold_reply)              \
    X(LH_RPC_HELLO, "longhaul.v1.Shard/Hello", LH_W, hello_request, hello_reply)                   \
    X(LH_RPC_PUSH, "longhaul.v1.Shard/Push", LH_W, push_head, push_reply)                          \
    X(LH_RPC_FOLLOW, "longhaul.v1.Shard/Follow", LH_W | LH_S | LH_A, follow_request, part_head)    \
    X(LH_RPC_SNAPSHOT, "longhaul.v1.Shard/Snapshot", LH_W | LH_S | LH_A, snapshot_request,         \
      part_head)                                                                                   \
    X(LH_RPC_OFFER, "longhaul.v1.Shard/Offer", LH_W, offer_request, offer_reply)                   \
    X(LH_RPC_RESTORE, "longhaul.v1.Shard/Restore", LH_W, restore_head, restore_reply)              \
    X(LH_RPC_CONFIRM, "longhaul.v1.Shard/Confirm", LH_S | LH_C, confirm_request, confirm_reply)    \
    X(LH_RPC_SHARD_STATUS, "longhaul.v1.Shard/Status", LH_W | LH_S | LH_C | LH_A,                  \
      shard_status_request, status_reply)                                                          \
    X(LH_RPC_UNIT, "longhaul.v1.Data/Unit", LH_W, unit_request, unit_head)                         \
    X(LH_RPC_HEALTH_CHECK, "grpc.health.v1.Health/Check", LH_W | LH_S | LH_C | LH_A,               \
      health_check_request, health_check_response)

#define LH_RPC_ENUM(id, ...) id,
enum lh_rpc { LH_RPCS(LH_RPC_ENUM) LH_RPC_COUNT };
#undef LH_RPC_ENUM

const char *lh_rpc_path(enum lh_rpc rpc);                // "longhaul.v1.Member/Join"
bool lh_rpc_allowed(enum lh_rpc rpc, enum lh_role role); // the role table, default deny

enum { LH_CALL_SENDS_MAX = 4 };

// One thread at either end runs a connection's TLS, so a client that needs more bandwidth to a near
// server dials a second line.
enum lh_line { LH_LINE_FIRST, LH_LINE_SECOND };

struct lh_call;
struct lh_transport;
struct lh_link; // a client's channel to one server address

// A received message: slices in order, never flattened by the transport. Borrowed: valid during
// on_message only.
struct lh_msg {
    const struct lh_span *part;
    size_t parts;
    size_t len; // sum
};

// An outgoing message = head bytes (copied during the call) followed by bytes [at, at+n) of `bulk`
// (NULL: none), which the transport shares and releases itself.
struct lh_out {
    struct lh_span head;
    struct lh_blob *bulk;
    size_t at, n;
};

// Callbacks to the owner of a call. `self` is given when the call is opened or accepted.
struct lh_call_ops {
    void (*on_message)(void *self, struct lh_call *call, const struct lh_msg *msg);
    void (*on_half_close)(void *self, struct lh_call *call); // server: the client will send no more
    void (*on_sent)(void *self, struct lh_call *call); // one message was sent: another may follow
    void (*on_close)(void *self, struct lh_call *call, lh_err status, const char *text);
};

// For a call that needs to know nothing of its messages' ends.
static inline void lh_call_nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

// A server's handler of new calls. on_call accepts by setting *ops and *call_self; an error refuses
// the call with that status.
struct lh_service {
    void *self;
    lh_err (*on_call)(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **call_self);
};

struct lh_transport_ops {
    // Binds `address` ("host:port", port 0: any) and writes the bound one. LH_ERR_EXISTS: port
    // taken.
    lh_err (*listen)(struct lh_transport *t, const char *address, const struct lh_service *service,
                     char *bound, size_t size);
    // Never blocks; an unreachable peer shows as LH_ERR_UNAVAILABLE on its calls. The peer's
    // certificate must serve as `role` (lh_role_serves) in this transport's own run, else
    // LH_ERR_UNAUTHENTICATED. Links of one line may share a connection; links of different lines
    // never do.
    lh_err (*dial)(struct lh_transport *t, const char *address, enum lh_role role,
                   enum lh_line line, struct lh_link **out);
    // From the next connection on, the peer's certificate must also have this identity
    // (lh_worker_id), else LH_ERR_UNAUTHENTICATED; 0: any. Links of other identities, also to the
    // same address, keep theirs.
    void (*expect)(struct lh_link *link, uint64_t identity);
    void (*hangup)(struct lh_link *link); // calls in flight end with LH_ERR_CANCELLED
    // Opens a call; with deadline_ns > 0 it ends with LH_ERR_DEADLINE after that time.
    lh_err (*open)(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                   const struct lh_call_ops *ops, void *self, struct lh_call **out);
    lh_err (*send)(struct lh_call *call, const struct lh_out *message);
    void (*read)(struct lh_call *call);
    // Client: no more messages from here. Server: ends the call with a status once all is sent.
    void (*finish)(struct lh_call *call, lh_err status, const char *text);
    void (*cancel)(struct lh_call *call); // on_close follows with LH_ERR_CANCELLED
    // The last measured round trip to the link's address; unknown before the first connection.
    // Never blocks. May be NULL: always unknown.
    struct lh_trip (*trip)(struct lh_link *link);
};

struct lh_transport {
    const struct lh_transport_ops *ops;
};
struct lh_call { // implementations embed it first
    const struct lh_transport_ops *transport_ops;
    struct lh_trace trace; // the caller's; "": it named none
};
struct lh_link {
    const struct lh_transport_ops *transport_ops;
    struct lh_trace trace; // copied to calls by open(); lh_call_open_traced() sets it
};

// ---- short forms
static inline LH_MUST lh_err lh_call_open(struct lh_link *link, enum lh_rpc rpc,
                                          int64_t deadline_ns, const struct lh_call_ops *ops,
                                          void *self, struct lh_call **out)
{
    return link->transport_ops->open(link, rpc, deadline_ns, ops, self, out);
}
static inline LH_MUST lh_err lh_call_open_traced(struct lh_link *link, enum lh_rpc rpc,
                                                 int64_t deadline_ns, const struct lh_trace *trace,
                                                 const struct lh_call_ops *ops, void *self,
                                                 struct lh_call **out)
{
    link->trace = *trace;
    lh_err err = link->transport_ops->open(link, rpc, deadline_ns, ops, self, out);
    link->trace = (struct lh_trace){.id = ""};
    return err;
}
static inline LH_MUST lh_err lh_call_send(struct lh_call *c, const struct lh_out *m)
{
    return c->transport_ops->send(c, m);
}
static inline void lh_call_read(struct lh_call *c)
{
    c->transport_ops->read(c);
}
static inline void lh_call_finish(struct lh_call *c, lh_err status, const char *text)
{
    c->transport_ops->finish(c, status, text);
}
static inline void lh_call_cancel(struct lh_call *c)
{
    c->transport_ops->cancel(c);
}
static inline struct lh_trip lh_link_trip(struct lh_link *link)
{
    return link->transport_ops->trip ? link->transport_ops->trip(link) : (struct lh_trip){0};
}
// The deadline of a call: `least_ns` on a short path, more on a longer one (trip.h), at most
// `most_ns`.
static inline int64_t lh_link_deadline(struct lh_link *link, int64_t least_ns, int64_t most_ns)
{
    const struct lh_trip trip = lh_link_trip(link);
    return lh_trip_patience_ns(&trip, least_ns, most_ns);
}

// Copies bytes [at, at+n) of a message out; false if the message is shorter.
bool lh_msg_copy(const struct lh_msg *m, size_t at, void *out, size_t n);

// Bytes of this process's sockets (by tcp_info), including TLS and retransmissions.
struct lh_wire_bytes {
    uint64_t sent, received;
};

#endif
