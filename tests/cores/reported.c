// A private region whose loop clips and adds noise by itself, on the fake env: its report is
// compared with the plan's terms; its steps are counted, and charged before a push with them can
// leave, whichever process dies; and at the budget the region leaves
// (server/docs/0000-protocol.md#rule-34).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/cores/charge.h"
#include "tests/cores/trainer.h"
#include "worker/client/handle.h"
#include "worker/privacy/release.h"
#include "worker/privacy/totals.h"
#include "worker/push/commit.h"
#include "worker/push/outcome.h"
#include "worker/units/units.h"

enum { STEP_MS = 20, H = 4, STEP_TOKENS = 16 };

static void on_folded(void *arg, uint32_t shard, const struct lh_record *record)
{
    struct lh_frame f;
    (void)arg;
    if (!charge_see(shard, record, &f)) return;
    assert_int_equal(f.tokens, f.steps * STEP_TOKENS);
    assert_int_equal(f.claims, 0);
}

static void start_worker(void)
{
    play.l->beside = &play.b->conf;
    play.l->privacy = (struct wk_private_conf){CHARGE_FILE, 8, 1e-5, true, true};
    life_start(play.l);
}

static void begin(uint64_t seed, uint32_t shards, uint64_t steps, uint64_t ahead)
{
    const struct lh_privacy terms = charge_terms(LH_PRIVACY_REPORTED, steps, ahead, H);
    charge_begin(seed, shards, &terms, STEP_TOKENS, on_folded);
    struct life *l = play.l;
    play.b =
        beside_new(l->rig->world, l->rig->w[1].env, &l->rig->manifest, &l->rig->units, STEP_MS);
    play.b->own_data = true;
    play.b->noise =
        (struct longhaul_noise){sizeof play.b->noise, 0, play.terms.sigma + 1, 0.125, 0.5};
    start_worker();
    beside_start(play.b);
}

static void end(void)
{
    beside_kill(play.b);
    life_end(play.l);
    beside_free(play.b);
}

static void over(void)
{
    charge_stop();
    end();
}

TEST(each_push_is_charged_with_all_steps_before_it)
{
    begin(3, 2, 400, 64);
    until_admitted(10);
    uint64_t last[RIG_SHARDS] = {0};
    for (uint32_t i = 0; i < play.count; i++) {
        const struct seen *s = &play.seen[i];
        assert_true(s->steps > 0);
        assert_int_equal(s->charged - last[s->shard], s->steps);
        last[s->shard] = s->charged;
    }
    const struct ps_co_worker *row = &play.l->rig->coordinator->worker[0];
    assert_true(row->tokens == 0 && row->step_tokens == 0 && row->measured.paths == 0);
    json_t *status = wk_private_status(play.l->worker);
    double epsilon = json_real_value(json_object_get(status, "epsilon"));
    assert_true(epsilon > 0 && epsilon < 8);
    assert_string_equal(json_string_value(json_object_get(status, "level")), "reported");
    json_decref(status);
    over();
}

// The loop reports three private steps at each boundary.
TEST(a_loop_may_count_more_steps_than_boundaries)
{
    begin(4, 1, 4000, 256);
    play.b->noise.steps = 3;
    until_admitted(5);
    uint64_t steps = 0;
    for (uint32_t i = 0; i < play.count; i++) steps += play.seen[i].steps;
    assert_true(play.seen[play.count - 1].charged >= steps && steps >= play.b->trained);
    assert_true(play.l->worker->privacy.records.trained >= 3 * (play.b->trained - 1));
    over();
}

TEST(a_loop_that_reports_nothing_pushes_nothing)
{
    begin(5, 2, 40000, 64); // trained steps that were never pushed count too
    play.b->noise.size = 0;
    life_run(play.l, 20 * LH_SECOND);
    assert_int_equal(play.count, 0);
    assert_int_equal(life_said(play.l, "privacy.unreported"), 1);
    beside_kill(play.b);
    play.b->noise.size = sizeof play.b->noise; // its next process reports
    beside_start(play.b);
    until_admitted(4);
    over();
}

