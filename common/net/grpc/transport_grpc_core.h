// Inside the gRPC transport: what its files share. Nobody else includes this (tests may).
//
// Threads. Everything here belongs to the loop thread, except: the mail (guarded by its lock), what
// lh_grpc_certs and lh_grpc_expect guard themselves (gRPC reads them during handshakes), and the
// wire counter. The completion-queue thread only takes events out of gRPC and puts them in the
// mail.
#ifndef LH_COMMON_TRANSPORT_GRPC_CORE_H
#define LH_COMMON_TRANSPORT_GRPC_CORE_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>

#include "common/net/grpc/transport_grpc.h"
#include "common/net/grpc/transport_grpc_revoked.h"

enum {
    LH_GRPC_TEXT_BYTES = 512,  // a status's text with its zero
    LH_GRPC_REQUESTS = 16,     // calls gRPC may hand us before we ask for more
    LH_GRPC_PARTS_MAX = 16384, // slices of one message: a full one in pieces of 132 bytes
    LH_GRPC_ADDRESS_BYTES = 256,
    LH_GRPC_PEER_BYTES = 64,          // a host and port in numbers
    LH_GRPC_READ_BYTES = 256 << 10,   // bytes that one read of a connection takes
    LH_GRPC_READ_BYTES_MAX = 1 << 20, // a client's, while much comes
};

// ---- events: one per batch given to gRPC, which returns it through the completion queue
enum lh_grpc_event {
    LH_GRPC_STARTED,  // client: the server's headers came, or the call failed
    LH_GRPC_SENT,     // the last batch (headers, a message, the end) left
    LH_GRPC_RECEIVED, // a message, or the end of messages
    LH_GRPC_CLOSED,   // client: status; server: the call is over
    LH_GRPC_REQUESTED,
    LH_GRPC_SERVER_DOWN,
};

struct lh_grpc_op {
    struct lh_grpc_op *next; // next one in the mail
    void *owner;             // the call, or the request
    enum lh_grpc_event event;
    bool ok, carries_message; // the latter: SENT only
};

// From the completion-queue thread to the loop. Outlives the transport while a post is under way.
struct lh_grpc_mail {
    pthread_mutex_t lock;
    pthread_cond_t arrived; // destroy() waits here
    struct lh_grpc_op *first, **last;
    struct lh_grpc *t; // NULL: destroyed
    struct lh_env *env;
    bool posted, closing; // closing: nobody posts any more, destroy() takes the mail itself
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
    grpc_server *core;
    const struct lh_service *service;
    struct lh_grpc_request request[LH_GRPC_REQUESTS];
    size_t asked; // requests that gRPC has
    struct lh_grpc_op down;
    bool is_down; // freed then, when no request is out
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
    lh_grpc_refused_fn refused; // NULL: nobody wants to hear of refused calls
    void *refused_self;
    grpc_completion_queue *queue;
    pthread_t thread;
    struct lh_grpc_door *door; // NULL: not listening
    struct lh_grpc_link *links;
    struct lh_grpc_call *calls; // not closed yet
    struct lh_grpc_call *dirty; // calls to be pumped at the end of this round
    struct lh_grpc_op *taken;   // events of this round that are still to be handled
    size_t ops;                 // batches and requests with gRPC now
    size_t served;              // calls of our server that gRPC still knows
    unsigned depth; // depth of callbacks; destroy() inside one leaves the memory to the outermost
    bool dead;
    uint64_t reload_timer;
    uint64_t away;            // connections turned away that the log knows of
    uint64_t timed_out, gone; // connections without a call that the log knows of
    uint64_t wait_timer;
    uint64_t ended;       // connections that the guard had ended at the last look
    int64_t warned_s;     // when the log was last told that our certificate ends; 0: not yet
    struct lh_span *part; // parts of the message being given, LH_GRPC_PARTS_MAX at most
};

// The identity that a server's certificate must show. Shared with gRPC, which asks during
// handshakes.
struct lh_grpc_expect;

