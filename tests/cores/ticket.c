// The coordinator opens an epoch only for a request that names the ticket in force. A server that
// asked for one decides nothing new before it knows the outcome
// (server/docs/0000-protocol.md#rule-17; simulator: seed 2731 of all,move).
#include <string.h>

#include "server/recovery/epoch.h"
#include "tests/head.h"
#include "server/coordinator/owners/epochs.h"
#include "server/recovery/rebuilding.h"
#include "tests/cores/image.h"
#include "tests/cores/offer.h"

enum { OLD = 8, HEAD = 20 };

static const int64_t STEP = 100 * LH_MS;
enum { STEPS = 300 };

static struct ps_co_shard *row(struct rig *r)
{
    return &r->coordinator->shard[0];
}

// ---------------------------------------------------------------- the coordinator

struct asked {
    uint64_t ticket, epoch; // epoch 0: it only asks
    bool below_stable;
};

// The shard's server asks for an epoch that begins at a version of its own; returns the answer's
// ticket.
static uint64_t send_asked(struct rig *r, struct asked a, bool *opened)
{
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    struct lh_hash chain = {{1}};
    Longhaul__V1__Point open = lh_head_point(0, a.epoch, a.epoch, &chain);
    struct lh_link *link;
    ProtobufCMessage *answer;
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.address = r->s.address;
    m.open = a.epoch ? &open : NULL;
    m.expect = ps_co_epoch(row(r));
    m.token = 7;
    m.ticket = a.ticket;
    m.below_stable = a.below_stable;
    struct lh_transport *t = r->s.transport;
    assert_int_equal(t->ops->dial(t, r->c.address, LH_C, LH_LINE_FIRST, &link), LH_OK);
    assert_int_equal(rig_ask(r, link, LH_RPC_EPOCH, &m.base, &answer), LH_OK);
    const Longhaul__V1__EpochReply *reply = (Longhaul__V1__EpochReply *)answer;
    uint64_t next = reply->ticket;
    *opened = reply->opened;
    rig_free_message(answer);
    link->transport_ops->hangup(link);
    return next;
}

static uint64_t ask(struct rig *r, uint64_t ticket, uint64_t epoch, bool *opened)
{
    return send_asked(r, (struct asked){ticket, epoch, false}, opened);
}

RIG_TEST(a_ticket_is_good_for_one_request, struct rig *r)
{
    bool opened;
    rig_start_coordinator(r);
    rig_boot_server(r);
    uint64_t first = ask(r, 0, 0, &opened);
    assert_true(first);
    assert_int_equal(ask(r, 0, 0, &opened), first); // a request without a ticket uses none up
    uint64_t second = ask(r, first, 0, &opened);    // a second request uses it up
    assert_int_not_equal(second, first);
    // The first request with that ticket arrives late.
    assert_int_equal(ask(r, first, 1, &opened), second);
    assert_false(opened);
    assert_int_equal(ps_co_epoch(row(r)), 0);
    uint64_t third = ask(r, second, 1, &opened);
    assert_true(opened);
    assert_int_not_equal(third, second);
    ask(r, second, 2, &opened); // a used ticket opens no other epoch
    assert_false(opened);
}

RIG_TEST(a_ticket_of_another_life_is_not_in_force, struct rig *r)
{
    bool opened;
    rig_start_coordinator(r);
    rig_boot_server(r);
    uint64_t before = ask(r, 0, 0, &opened);
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    uint64_t after = ask(r, before, 1, &opened);
    assert_false(opened);
    assert_int_not_equal(after, before);
    ask(r, after, 1, &opened);
    assert_true(opened);
}

RIG_TEST(a_request_without_a_ticket_opens_nothing, struct rig *r)
{
    bool opened;
    rig_start_coordinator(r);
    rig_boot_server(r);
    ask(r, 0, 1, &opened);
    assert_false(opened);
    assert_int_equal(ps_co_epoch(row(r)), 0);
}

// An operator's late order to go below the stable point gives nothing up.
RIG_TEST(a_late_word_of_an_operator_is_none, struct rig *r)
{
    bool opened;
    rig_start_coordinator(r);
    rig_boot_server(r);
    uint64_t first = ask(r, 0, 0, &opened), second = ask(r, first, 0, &opened);
    row(r)->standby = 5;
    send_asked(r, (struct asked){first, 1, true}, &opened);
    assert_false(opened);
    assert_int_equal(row(r)->standby, 5);
    send_asked(r, (struct asked){second, 1, true}, &opened);
    assert_true(opened);
    assert_int_equal(row(r)->standby, 0);
}