// A life with less noise, a higher rate or a larger clip is ended with a reason, and none of its
// pushes leaves. The reason is logged once, although each later life has it too.
TEST(weaker_noise_than_the_terms_is_refused)
{
    for (int k = 0; k < 3; k++) {
        begin(20 + (uint64_t)k, 1, 400, 64);
        if (k == 0) play.b->noise.sigma = play.terms.sigma * 0.99;
        if (k == 1) play.b->noise.rate = 0.126;
        if (k == 2) play.b->noise.clip = 0.51;
        for (int i = 0; i < 20000 && play.b->restarts < 3; i++) life_run(play.l, LH_MS);
        assert_true(play.b->restarts >= 3);
        assert_int_equal(life_said(play.l, "trainer.wrong"), 1);
        life_run(play.l, 5 * LH_SECOND);
        assert_int_equal(play.count, 0);
        life_kill(play.l);
        end();
    }
}

// Kills the worker's process at each of its file operations in turn, by kill -9 and by a power cut,
// with or without the loop. A loop that survives goes on with its steps.
TEST(no_crash_leaves_a_step_uncharged)
{
    for (int power = 0; power < 2; power++) {
        begin(7 + (uint64_t)power, 2, 40000, 256);
        until_admitted(4);
        for (int at = 0; at < 40; at++) {
            struct lh_env *env = play.l->rig->w[1].env;
            lh_fake_crash_at(env, at, power);
            for (int i = 0; i < 4000 && lh_fake_alive(env); i++) life_run(play.l, LH_MS);
            lh_fake_crash_at(env, -1, false);
            bool both = power || at % 2; // both are on one host
            if (both) beside_kill(play.b);
            charge_stop();
            start_worker();
            if (both) beside_start(play.b);
            until_admitted(admitted() + 1);
        }
        over();
    }
}

// Near its budget the loop is ended, the last steps are pushed, and the region leaves. No total is
// above the terms, though the loop trains on until it hears of the end.
TEST(at_the_budget_the_region_leaves)
{
    begin(9, 2, 40, 64);
    const struct ps_coordinator *c = play.l->rig->coordinator;
    for (int i = 0; i < 120000 && !(c->workers && c->worker[0].left); i++) life_run(play.l, LH_MS);
    assert_true(c->worker[0].left);
    uint32_t before = admitted();
    assert_true(before > 0);
    life_run(play.l, 20 * LH_SECOND);
    assert_int_equal(admitted(), before);
    json_t *status = wk_private_status(play.l->worker);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "spent");
    json_decref(status);
    over();
}

// The loop does not end at its budget: its later cuts are not pushed.
TEST(steps_beyond_the_budget_are_pushed_never)
{
    begin(10, 1, 40, 64);
    play.b->noise.steps = 30; // the second boundary is beyond
    life_run(play.l, 20 * LH_SECOND);
    for (uint32_t i = 0; i < play.count; i++) assert_true(play.seen[i].charged <= 40);
    over();
}

// The residual has the steps beyond the budget. A later process does not know that, but it finds
// the whole budget charged, and pushes nothing more.
TEST(steps_beyond_the_budget_are_charged)
{
    begin(12, 2, 40, 64);
    play.b->noise.steps = 9; // 36, and then 45
    until_admitted(1);
    const struct wk_worker *w = play.l->worker;
    for (int i = 0; i < 60000 && w->privacy.records.trained <= 40; i++) life_run(play.l, LH_MS);
    for (int i = 0; i < 20000 && w->beside.absorbed < 2; i++) life_run(play.l, LH_MS);
    assert_true(w->beside.absorbed >= 2);
    beside_kill(play.b);
    charge_stop();
    assert_int_equal(charge_file(0), 40);
    uint32_t before = admitted();
    play.b->noise.steps = 1;
    start_worker();
    beside_start(play.b);
    life_run(play.l, 20 * LH_SECOND);
    assert_int_equal(admitted(), before);
    life_kill(play.l);
    end();
}