struct lh_grpc_line { // one channel, with one TCP connection, of the links that share it
    unsigned links;
    enum lh_role role;
    enum lh_line number;
    char address[LH_GRPC_ADDRESS_BYTES];
    struct lh_grpc_expect *expect;
    grpc_channel *channel;
    uint64_t generation;           // generation of the certificates its channel was made with
    char peer[LH_GRPC_PEER_BYTES]; // address of the last peer that answered; "": none has yet
    int connect_ms;                // an attempt of this channel gets
    int64_t asked_ns; // the first call that asked for a connection that is not there yet; 0: none
    uint64_t connections; // connections that calls asked for; the number of the last one
    uint64_t accepted;    // number of the last one by which something came: its peer accepts us
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
    uint64_t connection;       // client: the number of its line's connection when the call began
    struct lh_grpc_call *previous, *next, *next_dirty;
    grpc_call *core; // NULL once gRPC is done with it
    const struct lh_call_ops *ops;
    void *self;
    unsigned pending; // batches with gRPC
    unsigned holds;   // how many look at us: the list, batches, the dirty list, frames of the stack
    bool server, dirty;
    bool revoked;          // its peer's certificate is, and the call is to end
    bool started;          // our headers are with gRPC
    bool sending;          // the `sent` batch is under way; gRPC takes one at a time
    bool receiving;        // the `received` batch is under way
    bool want;             // read() was called
    bool ended;            // no message will come any more
    bool finish, finished; // the owner asked for the end; it is with gRPC
    bool cancelled;        // the owner cancelled it: nothing but on_close follows
    bool over;             // gRPC told the end: status and text hold
    bool closed;           // on_close was called, or never will be
    struct lh_grpc_op op_started, op_sent, op_received, op_closed;
    grpc_byte_buffer *out[LH_CALL_SENDS_MAX]; // a ring; the first may be with gRPC
    unsigned out_first, out_count;
    grpc_byte_buffer *in;
    grpc_metadata_array initial, trailing; // client
    grpc_status_code code;                 // client
    grpc_slice details;                    // client
    int peer_cancelled;                    // server
    uint64_t peer;                         // server: its certificate's id
    struct lh_peer caller;                 // server: its certificate's; no role: it is not known
    enum lh_rpc rpc;                       // server; LH_RPC_COUNT: none that exists
    lh_err status;
    char text[LH_GRPC_TEXT_BYTES];
};

extern const struct lh_transport_ops lh_grpc_ops;

// ---- core: batches and rounds
// Around whatever may call an owner back: the outermost leave() frees a transport destroyed inside.
void lh_grpc_enter(struct lh_grpc *t);
void lh_grpc_leave(struct lh_grpc *t);
// Hands a batch to gRPC; `op` comes back as an event and holds the call until then.
void lh_grpc_start(struct lh_grpc_call *c, struct lh_grpc_op *op, const grpc_op *ops, size_t n);
void lh_grpc_touch(struct lh_grpc_call *c); // pump it at the end of this round

// ---- call: both sides
struct lh_grpc_call *lh_grpc_call_new(struct lh_grpc *t, bool server);
void lh_grpc_call_event(struct lh_grpc_call *c, struct lh_grpc_op *op);
void lh_grpc_call_pump(struct lh_grpc_call *c); // starts what can be started
void lh_grpc_call_over(struct lh_grpc_call *c, lh_err status, const char *text);
void lh_grpc_call_settle(struct lh_grpc_call *c); // closes it when it is over and all came back
// on_close at once, then gRPC's call is cancelled and forgotten when its batches came back.
void lh_grpc_call_close(struct lh_grpc_call *c, lh_err status, const char *text);
void lh_grpc_call_hold(struct lh_grpc_call *c);
void lh_grpc_call_drop(struct lh_grpc_call *c); // the last one frees it
LH_MUST lh_err lh_grpc_send(struct lh_call *call, const struct lh_out *message);
void lh_grpc_read(struct lh_call *call);
void lh_grpc_finish(struct lh_call *call, lh_err status, const char *text);
void lh_grpc_cancel(struct lh_call *call);
// Head copied, bulk shared: the buffer's second slice lies in the blob. Gives.
grpc_byte_buffer *lh_grpc_message(const struct lh_out *message);
// The slices of a received message where they lie, at most `max`. False: more, or compressed.
bool lh_grpc_parts(grpc_byte_buffer *in, struct lh_span *part, size_t max, struct lh_msg *out);

// ---- client, server
LH_MUST lh_err lh_grpc_dial(struct lh_transport *t, const char *address, enum lh_role role,
                            enum lh_line line, struct lh_link **out);
void lh_grpc_name_server(struct lh_link *link, uint64_t identity);
void lh_grpc_hangup(struct lh_link *link);
struct lh_trip lh_grpc_trip(struct lh_link *link);
LH_MUST lh_err lh_grpc_open(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                            const struct lh_call_ops *ops, void *self, struct lh_call **out);
void lh_grpc_client_closed(struct lh_grpc_call *c); // its status came
void lh_grpc_client_heard(struct lh_grpc_call *c);  // the server itself said something
LH_MUST lh_err lh_grpc_listen(struct lh_transport *t, const char *address,
                              const struct lh_service *service, char *bound, size_t size);
