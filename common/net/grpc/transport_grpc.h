// The transport of the real programs: gRPC C core, HTTP/2 over mutual TLS.
//
// One transport per process: it owns a completion-queue thread, at most one server and any number
// of links. Files, in the order of a call: transport_grpc_client.c (dial, open),
// transport_grpc_server.c (listen, access checks), transport_grpc_door.c (limit of connections),
// transport_grpc_call.c (messages, flow control, end of either side), transport_grpc_core.c
// (threads, life), transport_grpc_tls.c (certificates, reload), transport_grpc_status.c (status <->
// lh_err), transport_grpc_wire.c (bytes of the sockets), transport_grpc_path.c (stalled connections
// and long round trips).
//
// Addresses are "host:port", or several of them, separated by commas: one after the other is tried
// where one does not answer. Certificates are verified against one CA; hosts by the fixed name
// LH_CERTS_DNS, so addresses may change; a peer's one URI SAN is its identity (identity.h).
#ifndef LH_COMMON_TRANSPORT_GRPC_H
#define LH_COMMON_TRANSPORT_GRPC_H

#include "common/env/log.h"
#include "common/net/transport.h"

enum {
    // One message: a head and a part of 1 MiB (the fastest size), and some more; a peer can make us
    // hold no larger one for a call.
    LH_GRPC_MESSAGE_BYTES_MAX = (2 << 20) + (64 << 10),
    // Calls that a process serves at once, about 10 KiB each while idle: 1,024 workers with a few
    // follow streams each. Further calls are refused with LH_ERR_BUSY.
    LH_GRPC_CALLS_MAX = 4096,
    // Calls of one peer over all its connections, so that it cannot keep others out.
    LH_GRPC_CALLS_PER_PEER = 512,
    // Received bytes that gRPC holds until the server reads them. Honest peers need less than 60
    // MiB. Above 0.8 of the limit windows shrink, and any peer's calls may be cancelled; an honest
    // peer retries.
    LH_GRPC_MEMORY_BYTES_MAX = 384 << 20,
    LH_GRPC_CALLS_PER_CONNECTION = 256, // one peer: one stream per followed shard, and some
    // Open connections and files at which further connections are refused (fewer if the process may
    // open fewer): 1,024 workers with two each. About 30 KiB each during the TLS handshake. The
    // last quarter is for addresses that hold at most half (transport_grpc_door.c).
    LH_GRPC_CONNECTIONS_MAX = 2048,
    // Time from a connection's start to its first call, TLS included, for an address without
    // earlier calls (transport_grpc_waiting.c).
    LH_GRPC_HANDSHAKE_MS = 10000,
    LH_GRPC_FILES_KEPT = 128, // descriptors reserved for the log, checkpoints, status
    // Links that share a connection; a worker has one link per shard.
    LH_GRPC_LINKS_PER_CONNECTION = 64,
    LH_GRPC_METADATA_BYTES_MAX = 8 << 10, // bytes of headers; ours are under 1 KiB
    // Time of one attempt to connect, TLS included, while the round trip is unknown: more than 4
    // trips of 300 ms. Then it follows the round trip; after a time-out the next attempt gets twice
    // as long.
    LH_GRPC_CONNECT_MS = 5000,
    LH_GRPC_CONNECT_MS_MAX = 40000, // 4 round trips of 3 s on a lossy path
    // Servers and workers give an attempt this time instead while the round trip is unknown: more
    // than 4 trips of 3 s. It delays nothing else: unanswered SYNs detect an absent server, and a
    // refusing one answers.
    LH_GRPC_CONNECT_FAR_MS = 15000,
    LH_GRPC_BACKOFF_MS = 1000, // largest pause between attempts: a restarted server is found soon
    LH_GRPC_KEEPALIVE_MS = 20000, // a silent connection is probed after this ...
    // ... and closed if the peer's kernel acknowledges nothing for this time plus 8 retransmission
    // timeouts of the path (trip.h). So an outage of a minute and a half ends no connection: its
    // calls continue within a trip or two, while a new connection takes six.
    LH_GRPC_UNHEARD_MS = 90000,
    // Upper bound of that time; also for a stopped process whose kernel still answers.
    LH_GRPC_KEEPALIVE_WAIT_MS = 120000,
    LH_GRPC_AGE_MS = 3600 * 1000, // a connection's life, so that new certificates come into use
    // Time after that for a connection's calls to end; a follow stream is opened again.
    LH_GRPC_AGE_GRACE_MS = 300 * 1000,
    LH_GRPC_RELOAD_MS = 10000, // interval of checks of the certificate files
};

struct lh_grpc_conf {
    struct lh_env *env;          // borrows; must be a real env
    struct lh_log *log;          // borrows; may be NULL
    const char *ca, *cert, *key; // PEM files
    // This transport's run and domain; its own certificate and every peer's must match.
    const char *run, *domain;
    int connect_ms;      // time of an attempt on an unknown path; 0: LH_GRPC_CONNECT_MS
    int connect_max_ms;  // time of an attempt on the longest path; 0: LH_GRPC_CONNECT_MS_MAX
    const char *revoked; // file of revoked certificates' serials; NULL or "": none
    // Leaders among coordinators (server/docs/0000-protocol.md#rule-38): the highest number that
    // this node heard in its earlier lives, and a function, called on the loop, that makes a higher
    // one durable. Where that fails, the answer with the number is not taken. NULL: the numbers are
    // kept in memory alone.
    uint64_t led;
    lh_err (*heard)(void *self, uint64_t number);
    void *heard_self;
};

// Reads and checks the certificates: LH_ERR_NOT_FOUND, LH_ERR_MALFORMED, or LH_ERR_UNAUTHENTICATED
// with the reason (expired, another CA, another run, another certificate's key).
LH_MUST lh_err lh_transport_grpc_create(const struct lh_grpc_conf *conf, struct lh_transport **out);

// On the loop thread, also inside a callback. Every open call gets its on_close (LH_ERR_CANCELLED)
// before this returns; links are freed with the transport; no callback follows. Blocks until gRPC
// has finished (milliseconds). One posted function may stay in the env's queue; it does not touch
// the transport.
void lh_transport_grpc_destroy(struct lh_transport *t);

// Checks the certificate files now instead of after LH_GRPC_RELOAD_MS. A new pair that passes the
// checks of create() serves all new connections, on both sides, without a restart; a pair that
// fails is an error and the old one stays.
LH_MUST lh_err lh_transport_grpc_reload(struct lh_transport *t);

// Called, on the loop, for each call that this side's server ends with an error of class REJECT:
// not allowed, malformed, or refused by its owner.
typedef void (*lh_grpc_refused_fn)(void *self, const struct lh_peer *peer, const char *rpc,
                                   const char *text);
void lh_transport_grpc_on_refused(struct lh_transport *t, lh_grpc_refused_fn refused, void *self);

// Sets the leader's number (server/coordinator/store/number.h) that this server adds to its
// answers; 0: none. A client rejects a coordinator's answer with a lower number than one that it
// has seen (server/docs/0000-protocol.md#rule-38).
void lh_transport_grpc_leads(struct lh_transport *t, uint64_t number);

// Bytes that TCP carried for this transport, TLS and retransmissions included, without IP and TCP
// headers. Accuracy: transport_grpc_wire.c.
void lh_transport_grpc_wire_bytes(struct lh_transport *t, struct lh_wire_bytes *out);

#endif
