// A trainer of somebody else's beside a worker's core: the real client library, a loop of known
// steps (tests/cores/trainer.h). Trainer and worker die at every point of a cut, and each delta is
// what training did between two committed cuts: nothing twice, nothing that was cut is lost.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/drain.h"
#include "tests/cores/life.h"
#include "tests/cores/trainer.h"
#include "tests/cores/words.h"
#include "worker/push/beside.h"
#include "worker/push/commit.h"
#include "worker/push/view.h"

enum { STEP_MS = 20, POINTS = 40 };

struct play {
    struct life *l;
    struct beside *b;
    uint8_t life[RIG_SHARDS][WK_SLOT_LIFE_BYTES]; // the life of the cut that was committed last
    uint64_t cut[RIG_SHARDS];                     // its number
    uint64_t cuts;
    bool spoilt;                // a parameter is no number
    uint64_t *held[RIG_SHARDS]; // [units]: how far the shard's committed cuts hold each
};

static struct play *play; // cmocka's tests are functions alone

// ---------------------------------------------------------------- the judge

static bool same_life(const struct wk_whole *w, const uint8_t *life)
{
    return memcmp(w->life, life, WK_SLOT_LIFE_BYTES) == 0;
}

// The delta of a cut is what training did since the cut before, bit for bit.
static void on_kept(struct life *l, uint32_t shard, const struct wk_whole *w, const float *delta,
                    uint64_t values)
{
    struct play *p = play;
    uint64_t first = l->worker->shard[shard].layout->first;
    if (w->number) assert_memory_equal(p->b->life, w->life, sizeof w->life);
    for (uint64_t i = first; i < first + values; i++) {
        double want = 0;
        if (w->number)
            want = p->b->made[w->number % BESIDE_CUTS].lowered[i] -
                   p->b->made[(w->number - 1) % BESIDE_CUTS].lowered[i];
        if (p->spoilt && i == 0 && isnan(delta[0])) continue; // it may be taken, not committed
        if ((double)delta[i - first] != want)
            fail_msg("shard %u, value %u: the delta of cut %u is %g, training did %g", shard,
                     (unsigned)i, (unsigned)w->number, (double)delta[i - first], want);
    }
}

static void on_cut(struct life *l, uint32_t shard, const struct wk_whole *w)
{
    struct play *p = play;
    uint64_t before = same_life(w, p->life[shard]) ? p->cut[shard] : 0;
    (void)l;
    if (!w->number) return;                  // a push of the residual alone
    assert_int_equal(w->number, before + 1); // each once, and in order
    memcpy(p->life[shard], w->life, sizeof w->life);
    p->cut[shard] = w->number;
    p->cuts++;
    const uint64_t *upto = p->b->made[w->number % BESIDE_CUTS].upto + shard * p->b->units->count;
    for (uint64_t u = 0; u < p->b->units->count; u++)
        if (upto[u] > p->held[shard][u]) p->held[shard][u] = upto[u];
}

// Credited units are missing in no shard's pushes.
static void check_credit(struct play *p)
{
    uint32_t shards = p->l->worker->shards;
    for (uint64_t u = 0; u < p->b->units->count; u++) {
        const struct lh_ledger *ledger = &p->l->worker->shard[u % shards].replica.ledger;
        if (!lh_ledger_credited(ledger, u) || p->held[0][u] == UINT64_MAX) continue;
        for (uint32_t k = 0; k < shards; k++) assert_int_equal(p->held[k][u], 64);
    }
}

// ---------------------------------------------------------------- a play

static void start_worker(struct play *p)
{
    p->l->beside = &p->b->conf;
    life_start(p->l);
}

static void begin(uint64_t seed, uint32_t shards)
{
    play = calloc(1, sizeof *play);
    assert_non_null(play);
    struct life *l = play->l = life_begin(seed, shards);
    life_rest(l);
    life_kill(l); // the built-in trainer's; the residual stays
    rig_boot_worker(l->rig, 1);
    play->b =
        beside_new(l->rig->world, l->rig->w[1].env, &l->rig->manifest, &l->rig->units, STEP_MS);
    for (uint32_t k = 0; k < shards; k++)
        play->held[k] = calloc(l->rig->units.count, sizeof *play->held[k]);
    l->on_kept = on_kept;
    l->on_cut = on_cut;
    start_worker(play);
    life_rest(l);
    for (uint32_t k = 0; k < shards; k++) { // what the built-in one trained
        const struct wk_slot *slot = l->worker->shard[k].slot.committed;
        for (uint32_t i = 0; i < slot->position_count; i++)
            play->held[k][slot->position[i].unit] = slot->position[i].tokens;
    }
    for (uint64_t u = 0; u < l->rig->units.count; u++)
        if (lh_ledger_credited(&l->worker->shard[u % shards].replica.ledger, u))
            play->held[0][u] = UINT64_MAX;
    beside_start(play->b);
}