// ---------------------------------------------------------------- the server

// Starts a server on an older copy of its directory, with *h as a follower's newer state. The
// server has asked for an epoch from its own state, and has no answer yet.
static void ask_from_its_own(struct rig *r, struct offer_held *h)
{
    struct image m;
    struct lh_buf bytes = lh_buf(1 << 24);
    r->unsealed = r->rebuild_damaged = true;
    rig_serve(r, 0);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) rig_join(r, w, 11, 0);
    for (uint64_t v = 1; v <= OLD; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_run(r, 2 * LH_SECOND);
    rig_kill_server(r, false);
    image_take(&r->s, &m);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    for (uint64_t v = OLD + 1; v <= HEAD; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_run(r, 2 * LH_SECOND);
    const struct lk_replica *replica = &r->server->shard[0]->replica;
    const struct lh_ledger *l = &replica->ledger;
    h->chain = l->chain;
    h->digest = r->held_digest = lk_replica_digest(replica);
    h->at = lh_head_point(0, l->epoch, l->version, &h->chain);
    assert_int_equal(lk_replica_save(replica, &bytes), LH_OK);
    h->state = lh_blob_copy(lh_buf_span(&bytes));
    lh_buf_free(&bytes);
    rig_kill_server(r, false);
    image_put(&r->s, &m);
    image_free(&m);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (int i = 0; i < STEPS && !r->server->log.damaged; i++) rig_run(r, STEP);
    lh_fake_stall_at(r->c.env, -1, 20 * LH_SECOND);
    const struct ps_rebuild *b = r->server->shard[0]->rebuild;
    for (int i = 0; i < STEPS && !b->opening; i++) {
        struct lh_hash none = {{2}};
        Longhaul__V1__Point low = lh_head_point(0, 1, 1, &none);
        rig_run(r, STEP);
        assert_false(offer_say(r, 0, &low));
    }
    assert_true(b->opening);
    for (int i = 0; i < STEPS && (b->ask && b->opening); i++) rig_run(r, STEP);
}

// An epoch below least_epoch is not served, so another one is due; least_epoch itself may be
// served.
TEST(an_epoch_below_the_least_is_not_served)
{
    struct ps_server server = {0};
    struct ps_shard s = {.server = &server, .least_epoch = 3};
    s.replica.ledger.version = 5;
    for (uint64_t epoch = 1; epoch <= 4; epoch++) {
        s.replica.ledger.epoch = epoch;
        assert_int_equal(ps_epoch_due(&s), epoch < 3);
    }
}

static void serves_from(struct rig *r, uint64_t fenced)
{
    for (int i = 0; i < STEPS && r->server->phase != PS_SERVING; i++) rig_run(r, STEP);
    assert_true(r->server->phase == PS_SERVING);
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    assert_int_equal(l->row[0].incarnation.number >> 32, fenced);
    assert_int_equal(l->epoch, ps_co_epoch(row(r)));
    assert_int_equal(r->fatal_count, 0);
}

// The coordinator hangs, and opens the epoch when it goes on. If the server took follower 0's state
// meanwhile, that epoch would rule it out, and the directory's own state would be lost.
RIG_TEST(a_state_that_an_epoch_was_asked_for_is_kept_until_that_is_known, struct rig *r)
{
    struct offer_held h;
    ask_from_its_own(r, &h);
    assert_false(offer_say(r, 0, &h.at));
    for (int i = 0; i < 20; i++) {
        rig_run(r, STEP);
        assert_false(offer_say(r, 0, &h.at));
    }
    serves_from(r, OLD);
    lh_blob_release(h.state);
}

// The coordinator is killed instead, and the request is lost: the next answer shows this, and the
// server fetches the better state.
RIG_TEST(where_it_was_lost_the_best_state_is_chosen_anew, struct rig *r)
{
    struct offer_held h;
    ask_from_its_own(r, &h);
    rig_kill_coordinator(r);
    assert_false(offer_say(r, 0, &h.at));
    rig_start_coordinator(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) rig_join(r, w, 11, 0);
    bool wanted = false;
    for (int i = 0; i < STEPS && !wanted; i++) {
        rig_run(r, STEP);
        wanted = offer_say(r, 0, &h.at);
    }
    assert_true(wanted);
    assert_int_equal(offer_bring(r, 0, &h.at, h.state), LH_OK);
    serves_from(r, HEAD);
    lh_blob_release(h.state);
}