// Worker and loop die together between two pushes. The steps since the last push are charged, as
// the loop may have kept what it learned.
TEST(steps_that_no_push_had_are_charged)
{
    begin(14, 1, 4000, 1600);
    until_admitted(2);
    rig_kill_server(play.l->rig, false); // no push gets decided
    for (int i = 0; i < 20000 && !wk_outbox_undecided(&play.l->worker->shard[0].outbox); i++)
        life_run(play.l, LH_MS);
    uint64_t trained = play.l->worker->privacy.records.trained;
    for (int i = 0; i < 20000 && play.l->worker->shard[0].charge.charged < trained + 40; i++)
        life_run(play.l, LH_MS);
    trained = play.l->worker->privacy.records.trained;
    beside_kill(play.b);
    life_kill(play.l);
    assert_true(charge_file(0) >= trained);
    end();
}

// The budget's file is lost: at most A steps more than the total of the log were charged.
TEST(a_lost_file_goes_on_beyond_what_was_charged)
{
    begin(11, 1, 4000, 64);
    until_admitted(5);
    uint64_t shown = wk_totals_shown(&play.l->worker->shard[0]);
    beside_kill(play.b);
    life_kill(play.l);
    charge_lose_file();
    start_worker();
    charge_covers(shown); // this works without a loop
    start_worker();
    beside_start(play.b);
    until_admitted(admitted() + 1);
    assert_true(play.seen[play.count - 1].charged > shown + play.terms.ahead);
    assert_int_equal(life_said(play.l, "privacy.budget_lost"), 1);
    life_kill(play.l);
    end();
}

// A push waits while its total would be more than A above the stable point. The worker advances
// that point by durable copies of its own, so pushes never stop for good.
TEST(pushes_wait_for_the_stable_point)
{
    begin(13, 2, 4000, 12);
    const struct wk_worker *w = play.l->worker;
    for (int i = 0; i < 120000 && admitted() < 30; i++) {
        life_run(play.l, LH_MS);
        const struct wk_records *r = &w->privacy.records;
        for (uint32_t k = 0; r->begun && k < w->shards; k++)
            assert_true(wk_totals_shown(&w->shard[k]) <= r->stable + play.terms.ahead);
    }
    assert_true(admitted() >= 30);
    over();
}

// The worker raises its incarnation while a push is on its way: the push's mass returns to the
// residual as usual, as it has its noise.
TEST(returned_mass_lies_in_the_residual)
{
    begin(15, 1, 4000, 256);
    until_admitted(3);
    struct life *l = play.l;
    struct wk_shard *s = &l->worker->shard[0];
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 20000 && (s->cut || !wk_outbox_undecided(&s->outbox)); i++)
        life_run(l, LH_MS);
    assert_non_null(wk_outbox_undecided(&s->outbox));
    assert_int_equal(wk_bump(l->worker, 0), LH_OK);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    until_admitted(admitted() + 3);
    assert_null(wk_release_again(s));
    over();
}

// The loop has ended, and its last push is returned: no later push carries it, and the run does not
// wait for it.
TEST(a_push_returned_at_the_end_delays_no_run)
{
    begin(17, 1, 4000, 256);
    until_admitted(3);
    struct wk_worker *w = play.l->worker;
    struct wk_shard *s = &w->shard[0];
    beside_kill(play.b);
    for (int i = 0; i < 20000 && w->beside.state != WK_BESIDE_AWAY; i++) life_run(play.l, LH_MS);
    life_rest(play.l);
    struct wk_change change;
    assert_int_equal(wk_change_begin(s, &change), LH_OK);
    change.slot.tokens = 5;
    assert_int_equal(wk_commit(&change), LH_OK);
    wk_change_free(&change);
    uint32_t before = admitted();
    life_run(play.l, 5 * LH_SECOND);
    assert_int_equal(admitted(), before);
    assert_int_equal(s->slot.committed->tokens, 5);
    w->phase = LH_PHASE_DRAIN;
    assert_true(wk_units_drained(w));
    over();
}
