// An older copy of a server's directory comes back: no version of an epoch exists twice, and
// acknowledged writes come back where followers hold them (server/docs/0000-protocol.md#rule-27).
#include <stdlib.h>
#include <string.h>

#include "server/recovery/epoch.h"
#include "tests/head.h"
#include "server/recovery/rebuilding.h"
#include "tests/cores/image.h"

enum { OLD = 8, HEAD = 20 };

static struct ps_co_shard *row(struct rig *r, uint32_t shard)
{
    return &r->coordinator->shard[shard];
}

static const struct lh_ledger *ledger(const struct ps_server *s, uint32_t shard)
{
    return &s->shard[shard]->replica.ledger;
}

// Adds records `from` to `to` of worker 0, each acknowledged; the coordinator hears of them.
static void log_more(struct rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t v = from; v <= to; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_run(r, 2 * LH_SECOND);
}

static void start(struct rig *r)
{
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
}

static void copy(struct rig *r, struct image *m)
{
    rig_kill_server(r, false);
    image_take(&r->s, m);
}

static void go_back(struct rig *r, struct image *m)
{
    rig_kill_server(r, false);
    image_put(&r->s, m);
    image_free(m);
}

static void restart_coordinator(struct rig *r)
{
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

// Brings a server to HEAD, with a copy of its directory from when it was at OLD.
static void grow(struct rig *r, struct image *m)
{
    rig_start_coordinator(r);
    start(r);
    log_more(r, 1, OLD);
    copy(r, m);
    start(r);
    log_more(r, OLD + 1, HEAD);
}

RIG_TEST(a_start_that_lost_nothing_goes_on_in_its_epoch, struct rig *r)
{
    rig_start_coordinator(r);
    start(r);
    log_more(r, 1, HEAD);
    uint64_t version = ledger(r->server, 0)->version;
    rig_kill_server(r, true);
    start(r);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r->server, 0)->epoch, 1);
    assert_int_equal(ledger(r->server, 0)->version, version);
    log_more(r, HEAD + 1, HEAD + 1);
    rig_kill_coordinator(r); // a serving server goes on without it
    rig_hello(r, 0, (uint64_t)(HEAD + 2) << 32, 0, 1);
    assert_int_equal(rig_fenced(r, r->server, 0), HEAD + 2);
}

static bool status_has(struct rig *r, const char *words)
{
    struct lh_buf json = lh_buf(1 << 20);
    assert_int_equal(ps_server_status(r->server, &json), LH_OK);
    lh_put_u8(&json, 0);
    bool has = strstr((char *)json.data, words) != NULL;
    lh_buf_free(&json);
    return has;
}

RIG_TEST(nothing_is_answered_before_the_coordinator_was_asked, struct rig *r)
{
    rig_start_coordinator(r);
    start(r);
    log_more(r, 1, OLD);
    rig_kill_server(r, false);
    rig_kill_coordinator(r);
    start(r);
    assert_int_equal(rig_fence(r, 0, (uint64_t)(OLD + 1) << 32), LH_ERR_REBUILDING);
    rig_run(r, 20 * LH_SECOND);
    assert_false(r->server->phase == PS_SERVING);
    assert_true(status_has(r, "\"waits_for\":\"coordinator\""));
    rig_start_coordinator(r);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_false(status_has(r, "\"rebuilding\""));
    assert_int_equal(rig_fenced(r, r->server, 0), OLD);
}

RIG_TEST(an_older_copy_is_not_served, struct rig *r)
{
    struct image m;
    grow(r, &m);
    go_back(r, &m);
    start(r);
    assert_int_equal(r->fatal_count, 1);
    assert_true(r->server->phase == PS_STOPPED);
    assert_int_equal(r->server->reports_sent, 0); // it never served
    assert_non_null(strstr(r->fatal_text, "knows of version 20 of epoch 1"));
    assert_int_equal(rig_fence(r, 0, (uint64_t)HEAD << 32), LH_ERR_UNAVAILABLE);
    assert_int_equal(row(r, 0)->head.version, HEAD);
}

