// The state and functions that the gRPC transport's files share. No other file includes it (tests
// may).
//
// Threads. The loop thread owns everything here, except: the mail (guarded by its lock),
// lh_grpc_certs and lh_grpc_expect (which lock themselves, because gRPC reads them during
// handshakes), and the wire counter. The completion-queue thread only takes events out of gRPC and
// puts them in the mail.
#ifndef LH_COMMON_TRANSPORT_GRPC_CORE_H
#define LH_COMMON_TRANSPORT_GRPC_CORE_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <sys/socket.h>

#include "common/net/grpc/transport_grpc.h"
#include "common/net/grpc/transport_grpc_revoked.h"
#include "common/net/leader.h"

enum {
    LH_GRPC_TEXT_BYTES = 512,         // a status's text with its zero
    LH_GRPC_REQUESTS = 16,            // calls that gRPC may give us before we ask for more
    LH_GRPC_PARTS_MAX = 16384,        // slices of one message: a full one in pieces of 132 bytes
    LH_GRPC_ADDRESS_BYTES = 1024,     // a link's addresses, all of them
    LH_GRPC_PEER_BYTES = 64,          // a host and port in numbers
    LH_GRPC_READ_BYTES = 256 << 10,   // bytes that one read of a connection takes
    LH_GRPC_READ_BYTES_MAX = 1 << 20, // a client's, during a large transfer
    LH_GRPC_USERS = 1024,             // peers whose use of the loop is remembered
};

// ---- events: one per batch given to gRPC, which returns it through the completion queue
enum lh_grpc_event {
    LH_GRPC_STARTED,  // client: the server's headers arrived, or the call failed
    LH_GRPC_SENT,     // the last batch (headers, a message, the end) was sent
    LH_GRPC_RECEIVED, // a message, or the end of messages
    LH_GRPC_CLOSED,   // client: status; server: the call is over
    LH_GRPC_REQUESTED,
    LH_GRPC_SERVER_DOWN,
};

struct lh_grpc_op {
    struct lh_grpc_op *next; // next op in the mail
    void *owner;             // the call, or the request
    enum lh_grpc_event event;
    bool ok, carries_message; // carries_message: SENT only
};

// From the completion-queue thread to the loop. Outlives the transport while a post is pending.
struct lh_grpc_mail {
    pthread_mutex_t lock;
    pthread_cond_t arrived; // destroy() waits here
    struct lh_grpc_op *first, **last;
    struct lh_grpc *t; // NULL: destroyed
    struct lh_env *env;
    bool posted, closing; // closing: no more posts; destroy() takes the mail itself
};

struct lh_grpc_certs;
struct lh_grpc_wire;

struct lh_grpc_door;