// Ends the calls of peers whose certificates are revoked by now, and calls to such servers.
void lh_grpc_end_revoked(struct lh_grpc *t);
void lh_grpc_requested(struct lh_grpc *t, struct lh_grpc_request *rq, bool ok);
void lh_grpc_server_closed(struct lh_grpc_call *c);
// Our owner ends the call: c->status and c->text say how.
void lh_grpc_server_finishes(struct lh_grpc_call *c);
void lh_grpc_shut_door(struct lh_grpc *t); // begins; LH_GRPC_SERVER_DOWN tells the end
void lh_grpc_door_down(struct lh_grpc_door *d);
enum { LH_GRPC_SHARED_ARGS = 11 };
// The settings of both sides; returns how many were written.
size_t lh_grpc_shared_args(grpc_arg args[LH_GRPC_SHARED_ARGS]);
grpc_arg lh_grpc_arg(const char *key, int value);

// ---- door: of the process, not of one transport
void lh_grpc_door_widen(void); // lets this process open as many files as it needs, if it may
int lh_grpc_door_limit(void);  // no connection has a descriptor as high as this
// Connections that were turned away since the start, and where the last of them came from.
uint64_t lh_grpc_door_away(char *last, size_t size);

void lh_grpc_door_note(const char *peer); // counts it among them

// ---- waiting: of the process too; connections without a call yet (transport_grpc_waiting.c)
void lh_grpc_waiting_add(int fd);              // it was accepted
void lh_grpc_waiting_called(const char *peer); // "HOST:PORT" in numbers made a call
struct lh_grpc_waited {       // since the start, and where the last of each kind came from
    uint64_t timed_out, gone; // closed here; ended before its first call: refused, or given up
    char last[LH_GRPC_PEER_BYTES], last_gone[LH_GRPC_PEER_BYTES];
};
// Every second or so: closes those that waited for too long.
void lh_grpc_waiting_look(int64_t now_ns, struct lh_grpc_waited *out);

// ---- status
grpc_status_code lh_grpc_code(lh_err err);
extern const char lh_grpc_err_key[]; // trailing metadata: our own code's name
// The code the server meant: its name where it sent one, else what gRPC's code means to us.
LH_MUST lh_err lh_grpc_err(grpc_status_code code, const grpc_metadata_array *trailing,
                           const char *details);
void lh_grpc_text(grpc_slice from, char *out, size_t size); // without control characters

// ---- tls
LH_MUST lh_err lh_grpc_certs_open(const struct lh_grpc_conf *conf, struct lh_grpc_revoked *revoked,
                                  struct lh_grpc_certs **out);
void lh_grpc_certs_close(struct lh_grpc_certs *certs);
// Connections that are opened from here on use new channels, which look at their server anew.
void lh_grpc_certs_renew_channels(struct lh_grpc_certs *certs);
LH_MUST lh_err lh_grpc_certs_reload(struct lh_grpc_certs *certs, bool *changed);
uint64_t lh_grpc_certs_generation(struct lh_grpc_certs *certs);
struct lh_grpc_guard *lh_grpc_certs_guard(const struct lh_grpc_certs *certs);
const char *lh_grpc_certs_ca(const struct lh_grpc_certs *certs); // path
const char *lh_grpc_certs_run(const struct lh_grpc_certs *certs);
const char *lh_grpc_certs_domain(const struct lh_grpc_certs *certs);
// Fails when our own certificate is not valid now; the text says since when.
LH_MUST lh_err lh_grpc_certs_check(struct lh_grpc_certs *certs);
// Seconds until our own certificate ends; negative afterwards. `text`: which one, and its last day.
int64_t lh_grpc_certs_left_s(const struct lh_grpc_certs *certs, char *text, size_t size);
grpc_server_credentials *lh_grpc_certs_server(struct lh_grpc_certs *certs);
grpc_channel_credentials *lh_grpc_certs_channel(struct lh_grpc_certs *certs,
                                                struct lh_grpc_expect *expect,
                                                uint64_t *generation);
struct lh_grpc_expect *lh_grpc_expect_new(struct lh_grpc_certs *certs,
                                          struct lh_grpc_revoked *revoked, enum lh_role role,
                                          const char *address);
// Names the holder of the certificate, by lh_worker_id; 0: anybody of the role. False: it was so
// before.
bool lh_grpc_expect_identity(struct lh_grpc_expect *e, uint64_t identity);
void lh_grpc_expect_drop(struct lh_grpc_expect *e);
// Why the last handshake with this server was refused by us; false: it was not.
bool lh_grpc_expect_refused(struct lh_grpc_expect *e, char *out, size_t size);
// Is the certificate of the server that passed the last handshake revoked by now?
bool lh_grpc_expect_revoked(struct lh_grpc_expect *e);