// The newer directory, which had been moved away, is started again: the coordinator knows it.
RIG_TEST(the_newer_directory_is_served_after_it, struct rig *r)
{
    struct image old, now;
    grow(r, &old);
    copy(r, &now);
    image_put(&r->s, &old);
    image_free(&old);
    start(r);
    assert_int_equal(r->fatal_count, 1);
    go_back(r, &now);
    start(r);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r->server, 0)->epoch, 1);
    assert_int_equal(rig_fenced(r, r->server, 0), HEAD);
}

// The older copy ran alone beyond the version that the coordinator knows: only the chain differs.
RIG_TEST(a_longer_log_of_another_history_is_not_served, struct rig *r)
{
    struct image m;
    grow(r, &m);
    go_back(r, &m);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (uint64_t v = 2 * HEAD; v < 4 * HEAD; v++) rig_hello(r, 0, v << 32, 0, 1);
    assert_int_equal(ledger(r->server, 0)->epoch, 1);
    rig_kill_server(r, false);
    start(r);
    assert_int_equal(r->fatal_count, 1);
    assert_false(r->server->phase == PS_SERVING);
}

// Starts a run that the worker does not finish during the test.
static void begin_long(struct rig *r)
{
    r->rebuild_damaged = true;
    lh_units_free(&r->units);
    setup_units(&r->units, 4000, 64, RIG_WORKERS);
    rig_start_coordinator(r);
    start(r);
}

static struct wk_conf follower(struct rig *r, struct rig_life *l)
{
    struct wk_conf conf = rig_life_conf(r, l, 50);
    conf.durable_every = 4;
    return conf;
}

// Like grow(), with a worker that follows. Its durable copies make a version above OLD stable.
static void grow_followed(struct rig *r, struct rig_life *l, struct image *m)
{
    struct wk_conf conf = follower(r, l);
    rig_life_start(l, &conf);
    log_more(r, 1, OLD);
    uint64_t copied = ledger(r->server, 0)->version;
    copy(r, m);
    start(r);
    log_more(r, OLD + 1, HEAD);
    for (int i = 0; i < 600 && row(r, 0)->stable.version <= copied; i++) rig_run(r, 100 * LH_MS);
    assert_true(row(r, 0)->stable.version > copied);
}

// The coordinator knows only the stable point, and the settings forbid a rebuild from followers.
RIG_TEST(a_copy_from_below_the_stable_point_is_not_served, struct rig *r)
{
    struct image m;
    struct rig_life l = {0};
    begin_long(r);
    r->rebuild_damaged = false;
    grow_followed(r, &l, &m);
    go_back(r, &m);
    restart_coordinator(r);
    start(r);
    assert_int_equal(r->fatal_count, 1);
    assert_false(r->server->phase == PS_SERVING);
    rig_life_end(r, &l, false);
}

// The worker holds the whole history in memory. If the coordinator `forgets`, it knows only the
// stable point.
static void comes_back(struct rig *r, bool forgets)
{
    struct image m;
    struct rig_life l = {0};
    begin_long(r);
    grow_followed(r, &l, &m);
    struct lh_hash stable = row(r, 0)->stable.chain;
    uint64_t at = row(r, 0)->stable.version;
    go_back(r, &m);
    if (forgets) restart_coordinator(r);
    start(r);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r->server, 0)->epoch, 2);
    assert_int_equal(rig_fenced(r, r->server, 0), HEAD);
    assert_true(ledger(r->server, 0)->version > at);
    if (row(r, 0)->stable.version == at)
        assert_memory_equal(row(r, 0)->stable.chain.b, stable.b, LH_HASH_BYTES);
    log_more(r, HEAD + 1, HEAD + 2);
    assert_int_equal(r->fatal_count, 0);
    rig_life_end(r, &l, false);
}

RIG_TEST(followers_state_comes_back_in_a_new_epoch, struct rig *r)
{
    comes_back(r, false);
}

RIG_TEST(the_stable_point_alone_brings_followers_state_back, struct rig *r)
{
    comes_back(r, true);
}

