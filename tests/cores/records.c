// A private region at record level, on the fake env: the trainer adds its own noise. The cost of
// its steps is charged before a push with them can leave, whichever process dies; the mass of a
// returned push stays in the residual; pushes tell nothing that only the trainer knows; and at the
// budget the region leaves (server/docs/0000-protocol.md#rule-34).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/privacy/account.h"
#include "tests/cores/charge.h"
#include "tests/sim/synthetic.h"
#include "worker/privacy/totals.h"
#include "worker/push/outcome.h"

enum { H = 4, STEP_TOKENS = 16 };

static struct lh_hash frames; // hash of all frames of a play, in order
static float told = 1;        // the loss that the trainer reports

static void on_folded(void *arg, uint32_t shard, const struct lh_record *record)
{
    struct lh_frame f;
    (void)arg;
    if (!charge_see(shard, record, &f)) return;
    assert_int_equal(f.tokens, f.steps * STEP_TOKENS);
    assert_int_equal(f.claims, 0);
    struct lh_span both[2] = {lh_span(frames.b, LH_HASH_BYTES), record->body};
    frames = lh_hash_of((struct lh_span){0}, both, 2);
}

static void start_worker(void)
{
    play.l->privacy = (struct wk_private_conf){CHARGE_FILE, 8, 1e-5, true, false};
    life_start(play.l);
    sim_trainer_tells(play.l->core.trainer, told);
}

static void begin(uint64_t seed, uint32_t shards, uint64_t steps, uint64_t ahead)
{
    const struct lh_privacy terms = charge_terms(LH_PRIVACY_RECORD, steps, ahead, H);
    frames = (struct lh_hash){{0}};
    charge_begin(seed, shards, &terms, STEP_TOKENS, on_folded);
    start_worker();
}

// The coordinator's status has the charge of admitted pushes, and an upper bound of their epsilon.
static void coordinator_shows(double most)
{
    struct lh_buf out = lh_buf(1 << 20);
    life_run(play.l, 3 * LH_SECOND); // a server's next report
    assert_int_equal(ps_coordinator_status(play.l->rig->coordinator, &out), LH_OK);
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    const json_t *row = json_array_get(json_object_get(all, "workers"), 0);
    double charged = json_number_value(json_object_get(row, "charged"));
    double bound = json_number_value(json_object_get(row, "epsilon_at_most"));
    assert_true(charged > 0 && bound > 0);
    assert_true(lh_account_spent(play.terms.sigma, play.terms.rate, charged, play.terms.delta) <=
                bound);
    assert_true(bound < 2 * most + 1);
    json_decref(all);
    lh_buf_free(&out);
}

static void over(void)
{
    charge_stop();
    life_end(play.l);
}

// ---------------------------------------------------------------- tests

TEST(each_push_is_charged_with_all_steps_before_it)
{
    begin(3, 2, 400, 64);
    until_admitted(10);
    uint64_t last[RIG_SHARDS] = {0};
    for (uint32_t i = 0; i < play.count; i++) {
        const struct seen *s = &play.seen[i];
        assert_int_equal(s->charged - last[s->shard], s->steps);
        last[s->shard] = s->charged;
    }
    // Nothing of class training (server/docs/0005-telemetry.md) was sent, and no unit was leased.
    const struct ps_co_worker *row = &play.l->rig->coordinator->worker[0];
    assert_true(row->tokens == 0 && row->step_tokens == 0 && row->measured.paths == 0);
    assert_true(row->stall.step_ns == 0 && row->stall.idle_ns == 0 && !row->stall.failing);
    assert_int_equal(play.l->worker->queued, 0);
    json_t *status = wk_private_status(play.l->worker);
    double epsilon = json_real_value(json_object_get(status, "epsilon"));
    assert_true(epsilon > 0 && epsilon < 8);
    coordinator_shows(epsilon);
    assert_string_equal(json_string_value(json_object_get(status, "level")), "record");
    json_decref(status);
    over();
}

