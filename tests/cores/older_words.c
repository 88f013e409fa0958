// The coordinator refuses reports of an older history, and lets no owner strike out a standby that
// holds more than it does (server/docs/0000-protocol.md#rule-27).
#include "tests/head.h"
#include "server/coordinator/drain.h"
#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/stable.h"
#include "tests/cores/rig.h"

static struct ps_co_shard *row(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static const struct lh_ledger *ledger(const struct ps_server *s)
{
    return &s->shard[0]->replica.ledger;
}

// ---------------------------------------------------------------- a standby's identity

static lh_err note(struct rig *r, uint64_t standby)
{
    const struct lh_ledger *l = ledger(r->server);
    struct lh_hash chain = l->chain;
    Longhaul__V1__InSyncRequest m = LONGHAUL__V1__IN_SYNC_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    Longhaul__V1__Point head = lh_head_point(0, l->epoch, l->version, &chain);
    m.wire = &wire;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.epoch = l->epoch;
    m.standby = standby;
    m.expect = row(r)->changes;
    m.process = r->server->process;
    m.head = m.checked = &head;
    return rig_say(r, r->server->coordinator, LH_RPC_INSYNC, &m.base);
}

// The standby gave up its identity, and its owner, which has not heard of that, notes this identity
// as in sync. Nobody could ever take over under it (seeds 1787 and 2359 of all,standby).
RIG_TEST(a_name_that_a_standby_gave_up_is_not_joined_again, struct rig *r)
{
    rig_begin_in_sync(r);
    uint64_t name = row(r)->standby;
    rig_kill_standby(r, false);
    assert_false(rig_serves(r, name, 101, true)); // its directory was damaged
    assert_int_equal(row(r)->standby, 0);
    assert_int_equal(note(r, name), LH_ERR_BUSY);
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    rig_run(r, LH_SECOND);
    assert_int_equal(note(r, name), LH_ERR_BUSY);
    assert_int_equal(row(r)->standby, 0);
    assert_int_equal(note(r, name ^ 1), LH_OK);
    assert_int_equal(row(r)->standby, name ^ 1);
}

// ---------------------------------------------------------------- older histories

static void begin_with_log(struct rig *r)
{
    rig_serve(r, LH_SECOND);
    for (uint64_t i = 1; i <= 6; i++) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    assert_int_equal(row(r)->head.version, ledger(r->server)->version);
}

static void start_anew(struct rig *r)
{
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 2 * LH_SECOND);
}

RIG_TEST(an_intact_directory_is_heard_again, struct rig *r)
{
    begin_with_log(r);
    row(r)->stable = row(r)->head;
    start_anew(r);
    assert_int_equal(r->fatal_count, 0);
    assert_int_equal(row(r)->process, r->server->process);
}

RIG_TEST(a_server_below_the_stable_point_of_its_epoch_stops, struct rig *r)
{
    begin_with_log(r);
    row(r)->stable = row(r)->head;
    row(r)->stable.version++;
    assert_int_equal(ps_co_store_point(r->coordinator, 0), LH_OK);
    rig_settle(r);
    rig_kill_coordinator(r); // the stable point is durable, so a restart knows it
    rig_start_coordinator(r);
    start_anew(r);
    assert_true(r->server->phase == PS_STOPPED);
    assert_false(row(r)->reported);
}

RIG_TEST(a_server_with_another_history_at_the_stable_point_stops, struct rig *r)
{
    begin_with_log(r);
    row(r)->stable = row(r)->head;
    row(r)->stable.chain.b[0] ^= 1;
    start_anew(r);
    assert_int_equal(r->fatal_count, 1);
    assert_true(r->server->phase == PS_STOPPED);
}

RIG_TEST(a_server_below_what_its_earlier_life_reported_stops, struct rig *r)
{
    begin_with_log(r);
    row(r)->head.version++; // as its earlier life reported
    start_anew(r);
    assert_int_equal(r->fatal_count, 1);
    assert_true(r->server->phase == PS_STOPPED);
}

