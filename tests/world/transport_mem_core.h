// The state that the two files of the in-process transport share. No other file includes it.
#ifndef TESTS_TRANSPORT_MEM_CORE_H
#define TESTS_TRANSPORT_MEM_CORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "tests/world/transport_mem.h"

enum { LH_MEM_NODES_MAX = 256 };

struct mem_half; // one node's end of a call (transport_mem_call.c)

struct mem_node { // one address; lives as long as the fabric
    char address[64], name[LH_NAME_BYTES];
    struct lh_env *env;
    struct lh_fabric *fabric;
    struct mem_transport *transport; // NULL: not listening; guarded by the fabric's lock
};

struct lh_fabric {
    pthread_mutex_t lock;
    struct mem_node node[LH_MEM_NODES_MAX];
    size_t nodes;
    int next_port;
    lh_fate_fn fate;
    void *fate_arg;
    lh_tap_fn tap;
    void *tap_arg;
    lh_taken_fn taken;
    void *taken_arg;
    lh_pace_fn pace;
    void *pace_arg;
};

struct mem_transport {
    struct lh_transport base;
    struct lh_fabric *fabric;
    struct lh_env *env;
    struct lh_peer self;
    const struct lh_service *service;
    struct mem_half *halves; // open ones
    struct mem_link *links;
    bool fake, dead;
    uint64_t leads;           // our leader's number, as a coordinator; 0: none
    struct lh_leader *leader; // as a client knows it; NULL: any answer is taken
};

struct mem_link {
    struct lh_link base;
    struct mem_transport *t; // NULL: the transport is gone
    struct mem_link *next;
    char list[128], address[64]; // the addresses, and the one that the next call tries
    uint32_t turn;               // counts changes of `address`
    enum lh_role role;
    uint64_t identity;   // the expected peer; 0: any of that role
    struct lh_trip trip; // round trip that the simulated network gives its calls
};

struct mem_half {
    struct lh_call call;
    atomic_uint references;
    struct mem_transport *t; // own node; NULL once closed
    struct lh_env *far_env;
    bool fake;
    struct mem_half *far; // holds a reference
    struct mem_half *previous, *next;
    struct mem_link *link; // client side
    uint32_t turn;         // the link's when the call was opened
    struct mem_node *door; // server side, or a repeated call's target
    char far_name[LH_NAME_BYTES];
    const struct lh_call_ops *ops;
    void *self;
    struct stored *inbox, **inbox_end;
    bool server, told, want, half_closed, half_told, finished, closing;
    bool says; // server side: it tells its status itself
    lh_err status;
    char text[256];
    int sent;
    int waiting; // sent messages that the far side has not taken yet
    uint64_t deadline;
    struct lh_fate fate;
    int64_t clear_ns; // arrival of the last paced message; none overtakes it
    enum lh_rpc rpc;
    struct stored *tape, **tape_end; // client: sent messages, to be repeated
    struct lh_peer peer;
};

extern const struct lh_transport_ops lh_mem_ops;

// ---- doors (transport_mem.c)
// The node with this address; NULL: none. Under the fabric's lock.
struct mem_node *lh_mem_find(struct lh_fabric *f, const char *address);

// ---- calls (transport_mem_call.c)
// Ends the call: tells the other side the reason, then this half's owner.
void lh_mem_end(struct mem_half *h, lh_err far, const char *far_text, lh_err here,
                const char *here_text);
void lh_mem_break(struct mem_half *h); // the wire broke: tells both sides, on their loops
LH_MUST lh_err lh_mem_open(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                           const struct lh_call_ops *ops, void *self, struct lh_call **out);
LH_MUST lh_err lh_mem_send(struct lh_call *call, const struct lh_out *m);
void lh_mem_read(struct lh_call *call);
void lh_mem_finish(struct lh_call *call, lh_err status, const char *text);
void lh_mem_cancel(struct lh_call *call);

#endif
