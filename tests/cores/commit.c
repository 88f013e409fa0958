// Nothing leaves the coordinator before the state behind it is durable
// (server/docs/0000-protocol.md#rule-26): its disk is full, slow, or fails, while members, owners
// and operators ask for something.
#include <stdio.h>
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/drain.h"
#include "server/coordinator/grant.h"
#include "server/coordinator/owners/insync.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/plan.h"
#include "tests/cores/rig.h"

static struct ps_co_shard *row(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static void fill(struct rig *r)
{
    lh_fake_disk_limit(r->c.env, 1);
}

static void empty(struct rig *r)
{
    lh_fake_disk_limit(r->c.env, 0);
}

static void again(struct rig *r)
{
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

// ---------------------------------------------------------------- a full disk

// A standby may take over until its strike-out is durable: nothing is acknowledged without it.
RIG_TEST(a_standby_is_struck_out_on_the_disk_or_not_at_all, struct rig *r)
{
    rig_begin_in_sync(r);
    uint64_t standby = row(r)->standby;
    rig_kill_standby(r, false);
    fill(r);
    rig_greet(r, 0, 7ull << 32, 0, 1);
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(r->server->shard[0]->insync.state, PS_LEAVING);
    rig_settle(r);
    assert_int_equal(row(r)->standby, standby);
    again(r); // finds what a restart after a crash would find
    assert_int_equal(row(r)->standby, standby);
    empty(r);
    for (int i = 0; i < 1000 && row(r)->standby; i++) rig_run(r, 10 * LH_MS);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->server->shard[0]->insync.state, PS_ALONE);
    assert_int_equal(rig_fence(r, 0, 7ull << 32), LH_OK);
    again(r);
    assert_int_equal(row(r)->standby, 0);
    assert_int_equal(r->fatal_count, 0);
}

static lh_err ask_epoch(struct rig *r, uint64_t expect, uint64_t epoch, uint64_t token,
                        bool *opened)
{
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    struct lh_hash chain = {{1}};
    Longhaul__V1__Point open = lh_head_point(0, epoch, 0, &chain);
    struct lh_link *link;
    ProtobufCMessage *answer;
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.address = r->s.address;
    m.open = &open;
    m.expect = expect;
    m.token = token;
    m.ticket = row(r)->ticket;
    assert_int_equal(
        r->s.transport->ops->dial(r->s.transport, r->c.address, LH_C, LH_LINE_FIRST, &link), LH_OK);
    lh_err err = rig_ask(r, link, LH_RPC_EPOCH, &m.base, &answer);
    *opened = answer && ((Longhaul__V1__EpochReply *)answer)->opened;
    rig_free_message(answer);
    link->transport_ops->hangup(link);
    return err;
}

RIG_TEST(an_epoch_that_found_no_room_is_not_opened_however_often_it_is_asked_for, struct rig *r)
{
    bool opened;
    rig_start_coordinator(r);
    rig_boot_server(r);
    assert_int_equal(ask_epoch(r, 0, 1, 11, &opened), LH_OK);
    assert_true(opened);
    fill(r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_epoch(r, 1, 2, 12, &opened), LH_ERR_BUSY);
        assert_int_equal(ps_co_epoch(row(r)), 1);
    }
    again(r);
    assert_int_equal(ps_co_epoch(row(r)), 1);
    empty(r);
    assert_int_equal(ask_epoch(r, 1, 2, 12, &opened), LH_OK);
    assert_true(opened);
    again(r);
    assert_int_equal(ps_co_epoch(row(r)), 2);
    assert_int_equal(ask_epoch(r, 1, 2, 13, &opened), LH_OK); // another directory
    assert_false(opened);
}

static Longhaul__V1__LeaseReply *lease(struct rig *r, uint32_t granted, uint32_t want,
                                       lh_err want_err)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    ProtobufCMessage *answer;
    m.incarnation = (uint64_t)granted << 32;
    m.want = want;
    assert_int_equal(rig_ask(r, r->to_c[0], LH_RPC_LEASE, &m.base, &answer), want_err);
    return (Longhaul__V1__LeaseReply *)answer;
}

static uint32_t leased(const struct rig *r)
{
    uint32_t n = 0;
    for (uint64_t u = 0; u < r->units.count; u++) n += r->coordinator->lease[u] != CO_FREE;
    return n;
}

static void begin_run(struct rig *r)
{
    rig_serve(r, LH_SECOND);
    assert_int_equal(rig_join(r, 0, 1, 0).granted, 1);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_RUN);
}