// Reports may overtake each other: this one is late, but not of an older history.
RIG_TEST(a_late_word_of_the_same_life_is_only_late, struct rig *r)
{
    begin_with_log(r);
    struct lh_point late = {row(r)->head.epoch, row(r)->head.version - 1, {{0}}};
    row(r)->stable = row(r)->head;
    assert_int_equal(ps_co_check_history(r->coordinator, 0, row(r)->process, &late), LH_OK);
    assert_int_equal(ps_co_check_history(r->coordinator, 0, row(r)->process + 1, &late),
                     LH_ERR_FENCED);
    late.epoch++; // a new epoch may begin at any version
    assert_int_equal(ps_co_check_history(r->coordinator, 0, row(r)->process + 1, &late), LH_OK);
}

// Checks each bound alone: the stable point, its chain, and the head that another life reported.
RIG_TEST(another_life_is_refused_by_each_bound_alone, struct rig *r)
{
    begin_with_log(r);
    const struct lh_point head = row(r)->head;
    const uint64_t another = row(r)->process + 1;
    struct lh_point said = head;
    row(r)->stable = head;
    row(r)->head.version = 0;
    assert_int_equal(ps_co_check_history(r->coordinator, 0, another, &said), LH_OK);
    said.version--;
    assert_int_equal(ps_co_check_history(r->coordinator, 0, another, &said), LH_ERR_FENCED);
    said = head;
    said.chain.b[0] ^= 1;
    assert_int_equal(ps_co_check_history(r->coordinator, 0, another, &said), LH_ERR_FENCED);
    row(r)->head = head;
    row(r)->stable = (struct lh_point){0};
    said = head;
    assert_int_equal(ps_co_check_history(r->coordinator, 0, another, &said), LH_OK);
    said.version--;
    assert_int_equal(ps_co_check_history(r->coordinator, 0, another, &said), LH_ERR_FENCED);
}

static lh_err report(struct rig *r, const struct lh_point *at, uint64_t process)
{
    Longhaul__V1__ReportRequest m = LONGHAUL__V1__REPORT_REQUEST__INIT;
    Longhaul__V1__ShardReport shard = LONGHAUL__V1__SHARD_REPORT__INIT, *shards[] = {&shard};
    Longhaul__V1__Wire wire = lh_head_wire();
    Longhaul__V1__Point head = lh_head_point(0, at->epoch, at->version, &at->chain);
    shard.head = &head;
    m.wire = &wire;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.process = process;
    m.shards = shards;
    m.n_shards = 1;
    return rig_say(r, r->server->coordinator, LH_RPC_REPORT, &m.base);
}

// The report of a process on an older copy that did not ask at its start.
RIG_TEST(an_older_report_is_refused_whatever_its_server_does, struct rig *r)
{
    begin_with_log(r);
    struct lh_point older = row(r)->head;
    older.version -= 2;
    assert_int_equal(report(r, &older, row(r)->process + 1), LH_ERR_FENCED);
    assert_int_equal(row(r)->head.version, older.version + 2);
}

static struct ps_co_standby *standing(struct rig *r)
{
    for (struct ps_co_standby *b = row(r)->standing; b < row(r)->standing + PS_CO_STANDBYS; b++)
        if (b->identity == row(r)->standby) return b;
    fail_msg("it did not report");
    return NULL;
}

// The owner comes back with a directory that has less than its standby.
RIG_TEST(an_owner_that_is_behind_its_standby_stops_and_does_not_strike_it_out, struct rig *r)
{
    rig_begin_in_sync(r);
    uint64_t standby = row(r)->standby;
    assert_int_equal(standing(r)->head.version, ledger(r->standby)->version);
    rig_kill_server(r, false);
    rig_kill_standby(r, false);
    standing(r)->head.version += 3;
    row(r)->head.version -= 1; // nor did the owner report more
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    assert_true(r->server->phase == PS_STOPPED);
    assert_int_equal(row(r)->standby, standby);
}

static lh_err strike_out(struct rig *r, uint64_t version)
{
    Longhaul__V1__InSyncRequest m = LONGHAUL__V1__IN_SYNC_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    Longhaul__V1__Point head = lh_head_point(0, row(r)->head.epoch, version, &row(r)->head.chain);
    const struct lh_point *held = &standing(r)->head;
    Longhaul__V1__Point checked = lh_head_point(0, held->epoch, held->version, &held->chain);
    struct lh_link *link;
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.epoch = head.epoch;
    m.expect = row(r)->changes;
    m.head = &head;
    m.checked = &checked;
    m.process = row(r)->process;
    assert_int_equal(
        r->s.transport->ops->dial(r->s.transport, r->c.address, LH_C, LH_LINE_FIRST, &link), LH_OK);
    lh_err err = rig_say(r, link, LH_RPC_INSYNC, &m.base);
    link->transport_ops->hangup(link);
    return err;
}