static void end(void)
{
    beside_kill(play->b);
    life_end(play->l); // its world goes, and with it the trainer's node
    beside_free(play->b);
    for (int k = 0; k < RIG_SHARDS; k++) free(play->held[k]);
    free(play);
    play = NULL;
}

static void cuts(uint64_t more)
{
    uint64_t until = play->cuts + more;
    for (int i = 0; i < 60000 && play->cuts < until; i++) life_run(play->l, LH_MS);
    assert_true(play->cuts >= until);
}

static void check(void)
{
    life_rest(play->l);
    life_mass(play->l);
    check_credit(play);
}

static enum wk_beside_state state(void)
{
    return play->l->worker->beside.state;
}

static void until_state(enum wk_beside_state wanted)
{
    for (int i = 0; i < 60000 && state() != wanted; i++) life_run(play->l, LH_MS);
    assert_int_equal(state(), wanted);
}

// ---------------------------------------------------------------- training

static void its_cuts_are_pushed_and_its_units_credited(void **state_)
{
    (void)state_;
    begin(1, 2);
    cuts(30);
    check();
    uint64_t credited = 0;
    for (uint64_t u = 0; u < play->b->units->count; u++) credited += play->held[1][u] == 64;
    assert_true(credited > 2);
    assert_int_equal(play->l->worker->beside.lives, 1);
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    end();
}

// Its parameters are the view and what it trained since the last cut, to the bit.
static void corrections_take_it_to_the_view(void **state_)
{
    (void)state_;
    begin(2, 2);
    cuts(7);
    play->b->idle = true;
    life_run(play->l, LH_SECOND);
    life_rest(play->l);
    life_run(play->l, LH_SECOND); // the last correction is added
    check();
    for (uint32_t k = 0; k < 2; k++) {
        const struct wk_shard *s = &play->l->worker->shard[k];
        const double *cut = play->b->made[play->cut[k] % BESIDE_CUTS].lowered;
        for (uint64_t i = 0; i < s->layout->values; i++) {
            uint64_t at = s->layout->first + i;
            double progress = play->b->now.lowered[at] - cut[at];
            double view = (double)s->replica.theta[i] - 0.5 * (double)s->slot.residual[i];
            assert_true((double)play->b->value[at] == view - progress);
        }
    }
    end();
}

// ---------------------------------------------------------------- deaths

static void the_trainer_dies_at_any_point(void **state_)
{
    (void)state_;
    begin(3, 2);
    for (int k = 0; k < POINTS; k++) {
        cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        beside_kill(play->b);
        until_state(WK_BESIDE_AWAY);
        beside_start(play->b);
        until_state(WK_BESIDE_THERE);
    }
    cuts(4);
    check();
    assert_int_equal(play->l->worker->beside.lives, POINTS + 1);
    assert_true(play->l->worker->beside.lost_tokens > 0);
    end();
}

// The worker has units that wait, all of the budget but what worker 0 got, who could train them
// faster from now on and says *w. Gives what the worker holds, as the coordinator knows it.
static const struct ps_co_held *begin_to_hold(struct words *w)
{
    *w = (struct words){.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.5};
    begin(15, 2);
    struct rig *r = play->l->rig;
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    cuts(2);
    const struct ps_coordinator *c = r->coordinator;
    const struct ps_co_held *has =
        &c->worker[ps_co_worker_index(c, lh_worker_id(&r->w[1].self))].held;
    assert_true(has->tokens[CO_WAITS] > 0);
    assert_true(say(r, 0, w).units > 40);
    r->coordinator->conf.budget_tokens = c->stock.committed_tokens; // no other units are free
    w->units_per_s = 10;
    return has;
}

