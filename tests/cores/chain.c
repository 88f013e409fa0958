// A version alone does not name a history. A peer on another history of the same epoch is told
// apart by its chain, at the newest version or at one that only the log still holds
// (server/docs/0000-protocol.md#rule-14, #rule-21).
#include "tests/head.h"
#include "server/push/insync.h"
#include "tests/cores/rig.h"

enum { HEAD = 8, EARLIER = 6, STANDBY = 77 };

static struct ps_shard *shard(struct rig *r)
{
    return r->server->shard[0];
}

// The chain of a version; `another`: of another history.
static struct lh_hash chain_of(struct rig *r, uint64_t version, bool another)
{
    struct lh_hash chain;
    assert_int_equal(ps_shard_chain(shard(r), version, &chain), LH_OK);
    chain.b[3] ^= another;
    return chain;
}

// ---------------------------------------------------------------- followers

static lh_err follow(struct rig *r, uint64_t version, bool another)
{
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    struct lh_hash chain = chain_of(r, version, another);
    Longhaul__V1__Point from = lh_head_point(0, shard(r)->replica.ledger.epoch, version, &chain);
    struct rig_call c;
    m.from = &from;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    rig_call_open(r, 0, LH_RPC_FOLLOW, &rig_call_ops, &c);
    assert_int_equal(pb_send(c.call, &m.base), LH_OK);
    lh_call_read(c.call);
    rig_run(r, 100 * LH_MS);
    if (c.over) return c.status;
    lh_call_cancel(c.call);
    rig_run(r, 100 * LH_MS);
    return LH_OK;
}

RIG_TEST(a_follower_of_another_history_takes_a_snapshot, struct rig *r)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, HEAD);
    assert_int_equal(follow(r, HEAD, false), LH_OK);
    assert_int_equal(follow(r, HEAD, true), LH_ERR_NOT_FOUND);
    assert_int_equal(follow(r, EARLIER, false), LH_OK);
    assert_int_equal(follow(r, EARLIER, true), LH_ERR_NOT_FOUND);
}

// ---------------------------------------------------------------- standbys

enum naming { OURS, ANOTHER, NONE }; // the chain that a confirm names

static enum ps_insync_state confirm(struct rig *r, uint64_t version, enum naming naming)
{
    Longhaul__V1__ConfirmRequest m = LONGHAUL__V1__CONFIRM_REQUEST__INIT;
    struct lh_hash chain = chain_of(r, version, naming == ANOTHER);
    Longhaul__V1__Point have = lh_head_point(0, shard(r)->replica.ledger.epoch, version, &chain);
    if (naming == NONE) have.chain.len = 0;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.standby = STANDBY;
    m.have = &have;
    assert_int_equal(rig_say(r, r->t_to_s, LH_RPC_CONFIRM, &m.base), LH_OK);
    return shard(r)->insync.state;
}

// An owner alone, at HEAD; the test plays its standby.
static void begin(struct rig *r)
{
    r->replicated = true;
    rig_name_servers(r);
    rig_serve(r, 3 * LH_SECOND);
    rig_log(r, 1, HEAD);
    assert_int_equal(shard(r)->insync.state, PS_ALONE);
    rig_boot_standby(r);
}

RIG_TEST(a_standby_of_another_history_is_not_waited_for, struct rig *r)
{
    begin(r);
    uint64_t head = shard(r)->replica.ledger.version;
    assert_int_equal(confirm(r, head, ANOTHER), PS_ALONE);
    assert_int_equal(confirm(r, head - 1, ANOTHER), PS_ALONE);
    assert_int_equal(confirm(r, head - 1, OURS), PS_CATCHING);
    assert_int_equal(shard(r)->insync.confirmed, head - 1);
    assert_int_equal(confirm(r, head, ANOTHER), PS_CATCHING);
    assert_int_equal(shard(r)->insync.confirmed, head - 1);
    assert_true(confirm(r, head, OURS) > PS_CATCHING);
    assert_int_equal(shard(r)->insync.confirmed, head);
}

RIG_TEST(one_that_names_no_chain_is_believed_as_ever, struct rig *r)
{
    begin(r);
    assert_true(confirm(r, shard(r)->replica.ledger.version, NONE) > PS_CATCHING);
}

// A standby that lacks one acknowledged version is not in sync.
RIG_TEST(one_version_short_is_not_in_sync, struct rig *r)
{
    begin(r);
    uint64_t head = shard(r)->replica.ledger.version;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(confirm(r, head - 1, OURS), PS_CATCHING);
        rig_run(r, 200 * LH_MS);
        assert_int_equal(shard(r)->insync.state, PS_CATCHING);
        assert_int_equal(r->coordinator->shard[0].standby, 0);
    }
    (void)confirm(r, head, OURS);
    rig_run(r, LH_SECOND);
    assert_int_equal(shard(r)->insync.state, PS_IN_SYNC);
    assert_int_equal(r->coordinator->shard[0].standby, STANDBY);
}
