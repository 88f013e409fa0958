// An owner on an older copy of its directory that went on by itself: it has as many records as its
// standby in sync, but others. The standby is neither struck out nor made to give up what it
// confirmed, whatever happens between a question and its answer
// (server/docs/0000-protocol.md#rule-21, #rule-27).
#include "tests/head.h"
#include "server/coordinator/owners/move.h"
#include "server/push/insync.h"
#include "tests/cores/image.h"

enum { OLD = 8, HEAD = 20, FAR = 80 };

static struct ps_co_shard *row(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static const struct lh_ledger *ledger(const struct ps_server *s)
{
    return &s->shard[0]->replica.ledger;
}

static struct ps_insync *insync(struct rig *r)
{
    return &r->server->shard[0]->insync;
}

static void log_more(struct rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t v = from; v <= to; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_run(r, LH_SECOND);
}

static void start_coordinator(struct rig *r)
{
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_ns = 10 * LH_SECOND;
}

static void start_server(struct rig *r)
{
    assert_int_equal(rig_start_server(r, false), LH_OK);
}

// The standby is in sync at HEAD, and down; so is the coordinator, which will have heard no report.
// The server's directory is a copy from OLD that went on to FAR, in the same epoch.
static struct lh_point begin(struct rig *r)
{
    struct image m;
    r->replicated = true;
    start_coordinator(r);
    start_server(r);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    log_more(r, 1, OLD);
    rig_kill_server(r, false);
    image_take(&r->s, &m);
    start_server(r);
    rig_run(r, 3 * LH_SECOND);
    log_more(r, OLD + 1, HEAD);
    assert_int_equal(row(r)->standby, r->standby->standby.identity);
    assert_int_equal(rig_fenced(r, r->standby, 0), HEAD);
    const struct lh_ledger *l = ledger(r->standby);
    struct lh_point held = {l->epoch, l->version, l->chain};
    rig_settle(r);
    rig_kill_standby(r, false);
    rig_kill_server(r, false);
    rig_kill_coordinator(r);
    image_put(&r->s, &m);
    image_free(&m);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (uint64_t v = 2 * HEAD; v < FAR; v++) rig_hello(r, 0, v << 32, 0, 1);
    assert_true(ledger(r->server)->version > held.version);
    assert_int_equal(ledger(r->server)->epoch, held.epoch);
    rig_kill_server(r, false);
    return held;
}

static void until_it_is_told(struct rig *r)
{
    start_coordinator(r);
    start_server(r);
    for (int i = 0; i < 5000 && !insync(r)->known; i++) rig_run(r, LH_MS);
    assert_true(insync(r)->known);
    assert_int_equal(insync(r)->state, PS_LEAVING);
    assert_true(lh_now(r->s.env) < insync(r)->hold_ns);
}

static void the_standby_takes_over(struct rig *r)
{
    assert_int_equal(r->fatal_count, 1);
    assert_true(r->server->phase == PS_STOPPED);
    rig_kill_server(r, false);
    if (!r->standby) assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 30 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
    assert_int_equal(rig_fenced(r, r->standby, 0), HEAD);
}

// The owner was not told what the standby holds. Then the standby reports to the coordinator, but
// does not reach its owner.
RIG_TEST(a_report_between_the_question_and_the_strike_out_counts, struct rig *r)
{
    struct lh_point held = begin(r);
    until_it_is_told(r);
    uint64_t standby = row(r)->standby;
    const struct lh_shard_report report = {
        .has_head = true, .head = {0, true, held}, .begun = held.epoch};
    const struct lh_report_request m = {.address = "", .standby = standby};
    ps_co_note_standby(r->coordinator, &r->t.self, &m, &report);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(row(r)->standby, standby);
    the_standby_takes_over(r);
}

// Starts a standby that is in sync and holds OLD pushes of the owner's log.
static void begin_in_sync(struct rig *r)
{
    r->replicated = true;
    start_coordinator(r);
    start_server(r);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    log_more(r, 1, OLD);
    assert_int_not_equal(row(r)->standby, 0);
}

// An owner that compared the standby's last report may strike it out.
RIG_TEST(a_standby_that_says_no_more_is_struck_out, struct rig *r)
{
    begin_in_sync(r);
    rig_kill_standby(r, false);
    log_more(r, OLD + 1, OLD + 1);
    assert_int_equal(row(r)->standby, 0);
    assert_int_equal(insync(r)->state, PS_ALONE);
}

static bool not_told(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                     struct lh_fate *fate)
{
    (void)arg;
    (void)from;
    (void)to;
    (void)fate;
    return rpc != LH_RPC_INSYNC;
}

// An owner that can't be told for a while which standby is in sync trims its log beyond that
// standby. It still knows the chain there, so it is no older copy (seed 12995 of all,standby). If
// its chain differs there, it is one.
static void trims_beyond_its_standby(struct rig *r, bool another)
{
    r->segment_bytes = 4096;
    begin_in_sync(r);
    uint64_t held = row(r)->standing[0].head.version;
    rig_kill_standby(r, false);
    rig_kill_server(r, false);
    if (another) row(r)->standing[0].head.chain.b[0] ^= 1;
    lh_fabric_fates(r->fabric, not_told, NULL);
    start_server(r);
    for (int i = 0; i < 5000 && r->server->phase != PS_SERVING; i++) rig_run(r, LH_MS);
    assert_true(r->server->phase == PS_SERVING && !insync(r)->known);
    for (uint64_t v = OLD + 1; v <= FAR; v++) {
        rig_greet(r, 0, v << 32, 0, 1);
        rig_run(r, 20 * LH_MS);
    }
    struct lh_hash chain;
    assert_int_equal(ps_shard_chain(r->server->shard[0], held, &chain), LH_ERR_NOT_FOUND);
    assert_false(insync(r)->known);
    lh_fabric_fates(r->fabric, NULL, NULL);
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(r->fatal_count, another);
    assert_int_equal(r->server->phase == PS_SERVING, !another);
}

RIG_TEST(a_log_that_was_trimmed_beyond_its_standby_is_no_older_copy, struct rig *r)
{
    trims_beyond_its_standby(r, false);
}

RIG_TEST(a_trimmed_log_of_another_history_is_an_older_copy, struct rig *r)
{
    trims_beyond_its_standby(r, true);
}

// The standby follows once its owner knows which one is in sync, and its point is not in the
// owner's log.
RIG_TEST(a_standby_that_its_owner_overtook_stops_it_and_gives_nothing_up, struct rig *r)
{
    (void)begin(r);
    until_it_is_told(r);
    assert_int_equal(rig_start_standby(r), LH_OK);
    for (int i = 0; i < 5000 && !r->fatal_count; i++) {
        rig_run(r, LH_MS);
        assert_int_equal(rig_fenced(r, r->standby, 0), HEAD);
    }
    the_standby_takes_over(r);
}

// Returns the answer to a standby that follows from `held`, or asks for a snapshot instead.
static lh_err ask(struct rig *r, enum lh_rpc rpc, const struct lh_point *held, uint64_t standby)
{
    static const uint8_t challenge[LH_STATE_RANDOM_BYTES];
    Longhaul__V1__FollowRequest f = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
    Longhaul__V1__Point have = lh_head_point(0, held->epoch, held->version, &held->chain);
    lh_head_run(r->server->conf.job, &r->manifest.hash, &f.job, &f.manifest);
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    f.from = m.have = &have;
    f.standby = m.asker = standby;
    m.challenge = (ProtobufCBinaryData){sizeof challenge, (uint8_t *)(uintptr_t)challenge};
    struct rig_call c = {0};
    assert_int_equal(lh_call_open(r->t_to_s, rpc, 0, &rig_call_ops, &c, &c.call), LH_OK);
    assert_int_equal(pb_send(c.call, rpc == LH_RPC_FOLLOW ? &f.base : &m.base), LH_OK);
    lh_call_read(c.call);
    rig_run(r, 200 * LH_MS);
    if (c.over) return c.status;
    lh_call_cancel(c.call);
    rig_run(r, LH_MS);
    return LH_OK;
}

// The coordinator ends before it tells the serving owner which standby is in sync.
RIG_TEST(a_forked_standby_waits_until_the_one_in_sync_is_known, struct rig *r)
{
    struct lh_point held = begin(r);
    until_it_is_told(r);
    uint64_t standby = row(r)->standby;
    insync(r)->known = false; // as before the answer came
    insync(r)->noted = 0;
    rig_kill_coordinator(r);
    rig_boot_standby(r);
    assert_int_equal(ask(r, LH_RPC_FOLLOW, &held, standby), LH_ERR_BUSY);
    assert_int_equal(ask(r, LH_RPC_SNAPSHOT, &held, standby), LH_ERR_BUSY);
    const struct lh_ledger *l = ledger(r->server);
    struct lh_point ours = {l->epoch, l->version, l->chain};
    assert_int_equal(ask(r, LH_RPC_FOLLOW, &ours, standby), LH_OK);
    assert_int_equal(r->fatal_count, 0);
    start_coordinator(r);
    for (int i = 0; i < 5000 && !insync(r)->known; i++) rig_run(r, LH_MS);
    assert_int_equal(ask(r, LH_RPC_FOLLOW, &held, standby + 1), LH_ERR_NOT_FOUND); // not in sync
    assert_int_equal(r->fatal_count, 0);
    assert_int_equal(ask(r, LH_RPC_SNAPSHOT, &held, standby), LH_ERR_FENCED);
    assert_int_equal(r->fatal_count, 1);
}

// The copy is from before the first standby, and today's settings name none either.
RIG_TEST(a_directory_that_knows_of_no_standby_strikes_out_whom_the_coordinator_names, struct rig *r)
{
    struct image m;
    start_coordinator(r);
    start_server(r);
    rig_run(r, 3 * LH_SECOND);
    log_more(r, 1, OLD);
    rig_kill_server(r, false);
    image_take(&r->s, &m);
    rig_kill_coordinator(r);
    start_coordinator(r);
    image_put(&r->s, &m);
    image_free(&m);
    row(r)->standby = 7;
    row(r)->changes = 3;
    start_server(r);
    for (int i = 0; i < 5000 && r->server->phase != PS_SERVING; i++) rig_run(r, LH_MS);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(insync(r)->state, PS_LEAVING);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(insync(r)->state, PS_ALONE);
    assert_int_equal(row(r)->standby, 0);
}
