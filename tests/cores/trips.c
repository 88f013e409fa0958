// Long paths: the time for which a peer may be silent, and the deadlines of its calls, follow from
// the round trip that it reports (common/net/trip.h). No peer is given up before the limit that the
// status shows, and none can raise its limit without end.
#include <jansson.h>
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/silence.h"
#include "tests/cores/rig.h"

enum { MS = 1000 }; // a millisecond in microseconds

static const int64_t TIMEOUT = 15 * LH_SECOND, TIMEOUT_MAX = 120 * LH_SECOND;

static void begin(struct rig *r)
{
    rig_start_coordinator(r);
    r->coordinator->conf.worker_timeout_ns = TIMEOUT;
    r->coordinator->conf.worker_timeout_max_ns = TIMEOUT_MAX;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    rig_run(r, 2 * LH_SECOND);
}

// Worker 0 reports this round trip; 0 and 0: none, as older workers do.
static void speak(struct rig *r, uint32_t mean_us, uint32_t spread_us)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    Longhaul__V1__Trip trip = LONGHAUL__V1__TRIP__INIT;
    trip.mean_us = mean_us;
    trip.spread_us = spread_us;
    m.incarnation = UINT64_C(1) << 32;
    m.want = 2;
    if (mean_us || spread_us) m.trip = &trip;
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_LEASE, &m.base), LH_OK);
}

static unsigned held(const struct rig *r)
{
    unsigned n = 0;
    for (uint64_t u = 0; u < r->coordinator->conf.units->count; u++)
        n += r->coordinator->lease[u] == 1;
    return n;
}

static double printed(struct rig *r, const char *list, const char *key)
{
    struct lh_buf out = lh_buf(1 << 20);
    assert_int_equal(ps_coordinator_status(r->coordinator, &out), LH_OK);
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    const json_t *row = json_array_get(json_object_get(all, list), 0);
    double value = json_number_value(json_object_get(row, key));
    json_decref(all);
    lh_buf_free(&out);
    return value;
}

// Checks that worker 0 keeps its leases exactly as long as the status says.
static void assert_given_up_at(struct rig *r, int64_t bound)
{
    assert_true(printed(r, "workers", "bound_s") == (double)bound / LH_SECOND);
    rig_run(r, bound - LH_SECOND);
    assert_int_equal(held(r), 2);
    assert_true(r->coordinator->worker[0].live);
    assert_true(printed(r, "workers", "silent_s") < printed(r, "workers", "bound_s"));
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(held(r), 0);
    assert_false(r->coordinator->worker[0].live);
    assert_true(printed(r, "workers", "silent_s") >= printed(r, "workers", "bound_s"));
}

RIG_TEST(a_worker_far_away_is_given_up_as_much_later, struct rig *r)
{
    begin(r);
    speak(r, 2000 * MS, 250 * MS);
    assert_given_up_at(r, TIMEOUT + 8 * 3 * LH_SECOND); // RTO: 2 s and four times 0.25 s
}

RIG_TEST(one_that_says_nothing_of_its_path_has_the_setting_alone, struct rig *r)
{
    begin(r);
    speak(r, 2000 * MS, 250 * MS);
    speak(r, 0, 0); // as an older process does
    assert_given_up_at(r, TIMEOUT);
}

RIG_TEST(a_trip_that_was_made_up_gains_the_maximum_and_no_more, struct rig *r)
{
    begin(r);
    speak(r, UINT32_MAX, UINT32_MAX);
    assert_given_up_at(r, TIMEOUT_MAX);
    speak(r, 0, UINT32_MAX); // without a mean there is no path
    assert_given_up_at(r, TIMEOUT);
}

// Worker 0 joins under an earlier number, and reports this round trip.
static lh_err join_late(struct rig *r, uint64_t incarnation, bool fresh, Longhaul__V1__Trip *trip)
{
    Longhaul__V1__JoinRequest m;
    Longhaul__V1__Wire wire;
    rig_join_request(r, 13, &wire, &m);
    m.fresh = fresh;
    m.incarnation = incarnation;
    m.over = 1; // replaces number 0, which was replaced already
    m.trip = trip;
    return rig_say(r, r->to_c[0], LH_RPC_JOIN, &m.base);
}

