// A worker gets units whose files it does not have from a server of their home region, unless they
// can't be sent (worker/units/travel.c, server/coordinator/balance/away.c). The worker is europe's,
// without files; the server is asia's, and gives units. Refused and returned units: away.c.
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "longhaul/v1/data.pb-c.h"
#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/crossed.h"
#include "tests/cores/trip.h"
#include "worker/units/travel_state.h"

TRIP_TEST(units_of_another_region_arrive_and_are_trained, struct trip *t)
{
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    assert_int_equal(t->arrived, TRIP_UNITS / 2);
    assert_true(t->most_kept <= 8); // as bytes_max allows
    rig_run(t->r, 5 * LH_SECOND);
    assert_int_equal(trip_kept_now(t), 0);
    assert_int_equal(trip_told(t, "units"), TRIP_UNITS / 2);
    assert_int_equal(trip_told(t, "bytes"), TRIP_UNITS / 2 * TRIP_BYTES);
    assert_int_equal(trip_told(t, "held_bytes"), 0);
    assert_int_equal(trip_told(t, "returned"), 0);
    assert_int_equal(rig_said(t->r, "units.away"), 1);
    assert_int_equal(rig_said(t->r, "units.closed"), 0);
    // The coordinator knows that they travel, and at which rate.
    const struct ps_co_away *a = ps_co_away_of(&t->r->coordinator->worker[0], 0);
    assert_true(a && !a->closed && a->bytes_per_s.mean > 0);
    assert_true(ps_co_arrival_s(t->r->coordinator, 0, 0) > 0);
    assert_true(ps_co_arrival_s(t->r->coordinator, 1, 0) == 0);
    struct ps_co_carried is = ps_co_carried(t->r->coordinator, 0, "europe");
    assert_true(is.crossed > 0 && is.crossed == (double)trip_told(t, "wire_bytes"));
}

// Units of several data epochs are in the queue together: a unit that arrived serves all of them.
TEST(each_data_epoch_trains_them)
{
    struct trip *t = trip_begin_with(TRIP_UNITS, 3);
    trip_start_worker_with(t, 50, 60);
    trip_run_until_credited(t, 3 * TRIP_UNITS);
    for (uint32_t i = 0; i < TRIP_UNITS; i++) assert_int_equal(t->trained[i], 3 * TRIP_TOKENS);
    assert_true(t->most_kept <= 8);
    rig_run(t->r, 5 * LH_SECOND);
    assert_int_equal(trip_kept_now(t), 0);
    assert_int_equal(trip_told(t, "held_bytes"), 0);
    trip_over(t);
}

TRIP_TEST(units_that_may_not_leave_are_not_asked_for, struct trip *t)
{
    for (uint32_t i = 0; i < TRIP_UNITS; i += 4) t->r->units.unit[i].may_leave = false;
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS * 3 / 4);
    rig_run(t->r, 30 * LH_SECOND);
    for (uint32_t i = 0; i < TRIP_UNITS; i++)
        assert_int_equal(t->trained[i], i % 4 ? TRIP_TOKENS : 0);
    assert_int_equal(t->arrived, TRIP_UNITS / 4);
    assert_int_equal(t->r->server->give.count.refused, 0);
}

TEST(damaged_tokens_do_not_count)
{
    struct trip *t = trip_begin();
    // The giver's own manifest has the hashes of other tokens, so it sends these as correct.
    uint8_t good[sizeof t->tokens];
    struct lh_units its = t->r->units;
    its.unit = calloc(TRIP_UNITS, sizeof *its.unit);
    assert_non_null(its.unit);
    memcpy(good, t->tokens, sizeof good);
    memcpy(its.unit, t->r->units.unit, TRIP_UNITS * sizeof *its.unit);
    for (uint32_t i = 0; i < TRIP_UNITS; i++) t->tokens[i * TRIP_BYTES + 7] ^= 1;
    trip_write_file(t);
    struct rig other = {.units = its};
    trip_hash(&other, t->tokens);
    memcpy(t->tokens, good, sizeof good);
    t->r->server->conf.units = &its;
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS / 2); // its own units
    rig_run(t->r, 30 * LH_SECOND);
    assert_int_equal(t->arrived, 0);
    assert_true(rig_said(t->r, "does not have the sha256") > 0);
    assert_true(rig_said(t->r, "units.closed") > 0);
    trip_write_file(t);
    t->r->server->conf.units = &t->r->units;
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    trip_over(t);
    free(its.unit);
}