RIG_TEST(units_that_found_no_room_are_leased_to_nobody, struct rig *r)
{
    begin_run(r);
    fill(r);
    for (int i = 0; i < 3; i++) {
        assert_null(lease(r, 1, 2, LH_ERR_BUSY));
        assert_int_equal(leased(r), 0);
    }
    empty(r);
    Longhaul__V1__LeaseReply *m = lease(r, 1, 2, LH_OK);
    assert_int_equal(m->n_units, 2);
    rig_free_message(m);
    again(r);
    assert_int_equal(leased(r), 2);
}

RIG_TEST(an_incarnation_that_found_no_room_was_not_granted, struct rig *r)
{
    begin_run(r);
    fill(r);
    Longhaul__V1__JoinRequest m;
    Longhaul__V1__Wire wire;
    rig_join_request(r, 2, &wire, &m);
    for (uint32_t w = 0; w < 2; w++) { // a known worker, then a new one
        m.over = w == 0;
        assert_int_equal(rig_say(r, r->to_c[w], LH_RPC_JOIN, &m.base), LH_ERR_BUSY);
    }
    assert_int_equal(r->coordinator->workers, 1);
    assert_int_equal(r->coordinator->worker[0].granted, 1);
    assert_int_equal(r->coordinator->worker[0].attempt, 1);
    empty(r);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(rig_join(r, 1, 2, 0).granted, 1);
    assert_int_equal(rig_join(r, 0, 2, 1).granted, 2);
}

// A worker that was lost while there was no room is given up once there is.
RIG_TEST(units_of_a_lost_worker_are_freed_when_there_is_room, struct rig *r)
{
    begin_run(r);
    rig_free_message(lease(r, 1, 2, LH_OK));
    assert_int_equal(leased(r), 2);
    r->coordinator->conf.worker_timeout_ns = 2 * LH_SECOND;
    fill(r);
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(leased(r), 2);
    empty(r);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(leased(r), 0);
    again(r);
    assert_int_equal(leased(r), 0);
}

// Operators' requests, and the plan that follows from them, are taken back.
RIG_TEST(a_wish_that_found_no_room_was_not_heard, struct rig *r)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *who;
    begin_run(r);
    uint64_t plan = r->coordinator->plan.number;
    struct ps_coordinator *c = r->coordinator;
    fill(r);
    m.end = true;
    assert_int_equal(ps_co_drain(c, &m, &who), LH_OK);
    m.end = false;
    m.region = c->worker[0].region;
    assert_int_equal(ps_co_drain(c, &m, &who), LH_OK);
    m.worker = c->worker[0].name;
    assert_int_equal(ps_co_drain(c, &m, &who), LH_OK);
    ps_co_tick(c);
    assert_true(c->plan.phase == LH_PHASE_DRAIN && c->ending && c->worker[0].asked);
    rig_run(r, LH_SECOND / 2);
    assert_false(c->draining || c->ending || c->worker[0].asked || c->drained_regions);
    assert_int_equal(c->plan.phase, LH_PHASE_RUN);
    assert_int_equal(c->plan.number, plan);
    empty(r);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(c->plan.phase, LH_PHASE_RUN);
}

