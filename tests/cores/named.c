// A coordinator dies right after it registered an epoch, before a worker heard of it. The worker
// keeps its pushes, and the next coordinator on that store names the epoch
// (server/docs/0000-protocol.md#rule-17, worker/push/history.c).
#include <string.h>

#include "tests/cores/life.h"
#include "worker/worker.h"

static struct lh_service whole; // the coordinator's original service

static lh_err hear_servers(void *self, struct lh_call *call, enum lh_rpc rpc,
                           const struct lh_peer *peer, const struct lh_call_ops **ops,
                           void **call_self)
{
    (void)self;
    if (peer->role == LH_W) return LH_ERR_UNAVAILABLE;
    return whole.on_call(whole.self, call, rpc, peer, ops, call_self);
}

// Epoch 2 is registered and served, and the coordinator is down.
static struct life *begin(void)
{
    struct life *l = life_begin(17, 1);
    life_rest(l);
    rig_kill_server(l->rig, false);
    rig_kill_coordinator(l->rig);
    rig_start_coordinator(l->rig);
    whole = l->rig->coordinator->service;
    l->rig->coordinator->service = (struct lh_service){NULL, hear_servers};
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    const struct lh_ledger *its = &l->rig->server->shard[0]->replica.ledger;
    for (int i = 0; i < 100 && its->epoch < 2; i++) life_run(l, LH_SECOND);
    assert_int_equal(its->epoch, 2);
    rig_kill_coordinator(l->rig);
    return l;
}

TEST(the_next_coordinator_names_it)
{
    struct life *l = begin();
    struct wk_shard *s = &l->worker->shard[0];
    life_run(l, 60 * LH_SECOND);
    assert_int_equal(s->session.process, 0); // nobody names the epoch
    assert_int_equal(s->replica.ledger.epoch, 1);
    rig_start_coordinator(l->rig);
    int waited = 0;
    for (; !s->session.process && waited < 60; waited++) life_run(l, LH_SECOND);
    assert_true(waited <= 5);
    life_cut(l, 1);
    life_rest(l);
    assert_int_equal(s->replica.ledger.epoch, 2);
    life_mass(l); // each cut's mass is in the log once, or in the residual
    assert_int_equal(l->lost, 0);
    life_end(l);
}
