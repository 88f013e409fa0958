// Workers that are heard and make no progress: their trainer makes no step, or none of their pushes
// is admitted (server/docs/0000-protocol.md#rule-30). Others train the units that they hold, and
// the run's end waits for them no longer than a drain's limit.
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/measure.h"
#include "server/coordinator/cadence.h"
#include "server/coordinator/drain.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/states.h"
#include "tests/cores/stalling.h"
#include "tests/cores/words.h"
#include "worker/push/idle.h"
#include "worker/worker.h"

enum { UNITS = 40 };

// From here on the worker holds all units that it heard, and has begun the first `n`.
static void begins(struct words *s, const struct heard *h, size_t n)
{
    memcpy(s->holding, h->unit, h->units * sizeof *h->unit);
    s->holds = h->units;
    memcpy(s->begun, h->unit, n * sizeof *h->unit);
    s->begins = n;
}

// Bit u is set if the coordinator has leased unit u to this worker.
static uint64_t held_by(const struct rig *r, uint32_t w)
{
    const struct ps_coordinator *c = r->coordinator;
    uint64_t out = 0;
    for (uint64_t u = 0; u < c->units; u++)
        if (c->lease[u] != CO_FREE && c->worker[c->lease[u] - 1].id == worker_of(r, w)->id)
            out |= UINT64_C(1) << u;
    return out;
}

static uint64_t seconds_of(const struct rig *r, uint32_t w)
{
    const struct ps_coordinator *c = r->coordinator;
    uint64_t out = 0;
    for (uint64_t u = 0; u < c->units; u++) {
        uint32_t second = ps_co_second(c, u);
        if (second && c->worker[second - 1].id == worker_of(r, w)->id) out |= UINT64_C(1) << u;
    }
    return out;
}

TEST(others_train_what_a_hung_trainer_holds)
{
    struct rig *r = stalling(UNITS);
    struct words hung = TRAINS, moves = TRAINS;
    struct heard h = say(r, 0, &hung);
    assert_true(h.units > 4);
    begins(&hung, &h, 2);
    hung.claimed[0] = hung.begun[--hung.begins];
    hung.claims = 1;
    say(r, 1, &moves);
    say(r, 0, &hung);
    uint64_t kept = UINT64_C(1) << hung.begun[0] | UINT64_C(1) << hung.claimed[0];
    assert_true(is_counted(r, 0));
    hung.idle_ms = FLOOR_S * 1000;
    say(r, 0, &hung);
    assert_false(is_stalled(r, 0));
    hung.idle_ms++;
    struct heard told = say(r, 0, &hung);
    assert_true(is_stalled(r, 0) && !is_stalled(r, 1));
    assert_int_equal(ps_co_worker_state(r->coordinator, worker_of(r, 0)), PS_CO_STALLED);
    assert_int_equal(told.units, 1); // only the unit that it has begun
    assert_int_equal(told.recalls, h.units - 2);
    assert_int_equal(held_by(r, 0), kept);
    assert_true(!is_counted(r, 0) && is_counted(r, 1));

    moves.units_per_s = 1000;                  // asks until it has all units
    do {                                       // trains each unit at once
        assert_int_equal(seconds_of(r, 1), 0); // there still are other units
        h = say(r, 1, &moves);
        for (size_t i = 0; i < h.units && !seconds_of(r, 1); i++)
            moves.claimed[moves.claims++] = h.unit[i];
    } while (!seconds_of(r, 1));
    assert_int_equal(held_by(r, 1), (UINT64_C(1) << UNITS) - 1 - kept);
    assert_int_equal(h.units, 2); // the begun unit and the claimed one
    assert_int_equal(seconds_of(r, 1), kept);

    hung.idle_ms = 0;
    hung.holds = hung.begins; // the rest is given back
    told = say(r, 0, &hung);
    assert_false(is_stalled(r, 0));
    assert_true(is_counted(r, 0));
    assert_int_equal(held_by(r, 0), kept); // both train them: the first claim credits
    assert_int_equal(seconds_of(r, 1), kept);
    rig_free(r);
}

TEST(a_failing_loop_is_treated_as_a_stalled_one)
{
    struct rig *r = stalling(UNITS);
    struct words fails = TRAINS, moves = TRAINS;
    struct heard h = say(r, 0, &fails);
    begins(&fails, &h, 1);
    say(r, 1, &moves);
    fails.failing = true;
    struct heard told = say(r, 0, &fails);
    assert_true(is_stalled(r, 0) && !is_stalled(r, 1));
    assert_int_equal(worker_of(r, 0)->stall.why, PS_CO_FAILING);
    assert_int_equal(told.units, 1); // only the unit that it has begun
    assert_true(!is_counted(r, 0) && is_counted(r, 1));
    fails.failing = false; // a cut was taken
    say(r, 0, &fails);
    assert_false(is_stalled(r, 0));
    assert_true(is_counted(r, 0));
    rig_free(r);
}

