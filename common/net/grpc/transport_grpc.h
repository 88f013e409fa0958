// The transport of the real programs: gRPC C core, HTTP/2 over mutual TLS.
//
// One transport per process: it owns a completion-queue thread, at most one server and any number
// of links. Files, in the order a call walks: transport_grpc_client.c (dial, open),
// transport_grpc_server.c (listen, who may call), transport_grpc_door.c (how many may come in),
// transport_grpc_call.c (messages, flow, end of
// either side), transport_grpc_core.c (threads, life), transport_grpc_tls.c (certificates, reload),
// transport_grpc_status.c (status <-> lh_err), transport_grpc_wire.c (bytes of the sockets),
// transport_grpc_path.c (stalled connections and long round trips).
//
// Addresses are "host:port". Certificates are verified against one CA; hosts by the fixed name
// LH_CERTS_DNS, so addresses may change; a peer's one URI SAN says who it is (identity.h).
#ifndef LH_COMMON_TRANSPORT_GRPC_H
#define LH_COMMON_TRANSPORT_GRPC_H

#include "common/env/log.h"
#include "common/net/transport.h"

enum {
    // One message: a head and a part of 1 MiB (the fastest size), and some more; the largest
    // that a peer can make us hold for a call.
    LH_GRPC_MESSAGE_BYTES_MAX = (2 << 20) + (64 << 10),
    // Calls a process serves at once, about 10 KiB each while idle: 1,024 workers with a few follow
    // streams each. Beyond it a call is refused with LH_ERR_BUSY.
    LH_GRPC_CALLS_MAX = 4096,
    // Calls of one peer over all its connections: nobody keeps others out.
    LH_GRPC_CALLS_PER_PEER = 512,
    // Bytes that gRPC holds of what came to a server and is not read yet. Good peers take less than
    // 60 MiB. Up to 0.8 of the limit nothing changes; above it windows shrink, and anybody's calls
    // may be cancelled: an honest peer calls again.
    LH_GRPC_MEMORY_BYTES_MAX = 384 << 20,
    LH_GRPC_CALLS_PER_CONNECTION = 256, // one peer: one stream per shard it follows, and some
    // Connections and files that are open when a further connection is turned away, or fewer where
    // the process may open fewer: 1,024 workers with two each. About 30 KiB while TLS is not done.
    // The last quarter is for addresses that hold no more than half (transport_grpc_door.c).
    LH_GRPC_CONNECTIONS_MAX = 2048,
    // Time from a connection's begin to its first call, TLS included, where nobody called from that
    // address before (transport_grpc_waiting.c).
    LH_GRPC_HANDSHAKE_MS = 10000,
    LH_GRPC_FILES_KEPT = 128, // descriptors that no connection gets: the log, checkpoints, status
    // Links that share a connection; a worker has a link for each shard.
    LH_GRPC_LINKS_PER_CONNECTION = 64,
    LH_GRPC_METADATA_BYTES_MAX = 8 << 10, // bytes of headers; ours are under 1 KiB
    // One attempt, TLS included, until the round trip is known: 4 of 300 ms, and more. Then it
    // follows the round trip, and where it was not enough, the next attempt gets twice as long.
    LH_GRPC_CONNECT_MS = 5000,
    LH_GRPC_CONNECT_MS_MAX = 40000, // 4 round trips of 3 s, where packets are lost
    // Servers and workers give an attempt this time instead, as long as the round trip is not
    // known: 4 of 3 s, and more. Nobody who is there waits longer for it: a server that is not
    // there is noticed by its SYNs, and one that refuses says so.
    LH_GRPC_CONNECT_FAR_MS = 15000,
    LH_GRPC_BACKOFF_MS = 1000,    // most between two attempts: a restarted server is found soon
    LH_GRPC_KEEPALIVE_MS = 20000, // a silent wire is probed after this ...
    // ... and given up where the peer's kernel does not acknowledge it for this long, and what the
    // path needs on top: 8 retransmission timeouts (trip.h). An outage of a minute and a half ends
    // no connection: what waits on one goes on within a trip or two, and a new connection takes
    // six.
    LH_GRPC_UNHEARD_MS = 90000,
    // At most so long; and a process that stands still while its kernel goes on is given up then.
    LH_GRPC_KEEPALIVE_WAIT_MS = 120000,
    LH_GRPC_AGE_MS = 3600 * 1000, // a connection's life: it ends, so new certificates count
    // Rest of the life of a connection's calls; a follow stream is opened again.
    LH_GRPC_AGE_GRACE_MS = 300 * 1000,
    LH_GRPC_RELOAD_MS = 10000, // time between two looks at the certificate files
};

struct lh_grpc_conf {
    struct lh_env *env;          // borrows; a real one (threads wait on its loop)
    struct lh_log *log;          // borrows; may be NULL
    const char *ca, *cert, *key; // PEM files
    // This transport's run; its own certificate and every peer's must match.
    const char *run, *domain;
    int connect_ms;      // an attempt on an unknown path; 0: LH_GRPC_CONNECT_MS
    int connect_max_ms;  // an attempt on the longest path; 0: LH_GRPC_CONNECT_MS_MAX
    const char *revoked; // file of revoked certificates' serials; NULL or "": none are
};

// Reads and checks the certificates: LH_ERR_NOT_FOUND, LH_ERR_MALFORMED, or LH_ERR_UNAUTHENTICATED
// with what is wrong (expired, another CA, another run, key of another certificate).
LH_MUST lh_err lh_transport_grpc_create(const struct lh_grpc_conf *conf, struct lh_transport **out);

// On the loop thread, also inside a callback. Every open call gets its on_close (LH_ERR_CANCELLED)
// before this returns, links are gone with the transport, nothing is called afterwards. Blocks
// until gRPC let go (milliseconds). One posted function may stay in the env's queue; it touches
// nothing of the transport's.
void lh_transport_grpc_destroy(struct lh_transport *t);

// Looks at the certificate files now instead of at the next LH_GRPC_RELOAD_MS. A new pair that
// passes the checks of create() serves every connection from here on, on both sides, without a
// restart; one that does not is an error and the old one stays.
LH_MUST lh_err lh_transport_grpc_reload(struct lh_transport *t);

// Hears of each call that this side's server ends with an error of class REJECT: one that the peer
// may not make, one that can't be read, and what its owner refused. On the loop.
typedef void (*lh_grpc_refused_fn)(void *self, const struct lh_peer *peer, const char *rpc,
                                   const char *text);
void lh_transport_grpc_on_refused(struct lh_transport *t, lh_grpc_refused_fn refused, void *self);

// Bytes that TCP carried for this transport, TLS and retransmissions included, without IP and TCP
// headers. Accuracy: transport_grpc_wire.c.
void lh_transport_grpc_wire_bytes(struct lh_transport *t, struct lh_wire_bytes *out);

#endif