RIG_TEST(a_join_that_was_replaced_says_nothing_of_the_path, struct rig *r)
{
    begin(r);
    assert_int_equal(rig_join(r, 0, 12, 1).granted, 2);
    struct lh_trip before = r->coordinator->worker[0].trip;
    Longhaul__V1__Trip trip = LONGHAUL__V1__TRIP__INIT;
    trip.mean_us = 2000 * MS;
    (void)join_late(r, 0, true, &trip);
    assert_memory_equal(&r->coordinator->worker[0].trip, &before, sizeof before);
    assert_int_equal(join_late(r, UINT64_C(1) << 32, false, &trip), LH_ERR_FENCED);
    assert_memory_equal(&r->coordinator->worker[0].trip, &before, sizeof before);
}

// The coordinator restarts, and the worker needs several round trips to connect again.
RIG_TEST(a_start_knows_the_paths_of_before, struct rig *r)
{
    begin(r);
    speak(r, 2000 * MS, 250 * MS);
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    r->coordinator->conf.worker_timeout_ns = TIMEOUT;
    r->coordinator->conf.worker_timeout_max_ns = TIMEOUT_MAX;
    assert_given_up_at(r, TIMEOUT + 24 * LH_SECOND);
}

// A small change of the round trip is not stored.
RIG_TEST(a_trip_that_wavers_costs_no_commit, struct rig *r)
{
    begin(r);
    speak(r, 2000 * MS, 250 * MS);
    rig_settle(r);
    struct lh_trip stored = r->coordinator->worker[0].stored_trip;
    for (uint32_t i = 0; i < 20; i++) {
        speak(r, (1900 + 10 * i) * MS, 250 * MS);
        assert_memory_equal(&r->coordinator->worker[0].stored_trip, &stored, sizeof stored);
    }
    speak(r, 20 * MS, MS);
    assert_int_equal(r->coordinator->worker[0].stored_trip.mean_ns, 20 * LH_MS);
}

// ---------------------------------------------------------------- a worker's core

struct far {
    int64_t delay_ns; // a message's delay: half a round trip
    bool cut;
};

static bool far_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                     struct lh_fate *fate)
{
    const struct far *far = arg;
    (void)from;
    (void)to;
    (void)rpc;
    fate->delay_ns = far->delay_ns;
    return !far->cut;
}

// Worker 1's core joins over this path, with a deadline of 3 s, which a long path raises.
static struct wk_conf core_conf(struct rig *r, struct rig_life *l, struct far *far)
{
    rig_start_coordinator(r);
    r->coordinator->conf.worker_timeout_ns = TIMEOUT;
    r->coordinator->conf.worker_timeout_max_ns = TIMEOUT_MAX;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    lh_fabric_fates(r->fabric, far_fate, far);
    struct wk_conf conf = rig_life_conf(r, l, 50);
    conf.deadline_ns = 3 * LH_SECOND;
    conf.deadline_max_ns = 60 * LH_SECOND;
    return conf;
}

RIG_TEST(a_region_at_two_seconds_keeps_its_leases_through_a_cut, struct rig *r)
{
    struct rig_life l = {0};
    struct far far = {.delay_ns = LH_SECOND};
    struct wk_conf conf = core_conf(r, &l, &far);
    rig_life_start(&l, &conf);
    rig_run(r, 40 * LH_SECOND);
    const struct ps_co_worker *w = &r->coordinator->worker[0];
    assert_int_equal(r->coordinator->workers, 1);
    assert_in_range(w->trip.mean_ns, 1990 * LH_MS, 2010 * LH_MS);
    unsigned before = held(r);
    assert_true(before > 0);
    far.cut = true;
    rig_run(r, 18 * LH_SECOND); // a cut of 8 s, and time to connect again
    assert_true(r->coordinator->listener.ns - w->seen_ns > TIMEOUT);
    assert_true(w->live);
    assert_true(held(r) >= 1);
    far.cut = false;
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->coordinator->listener.ns - w->seen_ns < 5 * LH_SECOND);
    rig_life_end(r, &l, false);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