// Each plan is in every shard's log, and an operator's hook is told each change of a worker's
// state.
TEST(a_word_that_changes_with_each_request_changes_the_plan_seldom)
{
    struct rig *r = stalling(UNITS);
    struct words flaps = TRAINS, moves = TRAINS;
    say(r, 0, &flaps);
    say(r, 1, &moves);
    uint64_t plan = r->coordinator->plan.number;
    for (int i = 0; i < 400; i++) {
        flaps.failing = i % 4 == 1;
        flaps.idle_ms = i % 4 == 3 ? (FLOOR_S + 1) * 1000 : 0;
        say(r, 0, &flaps);
        rig_run(r, 50 * LH_MS);
    }
    assert_in_range(r->coordinator->plan.number, plan + 1, plan + 30);
    assert_true(is_counted(r, 1));
    flaps.failing = false;
    flaps.idle_ms = 0;
    for (int i = 0; i < 80 && is_stalled(r, 0); i++) {
        say(r, 0, &flaps);
        say(r, 1, &moves);
        rig_run(r, LH_SECOND);
    }
    assert_false(is_stalled(r, 0)); // its reports count again once they agree
    assert_true(is_counted(r, 0));
    rig_free(r);
}

TEST(a_stalled_worker_loses_its_second_leases)
{
    struct rig *r = stalling(2);
    struct words a = TRAINS, b = TRAINS;
    a.want = 2;
    struct heard h = say(r, 0, &a);
    assert_int_equal(h.units, 2);
    begins(&a, &h, 2);
    a.idle_ms = (FLOOR_S + 1) * 1000;
    say(r, 0, &a);
    h = say(r, 1, &b);
    assert_int_equal(h.units, 2);
    assert_int_equal(seconds_of(r, 1), 3);
    begins(&b, &h, 2);
    b.idle_ms = a.idle_ms;
    a.idle_ms = 0;
    say(r, 0, &a);
    say(r, 1, &b);
    assert_int_equal(seconds_of(r, 1), 0);
    assert_int_equal(held_by(r, 0), 3);
    rig_free(r);
}

// Returns whether the worker counts as stalled after so many seconds without a step.
static bool stalls(struct rig *r, struct words *s, uint64_t seconds)
{
    s->idle_ms = seconds * 1000;
    say(r, 0, s);
    bool is = is_stalled(r, 0);
    s->idle_ms = 0;
    say(r, 0, s);
    assert_false(is_stalled(r, 0));
    return is;
}

TEST(a_bound_is_by_the_worker_s_own_rounds)
{
    struct rig *r = stalling(UNITS);
    struct words other = TRAINS, s = TRAINS;
    say(r, 1, &other);
    r->coordinator->conf.dylu = false;
    say(r, 0, &s);
    uint64_t h = ps_co_local_steps(r->coordinator, worker_of(r, 0));
    assert_true(h > 0);
    s.step_ms = 5000;
    assert_false(stalls(r, &s, 4 * 5 * h - 1));
    assert_true(stalls(r, &s, 4 * 5 * h + 1));
    s.step_ms = 60000;
    assert_false(stalls(r, &s, 4 * 60 * h - 1));
    assert_true(stalls(r, &s, 4 * 60 * h + 1));
    s.step_ms = 1;
    assert_false(stalls(r, &s, FLOOR_S - 1)); // as in an evaluation
    assert_true(stalls(r, &s, FLOOR_S + 1));
    s.step_ms = 0; // its first step, which compiles
    assert_false(stalls(r, &s, 10 * FLOOR_S - 1));
    assert_true(stalls(r, &s, 10 * FLOOR_S + 1));
    s.step_ms = UINT64_MAX; // a made-up time has a maximum
    assert_false(stalls(r, &s, 10 * FLOOR_S + 1));
    r->coordinator->conf.stall_floor_ns = 0;
    s.step_ms = 100;
    assert_false(stalls(r, &s, 1000000));
    rig_free(r);
}

static bool waits_and_stalls(struct rig *r, uint32_t w, struct words *s, uint64_t seconds)
{
    s->waits_ms = seconds * 1000;
    say(r, w, s);
    return is_stalled(r, w);
}