TRIP_TEST(a_giver_that_dies_costs_nothing, struct trip *t)
{
    trip_start_worker(t);
    for (int i = 0; i < 600 && t->arrived < 5; i++) rig_run(t->r, 20 * LH_MS);
    t->r->server->conf.log = NULL;
    rig_kill_server(t->r, false);
    rig_run(t->r, 20 * LH_SECOND);
    assert_true(rig_said(t->r, "units.closed") > 0);
    assert_true(trip_told(t, "returned") > 0);
    // Returned units are leased to nobody, and the worker gets none of that home while it is
    // closed.
    const struct ps_coordinator *c = t->r->coordinator;
    uint32_t held = 0;
    for (int i = 0; i < 600 && !ps_co_is_closed(c, 0, 0); i++) rig_run(t->r, 100 * LH_MS);
    assert_true(ps_co_is_closed(c, 0, 0));
    for (uint32_t i = 0; i < TRIP_UNITS; i += 2)
        held += c->lease[i] != CO_FREE && !t->kept[i] && !t->trained[i];
    trip_start_server(t, &t->r->units);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    assert_true(rig_said(t->r, "units.open") > 0);
    assert_int_equal(held, 0);
}

TRIP_TEST(a_worker_that_dies_has_them_sent_again, struct trip *t)
{
    trip_start_worker(t);
    for (int i = 0; i < 600 && (t->arrived < 6 || trip_credited(t) < 3); i++)
        rig_run(t->r, 20 * LH_MS);
    uint32_t before = t->arrived;
    trip_end_worker(t, false);
    rig_boot_worker(t->r, 1);
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS);
    assert_true(t->arrived > before);
    assert_true(t->arrived >= TRIP_UNITS / 2);
}

TRIP_TEST(a_home_without_a_giver_is_closed, struct trip *t)
{
    t->r->server->conf.units_dir = "";
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS / 2);
    rig_run(t->r, 5 * LH_SECOND);
    assert_true(rig_said(t->r, "no server of that region gives units") > 0);
    assert_int_equal(t->arrived, 0);
    assert_int_equal(trip_told(t, "failed"), 0);
    t->r->server->conf.units_dir = "units";
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
}

// The little space goes to units that are trained next: units far behind would never free it.
TEST(a_long_queue_gets_on_in_little_room)
{
    struct trip *t = trip_begin_with(TRIP_MANY, 1);
    trip_start_worker_with(t, 20, 160);
    trip_run_until_credited(t, TRIP_MANY);
    trip_check_trained_once(t);
    assert_true(t->most_kept <= 8);
    trip_over(t);
}

// Time in which a unit crosses the link; units cross one after the other.
static int64_t unit_ns = LH_SECOND;

static int64_t slow_pace(void *arg, const char *from, const char *to, enum lh_rpc rpc, size_t head,
                         size_t bulk)
{
    (void)from, (void)to, (void)head;
    struct trip *t = arg;
    if (rpc != LH_RPC_UNIT || !bulk) return 0;
    int64_t now = lh_now(t->r->s.env);
    if (t->free_ns < now) t->free_ns = now;
    t->free_ns += unit_ns;
    return t->free_ns - now;
}

TRIP_TEST(a_slow_link_is_not_asked_for_more_than_it_carries, struct trip *t)
{
    lh_fabric_pace(t->r->fabric, slow_pace, t);
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS / 2);
    struct wk_travel_home *home = &t->l.worker->travel->home[0];
    home->slow = true; // until it sends a unit
    trip_run_until_credited(t, TRIP_UNITS);
    assert_false(home->slow);
    assert_in_range((uint64_t)home->bytes_per_s.mean, 4 * TRIP_BYTES / 5, 5 * TRIP_BYTES / 4);
    trip_check_trained_once(t);
    assert_int_equal(trip_told(t, "failed"), 0);
    assert_int_equal(rig_said(t->r, "units.closed"), 0);
}