// Others need what it has, and nobody knows when the loop comes back.
static void a_loop_that_is_away_keeps_no_units(void **state_)
{
    (void)state_;
    struct words w;
    const struct ps_co_held *has = begin_to_hold(&w);
    struct rig *r = play->l->rig;
    beside_kill(play->b);
    until_state(WK_BESIDE_AWAY);
    for (int i = 0; i < 200 && has->tokens[CO_WAITS] + has->tokens[CO_BEGUN]; i++) {
        say(r, 0, &w);
        life_run(play->l, LH_SECOND);
    }
    assert_int_equal(has->tokens[CO_WAITS] + has->tokens[CO_BEGUN], 0);
    end();
}

// The worker was killed, and its loop may have outlived it with units in hand: until one came,
// nobody gets what they have.
static void a_worker_that_was_restarted_waits_for_its_loop(void **state_)
{
    (void)state_;
    struct words w;
    const struct ps_co_held *has = begin_to_hold(&w);
    struct rig *r = play->l->rig;
    beside_kill(play->b);
    life_kill(play->l);
    rig_boot_worker(r, 1);
    start_worker(play);
    life_run(play->l, 5 * LH_SECOND); // what it had pushed is credited
    uint64_t before = has->units;
    assert_true(has->tokens[CO_WAITS] > 0);
    for (int i = 0; i < 30; i++) {
        say(r, 0, &w);
        life_run(play->l, LH_SECOND);
    }
    assert_int_equal(state(), WK_BESIDE_AWAY);
    assert_int_equal(has->units, before);
    beside_start(play->b);
    until_state(WK_BESIDE_THERE);
    cuts(2);
    end();
}

static void the_worker_dies_at_any_moment(void **state_)
{
    (void)state_;
    begin(4, 2);
    for (int k = 0; k < POINTS; k++) {
        cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        life_kill(play->l);
        rig_boot_worker(play->l->rig, 1);
        life_run(play->l, (k % 5) * 50 * LH_MS); // training goes on without it
        start_worker(play);
        until_state(WK_BESIDE_THERE);
    }
    cuts(4);
    check();
    assert_int_equal(play->b->lives, 1); // one life of the trainer, all the time
    assert_int_equal(play->b->restarts, 0);
    end();
}

static uint64_t steps_told(void)
{
    return play->l->worker->count.steps;
}

// Its speed, which leases go by, is of what was trained since it came. Its steps and tokens are all
// of that life, and each is told the coordinator once.
static void a_life_that_outlived_its_worker_is_counted_whole(void **state_)
{
    (void)state_;
    begin(13, 2);
    uint64_t built_in = wk_all_tokens(play->l->worker);
    cuts(300);
    double speed = play->l->worker->tokens_per_s;
    assert_true(speed > 0);
    life_kill(play->l);
    rig_boot_worker(play->l->rig, 1);
    life_run(play->l, 700 * LH_MS); // it trains on
    start_worker(play);
    until_state(WK_BESIDE_THERE);
    life_run(play->l, 1500 * LH_MS);
    play->b->idle = true; // it waits now, and its boundaries are no steps
    life_run(play->l, LH_SECOND);
    assert_true(play->b->step > play->b->trained + 10);
    assert_int_equal(steps_told(), play->b->trained);
    assert_int_equal(play->l->worker->count.tokens, play->b->tokens);
    double since = play->l->worker->tokens_per_s;
    // With the life before counted it would be many times as much; a loop that got its units late
    // is slower than one that has them.
    if (!(since > 0 && since < 2 * speed)) fail_msg("%g tokens/s, then %g", speed, since);
    life_rest(play->l);
    assert_int_equal(wk_all_tokens(play->l->worker), built_in + play->b->tokens);
    check();
    end();
}

// The empty boundaries of a loop that has ended are no steps, nor are those of one that waits, and
// what a dead life trained stays counted.
static void steps_are_those_that_trained(void **state_)
{
    (void)state_;
    begin(16, 2);
    cuts(5);
    beside_kill(play->b);
    until_state(WK_BESIDE_AWAY);
    beside_start(play->b);
    const struct wk_idle *idle = &play->l->worker->idle;
    while (!idle->stepped || idle->lives < 2) life_run(play->l, LH_MS);
    assert_true(idle->step_s.mean > 0);
    play->b->stops_at = play->b->step + 7;
    for (int i = 0; i < 20000 && !play->l->worker->beside.over; i++) life_run(play->l, LH_MS);
    uint64_t passed = wk_external_step(play->l->worker->external);
    life_run(play->l, 20 * LH_SECOND);
    assert_true(wk_external_step(play->l->worker->external) > passed + 20);
    assert_int_equal(steps_told(), play->b->trained);
    end();
}

