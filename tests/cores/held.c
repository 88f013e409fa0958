// A standby that is in sync for one shard of its server and not for the other takes none over:
// their owner, which can't go on with its log, fetches from it what that one alone holds (PROTOCOL
// 21).
#include <stdio.h>

#include "tests/cores/rig.h"

enum { ACKNOWLEDGED = 9 };

static int two_shards(void **state)
{
    struct rig *r = rig_new(1);
    *state = r;
    rig_two_shards(r);
    r->replicated = true;
    return 0;
}

static struct ps_co_shard *row(struct rig *r, uint32_t shard)
{
    return &r->coordinator->shard[shard];
}

// The last incarnation of worker 0 that the server's log has fenced in.
static uint64_t fenced(struct rig *r, uint32_t shard)
{
    const struct lh_ledger *l = &r->server->shard[shard]->replica.ledger;
    const struct lh_row *last = lh_ledger_row(l, lh_worker_id(&r->w[0].self));
    return last ? last->incarnation.number >> 32 : 0;
}

static void start(struct rig *r)
{
    assert_int_equal(rig_start_server(r, false), LH_OK);
    r->server->conf.mark_ns = 600 * LH_SECOND; // nothing says that the last group was durable
}

static void begin_in_sync(struct rig *r)
{
    rig_start_coordinator(r);
    start(r);
    rig_run(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    for (uint64_t i = 1; i <= ACKNOWLEDGED; i++)
        for (r->shard = RIG_SHARDS; r->shard--;) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_equal(row(r, k)->standby, r->standby->standby.identity);
}

// The owner is down, without the last record of its log. Of shard 1 its standby is not in sync.
static void part(struct rig *r)
{
    rig_kill_server(r, false);
    rig_damage_tail(r);
    row(r, 1)->standby = 0;
    row(r, 1)->changes++;
    assert_int_equal(ps_co_store_insync(r->coordinator, 1), LH_OK);
    rig_settle(r);
}

// The record that is lost was acknowledged, of shard 0, and the standby has it.
static void begin_apart(struct rig *r)
{
    begin_in_sync(r);
    part(r);
}

static void assert_gone_on(struct rig *r, uint64_t epoch)
{
    rig_run(r, 20 * LH_SECOND);
    assert_true(r->server->serving);
    assert_int_equal(r->fatals, 0);
    assert_int_equal(fenced(r, 0), ACKNOWLEDGED);
    assert_in_range(fenced(r, 1), ACKNOWLEDGED - 1, ACKNOWLEDGED);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_equal(row(r, k)->owner, 0);
        assert_int_equal(row(r, k)->standby, r->standby->standby.identity); // again, or still
        r->shard = k;
        rig_hello(r, 0, (uint64_t)(ACKNOWLEDGED + 1) << 32, 0, 1);
    }
    assert_int_equal(r->server->shard[0]->replica.ledger.epoch, epoch);
}

static void the_owner_goes_on_with_what_its_standby_holds(void **state)
{
    struct rig *r = *state;
    begin_apart(r);
    start(r);
    assert_true(r->server->torn);
    assert_gone_on(r, 2);
}

// Between the epoch and its installation the standby's disk alone has that record: it is not struck
// out before.
static void so_it_does_when_it_dies_before_it_serves(void **state)
{
    struct rig *r = *state;
    begin_apart(r);
    start(r);
    for (int i = 0; i < 20000 && ps_co_epoch(row(r, 0)) < 2; i++) rig_run(r, LH_MS / 10);
    assert_int_equal(ps_co_epoch(row(r, 0)), 2);
    assert_false(r->server->serving);
    rig_kill_server(r, false);
    rig_settle(r);
    assert_int_equal(row(r, 0)->standby, r->standby->standby.identity);
    start(r);
    assert_gone_on(r, 3);
}

// What the owner has beyond that state was acknowledged to nobody, and is lost without need.
static void a_log_that_goes_on_from_that_state_stays(void **state)
{
    struct rig *r = *state;
    begin_in_sync(r);
    rig_kill_standby(r, false);
    for (uint64_t i = 1; i <= 2; i++) {
        r->shard = 0;
        rig_greet(r, 0, (ACKNOWLEDGED + i) << 32, 0, 1);
        rig_run(r, 10 * LH_MS);
    }
    assert_int_equal(fenced(r, 0), ACKNOWLEDGED + 2);
    part(r);
    assert_int_equal(rig_start_standby(r), LH_OK);
    start(r);
    rig_run(r, 20 * LH_SECOND);
    assert_true(r->server->serving);
    assert_int_equal(fenced(r, 0), ACKNOWLEDGED + 1);
    assert_int_equal(r->server->shard[0]->replica.ledger.epoch, 2);
}

// A standby that may lack what it confirmed does not say so by giving the rest.
static void nothing_is_fetched_from_a_directory_of_another_name(void **state)
{
    struct rig *r = *state;
    begin_apart(r);
    row(r, 0)->standby ^= 1; // of the same server, before it lost that one
    start(r);
    for (int i = 0; i < 10; i++) {
        rig_run(r, LH_SECOND);
        row(r, 0)->held_by = row(r, 0)->standby;
        snprintf(row(r, 0)->held_at, sizeof row(r, 0)->held_at, "%s", r->standby->address);
    }
    assert_false(r->server->serving);
    assert_int_equal(ps_co_epoch(row(r, 0)), 1);
    assert_int_equal(r->fatals, 0);
}

int main(void)
{
#define HELD(f) cmocka_unit_test_setup_teardown(f, two_shards, rig_tear_down)
    const struct CMUnitTest tests[] = {
        HELD(the_owner_goes_on_with_what_its_standby_holds),
        HELD(so_it_does_when_it_dies_before_it_serves),
        HELD(a_log_that_goes_on_from_that_state_stays),
        HELD(nothing_is_fetched_from_a_directory_of_another_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