// A link that always has calls under way still gets a correct rate.
TEST(a_link_with_calls_at_any_time_has_its_rate)
{
    struct trip *t = trip_begin_with(TRIP_MANY, 1);
    unit_ns = 100 * LH_MS;
    lh_fabric_pace(t->r->fabric, slow_pace, t);
    trip_start_worker_with(t, 20, 160);
    trip_run_until_credited(t, TRIP_MANY);
    const struct wk_travel_home *home = &t->l.worker->travel->home[0];
    assert_in_range((uint64_t)home->bytes_per_s.mean, 8 * TRIP_BYTES, 12 * TRIP_BYTES);
    unit_ns = LH_SECOND;
    trip_over(t);
}

// The coordinator ignores closed homes, and leases the same units again and again.
TRIP_TEST(units_leased_again_go_back_with_the_next_request, struct trip *t)
{
    t->r->coordinator->stock.home[0] = "heard by nobody";
    t->r->server->conf.units_dir = "";
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS / 2);
    json_int_t before = trip_told(t, "returned");
    assert_true(before > 0);
    rig_run(t->r, 10 * LH_SECOND);
    assert_in_range(trip_told(t, "returned") - before, 1, 25 * TRIP_UNITS / 2); // twice a second
    t->r->server->conf.units_dir = "units";
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
}

// Others use all of the giver's calls; only now and then one is free.
TRIP_TEST(a_giver_that_is_busy_with_others_is_waited_for, struct trip *t)
{
    struct ps_server *s = t->r->server;
    s->give.calls += PS_GIVES_MAX;
    t->arrived = 0;
    trip_start_worker(t);
    for (int i = 0; i < 400 && trip_credited(t) < TRIP_UNITS; i++) {
        uint32_t before = t->arrived;
        rig_run(t->r, 3 * LH_SECOND);
        s->give.calls--;
        for (int k = 0; k < 50 && t->arrived == before; k++) rig_run(t->r, 20 * LH_MS);
        s->give.calls++;
    }
    assert_int_equal(trip_credited(t), TRIP_UNITS);
    trip_check_trained_once(t);
    assert_int_equal(rig_said(t->r, "units.closed"), 0);
    assert_true(rig_said(t->r, "units are being sent") > 0);
    s->give.calls -= PS_GIVES_MAX;
}

TEST(units_from_the_cache_take_no_more_memory)
{
    struct trip *t = trip_begin_with(TRIP_MANY, 1);
    t->cached = true;
    trip_start_worker_with(t, 20, 160);
    trip_run_until_credited(t, TRIP_MANY);
    trip_check_trained_once(t);
    assert_int_equal(t->arrived, 0);
    assert_int_equal(t->most_kept, 8);
    rig_run(t->r, 5 * LH_SECOND);
    assert_int_equal(trip_kept_now(t), 0);
    trip_over(t);
}

// In the queue, units of the second data epoch that are here stand behind those on their way.
TEST(units_on_their_way_keep_no_others_waiting)
{
    struct trip *t = trip_begin_with(TRIP_MANY, 2);
    lh_fabric_pace(t->r->fabric, slow_pace, t);
    trip_start_worker_with(t, 20, 160);
    uint32_t waiting = TRIP_MANY;
    for (int i = 0; i < 100 && waiting; i++) {
        rig_run(t->r, LH_SECOND);
        waiting = 0;
        for (uint32_t u = 1; u < TRIP_MANY; u += 2) waiting += t->trained[u] < 2 * TRIP_TOKENS;
    }
    assert_int_equal(waiting, 0);
    assert_true(t->arrived < TRIP_MANY / 2 - LH_WINDOW_MAX);
    trip_over(t);
}