// Nobody can tell whether the log is the newest one, so a new epoch begins.
RIG_TEST(where_nobody_can_tell_a_new_epoch_begins, struct rig *r)
{
    struct image m;
    grow(r, &m);
    go_back(r, &m);
    restart_coordinator(r);
    start(r);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r->server, 0)->epoch, 2);
    assert_int_equal(ps_co_epoch(row(r, 0)), 2);
    assert_int_equal(rig_fenced(r, r->server, 0), OLD);
    assert_int_equal(r->fatal_count, 0);
}

// A stable point of this epoch that the log contradicts shows that the log has another history. One
// of an earlier epoch does not: the start of this epoch was checked against it, and it may rest on
// a worker's copy of a version that the log had lost by then.
RIG_TEST(only_a_stable_point_of_its_own_epoch_contradicts_a_log, struct rig *r)
{
    rig_start_coordinator(r);
    start(r);
    log_more(r, 1, OLD);
    rig_kill_server(r, false);
    restart_coordinator(r); // a new coordinator opens epoch 2
    start(r);
    log_more(r, OLD + 1, OLD + 1);
    assert_int_equal(ledger(r->server, 0)->epoch, 2);
    struct lh_hash chain;
    // The log still has that version.
    assert_int_equal(ps_shard_chain(r->server->shard[0], OLD - 1, &chain), LH_OK);
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        row(r, 0)->stable = (struct lh_point){epoch, OLD - 1, {{1}}};
        rig_kill_server(r, false);
        start(r);
        assert_int_equal(r->server->phase == PS_SERVING, epoch == 1);
        assert_int_equal(r->fatal_count, epoch == 2);
    }
}

// The copy is not older than the last report, and only the lost directory had the records after it.
RIG_TEST(unreported_versions_are_not_reused_in_their_epoch, struct rig *r)
{
    struct image m;
    rig_start_coordinator(r);
    start(r);
    log_more(r, 1, OLD);
    copy(r, &m);
    start(r);
    for (uint64_t v = OLD + 1; v <= OLD + 3; v++) rig_hello(r, 0, v << 32, 0, 1);
    assert_int_equal(row(r, 0)->head.version, OLD);
    go_back(r, &m);
    start(r);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r->server, 0)->epoch, 2);
    assert_int_equal(rig_fenced(r, r->server, 0), OLD);
}

// Goes back to a copy from when epoch 2 was registered, but had no record yet: the older log, with
// the epoch's file. Records OLD + 1 to `upto` were served in that epoch meanwhile.
static void go_back_to_before_its_record(struct rig *r, uint64_t upto)
{
    struct image m;
    uint64_t epoch, token;
    rig_start_coordinator(r);
    start(r);
    log_more(r, 1, OLD);
    copy(r, &m);
    restart_coordinator(r); // a new coordinator opens epoch 2
    start(r);
    log_more(r, OLD + 1, upto);
    assert_int_equal(ps_co_epoch(row(r, 0)), 2);
    assert_int_equal(ps_epoch_read(r->s.env, r->s.dir, 0, &epoch, &token), LH_OK);
    assert_int_equal(epoch, 2);
    go_back(r, &m);
    lh_fake_boot(r->s.env);
    assert_int_equal(ps_epoch_write(r->s.env, r->s.dir, 0, epoch, token), LH_OK);
    lh_fake_kill(r->s.env, false);
}

// This also holds if the epoch's own record is its only one.
TEST(an_epoch_that_was_served_is_not_begun_a_second_time)
{
    for (int alone = 0; alone < 2; alone++) {
        struct rig *r = rig_new(1);
        go_back_to_before_its_record(r, alone ? OLD : HEAD);
        start(r);
        assert_int_equal(r->fatal_count, 1);
        assert_false(r->server->phase == PS_SERVING);
        rig_free(r);
    }
}

