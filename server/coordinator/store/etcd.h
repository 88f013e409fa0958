// The calls to etcd (v3) for the store and the leader's lease.
//
// One thread at a time uses a client; each call blocks. A call goes to one member; if that does not
// answer, it goes to the next one, until `patience_ns` has passed or the client is stopped. So a
// request may be carried out more than once, and the copy of an attempt that was given up at any
// later time: a change must do no harm then.
#ifndef PS_STORE_ETCD_H
#define PS_STORE_ETCD_H

#include <stdatomic.h>

#include "common/env/env.h"

enum {
    PS_ETCD_MEMBERS_MAX = 9,
    PS_ETCD_KEY_BYTES = 384,
    PS_ETCD_LOGIN_BYTES = 256,
    PS_ETCD_VALUE_BYTES = 1 << 20, // etcd takes requests of 1.5 MiB
};

// How a call reaches a member. The real one is etcd_wire.c; tests have one in memory.
struct ps_etcd_wire {
    void *self;
    uint32_t members;
    // As lh_engine_call().
    lh_err (*call)(void *self, uint32_t member, const char *path, const char *token,
                   struct lh_span request, int64_t timeout_ns, struct lh_buf *answer);
    void (*wait)(void *self, int64_t ns); // a pause
    void (*close)(void *self);
};

struct ps_etcd;
struct ps_etcd_conf {
    struct lh_env *env;
    struct ps_etcd_wire wire; // taken, on failure too
    const char *login;        // USER:PASSWORD; "": none. Copied
    int64_t timeout_ns;       // one attempt's
    int64_t patience_ns;      // all attempts' of a call
};
LH_MUST lh_err ps_etcd_create(const struct ps_etcd_conf *conf, struct ps_etcd **out);
void ps_etcd_destroy(struct ps_etcd *e); // NULL is allowed
// Any thread: calls under way end after their present attempt, later ones at once, with
// LH_ERR_CANCELLED.
void ps_etcd_stop(struct ps_etcd *e);
void ps_etcd_wait(struct ps_etcd *e, int64_t ns);

// A change happens only if this key has this create_revision (0: is absent).
struct ps_etcd_fence {
    const char *key;
    int64_t created;
};
typedef lh_err (*ps_etcd_each)(void *arg, const char *key, struct lh_span value);
// Calls each() for the keys that begin with `prefix`, in order; its first error ends it. each() may
// use the client itself.
LH_MUST lh_err ps_etcd_read(struct ps_etcd *e, const char *prefix, ps_etcd_each each, void *arg);
LH_MUST lh_err ps_etcd_get(struct ps_etcd *e, const char *key, struct lh_buf *value,
                           int64_t *created); // LH_ERR_NOT_FOUND
// One atomic change: puts `key` (NULL: nothing), under a lease (0: none), and removes all keys that
// begin with `drop` (NULL: none), where the fence holds; else LH_ERR_CONFLICT.
LH_MUST lh_err ps_etcd_change(struct ps_etcd *e, const struct ps_etcd_fence *fence, const char *key,
                              struct lh_span value, int64_t lease, const char *drop);

// The same for a change that a late copy must not make again: `key` gets `value` only where it has
// `was` (no data: where it is absent), and with it all keys from `from` on that are below `to`
// (NULL: none) are removed. LH_OK also where an earlier attempt made it.
LH_MUST lh_err ps_etcd_replace(struct ps_etcd *e, const struct ps_etcd_fence *fence,
                               const char *key, struct lh_span was, struct lh_span value,
                               const char *from, const char *to);

LH_MUST lh_err ps_etcd_grant(struct ps_etcd *e, int64_t ttl_s, int64_t *lease);
LH_MUST lh_err ps_etcd_keep_alive(struct ps_etcd *e, int64_t lease); // LH_ERR_NOT_FOUND: it is over
LH_MUST lh_err ps_etcd_revoke(struct ps_etcd *e, int64_t lease);

#endif