// A round has H trained steps, however long one takes: also when nothing is left to lease, and the
// loop has asked for more while it trains what it has.
static void a_slow_loop_pushes_as_often_as_a_fast_one(void **state_)
{
    (void)state_;
    static const uint64_t step_ms[] = {50, 500, 5000};
    enum { H = 8, STEPS = 40 * H };
    for (size_t i = 0; i < LH_COUNT(step_ms); i++) {
        begin(17, 2);
        struct ps_coordinator *c = play->l->rig->coordinator;
        c->conf.h_base = H;
        play->b->reads_ahead = true;
        play->b->conf.ahead = 1000; // all that is leased is with the loop
        for (int k = 0; k < 60000 && play->l->worker->local_steps != H; k++)
            life_run(play->l, LH_MS);
        assert_int_equal(play->l->worker->local_steps, H);
        life_run(play->l, 3 * LH_SECOND);
        c->frozen = true;
        for (int k = 0; k < 60000 && !play->l->worker->leased_out; k++) life_run(play->l, LH_MS);
        assert_true(play->l->worker->leased_out);
        cuts(4);
        play->b->step_ms = step_ms[i];
        uint64_t trained = play->b->trained, rounds = play->l->worker->count.rounds;
        uint64_t bytes = play->l->worker->count.payload_up;
        for (int k = 0; k < 6000000 && play->b->trained < trained + STEPS; k++)
            life_run(play->l, LH_MS);
        double made = (double)(play->b->trained - trained) / H;
        rounds = play->l->worker->count.rounds - rounds;
        bytes = play->l->worker->count.payload_up - bytes;
        print_message("steps of %u ms: %.1f rounds of H, %u pushed, %u bytes\n",
                      (unsigned)step_ms[i], made, (unsigned)rounds, (unsigned)bytes);
        assert_true(made > 39 && (double)rounds > 0.9 * made && (double)rounds < 1.1 * made);
        end();
    }
}

// At the n-th file operation from now: all that a cut does on the disk lies among them.
static void the_worker_dies_at_every_step_of_a_commit(void **state_)
{
    (void)state_;
    begin(5, 2);
    uint32_t died = 0;
    for (int n = 0; n < POINTS; n++) {
        struct lh_env *env = play->l->rig->w[1].env;
        cuts(1);
        lh_fake_crash_at(env, n, false);
        for (int i = 0; i < 3000 && lh_fake_alive(env); i++) life_run(play->l, LH_MS);
        died += !lh_fake_alive(env);
        life_kill(play->l);
        rig_boot_worker(play->l->rig, 1);
        start_worker(play);
        until_state(WK_BESIDE_THERE);
    }
    assert_int_equal(died, POINTS);
    cuts(4);
    check();
    assert_int_equal(play->b->lives, 1);
    end();
}

static void both_die(void **state_)
{
    (void)state_;
    begin(6, 2);
    for (int k = 0; k < POINTS; k++) {
        cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        if (k % 2) beside_kill(play->b);
        life_kill(play->l);
        if (k % 2 == 0) beside_kill(play->b);
        rig_boot_worker(play->l->rig, 1);
        if (k % 3) beside_start(play->b); // before the worker is there, or after
        start_worker(play);
        if (k % 3 == 0) beside_start(play->b);
        until_state(WK_BESIDE_THERE);
    }
    cuts(4);
    check();
    end();
}

// Two parts' cuts are whole when the worker looks, the earlier one last: it claims no unit and
// keeps no place that only the later one holds.
static void the_worker_looks_late(void **state_)
{
    (void)state_;
    begin(12, 2);
    play->b->late_ms = 3 * STEP_MS;
    for (int k = 0; k < 2 * POINTS; k++) {
        cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        if (k % 2) {
            life_kill(play->l);
            rig_boot_worker(play->l->rig, 1);
            start_worker(play);
        } else {
            beside_kill(play->b);
            until_state(WK_BESIDE_AWAY);
            beside_start(play->b);
        }
        until_state(WK_BESIDE_THERE);
    }
    cuts(4);
    check();
    end();
}

// ---------------------------------------------------------------- other ends