RIG_TEST(only_a_server_with_as_much_strikes_out_a_standby, struct rig *r)
{
    rig_begin_in_sync(r);
    rig_kill_standby(r, false);
    rig_kill_server(r, false);
    rig_boot_server(r);
    uint64_t held = standing(r)->head.version, standby = row(r)->standby;
    assert_int_equal(strike_out(r, held - 1), LH_ERR_BUSY);
    assert_int_equal(row(r)->standby, standby);
    assert_int_equal(strike_out(r, held), LH_OK);
    assert_int_equal(row(r)->standby, 0);
}

RIG_TEST(operators_read_whether_a_standby_is_in_sync, struct rig *r)
{
    r->replicated = true;
    rig_serve(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    struct lh_log *log = rig_log_lines(r);
    r->coordinator->conf.log = log;
    rig_run(r, 2 * LH_SECOND);
    rig_hello(r, 0, 1ull << 32, 0, 1);
    rig_run(r, LH_SECOND);
    assert_true(row(r)->standby != 0);
    assert_int_equal(rig_said(r, "records are also on standby"), 1);
    rig_kill_server(r, false);
    rig_boot_server(r);
    assert_int_equal(strike_out(r, standing(r)->head.version), LH_OK);
    assert_int_equal(rig_said(r, "no standby is in sync"), 1);
    r->coordinator->conf.log = NULL;
    lh_log_close(log);
}

// The coordinator's store was restored from a copy in which a standby is in sync that was struck
// out since. The owner knows better, and reports it.
RIG_TEST(an_old_store_takes_the_owners_word_for_its_standby, struct rig *r)
{
    struct lh_buf copy = lh_buf(1 << 20);
    char path[LH_PATH_BYTES];
    rig_begin_in_sync(r);
    uint64_t standby = row(r)->standby;
    assert_int_equal(lh_path(path, sizeof path, r->c.dir, "store"), LH_OK);
    assert_int_equal(lh_file_load(r->c.env, path, &copy), LH_OK);
    rig_kill_standby(r, false);
    assert_int_equal(rig_fence(r, 0, 7ull << 32), LH_OK); // acknowledged without the standby
    assert_int_equal(row(r)->standby, 0);
    rig_kill_coordinator(r);
    lh_fake_boot(r->c.env);
    assert_int_equal(lh_file_replace(r->c.env, path, lh_buf_span(&copy)), LH_OK);
    lh_fake_kill(r->c.env, false);
    rig_start_coordinator(r);
    assert_int_equal(row(r)->standby, standby);
    rig_run(r, LH_SECOND);
    assert_int_equal(row(r)->standby, 0);
    uint64_t changes = row(r)->changes;
    rig_kill_server(r, false);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(row(r)->standby, 0); // stored: known without the owner
    assert_int_equal(row(r)->changes, changes);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 10 * LH_SECOND);
    assert_false(r->standby->phase == PS_SERVING);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r->server)->row[0].incarnation.number >> 32, 7);
    lh_buf_free(&copy);
}

// The owner by a take-over lost its directory, and its server reports as a standby from another
// one. These reports must not count as signs of the former owner, or the server could not become
// the owner again.
RIG_TEST(a_former_owners_words_as_a_standby_are_not_its_owners, struct rig *r)
{
    rig_begin_in_sync(r);
    struct ps_co_shard *s = row(r);
    s->owner = 99; // the lost directory, of the standby's server
    s->standby = 0;
    s->server = s->heard_of = lh_worker_id(&r->t.self);
    rig_kill_server(r, false);
    lh_fake_slow(r->c.env, 50 * LH_MS);
    for (uint64_t i = 0; i < 400 && s->owner == 99; i++) {
        struct ps_co_worker *who;
        struct lh_drain_request m = {.region = "", .worker = ""};
        m.undo = i % 2;
        assert_int_equal(ps_co_drain(r->coordinator, &m, &who), LH_OK); // the store has to write
        rig_run(r, 10 * LH_MS);
    }
    assert_int_equal(s->owner, r->standby->standby.identity);
}