TEST(a_worker_whose_pushes_nobody_admits_stalls)
{
    struct rig *r = stalling(UNITS);
    struct words cut = TRAINS, other = TRAINS;
    say(r, 0, &cut);
    say(r, 1, &other);
    assert_false(waits_and_stalls(r, 0, &cut, FLOOR_S));
    assert_true(waits_and_stalls(r, 0, &cut, FLOOR_S + 1));
    assert_true(is_counted(r, 1) && !is_counted(r, 0));
    assert_false(waits_and_stalls(r, 0, &cut, 0)); // a push was admitted
    assert_true(is_counted(r, 0));
    cut.push_s = 20; // a long exchange takes longer
    assert_false(waits_and_stalls(r, 0, &cut, 79));
    assert_true(waits_and_stalls(r, 0, &cut, 81));
    cut.push_s = 0; // its first push
    assert_false(waits_and_stalls(r, 0, &cut, 10 * FLOOR_S - 1));
    assert_true(waits_and_stalls(r, 0, &cut, 10 * FLOOR_S + 1));
    rig_free(r);
}

TEST(a_server_that_serves_nobody_stalls_nobody)
{
    struct rig *r = stalling(UNITS);
    struct words a = TRAINS, b = TRAINS;
    say(r, 0, &a);
    say(r, 1, &b);
    assert_false(waits_and_stalls(r, 1, &b, FLOOR_S / 2 + 1));
    assert_false(waits_and_stalls(r, 0, &a, FLOOR_S + 1));    // both wait
    assert_true(waits_and_stalls(r, 0, &a, 4 * FLOOR_S + 1)); // long enough
    assert_false(waits_and_stalls(r, 1, &b, 5 * FLOOR_S));    // one must be left
    assert_false(is_stalled(r, 0));
    assert_false(waits_and_stalls(r, 1, &b, 0));
    say(r, 0, &a);
    assert_true(is_stalled(r, 0));
    assert_false(waits_and_stalls(r, 0, &a, 0));
    rig_kill_server(r, false);
    rig_run(r, 30 * LH_SECOND);
    assert_false(waits_and_stalls(r, 0, &a, 10 * FLOOR_S)); // nobody serves the shard
    rig_free(r);
}

// ---------------------------------------------------------------- the end

static lh_err ask_to_end(struct rig *r)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *named;
    m.region = m.worker = (char *)(uintptr_t) ""; // not written to
    m.end = true;
    lh_err err = ps_co_drain(r->coordinator, &m, &named);
    rig_settle(r);
    return err;
}

static void the_end_waits_for_a_drain_s_bound(bool stalled)
{
    struct rig *r = stalling(UNITS);
    struct words a = TRAINS, b = TRAINS;
    if (stalled) a.idle_ms = 1000 * (FLOOR_S + 1);
    a.want = b.want = 1; // b drains at once, a never
    say(r, 0, &a);
    say(r, 1, &b);
    assert_int_equal(ask_to_end(r), LH_OK);
    b.drained = true;
    assert_int_equal(phase_after(r, FLOOR_S - 2, &a, &b), LH_PHASE_DRAIN);
    assert_int_equal(phase_after(r, 6, &a, &b), LH_PHASE_CLOSE);
    const struct lh_plan *plan = &r->coordinator->plan;
    assert_true(plan->left == 1 && lh_plan_left_out(plan, worker_of(r, 0)->id));
    rig_free(r);
}

TEST(the_end_does_not_wait_for_a_hung_trainer)
{
    the_end_waits_for_a_drain_s_bound(true);
}

// While a shard's server is silent nobody's push is admitted, and the run can't close: nobody is
// left out for that time. When the server is back, workers have the whole time.
TEST(a_drain_s_time_begins_when_every_server_is_there)
{
    struct rig *r = stalling(UNITS);
    struct words a = TRAINS, b = TRAINS;
    a.want = b.want = 1;
    say(r, 0, &a);
    say(r, 1, &b);
    assert_int_equal(ask_to_end(r), LH_OK);
    assert_int_equal(phase_after(r, FLOOR_S / 2, &a, &b), LH_PHASE_DRAIN);
    rig_kill_server(r, false);
    assert_int_equal(phase_after(r, 3 * FLOOR_S, &a, &b), LH_PHASE_DRAIN);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    b.drained = true;
    assert_int_equal(phase_after(r, FLOOR_S - 2, &a, &b), LH_PHASE_DRAIN);
    assert_int_equal(phase_after(r, 10, &a, &b), LH_PHASE_CLOSE);
    rig_free(r);
}