static void a_cut_that_finds_no_room_stays_whole(void **state_)
{
    (void)state_;
    begin(7, 2);
    cuts(3);
    life_full(play->l, true);
    for (int i = 0; i < 20000 && !life_tries(play->l); i++) life_run(play->l, LH_MS);
    life_run(play->l, 5 * LH_SECOND);
    uint64_t steps = play->b->step;
    life_run(play->l, LH_SECOND);
    assert_true(play->b->step > steps); // training goes on
    life_full(play->l, false);
    cuts(6);
    check();
    assert_int_equal(play->b->lives, 1);
    end();
}

// The trainer is to blame, and the worker goes on.
static void a_parameter_that_is_no_number_ends_the_life_alone(void **state_)
{
    (void)state_;
    begin(8, 2);
    cuts(3);
    play->b->spoils = play->spoilt = true;
    for (int i = 0; i < 20000 && !play->b->restarts; i++) life_run(play->l, LH_MS);
    assert_int_equal(play->b->restarts, 1);
    until_state(WK_BESIDE_THERE);
    cuts(6);
    check();
    assert_int_equal(play->b->lives, 2);
    assert_true(life_said(play->l, "trainer.wrong") > 0);
    end();
}

// Three lives in a row that spoil a parameter: the worker and its status say so, by its name, until
// a cut is taken.
static void a_loop_that_spoils_life_after_life_is_failing(void **state_)
{
    (void)state_;
    begin(8, 2);
    cuts(3);
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
    until_state(WK_BESIDE_THERE);
    cuts(6);
    assert_null(wk_beside_failing(w));
    check();
    end();
}

static void drain(bool undo, bool finish)
{
    struct lh_drain_request m = {.undo = undo, .end = finish};
    struct ps_co_worker *named;
    m.region = m.worker = (char *)(uintptr_t) ""; // only read
    assert_int_equal(ps_co_drain(play->l->rig->coordinator, &m, &named), LH_OK);
    rig_settle(play->l->rig);
}

static void a_drain_that_is_taken_back_begins_another_life(void **state_)
{
    (void)state_;
    begin(9, 2);
    cuts(3);
    drain(false, false);
    for (int i = 0; i < 20000 && !play->l->worker->told_drained; i++) life_run(play->l, LH_MS);
    assert_true(play->l->worker->told_drained);
    assert_true(play->l->worker->beside.over);
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    drain(true, false);
    for (int i = 0; i < 20000 && play->b->lives < 2; i++) life_run(play->l, LH_MS);
    cuts(6);
    check();
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    end();
}

// To the bit: the trainer leaves with what the run ended with.
static void it_ends_with_the_parameters_of_the_run(void **state_)
{
    (void)state_;
    begin(10, 2);
    cuts(8);
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
    check_credit(play);
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    end();
}

static void a_unit_that_is_damaged_here_is_given_back(void **state_)
{
    (void)state_;
    begin(16, 2);
    play->b->damages = true;
    cuts(6); // The loop goes on.
    life_run(play->l, 3 * LH_SECOND);
    const struct ps_coordinator *c = play->l->rig->coordinator;
    uint32_t mine = ps_co_worker_index(c, play->l->worker->id), unit = (uint32_t)play->b->damaged;
    assert_true(c->worker[mine].refused_count == 1 && c->lease[unit] != mine + 1);
    end();
}

static bool no_leases(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                      struct lh_fate *fate)
{
    const struct rig *r = arg;
    (void)to;
    (void)fate;
    return rpc != LH_RPC_LEASE || strcmp(from, r->w[1].self.name) != 0;
}

// The run ends while the coordinator can't be heard, in the middle of a round. No push may take
// along what was trained by then: it is in the residual.
static void what_is_trained_beyond_the_end_stays_in_the_residual(void **state_)
{
    (void)state_;
    begin(14, 2);
    play->b->own_data = true; // it needs no units
    cuts(8);
    play->b->step_ms = 5000; // a round lasts longer than the end of the run
    struct rig *r = play->l->rig;
    r->coordinator->conf.worker_timeout_ns = 2 * LH_SECOND;
    lh_fabric_fates(r->fabric, no_leases, r);
    drain(false, true);
    for (int i = 0; i < 60000 && !play->b->over; i++) life_run(play->l, LH_MS);
    assert_true(play->b->over);
    const struct wk_worker *w = play->l->worker;
    assert_true(w->phase < LH_PHASE_DRAIN); // as far as it has heard
    assert_int_equal(w->beside.absorbed, 2);
    for (uint32_t k = 0; k < 2; k++) {
        uint64_t first = w->shard[k].layout->first, last = play->cut[k];
        assert_true(w->shard[k].ended);
        assert_true(play->b->made[last % BESIDE_CUTS].lowered[first] >
                    play->b->made[(last - 1) % BESIDE_CUTS].lowered[first]);
    }
    life_mass(play->l);
    lh_fabric_fates(r->fabric, NULL, NULL);
    end();
}

