// A paused run (server/docs/0000-protocol.md#rule-37): an answered pause survives a power cut;
// workers begin no step, keep their units and do not count as stalled; pushes in flight are
// decided; the run ends only after it was resumed, or by an operator.
#include <jansson.h>
#include <string.h>

#include "server/coordinator/drain.h"
#include "server/coordinator/watch/pause.h"
#include "server/coordinator/plan.h"
#include "server/coordinator/status.h"
#include "tests/cores/rig.h"

enum { SEEDS = 6 }; // a power cut's losses are random

static lh_err pause_run(struct rig *r, bool resume, const char *why, bool *changed)
{
    lh_err err = resume ? ps_co_resume(r->coordinator, "boss", why, changed)
                        : ps_co_pause(r->coordinator, "boss", why, changed);
    rig_settle(r); // the answer waits for this
    return err;
}

static void cut_its_power(struct rig *r)
{
    lh_fake_kill(r->c.env, true);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

static void check_told(struct rig *r, const char *by, const char *why)
{
    json_t *is = ps_co_pause_status(r->coordinator);
    assert_int_equal(is != NULL, by != NULL);
    if (by) {
        assert_string_equal(json_string_value(json_object_get(is, "by")), by);
        assert_string_equal(json_string_value(json_object_get(is, "why")), why);
        assert_int_equal(json_integer_value(json_object_get(is, "since_s")),
                         r->coordinator->pause.since_s);
    }
    json_decref(is);
}

TEST(a_pause_and_its_end_hold_over_a_power_cut)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig *r = rig_new(seed);
        bool changed;
        rig_start_coordinator(r);
        assert_int_equal(pause_run(r, true, "", &changed), LH_OK);
        assert_false(changed);
        assert_int_equal(pause_run(r, false, "look at the data", &changed), LH_OK);
        assert_true(changed);
        check_told(r, "boss", "look at the data");
        assert_int_equal(pause_run(r, false, "another word", &changed), LH_OK);
        assert_false(changed);
        cut_its_power(r);
        check_told(r, "boss", "look at the data"); // the first reason stays
        assert_int_equal(pause_run(r, true, "", &changed), LH_OK);
        assert_true(changed);
        check_told(r, NULL, NULL);
        cut_its_power(r);
        check_told(r, NULL, NULL);
        rig_free(r);
    }
}

RIG_TEST(a_reason_is_short, struct rig *r)
{
    char why[LH_PAUSE_WHY_BYTES + 1] = {0};
    bool changed;
    rig_start_coordinator(r);
    memset(why, 'x', LH_PAUSE_WHY_BYTES);
    assert_int_equal(pause_run(r, false, why, &changed), LH_ERR_INVALID);
    check_told(r, NULL, NULL);
    why[LH_PAUSE_WHY_BYTES - 1] = 0;
    assert_int_equal(pause_run(r, false, why, &changed), LH_OK);
    cut_its_power(r);
    check_told(r, "boss", why);
}

// ---------------------------------------------------------------- a worker of the run

static struct wk_worker *train(struct rig *r, struct rig_life *l, uint64_t step_ms)
{
    rig_start_coordinator(r);
    r->coordinator->conf.stall_floor_ns = LH_SECOND;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    struct wk_conf conf = rig_life_conf(r, l, step_ms);
    rig_life_start(l, &conf);
    for (int i = 0; i < 60000 && l->worker->count.steps < 3; i++) rig_run(r, LH_MS);
    assert_true(l->worker->count.steps >= 3);
    return l->worker;
}

static void await_end(struct rig *r)
{
    for (int i = 0; i < 600000 && r->coordinator->plan.phase < LH_PHASE_END; i++) rig_run(r, LH_MS);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_END);
}

static void await_told(struct rig *r, const struct wk_worker *w, bool paused)
{
    for (int i = 0; i < 60000 && (wk_paused(w) != paused || (paused && w->stepping)); i++)
        rig_run(r, LH_MS);
    assert_true(wk_paused(w) == paused && !(paused && w->stepping));
}