RIG_TEST(calls_have_the_time_that_their_path_takes, struct rig *r)
{
    struct rig_life l = {0};
    struct far far = {.delay_ns = 1700 * LH_MS}; // a round trip of 3.4 s; the deadline is 3 s
    struct wk_conf conf = core_conf(r, &l, &far);
    rig_life_start(&l, &conf);
    rig_run(r, 60 * LH_SECOND);
    assert_true(l.worker->joined);
    assert_true(l.worker->count.tokens > 0);
    assert_int_equal(l.worker->member_tries, 0);
    rig_life_end(r, &l, false);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// ---------------------------------------------------------------- servers

static void begin_in_sync(struct rig *r, struct far *far)
{
    r->replicated = true;
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_max_ns = 30 * LH_SECOND;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    rig_hello(r, 0, UINT64_C(1) << 32, 0, 1);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
    r->server->conf.deadline_max_ns = r->standby->conf.deadline_max_ns = 60 * LH_SECOND;
    r->server->conf.wait_max_ns = 30 * LH_SECOND;
    lh_fabric_fates(r->fabric, far_fate, far);
    rig_run(r, 60 * LH_SECOND);
}

RIG_TEST(a_server_far_away_is_replaced_as_much_later, struct rig *r)
{
    struct far far = {.delay_ns = 600 * LH_MS};
    begin_in_sync(r, &far);
    const struct ps_co_shard *s = &r->coordinator->shard[0];
    assert_int_equal(s->owner, 0);
    int64_t bound = ps_co_owner_bound(r->coordinator, s);
    assert_in_range(bound, 1500 * LH_MS + 8 * 1200 * LH_MS, 30 * LH_SECOND);
    assert_true(printed(r, "servers", "bound_s") == (double)bound / LH_SECOND);
    rig_kill_server(r, false);
    rig_run(r, bound - 2500 * LH_MS);
    assert_int_equal(s->owner, 0);
    rig_run(r, 8 * LH_SECOND);
    assert_int_equal(s->owner, r->standby->standby.identity);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// Owner and coordinator are killed together: the restarted coordinator gives a distant owner its
// time.
RIG_TEST(a_start_knows_the_path_of_an_owner, struct rig *r)
{
    struct far far = {.delay_ns = 600 * LH_MS};
    begin_in_sync(r, &far);
    int64_t bound = ps_co_owner_bound(r->coordinator, &r->coordinator->shard[0]);
    assert_true(bound > 5 * LH_SECOND);
    rig_settle(r);
    rig_kill_server(r, false);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_max_ns = 30 * LH_SECOND;
    const struct ps_co_shard *s = &r->coordinator->shard[0];
    assert_true(ps_co_owner_bound(r->coordinator, s) > bound / 2); // small changes are not stored
    rig_run(r, bound - 2500 * LH_MS);
    assert_int_equal(s->owner, 0);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// The standby confirms 1.1 s later, which is longer than wait_ns. The first confirms measure the
// path.
RIG_TEST(a_standby_far_away_stays_in_sync, struct rig *r)
{
    struct far far = {.delay_ns = 1100 * LH_MS};
    begin_in_sync(r, &far);
    for (uint64_t i = 2; i <= 4; i++) {
        rig_greet(r, 0, i << 32, 0, 1);
        rig_run(r, 20 * LH_SECOND);
    }
    for (uint64_t i = 5; i <= 7; i++) {
        rig_greet(r, 0, i << 32, 0, 1);
        for (int k = 0; k < 100; k++) {
            rig_run(r, 100 * LH_MS);
            assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
        }
        assert_null(r->server->shard[0]->insync.waiting); // it was answered
    }
    assert_int_equal(r->server->shard[0]->replica.ledger.row[0].incarnation.number >> 32, 7);
    lh_fabric_fates(r->fabric, NULL, NULL);
}