// ---- key: private keys by name, for gRPC (transport_grpc_key.c)
struct evp_pkey_st; // OpenSSL's EVP_PKEY
enum { LH_GRPC_KEY_NAME_BYTES = 48 };
void lh_grpc_key_prepare(void); // before the first key is read
// Keeps the key under a new name, which gRPC takes for its PEM text, until drop(). Shares `key`.
LH_MUST lh_err lh_grpc_key_keep(struct evp_pkey_st *key, char name[LH_GRPC_KEY_NAME_BYTES]);
void lh_grpc_key_drop(const char *name); // "": nothing

// ---- guard: whose handshake passes and whose connection stays (transport_grpc_guard.c)
struct lh_grpc_guard;
struct lh_grpc_guard *lh_grpc_guard_new(struct lh_env *env, struct lh_log *log, const char *run,
                                        const char *domain, struct lh_grpc_revoked *revoked);
void lh_grpc_guard_drop(struct lh_grpc_guard *g);
// Drops it for its transport: the env and the log are not used any more.
void lh_grpc_guard_close(struct lh_grpc_guard *g);
// The next TLS context that this thread makes is under this guard.
void lh_grpc_guard_make(struct lh_grpc_guard *g);
// Loop: a call of this peer's that nobody of its role or run may make, or that does not exist.
void lh_grpc_guard_blame(struct lh_grpc_guard *g, uint64_t peer);
uint64_t lh_grpc_guard_ended(struct lh_grpc_guard *g); // connections that it ended

// ---- path: what a connection does about its path (transport_grpc_path.c)
struct tcp_info;
// One socket's knowledge of its path.
struct lh_grpc_path {
    int64_t cap_ms;  // the cap that was set last; 0: none yet
    int64_t now_ns;  // time of this look, set by the path's owner
    int64_t calm_ns; // no larger cap before this
    bool uncapped;   // this kernel has no cap: a stalled connection is closed
    bool brief;      // the kernel takes little beyond what it sent
};
// The longest wait before TCP sends again, in ms, for a smoothed round trip and its spread in us.
int64_t lh_grpc_path_cap_ms(uint32_t rtt_us, uint32_t spread_us);
// The time in ms that the next attempt to connect gets, TLS included. rtt_us: the longest known to
// that port, 0: none; last_ms, timed_out: what the last attempt got, and that it was not enough;
// most_ms: no attempt gets more.
int lh_grpc_path_connect_ms(uint32_t rtt_us, int last_ms, bool timed_out, int most_ms);
// The path's round trip, from what the kernel says of a socket.
struct lh_trip lh_grpc_path_trip(uint32_t rtt_us, uint32_t spread_us);
// How long what was sent may stay unanswered before the connection is given up, in ms.
int lh_grpc_path_patience_ms(uint32_t rtt_us, uint32_t spread_us);
// Any thread, every 250 ms or so: adapts the socket's cap, or closes it where it is stalled.
void lh_grpc_path_tend(struct lh_grpc_path *p, int fd, bool dialled, const struct tcp_info *info);

// ---- wire
struct lh_grpc_wire *lh_grpc_wire_new(void);
void lh_grpc_wire_free(struct lh_grpc_wire *w);
void lh_grpc_wire_watch(struct lh_grpc_wire *w, const char *address, bool server);
// Any thread: looks at the sockets when it is time to; returns the ms until the next look.
int64_t lh_grpc_wire_poll(struct lh_grpc_wire *w, int64_t now_ns);
void lh_grpc_wire_look(struct lh_grpc_wire *w); // now: before we close connections ourselves
// Any thread: shuts the accepted connection from this peer (lh_grpc_peer_name). gRPC closes it.
void lh_grpc_wire_shut(struct lh_grpc_wire *w, const char *peer);
void lh_grpc_wire_sum(struct lh_grpc_wire *w, struct lh_wire_bytes *out);
// The longest smoothed round trip in us that a connection to this address' port had, or, while
// there was none, to any port that was dialled: a node far from one is far from others. 0: none
// yet.
uint32_t lh_grpc_wire_rtt_us(struct lh_grpc_wire *w, const char *address);
// The path's trip to a peer (lh_grpc_peer_name), now or when it was last connected.
struct lh_trip lh_grpc_wire_trip(struct lh_grpc_wire *w, const char *peer);
// "HOST:PORT" in numbers, from gRPC's "ipv4:HOST:PORT" or "ipv6:%5BHOST%5D:PORT"; "" from others.
void lh_grpc_peer_name(const char *uri, char out[LH_GRPC_PEER_BYTES]);

#endif