// Tokens that an earlier life's last cut left to the slot: they go with what is trained next.
static void a_trainer_that_waits_for_units_pushes_nothing_empty(void **state_)
{
    (void)state_;
    begin(15, 2);
    struct ps_coordinator *c = play->l->rig->coordinator;
    struct wk_shard *s = &play->l->worker->shard[1];
    struct wk_change change;
    c->frozen = true; // an operator: it gets units of its own region alone
    for (int i = 0, ms = 0; i < 600000 && ms < 3000; i++) {
        life_run(play->l, LH_MS);
        ms = play->l->worker->beside.starves ? ms + 1 : 0;
    }
    assert_true(play->l->worker->beside.starves);
    life_rest(play->l);
    assert_int_equal(wk_change_begin(s, &change), LH_OK);
    change.slot.tokens = 5;
    assert_int_equal(wk_commit(&change, false), LH_OK);
    wk_change_free(&change);
    uint64_t pushes = s->progress.cut_count;
    life_run(play->l, 3 * LH_SECOND);
    assert_true(play->l->worker->beside.starves);
    assert_int_equal(s->progress.cut_count, pushes);
    assert_int_equal(s->slot.committed->tokens, 5);
    c->frozen = false;
    for (int i = 0; i < 20000 && s->progress.cut_count == pushes; i++) life_run(play->l, LH_MS);
    assert_int_equal(s->slot.committed->tokens, 0);
    check();
    end();
}

// Its progress is pushed to the last step, and the units that it began are others'.
static void a_loop_that_ends_by_itself_drains_its_worker(void **state_)
{
    (void)state_;
    begin(11, 2);
    cuts(3);
    play->b->stops_at = play->b->step + 7;
    for (int i = 0; i < 20000 && !play->l->worker->beside.over; i++) life_run(play->l, LH_MS);
    assert_true(play->l->worker->beside.over);
    life_rest(play->l);
    check();
    for (uint32_t k = 0; k < 2; k++) {
        const double *cut = play->b->made[play->cut[k] % BESIDE_CUTS].lowered;
        uint64_t first = play->l->worker->shard[k].layout->first;
        assert_true(cut[first] == play->b->now.lowered[first]);
    }
    assert_int_equal(play->l->worker->queued + play->l->worker->resume_count, 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_cuts_are_pushed_and_its_units_credited),
        cmocka_unit_test(corrections_take_it_to_the_view),
        cmocka_unit_test(the_trainer_dies_at_any_point),
        cmocka_unit_test(a_loop_that_is_away_keeps_no_units),
        cmocka_unit_test(a_worker_that_was_restarted_waits_for_its_loop),
        cmocka_unit_test(the_worker_dies_at_any_moment),
        cmocka_unit_test(a_life_that_outlived_its_worker_is_counted_whole),
        cmocka_unit_test(steps_are_those_that_trained),
        cmocka_unit_test(a_slow_loop_pushes_as_often_as_a_fast_one),
        cmocka_unit_test(the_worker_dies_at_every_step_of_a_commit),
        cmocka_unit_test(both_die),
        cmocka_unit_test(the_worker_looks_late),
        cmocka_unit_test(a_cut_that_finds_no_room_stays_whole),
        cmocka_unit_test(a_parameter_that_is_no_number_ends_the_life_alone),
        cmocka_unit_test(a_loop_that_spoils_life_after_life_is_failing),
        cmocka_unit_test(a_drain_that_is_taken_back_begins_another_life),
        cmocka_unit_test(it_ends_with_the_parameters_of_the_run),
        cmocka_unit_test(what_is_trained_beyond_the_end_stays_in_the_residual),
        cmocka_unit_test(a_unit_that_is_damaged_here_is_given_back),
        cmocka_unit_test(a_trainer_that_waits_for_units_pushes_nothing_empty),
        cmocka_unit_test(a_loop_that_ends_by_itself_drains_its_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