static const struct ps_co_worker *row(const struct rig *r)
{
    uint32_t i = ps_co_worker_index(r->coordinator, lh_worker_id(&r->w[1].self));
    assert_true(i < r->coordinator->workers);
    return &r->coordinator->worker[i];
}

RIG_TEST(a_paused_worker_makes_no_step_and_keeps_its_units, struct rig *r)
{
    struct rig_life l = {0};
    bool changed;
    struct wk_worker *w = train(r, &l, 50);
    assert_int_equal(pause_run(r, false, "", &changed), LH_OK);
    await_told(r, w, true);
    uint64_t steps = w->count.steps;
    rig_run(r, 5 * LH_SECOND); // pushes in flight are credited
    uint64_t held = row(r)->held.units, plan = r->coordinator->plan.number;
    uint32_t queued = w->queued;
    assert_true(queued > 0 && held > 0);
    rig_run(r, 120 * LH_SECOND); // much longer than the limits of a stall and of a drain
    assert_int_equal(w->count.steps, steps);
    assert_int_equal(w->queued, queued);
    assert_int_equal(row(r)->held.units, held);
    assert_true(row(r)->live && !row(r)->stall.why);
    assert_null(wk_outbox_undecided(&w->shard[0].outbox));
    assert_true(w->shard[0].replica.ledger.plan.paused); // the log has the pause
    assert_int_equal(r->coordinator->plan.number, plan);
    assert_int_equal(pause_run(r, true, "", &changed), LH_OK);
    await_told(r, w, false);
    for (int i = 0; i < 60000 && w->count.steps < steps + 3; i++) rig_run(r, LH_MS);
    assert_true(w->count.steps >= steps + 3);
    assert_int_equal(row(r)->stall.why, PS_CO_GOES_ON);
    for (int i = 0; i < 60000 && w->shard[0].replica.ledger.plan.paused; i++) rig_run(r, LH_MS);
    assert_false(w->shard[0].replica.ledger.plan.paused);
    rig_life_end(r, &l, false);
}

// The coordinator is down, but its pause is in the log: a worker that reads only the log stops, and
// goes on with the coordinator's next answer.
RIG_TEST(a_worker_hears_a_pause_with_the_log, struct rig *r)
{
    struct rig_life l = {0};
    struct wk_worker *w = train(r, &l, 50);
    await_told(r, w, false);
    struct lh_plan *logged = &w->shard[0].replica.ledger.plan;
    logged->paused = true;
    assert_false(wk_paused(w)); // the coordinator's last answer is newer than this plan
    logged->number++;
    assert_true(wk_paused(w));
    await_told(r, w, false); // the coordinator says otherwise
    rig_life_end(r, &l, false);
}

// The owner of one shard can write any plan into its log.
RIG_TEST(one_log_of_two_pauses_nobody, struct rig *r)
{
    struct rig_life l = {0};
    rig_two_shards(r);
    struct wk_worker *w = train(r, &l, 50);
    await_told(r, w, false);
    struct lh_plan *mine = &w->shard[0].replica.ledger.plan,
                   *its = &w->shard[1].replica.ledger.plan;
    its->paused = true;
    its->number += 1000;
    assert_false(wk_paused(w));
    mine->paused = true;
    mine->number++;
    assert_true(wk_paused(w)); // although the other log's number is far higher
    await_told(r, w, false);
    rig_life_end(r, &l, false);
}

RIG_TEST(a_worker_that_starts_in_a_paused_run_waits, struct rig *r)
{
    struct rig_life l = {0};
    bool changed;
    struct wk_worker *w = train(r, &l, 50);
    assert_int_equal(pause_run(r, false, "", &changed), LH_OK);
    await_told(r, w, true);
    rig_life_end(r, &l, true);
    rig_boot_worker(r, 1);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    rig_life_start(&l, &conf);
    rig_run(r, 20 * LH_SECOND);
    assert_int_equal(l.worker->count.steps, 0);
    cut_its_power(r);
    rig_run(r, 20 * LH_SECOND);
    assert_int_equal(l.worker->count.steps, 0);
    assert_int_equal(pause_run(r, true, "", &changed), LH_OK);
    for (int i = 0; i < 60000 && !l.worker->count.steps; i++) rig_run(r, LH_MS);
    assert_true(l.worker->count.steps > 0);
    rig_life_end(r, &l, false);
}