// The copy's token is the registered one, and the coordinator knows no version above its log's end.
RIG_TEST(an_epoch_that_only_a_file_knows_is_not_begun_again, struct rig *r)
{
    go_back_to_before_its_record(r, HEAD);
    restart_coordinator(r);
    start(r);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r->server, 0)->epoch, 3);
    assert_int_equal(ps_co_epoch(row(r, 0)), 3);
    assert_int_equal(rig_fenced(r, r->server, 0), OLD);
}

// Brings both shards to OLD, then one of them to HEAD, and goes back to the directory from before
// that. Returns the process that served when the copy was made.
static uint64_t grow_one_of_two(struct rig *r, uint32_t grown)
{
    struct image m;
    for (r->shard = 0; r->shard < 2; r->shard++) log_more(r, 1, OLD);
    uint64_t process = r->server->process;
    r->shard = grown;
    copy(r, &m);
    start(r);
    log_more(r, OLD + 1, HEAD);
    go_back(r, &m);
    return process;
}

// One shard alone shows that the directory is an older copy.
RIG_TEST(both_shards_are_old_where_one_is, struct rig *r)
{
    struct rig_life l = {0};
    rig_two_shards(r);
    begin_long(r);
    struct wk_conf conf = follower(r, &l);
    rig_life_start(&l, &conf);
    grow_one_of_two(r, 1);
    start(r);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    for (uint32_t i = 0; i < 2; i++) assert_true(ledger(r->server, i)->epoch > 1);
    assert_int_equal(rig_fenced(r, r->server, 0), OLD);
    assert_int_equal(rig_fenced(r, r->server, 1), HEAD);
    rig_life_end(r, &l, false);
}

// Nobody follows, so the copy's content is all that is left, and it may not be served in an epoch
// that was served already. The copy was made while the process lived that reported last.
RIG_TEST(both_begin_a_new_epoch_where_one_is_old, struct rig *r)
{
    rig_two_shards(r);
    r->rebuild_damaged = true;
    rig_start_coordinator(r);
    start(r);
    uint64_t process = grow_one_of_two(r, 1);
    for (uint32_t i = 0; i < 2; i++) row(r, i)->process = process;
    start(r);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(ledger(r->server, i)->epoch > 1);
        assert_int_equal(rig_fenced(r, r->server, i), OLD);
    }
}

// One shard shows that the directory is an older copy. The process is killed when this shard has
// its new epoch. The next process finds no other sign of it, but the other shard is old all the
// same.
RIG_TEST(the_next_start_knows_that_a_directory_is_older, struct rig *r)
{
    rig_two_shards(r);
    r->rebuild_damaged = true;
    rig_start_coordinator(r);
    start(r);
    uint64_t process = grow_one_of_two(r, 0);
    for (uint32_t i = 0; i < 2; i++) row(r, i)->process = process;
    row(r, 1)->stable = (struct lh_point){1, 1000, {{1}}}; // nobody has that version: shard 1 waits
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (int i = 0; i < 100000 && ps_co_epoch(row(r, 0)) < 2; i++) rig_run(r, LH_MS);
    assert_int_equal(ps_co_epoch(row(r, 0)), 2);
    assert_false(r->server->phase == PS_SERVING);
    rig_kill_server(r, false);
    row(r, 1)->stable = (struct lh_point){0};
    start(r);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    for (uint32_t i = 0; i < 2; i++) assert_true(ledger(r->server, i)->epoch > 1);
}

// ---------------------------------------------------------------- with a standby

// A server and a standby in sync, both at HEAD; *m is a copy of the server's directory at OLD.
static void begin_pair(struct rig *r, struct image *m)
{
    r->replicated = true;
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_ns = 10 * LH_SECOND;
    start(r);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    log_more(r, 1, OLD);
    assert_int_equal(row(r, 0)->standby, r->standby->standby.identity);
    copy(r, m);
    start(r);
    log_more(r, OLD + 1, HEAD);
    assert_int_equal(ledger(r->standby, 0)->version, ledger(r->server, 0)->version);
}

