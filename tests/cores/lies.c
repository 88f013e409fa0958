// A peer sends numbers near their type's limit, and very long lists: nobody else is harmed
// (server/docs/0000-protocol.md#rule-17, #rule-20).
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/plan.h"
#include "tests/cores/rig.h"

static struct rig *begun(void)
{
    struct rig *r = rig_new(3);
    rig_name_servers(r);
    rig_serve(r, 0);
    rig_boot_standby(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) {
        assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
        rig_hello(r, w, UINT64_C(1) << 32, 0, 1);
    }
    rig_run(r, 2 * LH_SECOND);
    return r;
}

// Each unit in a request costs a look-up: a million of them ten times a second would take all of
// the coordinator's time.
TEST(a_request_names_what_a_worker_can_hold)
{
    struct rig *r = begun();
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, 1);
    size_t n = 2 * LH_LEASES_MAX;
    m.holding = m.begun = m.returned = test_calloc(n + 1, sizeof *m.holding);
    for (unsigned i = 0; i <= 3; i++) {
        m.n_holding = n + (i == 1);
        m.n_begun = n + (i == 2);
        m.n_returned = n + (i == 3);
        lh_err err = rig_say(r, r->to_c[1], LH_RPC_LEASE, &m.base);
        assert_int_equal(err, i ? LH_ERR_TOO_LARGE : LH_OK);
    }
    test_free(m.holding);
    rig_free(r);
}

// A region's tokens are the sum of its workers' numbers, in which 2^64-1 would count as -1.
TEST(tokens_that_are_said_can_be_summed_up)
{
    struct rig *r = begun();
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, 1);
    m.tokens = UINT64_MAX;
    assert_int_equal(rig_say(r, r->to_c[1], LH_RPC_LEASE, &m.base), LH_OK);
    uint64_t sum = 0;
    for (size_t i = 0; i < r->coordinator->workers; i++) sum += r->coordinator->worker[i].tokens;
    assert_int_equal(sum, UINT64_C(1000000000000000));
    rig_free(r);
}

// ---------------------------------------------------------------- numbers near their limit

// Sends a report of shard 0 that is correct except for these numbers.
static lh_err report(struct rig *r, struct lh_link *link, uint64_t epoch, uint64_t version,
                     uint64_t begun, size_t shards)
{
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    Longhaul__V1__ReportRequest m = LONGHAUL__V1__REPORT_REQUEST__INIT;
    Longhaul__V1__ShardReport said = LONGHAUL__V1__SHARD_REPORT__INIT, *list[] = {&said, &said};
    Longhaul__V1__Point head = lh_head_point(0, epoch, version, &l->chain);
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.address = r->s.address;
    m.process = r->server->process;
    m.number = UINT64_MAX;
    m.shards = list;
    m.n_shards = shards;
    said.head = &head;
    said.begun = begun;
    said.plan = l->plan.number;
    return rig_say(r, link, LH_RPC_REPORT, &m.base);
}

static lh_err open_epoch(struct rig *r, struct lh_link *link, uint64_t epoch)
{
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Point open = lh_head_point(0, epoch, l->version, &l->chain);
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.address = r->s.address;
    m.open = &open;
    m.expect = l->epoch;
    m.ticket = r->coordinator->shard[0].ticket;
    m.token = 7;
    return rig_say(r, link, LH_RPC_EPOCH, &m.base);
}

// An owner that used the last epoch number would keep the shard for good.
TEST(an_owner_leaves_epochs_to_others)
{
    struct rig *r = begun();
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    uint64_t epoch = l->epoch;
    struct lh_link *link;
    assert_int_equal(
        r->s.transport->ops->dial(r->s.transport, r->c.address, LH_C, LH_LINE_FIRST, &link), LH_OK);
    assert_int_equal(report(r, link, epoch, l->version, 0, 1), LH_OK);
    assert_int_equal(report(r, link, UINT64_MAX, l->version, 0, 1), LH_ERR_MALFORMED);
    assert_int_equal(report(r, link, epoch + (1 << 21), l->version, 0, 1), LH_ERR_MALFORMED);
    assert_int_equal(report(r, link, epoch, UINT64_MAX, 0, 1), LH_ERR_MALFORMED);
    assert_int_equal(report(r, link, epoch, l->version, UINT64_MAX, 1), LH_ERR_MALFORMED);
    assert_int_equal(report(r, link, epoch, l->version, 0, 2), LH_ERR_MALFORMED); // one shard twice
    assert_int_equal(open_epoch(r, link, UINT64_MAX), LH_ERR_MALFORMED);
    assert_int_equal(r->coordinator->shard[0].begun[r->coordinator->shard[0].epochs - 1].epoch,
                     epoch);
    assert_int_equal(report(r, link, epoch, l->version, 0, 1), LH_OK);
    link->transport_ops->hangup(link);
    rig_free(r);
}

// The number of the next plan if shard 1's owner reports `said`, and shard 0's owner the truth.
static uint64_t next_plan(struct rig *r, uint64_t said)
{
    r->coordinator->shard[1].plan = said;
    ps_co_tick(r->coordinator);
    return r->coordinator->plan.number;
}

// Each new plan number costs a record in every log.
TEST(an_owner_alone_neither_raises_nor_holds_numbers_of_plans)
{
    struct rig *r = rig_new(5);
    rig_two_shards(r);
    rig_serve(r, 0);
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    rig_run(r, 5 * LH_SECOND);
    uint64_t number = r->coordinator->plan.number;
    assert_int_equal(r->coordinator->shard[1].plan, number);
    assert_int_equal(next_plan(r, UINT64_MAX), number);
    assert_int_equal(next_plan(r, UINT64_C(1) << 61), number);
    assert_int_equal(next_plan(r, number + (1 << 21)), number);
    // After the coordinator lost its store, all logs have higher numbers than it. But only one
    // owner says that the run has ended.
    r->coordinator->shard[0].phase = LH_PHASE_END;
    assert_int_equal(next_plan(r, number + 7), number + 8);
    for (uint64_t i = 0; i < 5; i++) assert_int_equal(next_plan(r, number + 20 + i), number + 8);
    rig_free(r);
}