// A server that is silent now and then keeps no run: a drain's time begins anew ten times.
TEST(a_server_that_comes_and_goes_does_not_hold_a_drain)
{
    struct rig *r = stalling(UNITS);
    struct words a = TRAINS, b = TRAINS;
    a.want = b.want = 1;
    say(r, 0, &a);
    say(r, 1, &b);
    assert_int_equal(ask_to_end(r), LH_OK);
    b.drained = true;
    int times = 0;
    for (; times < 20 && phase_after(r, FLOOR_S / 2, &a, &b) == LH_PHASE_DRAIN; times++) {
        rig_kill_server(r, false);
        phase_after(r, FLOOR_S / 3, &a, &b);
        assert_int_equal(rig_start_server(r, false), LH_OK);
    }
    assert_true(times >= 10 && times < 15);
    rig_free(r);
}

// A shard's server is there and admits nobody's pushes, because its disk is full, say. The run
// waits longer for the workers that wait for it, not for ever.
TEST(a_drain_waits_longer_for_a_shard_that_admits_nothing)
{
    for (int one = 0; one < 2; one++) {
        struct rig *r = stalling(UNITS);
        struct words a = TRAINS, b = TRAINS;
        a.want = b.want = 1;
        say(r, 0, &a);
        say(r, 1, &b);
        assert_int_equal(ask_to_end(r), LH_OK);
        a.waits_ms = 1000 * (FLOOR_S - 5);
        if (!one) b.waits_ms = a.waits_ms;
        b.drained = one;
        uint8_t phase = phase_after(r, FLOOR_S + 5, &a, &b);
        assert_int_equal(phase, one ? LH_PHASE_CLOSE : LH_PHASE_DRAIN);
        if (!one) assert_int_equal(phase_after(r, 3 * FLOOR_S - 8, &a, &b), LH_PHASE_DRAIN);
        if (!one) assert_int_equal(phase_after(r, 10, &a, &b), LH_PHASE_CLOSE);
        rig_free(r);
    }
}

// After the run's end other workers are done, and no longer show that the shard's server serves.
TEST(a_left_out_worker_stays_stalled_after_the_end)
{
    struct rig *r = stalling(UNITS);
    struct ps_coordinator *c = r->coordinator;
    struct words a = TRAINS, b = TRAINS;
    a.want = b.want = 1;
    say(r, 1, &b);
    assert_true(waits_and_stalls(r, 0, &a, FLOOR_S + 1));
    assert_int_equal(ask_to_end(r), LH_OK);
    b.drained = true;
    assert_int_equal(phase_after(r, FLOOR_S + 4, &a, &b), LH_PHASE_CLOSE);
    assert_true(is_stalled(r, 0));
    c->plan.phase = LH_PHASE_END;
    c->worker[ps_co_worker_index(c, worker_of(r, 1)->id)].done = true;
    say(r, 0, &a);
    assert_true(is_stalled(r, 0));
    assert_int_equal(ps_co_worker_state(c, worker_of(r, 0)), PS_CO_STALLED);
    rig_free(r);
}

TEST(the_end_leaves_out_a_worker_that_never_drains)
{
    the_end_waits_for_a_drain_s_bound(false);
}

TEST(a_drain_s_bound_is_by_rounds_and_no_liar_makes_it_long)
{
    struct rig *r = stalling(UNITS);
    struct words a = TRAINS, b = TRAINS;
    r->coordinator->conf.dylu = false;
    a.step_ms = b.step_ms = 1000;
    a.want = b.want = 1;
    say(r, 0, &a);
    say(r, 1, &b);
    int64_t round_s = ps_co_local_steps(r->coordinator, worker_of(r, 0));
    a.step_ms = UINT64_MAX;
    say(r, 0, &a);
    assert_int_equal(ask_to_end(r), LH_OK);
    b.drained = true;
    assert_int_equal(phase_after(r, 4 * round_s - 2, &a, &b), LH_PHASE_DRAIN);
    assert_int_equal(phase_after(r, 13 * round_s + 10, &a, &b), LH_PHASE_CLOSE);
    rig_free(r);
}

// ---------------------------------------------------------------- a worker's reports

static void until_it_steps(struct rig *r, const struct rig_life *l, uint64_t steps)
{
    for (int i = 0; i < 120000 && l->worker->count.steps < steps; i++) rig_run(r, LH_MS);
    assert_true(l->worker->count.steps >= steps);
}