// The region pushed before it was private: its directory may have a residual without noise.
TEST(state_from_before_privacy_is_refused)
{
    begin(19, 2, 400, 64);
    until_admitted(4);
    struct wk_worker *w = play.l->worker;
    struct lh_row *row =
        (struct lh_row *)(uintptr_t)lh_ledger_row(&w->shard[1].replica.ledger, w->id);
    uint64_t charged = row->charged;
    bool may;
    row->charged = 0; // as of a region that leased units
    struct wk_budget *open = w->privacy.budget;
    w->privacy.budget = NULL;
    assert_int_equal(wk_private_look(w, &may), LH_ERR_CONFIG);
    assert_false(may);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "pushed to shard 1 before its region was"));
    assert_null(w->privacy.budget);
    w->privacy.budget = open;
    // Pushes with a returned push's mass alone have no tokens, and were charged nothing.
    assert_true(wk_totals_uncharged(&w->shard[1]));
    uint64_t tokens = row->tokens;
    row->tokens = 0;
    assert_false(wk_totals_uncharged(&w->shard[1]));
    row->tokens = tokens;
    row->charged = charged;
    over();
}

// With telemetry the region is still private, but makes no claim.
TEST(telemetry_makes_no_claim)
{
    begin(21, 1, 400, 64);
    until_admitted(2);
    assert_int_equal(life_said(play.l, "privacy.no_claim"), 0);
    json_t *status = wk_private_status(play.l->worker);
    assert_true(json_is_true(json_object_get(status, "claim")));
    json_decref(status);
    life_kill(play.l);
    play.l->privacy.quiet = false;
    life_start(play.l);
    sim_trainer_tells(play.l->core.trainer, told);
    until_admitted(admitted() + 2);
    assert_int_equal(life_said(play.l, "privacy.no_claim"), 1);
    status = wk_private_status(play.l->worker);
    assert_true(json_is_false(json_object_get(status, "claim")));
    json_decref(status);
    over();
}

// The coordinator keeps the terms that the run began with, and a run that began without terms gets
// none.
TEST(terms_are_fixed_for_a_run)
{
    begin(23, 1, 400, 64);
    until_admitted(2);
    life_kill(play.l);
    rig_settle(play.l->rig);
    rig_kill_coordinator(play.l->rig);
    // The rig's settings have no terms.
    assert_int_equal(rig_try_coordinator(play.l->rig), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "the terms of privacy are fixed"));
    life_end(play.l);
}

// Kills the worker's process at each of its file operations in turn, by kill -9 and by a power cut.
TEST(no_crash_leaves_a_step_uncharged)
{
    for (int power = 0; power < 2; power++) {
        begin(5 + (uint64_t)power, 2, 40000, 256);
        until_admitted(4);
        for (int at = 0; at < 40; at++) {
            struct lh_env *env = play.l->rig->w[1].env;
            lh_fake_crash_at(env, at, power);
            for (int i = 0; i < 4000 && lh_fake_alive(env); i++) life_run(play.l, LH_MS);
            lh_fake_crash_at(env, -1, false);
            charge_stop();
            start_worker();
            until_admitted(admitted() + 1);
        }
        over();
    }
}

// The worker raises its incarnation while a push is on its way: the push's mass returns to the
// residual as usual, and a later push carries it.
TEST(returned_mass_lies_in_the_residual)
{
    begin(7, 1, 4000, 256);
    until_admitted(3);
    struct life *l = play.l;
    struct wk_shard *s = &l->worker->shard[0];
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 20000 && (s->cut || !wk_outbox_undecided(&s->outbox)); i++)
        life_run(l, LH_MS);
    assert_non_null(wk_outbox_undecided(&s->outbox));
    uint64_t returned = l->worker->count.returned;
    assert_int_equal(wk_bump(l->worker, 0), LH_OK);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    until_admitted(admitted() + 3);
    assert_int_equal(l->worker->count.returned, returned + 1);
    assert_null(wk_release_again(s));
    over();
}

