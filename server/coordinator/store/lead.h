// Leading: of several coordinators on one etcd, one leads; the others stand by.
//
// A thread of its own waits until BASE/leader (coordinator/store/etcd_log.h) is free, puts it under
// a lease of PS_LEAD_TTL_S, reads the store, and keeps the lease alive. The key's create_revision
// is the fence of every commit; the leader's number is its first commit (number.h). A leader
// stops if its lease may have ended by its own clock, or if its commit was fenced off. It then
// starts again in place, as a standby.
//
// All of it is one blocking function, ps_lead_run(), over a clock, a wire to etcd and the loop's
// post(): ps_lead_start() gives it a thread, the simulator gives it virtual time.
#ifndef PS_STORE_LEAD_H
#define PS_STORE_LEAD_H

#include <jansson.h>

#include "common/env/log.h"
#include "server/coordinator/store/etcd.h"

enum { PS_LEAD_TTL_S = 5 };

struct ps_lead;
struct ps_store;

struct ps_lead_conf { // strings are borrowed
    struct lh_env *env;
    struct lh_log *log;
    const char *store, *secrets; // coordinator.store, coordinator.store_secrets
    // Opens a wire to etcd. NULL: to the members that `store` names, over the network.
    lh_err (*dial)(void *arg, struct ps_etcd_wire *out);
    const char *run, *dir; // dir: of the file store that moves, if etcd has none (store_move.h)
    const char *name, *address; // this coordinator's, for operators
    // On the loop. leads() takes the store and comes once at most; ends() comes once at most, with
    // its text in lh_err_text(): this one no longer leads, or can't.
    void (*leads)(void *arg, struct ps_store *store);
    void (*ends)(void *arg, lh_err err);
    void *arg;
};

// Creates it, and runs it on a thread of its own.
LH_MUST lh_err ps_lead_start(const struct ps_lead_conf *conf, struct ps_lead **out);
LH_MUST lh_err ps_lead_create(const struct ps_lead_conf *conf, struct ps_lead **out);
// Waits for the lead, and holds it until it ends or close() is called. Blocks, on any one thread.
void ps_lead_run(struct ps_lead *l);
// May this process still answer as the leader? Any thread.
bool ps_lead_holds(const struct ps_lead *l);
uint64_t ps_lead_number(const struct ps_lead *l); // this leader's, after leads()
// Adds its part of a coordinator's status: {"leads", "leader": {"name", "address",
// "number"}, "store_away"}.
LH_MUST lh_err ps_lead_status(struct ps_lead *l, json_t *status);
// Gives the lead up; run() returns within seconds, and the thread has ended on return. Posted
// callbacks may still come, until the loop is at rest; they call nothing.
void ps_lead_close(struct ps_lead *l);
void ps_lead_free(struct ps_lead *l); // after close and rest; NULL is allowed

#endif
