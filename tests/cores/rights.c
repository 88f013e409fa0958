// A server of this run that does not own the shard: none of its messages about the shard changes
// anything, and the shard's own server goes on
// (server/docs/0004-authority.md#identity-before-role).
#include <string.h>

#include "common/format/frame.h"
#include "tests/head.h"
#include "server/coordinator/owners/rights.h"
#include "server/push/grants.h"
#include "tests/cores/rig.h"

static const struct ps_co_shard *row(const struct rig *r)
{
    return &r->coordinator->shard[0];
}

static void begin(struct rig *r)
{
    rig_serve(r, 2 * LH_SECOND);
    rig_boot_standby(r);
}

// Messages of the second server, which has a valid certificate of this run.

static lh_err report(struct rig *r, bool standing, uint64_t identity, uint64_t epoch)
{
    static uint8_t bits[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    Longhaul__V1__ReportRequest m = LONGHAUL__V1__REPORT_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    Longhaul__V1__ShardReport said = LONGHAUL__V1__SHARD_REPORT__INIT, *list[] = {&said};
    struct lh_hash chain = {{7}};
    Longhaul__V1__Point head = lh_head_point(0, epoch, 1000000, &chain);
    said.head = &head;
    said.credited = (ProtobufCBinaryData){sizeof bits, bits};
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.address = (char *)(uintptr_t) "127.0.0.1:9";
    m.process = 7;
    m.number = 1;
    m.standing = standing;
    m.standby = identity;
    m.shards = list;
    m.n_shards = 1;
    return rig_say(r, r->t_to_c, LH_RPC_REPORT, &m.base);
}

static lh_err epoch(struct rig *r, bool below_stable)
{
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    struct lh_hash chain = {{7}};
    Longhaul__V1__Point open = lh_head_point(0, 9, 1000000, &chain);
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.address = (char *)(uintptr_t) "127.0.0.1:9";
    m.open = &open;
    m.expect = 1;
    m.token = 5;
    m.below_stable = below_stable;
    return rig_say(r, r->t_to_c, LH_RPC_EPOCH, &m.base);
}

static lh_err note_standby(struct rig *r, uint64_t owner, uint64_t standby)
{
    Longhaul__V1__InSyncRequest m = LONGHAUL__V1__IN_SYNC_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.epoch = 1;
    m.owner = owner;
    m.standby = standby;
    Longhaul__V1__Point at = LONGHAUL__V1__POINT__INIT;
    at.epoch = m.epoch;
    m.head = m.checked = &at;
    return rig_say(r, r->t_to_c, LH_RPC_INSYNC, &m.base);
}

static void check_untouched(const struct rig *r)
{
    assert_string_equal(row(r)->address, r->s.address);
    assert_int_equal(ps_co_epoch(row(r)), 1);
    assert_int_equal(row(r)->server, lh_worker_id(&r->s.self));
    assert_int_equal(row(r)->standby, 0);
    assert_int_equal(r->fatal_count, 0);
    assert_true(r->server->phase == PS_SERVING);
}

RIG_TEST(words_of_another_server_change_nothing, struct rig *r)
{
    begin(r);
    assert_int_equal(report(r, false, 0, 2), LH_ERR_DENIED);
    assert_int_equal(report(r, false, 77, 9), LH_ERR_DENIED);
    assert_int_equal(epoch(r, false), LH_ERR_DENIED);
    assert_int_equal(epoch(r, true), LH_ERR_DENIED);
    assert_int_equal(note_standby(r, 0, 77), LH_ERR_DENIED);
    assert_int_equal(r->coordinator->refused_servers, 5);
    rig_run(r, 3 * LH_SECOND);
    check_untouched(r);
}

// Any server may be the shard's first standby, but that does not make it the owner.
RIG_TEST(a_standby_does_not_speak_as_the_owner, struct rig *r)
{
    begin(r);
    assert_int_equal(report(r, true, 77, 1), LH_OK);
    assert_int_equal(report(r, false, 0, 2), LH_ERR_DENIED);
    assert_int_equal(report(r, false, 77, 9), LH_ERR_DENIED);
    assert_int_equal(epoch(r, true), LH_ERR_DENIED);
    assert_int_equal(note_standby(r, 0, 77), LH_ERR_DENIED);
    rig_run(r, 3 * LH_SECOND);
    check_untouched(r);
}

// The settings name the servers: no other server may stand by.
RIG_TEST(a_server_that_is_not_named_does_not_stand_by, struct rig *r)
{
    char text[200];
    snprintf(text, sizeof text, "0=%s/%s", r->s.self.region, r->s.self.name);
    r->servers = text;
    begin(r);
    assert_int_equal(report(r, true, 77, 1), LH_ERR_DENIED);
    assert_int_equal(report(r, false, 0, 2), LH_ERR_DENIED);
    check_untouched(r);
}

static lh_err confirm(struct rig *r, uint64_t standby)
{
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    Longhaul__V1__ConfirmRequest m = LONGHAUL__V1__CONFIRM_REQUEST__INIT;
    struct lh_hash chain = l->chain;
    Longhaul__V1__Point have = lh_head_point(0, l->epoch, l->version, &chain);
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.standby = standby;
    m.have = &have;
    return rig_say(r, r->t_to_s, LH_RPC_CONFIRM, &m.base);
}

// Otherwise the owner would wait for it, or stop because of a history that it made up.
RIG_TEST(words_of_no_standby_do_not_reach_an_owner, struct rig *r)
{
    r->replicated = true;
    begin(r);
    assert_int_equal(confirm(r, 77), LH_ERR_BUSY);
    assert_int_equal(r->server->shard[0]->insync.state, PS_ALONE);
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    struct lh_hash chain = {{9}};
    Longhaul__V1__Point from = lh_head_point(0, 1, 1, &chain);
    struct rig_call call = {0};
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.from = &from;
    m.standby = 77;
    assert_int_equal(lh_call_open(r->t_to_s, LH_RPC_FOLLOW, 0, &rig_call_ops, &call, &call.call),
                     LH_OK);
    lh_call_read(call.call);
    assert_int_equal(pb_send(call.call, &m.base), LH_OK);
    rig_call_wait(r, &call);
    assert_int_equal(call.status, LH_ERR_BUSY);
    assert_int_equal(r->fatal_count, 0);
    assert_int_equal(report(r, true, 77, 1), LH_OK); // now it is the shard's standby
    rig_run(r, LH_SECOND);
    assert_int_equal(confirm(r, 77), LH_OK);
}

static lh_err adopt(struct rig *r, const char *name)
{
    struct lh_adopt_request m = {.server = ""};
    uint32_t shard[] = {0}, adopted;
    m.server = name;
    m.shards = shard;
    m.n_shards = 1;
    return ps_co_adopt(r->coordinator, &m, &adopted);
}

// An operator gives the shard to another server, which gets it only when it asks to serve.
RIG_TEST(an_adopted_server_takes_the_shard, struct rig *r)
{
    char name[200];
    begin(r);
    snprintf(name, sizeof name, "%s/%s", r->t.self.region, r->t.self.name);
    assert_int_equal(adopt(r, "no slash"), LH_ERR_INVALID);
    assert_int_equal(adopt(r, name), LH_OK);
    rig_settle(r);
    assert_int_equal(report(r, false, 0, 2), LH_ERR_FENCED);
    check_untouched(r);
    assert_int_equal(epoch(r, false), LH_OK);
    assert_int_equal(row(r)->server, lh_worker_id(&r->t.self));
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(row(r)->server, lh_worker_id(&r->t.self));
    assert_int_equal(report(r, false, 0, 9), LH_OK);
    rig_run(r, 2 * LH_SECOND); // the former server is told, and waits for an operator
    assert_string_equal(row(r)->address, "127.0.0.1:9");
    // Adopted once, it does not take the shard again from a later owner.
    r->coordinator->shard[0].server = lh_worker_id(&r->s.self);
    assert_int_equal(epoch(r, false), LH_ERR_FENCED);
}

// A key that could not be stored would be lost with this process, and grants could not be checked
// while the coordinator is down. So the server ends, unless its disk is only full.
RIG_TEST(a_key_that_cannot_be_stored_ends_the_server, struct rig *r)
{
    begin(r);
    struct lh_shard_key key = {.key = {1, 2, 3}};
    const struct lh_report_reply told = {.keys = &key, .n_keys = 1};
    for (int full = 1; full >= 0; full--) {
        lh_fake_fail_at(r->s.env, 0, full ? LH_ERR_DISK_FULL : LH_ERR_IO);
        key.key[0]++;
        ps_grants_told(r->server, &told);
        assert_true(lh_fake_failed(r->s.env));
        assert_false(r->server->shard[0]->grants.stored);
        assert_int_equal(r->fatal_count, !full);
    }
}