// A server that asks at its start does not count as silent or as needing an epoch: its standby does
// not take over, and no move is given up.
RIG_TEST(a_start_is_no_silence, struct rig *r)
{
    struct image m;
    begin_pair(r, &m);
    image_free(&m);
    rig_kill_server(r, true);
    row(r, 0)->move = (struct lh_move){9, UINT64_C(9) << 32};
    start(r);
    assert_false(row(r, 0)->unwanted);
    row(r, 0)->move = (struct lh_move){0};
    assert_true(r->server->phase == PS_SERVING && r->standby->phase == PS_STANDBY);
    assert_int_equal(row(r, 0)->owner, 0);
    log_more(r, HEAD + 1, HEAD + 1);
}

// The owner is killed, and its standby serves the log up to HEAD.
static void the_standby_takes_over(struct rig *r)
{
    rig_kill_server(r, false);
    rig_run(r, 30 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
    assert_int_equal(rig_fenced(r, r->standby, 0), HEAD);
}

RIG_TEST(a_standby_that_is_ahead_of_its_owner_stops_it, struct rig *r)
{
    struct image m;
    begin_pair(r, &m);
    uint64_t version = ledger(r->standby, 0)->version;
    go_back(r, &m);
    restart_coordinator(r); // only the standby knows
    r->coordinator->conf.take_over_ns = 10 * LH_SECOND;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (int i = 0; i < 30000 && !r->fatal_count; i++) {
        rig_run(r, LH_MS);
        assert_true(ledger(r->standby, 0)->version >= version);
    }
    assert_int_equal(r->fatal_count, 1);
    assert_true(r->server->phase == PS_STOPPED);
    assert_int_equal(rig_fenced(r, r->server, 0), OLD); // it acknowledged nothing
    the_standby_takes_over(r);
}

// The copy ran alone, and has more records than the standby, but other ones: versions alone don't
// show it. Its log still has the standby's last version, or was cut above it.
static void overtakes(struct rig *r, bool cut)
{
    struct image m;
    if (cut) r->segment_bytes = 4096;
    begin_pair(r, &m);
    uint64_t version = ledger(r->standby, 0)->version;
    rig_kill_standby(r, false);
    go_back(r, &m);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (uint64_t v = 2 * HEAD; v < (cut ? 300 : 4 * HEAD); v++) {
        rig_hello(r, 0, v << 32, 0, 1);
        rig_run(r, cut ? 50 * LH_MS : 0);
    }
    assert_true(ledger(r->server, 0)->version > version);
    assert_true(cut == !ps_shard_place(r->server->shard[0], version));
    rig_kill_server(r, false);
    restart_coordinator(r); // only the standby knows
    r->coordinator->conf.take_over_ns = 10 * LH_SECOND;
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(r->fatal_count, 1);
    assert_true(r->server->phase == PS_STOPPED);
    the_standby_takes_over(r);
}

RIG_TEST(a_standby_that_its_owner_overtook_stops_it, struct rig *r)
{
    overtakes(r, false);
}

RIG_TEST(a_standby_stops_an_owner_that_trimmed_its_log, struct rig *r)
{
    overtakes(r, true);
}

// ---------------------------------------------------------------- status

RIG_TEST(the_status_shows_a_rebuilds_losses, struct rig *r)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    struct ps_rebuild b = {.shard = r->server->shard[0], .asked = true};
    b.stable = (struct lh_point){.epoch = 1, .version = 3};
    b.head = (struct lh_point){.epoch = 1, .version = 9};
    const struct lh_point some = {.epoch = 2, .version = 5}, all = {.epoch = 2, .version = 9};
    ps_rebuild_name_lost(&b, &some, 0);
    assert_true(status_has(r, "\"rebuilt\":{\"from\":5,\"lost_to\":9}"));
    ps_rebuild_name_lost(&b, &all, 0);
    assert_true(status_has(r, "\"rebuilt\":{\"from\":9,\"lost_to\":0}"));
    assert_null(r->server->shard[0]->rebuild);
    r->server->shard[0]->rebuild = &b;
    assert_true(status_has(r, "\"rebuilding\":{\"waits_for\":\"followers\",\"stable\":3,"));
    r->server->shard[0]->rebuild = NULL;
}
