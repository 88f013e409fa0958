// How the life of a trainer beside a worker, or its run, ends, and obstacles: a full disk, a
// parameter that is NaN, a drain, the end of the run, damaged units, no units to lease. The judge
// of tests/cores/beside_play.h checks each cut.
#include <string.h>

#include "server/coordinator/drain.h"
#include "tests/cores/beside_play.h"
#include "worker/external/life.h"
#include "worker/push/beside.h"
#include "worker/push/commit.h"
#include "worker/push/view.h"

TEST(a_cut_that_finds_no_room_stays_whole)
{
    play_begin(7, 2);
    play_cuts(3);
    life_full(play->l, true);
    for (int i = 0; i < 20000 && !life_tries(play->l); i++) life_run(play->l, LH_MS);
    life_run(play->l, 5 * LH_SECOND);
    uint64_t steps = play->b->step;
    life_run(play->l, LH_SECOND);
    assert_true(play->b->step > steps); // training goes on
    life_full(play->l, false);
    play_cuts(6);
    play_check();
    assert_int_equal(play->b->lives, 1);
    play_end();
}

// The trainer is at fault; the worker goes on.
TEST(a_parameter_that_is_no_number_ends_the_life_alone)
{
    play_begin(8, 2);
    play_cuts(3);
    play->b->spoils = play->spoilt = true;
    for (int i = 0; i < 20000 && !play->b->restarts; i++) life_run(play->l, LH_MS);
    assert_int_equal(play->b->restarts, 1);
    play_until(WK_BESIDE_THERE);
    play_cuts(6);
    play_check();
    assert_int_equal(play->b->lives, 2);
    assert_true(life_said(play->l, "trainer.wrong") > 0);
    play_end();
}

static void (*judge)(struct life *l, uint32_t shard, const struct wk_whole *w, const float *delta,
                     uint64_t values);
static uint64_t spoilt; // the cut of shard 0 whose corrections were overwritten; 0: none yet

// Runs just before the cut is read into the residual.
static void write_over_corrections(struct life *l, uint32_t shard, const struct wk_whole *w,
                                   const float *delta, uint64_t values)
{
    struct wk_external *x = l->worker->external;
    judge(l, shard, w, delta, values);
    if (shard || spoilt || !w->number || x->part[0].included == x->part[0].retired) return;
    spoilt = w->number;
    for (uint32_t n = 0; n < WK_CHANNEL_LIVE; n++)
        wk_channel_part(&x->channel, 0)->entry[n].kind = 3;
}

// The loop overwrites the corrections that its cut is to be read with: nothing of the cut is
// pushed.
TEST(a_cut_that_cannot_be_read_is_not_pushed)
{
    play_begin(9, 2);
    play_cuts(3);
    spoilt = 0;
    judge = play->l->on_kept;
    play->l->on_kept = write_over_corrections;
    for (int i = 0; i < 20000 && !play->b->restarts; i++) life_run(play->l, LH_MS);
    assert_true(spoilt && play->cut[0] == spoilt - 1);
    assert_int_equal(play->b->restarts, 1);
    play_until(WK_BESIDE_THERE);
    play_cuts(6);
    play_check();
    assert_int_equal(life_said(play->l, "trainer.wrong"), 1);
    play_end();
}

// Three lives in a row spoil a parameter: the worker and its status report its name until a cut is
// taken.
TEST(a_loop_that_spoils_life_after_life_is_failing)
{
    play_begin(8, 2);
    play_cuts(3);
    play->spoilt = true;
    struct wk_worker *w = play->l->worker;
    for (int life = 1; life <= WK_LIVES_SPOILED; life++) {
        assert_null(wk_beside_failing(w));
        play->b->spoils = true;
        for (int i = 0; i < 20000 && (int)play->b->restarts < life; i++) life_run(play->l, LH_MS);
        assert_int_equal(play->b->restarts, life);
    }
    assert_non_null(strstr(wk_beside_failing(w), "parameter "));
    assert_int_equal(life_said(play->l, "trainer.failing"), 1);
    play_until(WK_BESIDE_THERE);
    play_cuts(6);
    assert_null(wk_beside_failing(w));
    play_check();
    play_end();
}

static void drain(bool undo, bool finish)
{
    struct lh_drain_request m = {.undo = undo, .end = finish};
    struct ps_co_worker *named;
    m.region = m.worker = (char *)(uintptr_t) ""; // only read
    assert_int_equal(ps_co_drain(play->l->rig->coordinator, &m, &named), LH_OK);
    rig_settle(play->l->rig);
}

TEST(a_drain_that_is_taken_back_begins_another_life)
{
    play_begin(9, 2);
    play_cuts(3);
    drain(false, false);
    for (int i = 0; i < 20000 && !play->l->worker->told_drained; i++) life_run(play->l, LH_MS);
    assert_true(play->l->worker->told_drained);
    assert_true(play->l->worker->beside.over);
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    drain(true, false);
    for (int i = 0; i < 20000 && play->b->lives < 2; i++) life_run(play->l, LH_MS);
    play_cuts(6);
    play_check();
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    play_end();
}