struct lh_grpc_request {
    struct lh_grpc_op op;
    struct lh_grpc_door *door;
    grpc_call *core;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct lh_grpc_door { // a listening server
    int port;
    grpc_server *core;
    const struct lh_service *service;
    struct lh_grpc_request request[LH_GRPC_REQUESTS];
    size_t asked; // requests that gRPC has
    struct lh_grpc_op down;
    bool is_down; // freed once down and no request is pending
};

struct lh_grpc_user { // a peer of our server; owes: of the loop's time
    uint64_t peer;
    int64_t owes_ns, at_ns;
};

struct lh_grpc {
    struct lh_transport base;
    struct lh_env *env;
    struct lh_log *log;
    int connect_ms, connect_max_ms; // as configured
    struct lh_grpc_certs *certs;
    struct lh_grpc_revoked *revoked;
    struct lh_grpc_mail *mail;
    struct lh_grpc_wire *wire;
    lh_grpc_refused_fn refused; // NULL: no callback for refused calls
    void *refused_self;
    uint64_t leads;          // our leader's number, as a server
    struct lh_leader leader; // as a client knows it
    grpc_completion_queue *queue;
    pthread_t thread;
    struct lh_grpc_door *door; // NULL: not listening
    struct lh_grpc_link *links;
    struct lh_grpc_call *calls;            // not closed yet
    struct lh_grpc_call *dirty;            // calls to pump at the end of this round
    struct lh_grpc_op *taken;              // events of this round not handled yet
    struct lh_grpc_op *later, **later_end; // events of peers that have used too much of the loop
    struct lh_grpc_user user[LH_GRPC_USERS];
    size_t ops;     // batches and requests that gRPC has
    size_t served;  // calls of our server that gRPC still has
    unsigned depth; // depth of callbacks; after destroy() inside one the outermost frees the memory
    bool dead;
    uint64_t reload_timer;
    uint64_t away;                    // refused connections already logged
    uint64_t timed_out, gone, rushed; // connections without a call already logged
    uint64_t wait_timer;
    uint64_t ended;       // connections ended by the guard, at the last look
    int64_t warned_s;     // time of the last warning of our certificate's expiry; 0: none
    struct lh_span *part; // parts of the current message, at most LH_GRPC_PARTS_MAX
};

// The identity that a server's certificate must have. Shared with gRPC, which reads it during
// handshakes.
struct lh_grpc_expect;

struct lh_grpc_line { // one channel with one TCP connection, shared by links
    unsigned links;
    enum lh_role role;
    enum lh_line number;
    char list[LH_GRPC_ADDRESS_BYTES];    // as it was dialled
    char address[LH_GRPC_ADDRESS_BYTES]; // the one in use
    struct lh_grpc_expect *expect;
    grpc_channel *channel;
    uint64_t generation;           // certificates' generation at the channel's creation
    char peer[LH_GRPC_PEER_BYTES]; // address of the last peer that answered; "": none yet
    int connect_ms;                // time of an attempt of this channel
    int64_t asked_ns;     // time of the first call that waits for a connection; 0: none waits
    uint64_t connections; // connections that calls requested; number of the last one
    uint64_t accepted;    // number of the last one that received bytes: its peer accepts us
};

struct lh_grpc_link {
    struct lh_link base;
    struct lh_grpc *t;
    struct lh_grpc_link *previous, *next;
    struct lh_grpc_line *line;
};

struct lh_grpc_call {
    struct lh_call base;
    struct lh_grpc *t;
    struct lh_grpc_link *link; // client, until the call is closed
    uint64_t connection;       // client: its line's connection number at the call's start
    struct lh_grpc_call *previous, *next, *next_dirty;
    grpc_call *core; // NULL once gRPC has finished with it
    const struct lh_call_ops *ops;
    void *self;
    unsigned pending; // batches with gRPC
    unsigned holds;   // references: the list, batches, the dirty list, stack frames
    bool server, dirty;
    bool revoked;          // its peer's certificate is revoked; the call must end
    bool started;          // our headers were given to gRPC
    bool sending;          // the `sent` batch is pending; gRPC takes one at a time
    bool receiving;        // the `received` batch is pending
    bool want;             // read() was called
    bool ended;            // no further message will arrive
    bool finish, finished; // the owner asked for the end; it was given to gRPC
    bool cancelled;        // the owner cancelled it: only on_close follows
    bool over;             // gRPC reported the end: status and text are valid
    bool closed;           // on_close was called, or will never be
    struct lh_grpc_op op_started, op_sent, op_received, op_closed;
    grpc_byte_buffer *out[LH_CALL_SENDS_MAX]; // a ring; gRPC may have the first
    unsigned out_first, out_count;
    grpc_byte_buffer *in;
    grpc_metadata_array initial, trailing; // client
    grpc_status_code code;                 // client
    grpc_slice details;                    // client
    int peer_cancelled;                    // server
    uint64_t peer;                         // server: id of the caller's certificate
    struct lh_peer caller;                 // server: identity in the certificate; no role: unknown
    enum lh_rpc rpc;                       // server; LH_RPC_COUNT: an unknown RPC
    lh_err status;
    char text[LH_GRPC_TEXT_BYTES];
};

extern const struct lh_transport_ops lh_grpc_ops;

// ---- core: batches and rounds
// Bracket code that may call an owner: the outermost leave() frees a transport destroyed inside.
void lh_grpc_enter(struct lh_grpc *t);
void lh_grpc_leave(struct lh_grpc *t);
// Gives a batch to gRPC; `op` returns as an event and holds the call until then.
void lh_grpc_start(struct lh_grpc_call *c, struct lh_grpc_op *op, const grpc_op *ops, size_t n);
void lh_grpc_touch(struct lh_grpc_call *c); // pumps it at the end of this round
// Charges a peer of our server for the loop's time since then; 0: no peer.
void lh_grpc_turn_used(struct lh_grpc *t, uint64_t peer, int64_t since_ns);

// ---- call: both sides
struct lh_grpc_call *lh_grpc_call_new(struct lh_grpc *t, bool server);
void lh_grpc_call_event(struct lh_grpc_call *c, struct lh_grpc_op *op);
void lh_grpc_call_pump(struct lh_grpc_call *c); // starts all possible batches
void lh_grpc_call_over(struct lh_grpc_call *c, lh_err status, const char *text);
void lh_grpc_call_settle(struct lh_grpc_call *c); // closes it once over and drained
// Calls on_close at once and cancels gRPC's call, which is freed when its batches have returned.
void lh_grpc_call_close(struct lh_grpc_call *c, lh_err status, const char *text);
void lh_grpc_call_hold(struct lh_grpc_call *c);
void lh_grpc_call_drop(struct lh_grpc_call *c); // the last reference frees it
LH_MUST lh_err lh_grpc_send(struct lh_call *call, const struct lh_out *message);
void lh_grpc_read(struct lh_call *call);
void lh_grpc_finish(struct lh_call *call, lh_err status, const char *text);
void lh_grpc_cancel(struct lh_call *call);
// Copies the head and shares the bulk: the buffer's second slice points into the blob. Gives.
grpc_byte_buffer *lh_grpc_message(const struct lh_out *message);
// The slices of a received message, uncopied, at most `max`. False: more, or compressed.
bool lh_grpc_parts(grpc_byte_buffer *in, struct lh_span *part, size_t max, struct lh_msg *out);

// ---- client, server
LH_MUST lh_err lh_grpc_dial(struct lh_transport *t, const char *address, enum lh_role role,
                            enum lh_line line, struct lh_link **out);
void lh_grpc_name_server(struct lh_link *link, uint64_t identity);
void lh_grpc_hangup(struct lh_link *link);
struct lh_trip lh_grpc_trip(struct lh_link *link);
LH_MUST lh_err lh_grpc_open(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                            const struct lh_call_ops *ops, void *self, struct lh_call **out);
void lh_grpc_client_closed(struct lh_grpc_call *c); // its status arrived
void lh_grpc_client_heard(struct lh_grpc_call *c);  // the server itself sent something
// A message arrived: is it of an earlier leader? Then the call is over. False at a server.
bool lh_grpc_client_refuses(struct lh_grpc_call *c);
extern const char lh_grpc_leader_key[]; // metadata: the leader's number
extern const char lh_grpc_trace_key[];  // metadata: a push's trace (trace.h)
LH_MUST lh_err lh_grpc_listen(struct lh_transport *t, const char *address,
                              const struct lh_service *service, char *bound, size_t size);
// Ends calls of peers with revoked certificates, and calls to such servers.
void lh_grpc_end_revoked(struct lh_grpc *t);
void lh_grpc_requested(struct lh_grpc *t, struct lh_grpc_request *rq, bool ok);
void lh_grpc_server_closed(struct lh_grpc_call *c);
// Our owner ends the call with c->status and c->text.
void lh_grpc_server_finishes(struct lh_grpc_call *c);
void lh_grpc_shut_door(struct lh_grpc *t); // begins; LH_GRPC_SERVER_DOWN reports its end
void lh_grpc_door_down(struct lh_grpc_door *d);
enum { LH_GRPC_SHARED_ARGS = 11 };
// The settings of both sides; returns their number.
size_t lh_grpc_shared_args(grpc_arg args[LH_GRPC_SHARED_ARGS]);
grpc_arg lh_grpc_arg(const char *key, int value);

// ---- door: of the process, not of one transport
void lh_grpc_door_widen(void); // raises the limit of open files as needed, if allowed
int lh_grpc_door_limit(void);  // connections have lower descriptors than this
// Listeners of this port are a transport's, from here on or no more. Others, such as that of the
// page, keep to the limit alone: nobody makes a call there.
void lh_grpc_door_opens(int port);
void lh_grpc_door_closes(int port);
// Connections refused since the start, and the last one's address.
uint64_t lh_grpc_door_away(char *last, size_t size);

void lh_grpc_door_note(const char *peer); // counts a refused connection

// ---- waiting: of the process too; connections without a call yet (transport_grpc_waiting.c)
// Call after accept(). False: its address has no attempt left, close it.
LH_MUST bool lh_grpc_waiting_add(int listener, int fd, const struct sockaddr_storage *from);
void lh_grpc_waiting_called(const char *peer); // the peer "HOST:PORT" (numeric) made a call
struct lh_grpc_waited {       // since the start, with the last address of each kind
    uint64_t timed_out, gone; // timed_out: closed here; gone: ended before the first call
    uint64_t rushed;          // had no attempt left
    char last[LH_GRPC_PEER_BYTES], last_gone[LH_GRPC_PEER_BYTES], last_rushed[LH_GRPC_PEER_BYTES];
};
// Call about once a second: closes connections that have waited too long.
void lh_grpc_waiting_look(int64_t now_ns, struct lh_grpc_waited *out);
// A duplicate of the descriptor if it still is the socket with that cookie; else -1.
LH_MUST int lh_grpc_copy_if(int fd, uint64_t cookie);

// ---- shun: addresses to which listeners do not answer (transport_grpc_shun.c)
struct lh_grpc_address {
    uint8_t bytes[17]; // length (4 or 8), then that many bytes: IPv4, or the network of IPv6
};
// Until lh_grpc_shun_end() this listener, and those named before, drop that address's connections.
void lh_grpc_shun(int listener, const struct lh_grpc_address *a);
void lh_grpc_shun_end(void);

// ---- status
grpc_status_code lh_grpc_code(lh_err err);
extern const char lh_grpc_err_key[]; // trailing metadata: our error code's name
// The server's code: by its name if it sent one, else mapped from gRPC's code.
LH_MUST lh_err lh_grpc_err(grpc_status_code code, const grpc_metadata_array *trailing,
                           const char *details);
void lh_grpc_text(grpc_slice from, char *out, size_t size); // without control characters

// ---- tls
LH_MUST lh_err lh_grpc_certs_open(const struct lh_grpc_conf *conf, struct lh_grpc_revoked *revoked,
                                  struct lh_grpc_certs **out);
void lh_grpc_certs_close(struct lh_grpc_certs *certs);
// Makes new connections use new channels, which check their server again.
void lh_grpc_certs_renew_channels(struct lh_grpc_certs *certs);
LH_MUST lh_err lh_grpc_certs_reload(struct lh_grpc_certs *certs, bool *changed);
uint64_t lh_grpc_certs_generation(struct lh_grpc_certs *certs);
struct lh_grpc_guard *lh_grpc_certs_guard(const struct lh_grpc_certs *certs);
const char *lh_grpc_certs_ca(const struct lh_grpc_certs *certs); // path
const char *lh_grpc_certs_run(const struct lh_grpc_certs *certs);
const char *lh_grpc_certs_domain(const struct lh_grpc_certs *certs);
// Fails if our own certificate is not valid now; the text gives the date.
LH_MUST lh_err lh_grpc_certs_check(struct lh_grpc_certs *certs);
// Seconds until our own certificate ends; negative afterwards. `text`: its name and last day.
int64_t lh_grpc_certs_left_s(const struct lh_grpc_certs *certs, char *text, size_t size);
grpc_server_credentials *lh_grpc_certs_server(struct lh_grpc_certs *certs);
grpc_channel_credentials *lh_grpc_certs_channel(struct lh_grpc_certs *certs,
                                                struct lh_grpc_expect *expect,
                                                uint64_t *generation);
struct lh_grpc_expect *lh_grpc_expect_new(struct lh_grpc_certs *certs,
                                          struct lh_grpc_revoked *revoked, enum lh_role role,
                                          const char *address);
// Sets the expected holder of the certificate (lh_worker_id); 0: any of the role. False: unchanged.
bool lh_grpc_expect_identity(struct lh_grpc_expect *e, uint64_t identity);
bool lh_grpc_expect_is(const struct lh_grpc_expect *e, uint64_t identity);
void lh_grpc_expect_drop(struct lh_grpc_expect *e);
// The reason why we refused the last handshake with this server; false: we did not.
bool lh_grpc_expect_refused(struct lh_grpc_expect *e, char *out, size_t size);
// Whether the server certificate of the last passed handshake is now revoked.
bool lh_grpc_expect_revoked(struct lh_grpc_expect *e);

// ---- key: private keys by name, for gRPC (transport_grpc_key.c)
struct evp_pkey_st; // OpenSSL's EVP_PKEY
enum { LH_GRPC_KEY_NAME_BYTES = 48 };
void lh_grpc_key_prepare(void); // before the first key is read
// Stores the key under a new name, which gRPC gets as its PEM text, until drop(). Shares both. TLS
// contexts with this key are under this guard.
struct lh_grpc_guard;
LH_MUST lh_err lh_grpc_key_keep(struct evp_pkey_st *key, struct lh_grpc_guard *guard,
                                char name[LH_GRPC_KEY_NAME_BYTES]);
void lh_grpc_key_drop(const char *name); // "": nothing

// ---- guard: whose handshake passes and whose connection stays (transport_grpc_guard.c)
struct lh_grpc_guard *lh_grpc_guard_new(struct lh_env *env, struct lh_log *log, const char *run,
                                        const char *domain, struct lh_grpc_revoked *revoked);
struct lh_grpc_guard *lh_grpc_guard_share(struct lh_grpc_guard *g); // another reference
void lh_grpc_guard_drop(struct lh_grpc_guard *g);
// Drops the transport's reference; the env and the log are no longer used.
void lh_grpc_guard_close(struct lh_grpc_guard *g);
// Puts the next TLS context that this thread makes under this guard.
void lh_grpc_guard_make(struct lh_grpc_guard *g);
// On the loop: reports a call that the peer's role or run may not make, or an unknown call.
void lh_grpc_guard_blame(struct lh_grpc_guard *g, uint64_t peer);
uint64_t lh_grpc_guard_ended(struct lh_grpc_guard *g); // connections that the guard has ended

// ---- path: what a connection does about its path (transport_grpc_path.c)
struct tcp_info;
// One socket's state of its path.
struct lh_grpc_path {
    int64_t cap_ms;  // the last cap set; 0: none yet
    int64_t now_ns;  // time of this call, set by the path's owner
    int64_t calm_ns; // the cap does not grow before this time
    bool uncapped;   // this kernel has no cap: stalled connections are closed
    bool brief;      // TCP_NOTSENT_LOWAT is set
};
// The longest wait before TCP sends again, in ms, for a smoothed round trip and its spread in us.
int64_t lh_grpc_path_cap_ms(uint32_t rtt_us, uint32_t spread_us);
// Time in ms of the next attempt to connect, TLS included. rtt_us: the longest known to that port,
// 0: none; last_ms, timed_out: the last attempt's time, and whether it was too short; most_ms:
// upper bound.
int lh_grpc_path_connect_ms(uint32_t rtt_us, int last_ms, bool timed_out, int most_ms);
// The path's round trip, from the kernel's figures for a socket.
struct lh_trip lh_grpc_path_trip(uint32_t rtt_us, uint32_t spread_us);
// Time in ms without acknowledgement after which a connection is closed.
int lh_grpc_path_patience_ms(uint32_t rtt_us, uint32_t spread_us);
// Any thread, at each look of the wire: adapts the socket's cap, or closes a stalled socket.
void lh_grpc_path_tend(struct lh_grpc_path *p, int fd, bool dialled, const struct tcp_info *info);

// ---- wire
struct lh_grpc_wire *lh_grpc_wire_new(void);
void lh_grpc_wire_free(struct lh_grpc_wire *w);
void lh_grpc_wire_watch(struct lh_grpc_wire *w, const char *address, bool server);
// Any thread: reads the sockets when due; returns the ms until the next poll.
int64_t lh_grpc_wire_poll(struct lh_grpc_wire *w, int64_t now_ns);
void lh_grpc_wire_look(struct lh_grpc_wire *w); // now; call before closing connections
// Any thread: shuts down the accepted connection from this peer (lh_grpc_peer_name). gRPC closes
// it.
void lh_grpc_wire_shut(struct lh_grpc_wire *w, const char *peer);
void lh_grpc_wire_sum(struct lh_grpc_wire *w, struct lh_wire_bytes *out);
// The longest smoothed round trip in us of connections to this address's port, or, if there was
// none, to any dialled port: a node far from one peer is probably far from others. 0: none yet.
uint32_t lh_grpc_wire_rtt_us(struct lh_grpc_wire *w, const char *address);
// The round trip to a peer (lh_grpc_peer_name), now or when last connected.
struct lh_trip lh_grpc_wire_trip(struct lh_grpc_wire *w, const char *peer);
// "HOST:PORT" in numbers, from gRPC's "ipv4:HOST:PORT" or "ipv6:%5BHOST%5D:PORT"; "" from others.
void lh_grpc_peer_name(const char *uri, char out[LH_GRPC_PEER_BYTES]);

#endif