// At its budget the region pushes its last steps and leaves; it still follows the log.
TEST(at_the_budget_the_region_leaves)
{
    begin(9, 2, 18, 64);
    const struct ps_coordinator *c = play.l->rig->coordinator;
    for (int i = 0; i < 120000 && !(c->workers && c->worker[0].left); i++) life_run(play.l, LH_MS);
    assert_true(c->worker[0].left);
    uint64_t steps[RIG_SHARDS] = {0};
    for (uint32_t i = 0; i < play.count; i++)
        if (play.seen[i].admitted) steps[play.seen[i].shard] += play.seen[i].steps;
    assert_true(steps[0] == 18 && steps[1] == 18);
    uint32_t before = admitted();
    life_run(play.l, 20 * LH_SECOND);
    assert_int_equal(admitted(), before);
    json_t *status = wk_private_status(play.l->worker);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "spent");
    json_decref(status);
    over();
}

// The budget's file is lost: at most A steps more than the total of the log were charged.
TEST(a_lost_file_goes_on_beyond_what_was_charged)
{
    begin(11, 2, 4000, 64);
    until_admitted(5);
    uint64_t trained = play.l->worker->privacy.records.trained;
    life_kill(play.l);
    charge_lose_file();
    start_worker();
    until_admitted(admitted() + 1);
    assert_true(play.seen[play.count - 1].charged > trained);
    assert_int_equal(life_said(play.l, "privacy.budget_lost"), 1);
    struct wk_shard *s = play.l->worker->shard;
    // The shards share the count, and charge it once.
    uint64_t more = s[0].charge.charged + s[1].charge.charged + 100;
    wk_totals_charge(&s[0], more);
    wk_totals_charge(&s[1], more);
    assert_int_equal(s[0].charge.charging, more);
    assert_int_equal(s[1].charge.charging, 0);
    life_kill(play.l);
    life_end(play.l);
}

// Steps stop A beyond the stable point. The worker advances that point by durable copies of its
// own, so steps are never more than A ahead of it, and never stop for good.
TEST(steps_wait_for_the_stable_point)
{
    begin(13, 2, 4000, 12);
    const struct wk_records *r = &play.l->worker->privacy.records;
    for (int i = 0; i < 60000 && r->trained < 120; i++) {
        life_run(play.l, LH_MS);
        assert_true(!r->begun || r->trained <= r->stable + play.terms.ahead);
    }
    assert_true(r->trained >= 120);
    over();
}

// The disk is full when the worker gets the terms, so it can't lock the budget's file. It waits for
// disk space.
TEST(a_full_disk_stops_no_private_worker)
{
    begin(17, 1, 400, 64);
    for (int i = 0; i < 20000 && !play.l->worker->joined; i++) life_run(play.l, LH_MS);
    assert_null(play.l->worker->privacy.budget);
    life_full(play.l, true);
    for (int i = 0; i < 20000 && !life_tries(play.l); i++) life_run(play.l, LH_MS);
    assert_true(life_tries(play.l) > 0);
    life_run(play.l, 2 * LH_SECOND);
    assert_int_equal(play.count, 0);
    life_full(play.l, false);
    until_admitted(4);
    over();
}

// Only the loss differs, which the trainer alone knows: all frames have the same bytes.
TEST(the_trainers_loss_is_in_no_frame)
{
    struct lh_hash all[2];
    uint32_t count[2];
    for (int k = 0; k < 2; k++) {
        told = k ? 0.001f : 9;
        begin(15, 2, 400, 64);
        until_admitted(20);
        all[k] = frames;
        count[k] = play.count;
        life_kill(play.l);
        life_end(play.l);
    }
    told = 1;
    assert_int_equal(count[0], count[1]);
    assert_true(lh_hash_equal(&all[0], &all[1]));
}