// A worker with steps of five seconds is not idle between them, and its speed does not age.
RIG_TEST(a_slow_step_is_no_hang, struct rig *r)
{
    struct rig_life l = {0};
    rig_serve(r, 0);
    struct wk_conf conf = rig_life_conf(r, &l, 5000);
    rig_life_start(&l, &conf);
    struct wk_worker *w = l.worker;
    until_it_steps(r, &l, 2);
    double speed = w->tokens_per_s;
    struct lh_progress told;
    for (int i = 0; i < 100; i++) {
        rig_run(r, 100 * LH_MS);
        wk_idle_tell(w, &told);
        assert_true(told.idle_ms <= 6000);
        assert_true(wk_idle_speed(w) > speed / 2);
    }
    assert_in_range(told.step_ms, 4900, 5100);
    rig_life_end(r, &l, false);
}

RIG_TEST(a_step_that_hangs_is_told_to_the_coordinator, struct rig *r)
{
    struct rig_life l = {0};
    rig_start_coordinator(r);
    r->coordinator->conf.stall_floor_ns = LH_SECOND;
    r->coordinator->conf.stall_rounds = 1;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    struct wk_conf conf = rig_life_conf(r, &l, 1000000);
    rig_life_start(&l, &conf);
    for (int i = 0; i < 30000 && !is_stalled(r, 1); i++) rig_run(r, LH_MS);
    assert_true(is_stalled(r, 1)); // ten times the floor: it is the first step
    assert_true(l.worker->stepping);
    assert_true(worker_of(r, 1)->stall.idle_ns > 10 * LH_SECOND);
    rig_life_end(r, &l, false);
}

// The run has ended, and nobody is left to fetch its last state from.
static struct wk_worker *hears_for_30_s(struct rig *r, struct rig_life *l, bool left_out)
{
    rig_serve(r, 0);
    struct wk_conf conf = rig_life_conf(r, l, 1000);
    conf.fatal = NULL; // the rig's would fail the test
    lh_fake_boot(r->t.env);
    conf.log = rig_log_lines(r);
    rig_life_start(l, &conf);
    until_it_steps(r, l, 3);
    rig_kill_server(r, false);
    rig_kill_coordinator(r); // the test plays it
    struct wk_worker *w = l->worker;
    wk_left_out_told(w, left_out);
    for (int i = 0; i < 30; i++) {
        w->phase = LH_PHASE_END;
        wk_left_out_told(w, left_out);
        rig_run(r, LH_SECOND);
    }
    assert_true(!w->stopped && !rig_said(r, "run.end_awaited"));
    rig_run(r, LH_SECOND);
    for (int i = 0; i < 2; i++) {
        w->phase = LH_PHASE_END;
        wk_left_out_told(w, left_out);
    }
    return w;
}

// The worker ends with a reason instead of retrying forever.
RIG_TEST(a_left_out_worker_that_reaches_nobody_ends, struct rig *r)
{
    struct rig_life l = {0};
    const struct wk_worker *w = hears_for_30_s(r, &l, true);
    struct lh_log *log = w->conf.log;
    assert_true(w->left_out.is && w->left_out.tokens > 0);
    assert_true(w->stopped && w->failed);
    assert_int_equal(rig_said(r, "WARN rig run.left_out"), 1);
    assert_int_equal(rig_said(r, "run.end_awaited"), 0);
    rig_life_end(r, &l, false);
    lh_log_close(log);
}

// All that the worker trained is in the model, and its network may come back: it waits, and logs
// this once.
RIG_TEST(a_drained_worker_that_reaches_nobody_logs_its_wait, struct rig *r)
{
    struct rig_life l = {0};
    struct wk_worker *w = hears_for_30_s(r, &l, false);
    struct lh_log *log = w->conf.log;
    assert_true(!w->stopped && !w->left_out.is);
    assert_int_equal(rig_said(r, "WARN rig run.end_awaited"), 1);
    w->phase = LH_PHASE_RUN; // the run goes on: its next end is logged anew
    wk_left_out_told(w, false);
    for (int i = 0; i < 2; i++) {
        w->phase = LH_PHASE_END;
        wk_left_out_told(w, false);
    }
    assert_int_equal(rig_said(r, "WARN rig run.end_awaited"), 1);
    rig_run(r, 31 * LH_SECOND);
    w->phase = LH_PHASE_END;
    wk_left_out_told(w, false);
    assert_int_equal(rig_said(r, "WARN rig run.end_awaited"), 2);
    rig_life_end(r, &l, false);
    lh_log_close(log);
}