RIG_TEST(a_move_that_found_no_room_is_not_begun, struct rig *r)
{
    uint32_t shards;
    rig_begin_in_sync(r);
    fill(r);
    assert_int_equal(ps_co_move(r->coordinator, r->t.self.name, &shards), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(row(r)->move.target, 0);
    assert_true(r->server->phase == PS_SERVING && !ps_shard_frozen(r->server->shard[0]));
    empty(r);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(ps_co_move(r->coordinator, r->t.self.name, &shards), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
    again(r);
    assert_int_equal(row(r)->owner, r->standby->standby.identity);
    assert_int_equal(ps_co_epoch(row(r)), 2);
}

// The take-over waits for room, and is not lost.
RIG_TEST(a_take_over_that_found_no_room_takes_place_later, struct rig *r)
{
    rig_begin_in_sync(r);
    rig_kill_server(r, false);
    fill(r);
    rig_run(r, 10 * LH_SECOND);
    assert_false(r->standby->phase == PS_SERVING);
    assert_int_equal(row(r)->owner, 0);
    empty(r);
    rig_run(r, 6 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
    assert_int_equal(rig_fenced(r, r->standby, 0), 6);
    again(r);
    assert_int_equal(row(r)->owner, r->standby->standby.identity);
}

// ---------------------------------------------------------------- a slow disk, a broken one

RIG_TEST(nobody_is_answered_before_the_disk_has_it, struct rig *r)
{
    begin_run(r);
    lh_fake_slow(r->c.env, 3 * LH_SECOND);
    for (int i = 0; i < 20; i++) {
        uint32_t granted = r->coordinator->worker[0].granted;
        Longhaul__V1__JoinReply m = rig_join(r, 0, 100 + (uint64_t)i, granted);
        assert_int_equal(m.granted, granted + 1);
        again(r); // the coordinator restarts at once
        assert_int_equal(r->coordinator->worker[0].granted, granted + 1);
        assert_int_equal(rig_join(r, 0, 100 + (uint64_t)i, granted).granted, granted + 1);
    }
}

// The coordinator's loop still hears everybody, and a peer that waits for an answer is not silent.
RIG_TEST(a_slow_disk_deposes_nobody, struct rig *r)
{
    rig_begin_in_sync(r);
    lh_fake_slow(r->c.env, 4 * LH_SECOND);
    for (uint64_t i = 0; i < 30; i++) {
        struct ps_co_worker *who;
        struct lh_drain_request m = {.region = "", .worker = ""};
        m.undo = i % 2;
        assert_int_equal(ps_co_drain(r->coordinator, &m, &who), LH_OK); // something to write
        rig_run(r, LH_SECOND);
        assert_int_equal(row(r)->owner, 0);
    }
    assert_int_equal(r->fatal_count, 0);
    assert_true(r->server->phase == PS_SERVING && r->standby->phase != PS_SERVING);
    rig_kill_server(r, false); // a dead owner is still noticed
    rig_run(r, 30 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
}

// Would a standby that reports now be told to serve?
static bool would_take_over(struct rig *r)
{
    return rig_serves(r, row(r)->standby, 1, false);
}

static void ignore(void *self, lh_err err, const ProtobufCMessage *m)
{
    (void)self;
    (void)err;
    (void)m;
}

RIG_TEST(a_worker_that_waits_for_an_answer_is_not_silent, struct rig *r)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    rig_begin_in_sync(r);
    assert_int_equal(rig_join(r, 0, 1, 0).granted, 1);
    r->coordinator->conf.worker_timeout_ns = 2 * LH_SECOND;
    rig_run(r, LH_SECOND);
    lh_fake_slow(r->c.env, 1000 * LH_SECOND);
    m.incarnation = 1ull << 32;
    m.want = 2; // something to write
    assert_int_equal(pb_ask(r->to_c[0], LH_RPC_LEASE, 100 * LH_SECOND, &m.base,
                            &longhaul__v1__lease_reply__descriptor, ignore, NULL),
                     LH_OK);
    rig_run(r, 4 * LH_SECOND);
    assert_false(ps_co_settled(r->coordinator));
    assert_true(r->coordinator->worker[0].live);
    assert_false(would_take_over(r));
}

// Checks what an operator reads in status.json: units leased, and the standby.
static void status_says(struct rig *r, int leased_units, bool in_sync)
{
    struct lh_buf json = lh_buf(1 << 20);
    char units[32], standby[32];
    assert_int_equal(ps_coordinator_durable_status(r->coordinator, &json), LH_OK);
    lh_put_u8(&json, 0);
    snprintf(units, sizeof units, "\"leased\":%d,", leased_units);
    snprintf(standby, sizeof standby, "\"standby_in_sync\":%s", in_sync ? "true" : "false");
    if (!strstr((char *)json.data, units)) fail_msg("%s: %s", units, (char *)json.data);
    assert_non_null(strstr((char *)json.data, standby));
    lh_buf_free(&json);
}

static bool leads(void *arg)
{
    return *(const bool *)arg;
}

// A disk that hangs is logged each time that the wait has doubled, and so is its end.
RIG_TEST(a_commit_that_takes_long_is_told, struct rig *r)
{
    rig_begin_in_sync(r);
    assert_int_equal(rig_join(r, 0, 1, 0).granted, 1);
    rig_run(r, LH_SECOND);
    rig_settle(r);
    r->coordinator->conf.log = rig_log_lines(r);
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    lh_fake_slow(r->c.env, 40 * LH_SECOND);
    m.incarnation = 1ull << 32;
    m.want = 2;
    assert_int_equal(pb_ask(r->to_c[0], LH_RPC_LEASE, 100 * LH_SECOND, &m.base,
                            &longhaul__v1__lease_reply__descriptor, ignore, NULL),
                     LH_OK);
    for (int i = 0; i < 3000 && !rig_said(r, "disk.slow"); i++) rig_run(r, 10 * LH_MS);
    assert_false(ps_co_settled(r->coordinator));
    assert_true(ps_co_commit_age_s(r->coordinator) >= 2);
    r->coordinator->conf.leads = leads; // its store is in etcd
    r->coordinator->conf.leads_arg = &(bool){true};
    for (int i = 0; i < 3000 && rig_said(r, "disk.slow") < 3; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(rig_said(r, "has waited for etcd"), 2);
    assert_true(ps_co_commit_age_s(r->coordinator) >= 8);
    r->coordinator->conf.leads = NULL;
    lh_fake_slow(r->c.env, 0);
    for (int i = 0; i < 20000 && !rig_said(r, "disk.again"); i++) rig_run(r, 10 * LH_MS);
    assert_true(rig_said(r, "disk.again") >= 1);
    lh_log_close(r->coordinator->conf.log);
    r->coordinator->conf.log = NULL;
}

RIG_TEST(a_group_that_takes_long_is_told, struct rig *r)
{
    rig_begin_in_sync(r);
    rig_run(r, LH_SECOND);
    r->server->conf.log = rig_log_lines(r);
    lh_fake_slow(r->s.env, 30 * LH_SECOND);
    rig_greet(r, 0, 9ull << 32, 0, 1);
    for (int i = 0; i < 3000 && !rig_said(r, "disk.slow"); i++) rig_run(r, 10 * LH_MS);
    assert_true(rig_said(r, "disk.slow") >= 1);
    assert_true(r->server->committing);
    lh_fake_slow(r->s.env, 0);
    for (int i = 0; i < 20000 && !rig_said(r, "disk.again"); i++) rig_run(r, 10 * LH_MS);
    assert_true(rig_said(r, "disk.again") >= 1);
    lh_log_close(r->server->conf.log);
    r->server->conf.log = NULL;
}

// While its disk hangs an owner with a standby in sync is silent, so the standby takes over.
RIG_TEST(an_owner_whose_disk_hangs_gives_way_to_its_standby, struct rig *r)
{
    rig_begin_in_sync(r);
    rig_run(r, LH_SECOND);
    assert_false(would_take_over(r));
    lh_fake_slow(r->s.env, 1000 * LH_SECOND);
    rig_greet(r, 0, 9ull << 32, 0, 1);
    for (int i = 0; i < 2000 && !r->server->committing; i++) rig_run(r, LH_MS);
    assert_true(r->server->committing);
    for (int i = 0; i < 2000 && !row(r)->owner; i++) rig_run(r, 10 * LH_MS);
    assert_true(row(r)->owner != 0);
}

RIG_TEST(an_owner_that_is_alone_goes_on_waiting, struct rig *r)
{
    rig_begin_in_sync(r);
    rig_kill_standby(r, false);
    rig_greet(r, 0, 9ull << 32, 0, 1);
    for (int i = 0; i < 3000 && row(r)->standby; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(row(r)->standby, 0);
    rig_run(r, LH_SECOND);
    lh_fake_slow(r->s.env, 1000 * LH_SECOND);
    rig_greet(r, 1, 9ull << 32, 0, 1);
    for (int i = 0; i < 2000 && !r->server->committing; i++) rig_run(r, LH_MS);
    rig_run(r, 10 * LH_SECOND);
    int64_t heard = row(r)->heard_ns;
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->committing);
    assert_true(row(r)->heard_ns > heard);
}

RIG_TEST(status_json_promises_nothing_that_the_disk_has_not, struct rig *r)
{
    rig_begin_in_sync(r);
    assert_int_equal(rig_join(r, 0, 1, 0).granted, 1);
    rig_run(r, LH_SECOND);
    rig_settle(r);
    status_says(r, 0, true);
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    lh_fake_slow(r->c.env, 20 * LH_SECOND);
    m.incarnation = 1ull << 32;
    m.want = 2;
    assert_int_equal(pb_ask(r->to_c[0], LH_RPC_LEASE, 100 * LH_SECOND, &m.base,
                            &longhaul__v1__lease_reply__descriptor, ignore, NULL),
                     LH_OK);
    for (int i = 0; i < 1000 && !leased(r); i++) rig_run(r, LH_MS);
    assert_int_equal(leased(r), 2);
    assert_false(ps_co_settled(r->coordinator));
    for (int i = 0; i < 3; i++) status_says(r, 0, true);
    // Changes never end here; a status in between becomes durable all the same.
    uint64_t told = ps_store_changed(r->coordinator->store);
    for (int i = 0; i < 60000 && ps_store_durable(r->coordinator->store) < told; i++) {
        if (ps_co_settled(r->coordinator)) break;
        rig_run(r, LH_MS);
    }
    status_says(r, 2, true);
    lh_fake_slow(r->c.env, 0);
    rig_settle(r);
    fill(r);
    rig_kill_standby(r, false);
    rig_greet(r, 0, 9ull << 32, 0, 1);
    for (int i = 0; i < 1000; i++) { // the strike-out is tried and taken back again and again
        rig_run(r, 10 * LH_MS);
        status_says(r, 2, true);
    }
    empty(r);
    for (int i = 0; i < 1000 && row(r)->standby; i++) rig_run(r, 10 * LH_MS);
    rig_run(r, LH_SECOND);
    rig_settle(r);
    status_says(r, 2, false);
}

static void wish(struct rig *r, bool undo) // something to write
{
    struct ps_co_worker *who;
    struct lh_drain_request m = {.region = "", .worker = ""};
    m.undo = undo;
    assert_int_equal(ps_co_drain(r->coordinator, &m, &who), LH_OK);
}

// The last durable status is gone, as if there had been no memory for the next.
RIG_TEST(a_coordinator_without_a_durable_status_answers_busy, struct rig *r)
{
    struct lh_buf json = lh_buf(1 << 20);
    rig_start_coordinator(r);
    lh_buf_clear(&r->coordinator->status.durable);
    wish(r, false);
    assert_false(ps_co_settled(r->coordinator));
    assert_int_equal(ps_coordinator_durable_status(r->coordinator, &json), LH_ERR_BUSY);
    assert_int_equal(json.len, 0);
    rig_settle(r);
    assert_int_equal(ps_coordinator_durable_status(r->coordinator, &json), LH_OK);
    assert_true(json.len > 0);
    lh_buf_free(&json);
}

// This status was made during a commit that failed; later changes have the same numbers.
RIG_TEST(status_json_shows_no_changes_that_were_taken_back, struct rig *r)
{
    begin_run(r);
    rig_settle(r);
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    lh_fake_slow(r->c.env, 20 * LH_SECOND);
    fill(r);
    m.incarnation = 1ull << 32;
    m.want = 2;
    assert_int_equal(pb_ask(r->to_c[0], LH_RPC_LEASE, 100 * LH_SECOND, &m.base,
                            &longhaul__v1__lease_reply__descriptor, ignore, NULL),
                     LH_OK);
    for (int i = 0; i < 1000 && !leased(r); i++) rig_run(r, LH_MS);
    assert_int_equal(leased(r), 2);
    status_says(r, 0, false);
    for (int i = 0; i < 60000 && leased(r); i++) rig_run(r, LH_MS);
    assert_int_equal(leased(r), 0);
    lh_fake_slow(r->c.env, 0);
    empty(r);
    for (int i = 0; i < 4; i++) {
        wish(r, i % 2);
        rig_settle(r);
    }
    wish(r, false);
    assert_false(ps_co_settled(r->coordinator));
    status_says(r, 0, false);
}

RIG_TEST(a_disk_that_fails_ends_it_without_a_word, struct rig *r)
{
    bool opened;
    rig_start_coordinator(r);
    rig_boot_server(r);
    lh_fake_fail_at(r->c.env, 1, LH_ERR_IO); // the sync
    assert_int_not_equal(ask_epoch(r, 0, 1, 11, &opened), LH_OK);
    assert_false(opened);
    assert_true(lh_fake_failed(r->c.env));
    assert_true(r->coordinator->stopped);
    assert_int_equal(r->fatal_count, 1);
}

// Another coordinator may lead (server/docs/0000-protocol.md#rule-38): this one sends neither what
// is durable by now nor a refusal.
RIG_TEST(one_that_no_longer_leads_answers_nothing, struct rig *r)
{
    bool opened, is = false;
    rig_start_coordinator(r);
    rig_boot_server(r);
    r->coordinator->conf.leads = leads;
    r->coordinator->conf.leads_arg = &is;
    assert_int_equal(ask_epoch(r, 0, 1, 11, &opened), LH_ERR_UNAVAILABLE);
    assert_int_equal(ask_epoch(r, 7, 8, 11, &opened), LH_ERR_UNAVAILABLE);
    is = true;
    assert_int_equal(ask_epoch(r, 0, 1, 11, &opened), LH_OK);
    r->coordinator->conf.leads = NULL;
}