// Even with enough space for all: a step looks no further ahead.
TEST(units_far_behind_in_the_queue_are_not_looked_up)
{
    struct trip *t = trip_begin_with(TRIP_MANY, 1);
    t->cached = true;
    t->travel.bytes_max = TRIP_MANY * TRIP_BYTES;
    trip_start_worker_with(t, 20, TRIP_MANY);
    uint32_t behind = 0, looked_up = 0; // counts units of asia
    for (int i = 0; i < 6000 && !(behind && looked_up); i++) {
        rig_run(t->r, 10 * LH_MS);
        const struct wk_worker *w = t->l.worker;
        for (uint32_t k = 0; k < w->queued; k++) {
            if (w->queue[k].unit % 2) continue;
            behind += k >= LH_WINDOW_MAX;
            looked_up += w->queue[k].arrival != 0;
            assert_true(k < LH_WINDOW_MAX || !w->queue[k].arrival);
        }
    }
    assert_true(behind > 0 && looked_up > 0);
    trip_over(t);
}

static json_int_t givers_of(const struct trip *t)
{
    json_t *is = wk_travel_status(t->l.worker);
    json_t *home = json_array_get(json_object_get(is, "away"), 0);
    json_int_t n = json_integer_value(json_object_get(home, "givers"));
    json_decref(is);
    return n;
}

TRIP_TEST(a_coordinator_that_has_just_started_takes_no_giver_away, struct trip *t)
{
    trip_start_worker(t);
    for (int i = 0; i < 600 && t->arrived < 5; i++) rig_run(t->r, 20 * LH_MS);
    assert_int_equal(givers_of(t), 1);
    struct ps_coordinator *c = t->r->coordinator;
    int64_t seen = c->worker[0].seen_ns;
    for (int i = 0; i < 400 && c->worker[0].seen_ns == seen; i++) {
        c->givers = 0; // as if the server had not reported yet
        rig_run(t->r, 5 * LH_MS);
    }
    rig_run(t->r, 20 * LH_MS);
    assert_int_equal(givers_of(t), 1);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    assert_int_equal(trip_told(t, "failed"), 0);
    assert_int_equal(rig_said(t->r, "units.closed"), 0);
}

// A giver by hand: it sends the head of a unit, one byte, and then only empty messages; or one byte
// each; or nothing.
struct empty {
    struct lh_service service;
    struct lh_env *env;
    bool silent, drips;
    struct lh_call *call;
    uint64_t timer;
    uint32_t asked, sent;
};

static void send_next(void *arg)
{
    struct empty *e = arg;
    Longhaul__V1__UnitHead head = LONGHAUL__V1__UNIT_HEAD__INIT;
    struct lh_blob *b = e->drips ? lh_blob_new(1) : NULL;
    e->timer = 0;
    e->sent += e->drips;
    if (e->call && !pb_send_bulk(e->call, &head.base, b, 0, e->drips))
        e->timer = lh_after(e->env, 500 * LH_MS, send_next, e);
    lh_blob_release(b);
}

static void empty_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)msg;
    struct empty *e = self;
    Longhaul__V1__UnitHead head = LONGHAUL__V1__UNIT_HEAD__INIT;
    if (e->silent) return;
    struct lh_blob *b = lh_blob_new(1);
    assert_non_null(b);
    head.bytes = head.sent_bytes = TRIP_BYTES;
    assert_int_equal(pb_send_bulk(call, &head.base, b, 0, 1), LH_OK);
    lh_blob_release(b);
    send_next(e);
}

static void empty_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call, (void)status, (void)text;
    struct empty *e = self;
    lh_cancel(e->env, &e->timer);
    e->call = NULL;
}

static lh_err empty_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                         const struct lh_peer *peer, const struct lh_call_ops **ops, void **to)
{
    static const struct lh_call_ops its = {empty_message, rig_on_nothing, rig_on_nothing,
                                           empty_close};
    (void)peer;
    struct empty *e = self;
    if (rpc != LH_RPC_UNIT || e->call) return lh_fail(LH_ERR_BUSY, "one at a time");
    e->call = call;
    e->asked++;
    *ops = &its;
    *to = e;
    lh_call_read(call);
    return LH_OK;
}