// ---------------------------------------------------------------- the run's end

static lh_err drain(struct rig *r, const char *region, bool end, bool undo)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *named;
    m.region = region;
    m.end = end;
    m.undo = undo;
    lh_err err = ps_co_drain(r->coordinator, &m, &named);
    rig_settle(r);
    return err;
}

RIG_TEST(a_paused_region_drains_and_the_run_ends_by_an_operator, struct rig *r)
{
    struct rig_life l = {0};
    bool changed;
    struct wk_worker *w = train(r, &l, 50);
    assert_int_equal(pause_run(r, false, "", &changed), LH_OK);
    await_told(r, w, true);
    assert_int_equal(drain(r, r->w[1].self.region, false, false), LH_OK);
    for (int i = 0; i < 60000 && !row(r)->drained; i++) rig_run(r, LH_MS);
    assert_true(row(r)->drained);
    assert_int_equal(drain(r, r->w[1].self.region, false, true), LH_OK);
    await_told(r, w, true); // still paused
    assert_int_equal(drain(r, "", true, false), LH_OK);
    await_end(r);
    check_told(r, NULL, NULL); // the pause ended with the training
    assert_int_equal(pause_run(r, false, "", &changed), LH_ERR_INVALID);
    rig_life_end(r, &l, false);
}

// The pushes in flight complete the run's budget, but it stays paused until the operator resumes
// it.
RIG_TEST(a_paused_run_does_not_end_by_itself, struct rig *r)
{
    struct rig_life l = {0};
    bool changed;
    train(r, &l, 2);
    for (int i = 0; i < 600000 && r->coordinator->stock.free_units; i++) rig_run(r, LH_MS);
    r->coordinator->conf.budget_tokens = 1; // less than what is leased
    assert_int_equal(pause_run(r, false, "", &changed), LH_OK);
    rig_run(r, 30 * LH_SECOND);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_RUN);
    assert_int_equal(pause_run(r, true, "", &changed), LH_OK);
    await_end(r);
    rig_life_end(r, &l, false);
}

// Each pause and each resume is a plan in the logs. A coordinator with an empty store begins with
// plan 1, which no server would take, so it continues above the logs' numbers; a made-up number
// does not stop it either.
RIG_TEST(after_a_lost_store_plans_go_on_above_the_logs, struct rig *r)
{
    struct rig_life l = {0};
    bool changed;
    struct wk_worker *w = train(r, &l, 50);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pause_run(r, i % 2, "", &changed), LH_OK);
        await_told(r, w, !(i % 2));
    }
    uint64_t number = r->coordinator->plan.number;
    rig_kill_coordinator(r);
    lh_fake_disk_wipe(r->c.env);
    rig_start_coordinator(r);
    assert_true(r->coordinator->plan.number < number);
    for (int i = 0; i < 60000 && r->coordinator->plan.phase < LH_PHASE_RUN; i++) rig_run(r, LH_MS);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_RUN);
    rig_run(r, LH_SECOND);
    assert_true(r->coordinator->plan.number > number);
    r->coordinator->shard[0].plan = UINT64_MAX;
    assert_int_equal(drain(r, "", true, false), LH_OK);
    await_end(r);
    number = r->coordinator->plan.number;
    assert_true(number < UINT64_C(1) << 62);
    rig_life_end(r, &l, false);
    // After the run's end an empty store does not reopen the run.
    const struct lh_plan *logged = &r->server->shard[0]->replica.ledger.plan;
    for (int i = 0; i < 60000 && logged->phase < LH_PHASE_END; i++) rig_run(r, LH_MS);
    assert_int_equal(logged->phase, LH_PHASE_END);
    rig_kill_coordinator(r);
    lh_fake_disk_wipe(r->c.env);
    rig_start_coordinator(r);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->coordinator->shard[0].reported && r->coordinator->plan.number < number);
    assert_int_equal(logged->phase, LH_PHASE_END);
}