// The trainer ends with the run's final parameters, to the bit.
TEST(it_ends_with_the_parameters_of_the_run)
{
    play_begin(10, 2);
    play_cuts(8);
    drain(false, true);
    for (int i = 0; i < 60000 && !play->b->over; i++) life_run(play->l, LH_MS);
    assert_true(play->b->over);
    for (uint32_t k = 0; k < 2; k++) {
        const struct wk_shard *s = &play->l->worker->shard[k];
        assert_true(s->ended);
        assert_memory_equal(play->b->value + s->layout->first, s->replica.theta,
                            s->layout->values * sizeof(float));
    }
    life_mass(play->l);
    play_credit();
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    play_end();
}

TEST(a_unit_that_is_damaged_here_is_given_back)
{
    play_begin(16, 2);
    play->b->damages = true;
    play_cuts(6); // The loop goes on.
    life_run(play->l, 3 * LH_SECOND);
    const struct ps_coordinator *c = play->l->rig->coordinator;
    uint32_t mine = ps_co_worker_index(c, play->l->worker->id), unit = (uint32_t)play->b->damaged;
    assert_true(c->worker[mine].refused_count == 1 && c->lease[unit] != mine + 1);
    play_end();
}

static bool no_leases(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                      struct lh_fate *fate)
{
    const struct rig *r = arg;
    (void)to;
    (void)fate;
    return rpc != LH_RPC_LEASE || strcmp(from, r->w[1].self.name) != 0;
}

// The run ends in the middle of a round, while the worker cannot hear the coordinator. No push
// carries what was trained by then: it stays in the residual.
TEST(training_beyond_the_end_stays_in_the_residual)
{
    play_begin(14, 2);
    play->b->own_data = true; // the loop needs no units
    play_cuts(8);
    play->b->step_ms = 5000; // a round lasts longer than the end of the run
    struct rig *r = play->l->rig;
    r->coordinator->conf.worker_timeout_ns = 2 * LH_SECOND;
    lh_fabric_fates(r->fabric, no_leases, r);
    drain(false, true);
    for (int i = 0; i < 60000 && !play->b->over; i++) life_run(play->l, LH_MS);
    assert_true(play->b->over);
    const struct wk_worker *w = play->l->worker;
    assert_true(w->phase < LH_PHASE_DRAIN); // it has not heard of the end
    assert_int_equal(w->beside.absorbed, 2);
    for (uint32_t k = 0; k < 2; k++) {
        uint64_t first = w->shard[k].layout->first, last = play->cut[k];
        assert_true(w->shard[k].ended);
        assert_true(play->b->made[last % BESIDE_CUTS].lowered[first] >
                    play->b->made[(last - 1) % BESIDE_CUTS].lowered[first]);
    }
    life_mass(play->l);
    lh_fabric_fates(r->fabric, NULL, NULL);
    play_end();
}

// An earlier life's last cut left tokens in the slot: they are pushed with what is trained next.
TEST(a_trainer_that_waits_for_units_pushes_nothing_empty)
{
    play_begin(15, 2);
    struct ps_coordinator *c = play->l->rig->coordinator;
    struct wk_shard *s = &play->l->worker->shard[1];
    struct wk_change change;
    c->frozen = true; // the worker gets only units of its own region
    for (int i = 0, ms = 0; i < 600000 && ms < 3000; i++) {
        life_run(play->l, LH_MS);
        ms = play->l->worker->beside.starves ? ms + 1 : 0;
    }
    assert_true(play->l->worker->beside.starves);
    life_rest(play->l);
    assert_int_equal(wk_change_begin(s, &change), LH_OK);
    change.slot.tokens = 5;
    assert_int_equal(wk_commit(&change), LH_OK);
    wk_change_free(&change);
    uint64_t pushes = s->progress.cut_count;
    life_run(play->l, 3 * LH_SECOND);
    assert_true(play->l->worker->beside.starves);
    assert_int_equal(s->progress.cut_count, pushes);
    assert_int_equal(s->slot.committed->tokens, 5);
    c->frozen = false;
    for (int i = 0; i < 20000 && s->progress.cut_count == pushes; i++) life_run(play->l, LH_MS);
    assert_int_equal(s->slot.committed->tokens, 0);
    play_check();
    play_end();
}

// Its progress is pushed to the last step, and its begun units go to others.
TEST(a_loop_that_ends_by_itself_drains_its_worker)
{
    play_begin(11, 2);
    play_cuts(3);
    play->b->stops_at = play->b->step + 7;
    for (int i = 0; i < 20000 && !play->l->worker->beside.over; i++) life_run(play->l, LH_MS);
    assert_true(play->l->worker->beside.over);
    life_rest(play->l);
    play_check();
    for (uint32_t k = 0; k < 2; k++) {
        const double *cut = play->b->made[play->cut[k] % BESIDE_CUTS].lowered;
        uint64_t first = play->l->worker->shard[k].layout->first;
        assert_true(cut[first] == play->b->now.lowered[first]);
    }
    assert_int_equal(play->l->worker->queued + play->l->worker->resume_count, 0);
    play_end();
}