// Gives its address.
static void empty_listen(struct trip *t, struct empty *e, char bound[LH_ADDRESS_BYTES])
{
    struct rig_node *n = &t->r->t;
    e->env = n->env;
    e->service = (struct lh_service){e, empty_call};
    assert_int_equal(
        n->transport->ops->listen(n->transport, n->address, &e->service, bound, LH_ADDRESS_BYTES),
        LH_OK);
}

// The coordinator names it before the one that gives units.
static void name_first(struct trip *t, uint64_t server, const char *address)
{
    struct ps_coordinator *c = t->r->coordinator;
    memmove(c->giver + 1, c->giver, c->givers++ * sizeof *c->giver);
    c->giver[0] =
        (struct ps_co_giver){.server = server, .region = "asia", .heard_ns = INT64_MAX / 2};
    snprintf(c->giver[0].address, sizeof c->giver[0].address, "%s", address);
}

static void holds_up_one_unit(struct empty *e)
{
    struct trip *t = trip_begin();
    char bound[LH_ADDRESS_BYTES];
    empty_listen(t, e, bound);
    rig_run(t->r, 2 * LH_SECOND);
    assert_int_equal(t->r->coordinator->givers, 1);
    name_first(t, 1, bound);
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    assert_in_range(e->asked, 1, 2);
    trip_over(t);
}

TEST(a_giver_that_sends_nothing_does_not_hold_up_each_unit)
{
    struct empty e = {.silent = true};
    holds_up_one_unit(&e);
}

TEST(a_giver_that_sends_single_bytes_does_not_hold_up_a_unit)
{
    struct empty e = {.drips = true};
    holds_up_one_unit(&e);
    assert_in_range(e.sent, 1, TRIP_BYTES / 2);
}

TRIP_TEST(givers_that_are_away_keep_no_other_one_unasked, struct trip *t)
{
    rig_run(t->r, 2 * LH_SECOND);
    for (uint64_t i = 1; i <= 6; i++) {
        char address[LH_ADDRESS_BYTES];
        snprintf(address, sizeof address, "away%u:1", (unsigned)i);
        name_first(t, i, address);
    }
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
}

TRIP_TEST(a_stream_of_nothing_comes_to_an_end, struct trip *t)
{
    struct empty e = {.silent = false};
    char bound[LH_ADDRESS_BYTES];
    empty_listen(t, &e, bound);
    t->r->server->conf.units_dir = "";
    rig_run(t->r, 2 * LH_SECOND);
    struct ps_coordinator *c = t->r->coordinator;
    assert_int_equal(c->givers, 0);
    c->giver[c->givers++] = (struct ps_co_giver){.server = 1, .region = "asia"};
    snprintf(c->giver[0].address, sizeof c->giver[0].address, "%s", bound);
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS / 2);
    rig_run(t->r, 20 * LH_SECOND);
    assert_true(e.asked > 2); // its calls end, and others are made
    assert_true(rig_said(t->r, "without tokens") > 0);
    assert_true(rig_said(t->r, "units.closed") > 0);
    assert_int_equal(t->arrived, 0);
    // One byte of each ended call crossed the link, and counts against its cap, though no unit
    // came.
    uint64_t crossed = t->l.worker->travel->home[0].arrived_bytes;
    assert_int_equal(crossed, e.asked - (e.call != NULL));
}

TRIP_TEST(a_server_that_gives_no_more_is_forgotten, struct trip *t)
{
    rig_run(t->r, 2 * LH_SECOND);
    assert_int_equal(t->r->coordinator->givers, 1);
    assert_string_equal(t->r->coordinator->giver[0].region, "asia");
    t->r->server->conf.units_dir = "";
    rig_run(t->r, 2 * LH_SECOND);
    assert_int_equal(t->r->coordinator->givers, 0);
}
