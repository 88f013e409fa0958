// An operator's drain holds over a power cut from the moment it is answered until it is undone, and
// only for the workers that it names (server/docs/0000-protocol.md#rule-19,
// server/coordinator/drain.c).
#include <jansson.h>
#include <string.h>

#include "server/coordinator/drain.h"
#include "server/coordinator/plan.h"
#include "server/coordinator/status.h"
#include "server/coordinator/watch/stall.h"
#include "server/coordinator/watch/states.h"
#include "tests/cores/rig.h"
#include "worker/units/units.h"
#include "worker/worker.h"

enum { SEEDS = 6 }; // a power cut keeps or loses unsynced bytes by chance

static lh_err drain(struct rig *r, const char *region, const char *worker, bool undo)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *named;
    m.region = region;
    m.worker = worker;
    m.undo = undo;
    lh_err err = ps_co_drain(r->coordinator, &m, &named);
    rig_settle(r); // the answer waits for this
    return err;
}

static struct rig *both_there(uint64_t seed)
{
    struct rig *r = rig_new(seed);
    rig_start_coordinator(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
    return r;
}

static void cut_its_power(struct rig *r)
{
    lh_fake_kill(r->c.env, true);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

// Bit w: worker w drains.
static unsigned draining(const struct rig *r)
{
    const struct ps_coordinator *c = r->coordinator;
    unsigned out = 0;
    assert_int_equal(c->workers, RIG_WORKERS);
    for (uint32_t w = 0; w < RIG_WORKERS; w++)
        for (uint32_t i = 0; i < c->workers; i++)
            if (c->worker[i].id == lh_worker_id(&r->w[w].self))
                out |= (unsigned)ps_co_draining(c, &c->worker[i]) << w;
    return out;
}

TEST(a_drain_and_its_undoing_hold_over_a_power_cut)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig *r = both_there(seed);
        const struct {
            const char *region, *worker;
            unsigned whom;
        } asked[] = {{"", "", 3},
                     {r->w[1].self.region, "", 2},
                     {"", r->w[1].self.name, 2},
                     {r->w[0].self.region, r->w[0].self.name, 1}};
        for (size_t i = 0; i < LH_COUNT(asked); i++)
            for (int undo = 0; undo < 2; undo++) {
                assert_int_equal(drain(r, asked[i].region, asked[i].worker, undo), LH_OK);
                assert_int_equal(draining(r), undo ? 0 : asked[i].whom);
                cut_its_power(r);
                assert_int_equal(draining(r), undo ? 0 : asked[i].whom);
            }
        rig_free(r);
    }
}

TEST(whom_nobody_knows_does_not_drain)
{
    struct rig *r = both_there(1);
    assert_int_equal(drain(r, "nowhere", "", false), LH_ERR_NOT_FOUND);
    assert_int_equal(drain(r, "", "nobody", false), LH_ERR_NOT_FOUND);
    assert_int_equal(drain(r, r->w[0].self.region, r->w[1].self.name, false), LH_ERR_NOT_FOUND);
    assert_int_equal(draining(r), 0);
    rig_free(r);
}

TEST(a_worker_of_a_region_that_drains_is_not_let_go_on_alone)
{
    struct rig *r = both_there(1);
    assert_int_equal(drain(r, r->w[0].self.region, "", false), LH_OK);
    assert_int_equal(drain(r, r->w[1].self.region, "", false), LH_OK);
    assert_int_equal(drain(r, "", r->w[0].self.name, true), LH_ERR_INVALID);
    assert_int_equal(drain(r, r->w[0].self.region, "", true), LH_OK); // the other one's drain stays
    assert_int_equal(draining(r), 2);
    assert_int_equal(drain(r, "", r->w[0].self.name, true), LH_OK);
    rig_free(r);
}

// The worker drained, its process ended, and the coordinator restarts: the worker still counts as
// drained, until the drain is undone or it joins again and trains.
TEST(a_worker_that_drained_is_not_lost_after_a_restart)
{
    const struct {
        bool region, run;
    } asked[] = {{false, false}, {true, false}, {false, true}};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct rig *r = both_there(1);
        uint64_t id = lh_worker_id(&r->w[1].self);
        const char *region = asked[i].region ? r->w[1].self.region : "";
        const char *name = asked[i].region || asked[i].run ? "" : r->w[1].self.name;
        assert_int_equal(drain(r, region, name, false), LH_OK);
        r->coordinator->worker[ps_co_worker_index(r->coordinator, id)].drained = true;
        ps_co_tick(r->coordinator);
        rig_settle(r);
        for (int life = 0; life < 3; life++) {
            struct ps_co_worker *w =
                &r->coordinator->worker[ps_co_worker_index(r->coordinator, id)];
            rig_run(r, 3 * r->coordinator->conf.worker_timeout_ns);
            assert_int_equal(w->state, PS_CO_DRAINED);
            assert_int_equal(ps_co_worker_state(r->coordinator, w), PS_CO_DRAINED);
            cut_its_power(r);
        }
        assert_int_equal(drain(r, region, name, true), LH_OK);
        cut_its_power(r);
        rig_run(r, 3 * r->coordinator->conf.worker_timeout_ns);
        assert_int_equal(r->coordinator->worker[ps_co_worker_index(r->coordinator, id)].state,
                         PS_CO_LOST);
        rig_free(r);
    }
}

static void says_tokens(struct rig *r, uint64_t tokens, bool drained)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, 0);
    m.tokens = tokens;
    m.drained = drained;
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_LEASE, &m.base), LH_OK);
    rig_settle(r);
}

// Returns a number from worker 0's status. *hears: the coordinator still waits for reports.
static double told(struct rig *r, const char *key, bool *hears)
{
    struct lh_buf out = lh_buf(1 << 20);
    assert_int_equal(ps_coordinator_status(r->coordinator, &out), LH_OK);
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    const json_t *row = NULL;
    for (size_t i = 0; i < RIG_WORKERS && !row; i++) {
        row = json_array_get(json_object_get(all, "workers"), i);
        const char *name = json_string_value(json_object_get(row, "name"));
        if (strcmp(name, r->w[0].self.name) != 0) row = NULL;
    }
    double number = json_number_value(json_object_get(row, key));
    *hears = json_is_true(json_object_get(all, "hears"));
    json_decref(all);
    lh_buf_free(&out);
    return number;
}

static json_int_t told_tokens(struct rig *r, bool *hears)
{
    return (json_int_t)told(r, "tokens", hears);
}

// A restarted coordinator reports no fewer tokens. It knows those of workers that report no more,
// and shows for some seconds that others have not reported yet.
TEST(tokens_outlive_the_coordinator)
{
    bool hears;
    struct rig *r = both_there(1);
    says_tokens(r, 700, false);
    assert_int_equal(told_tokens(r, &hears), 700);
    rig_run(r, 11 * LH_SECOND);
    says_tokens(r, 900, false); // stored by itself: the last store was long ago
    cut_its_power(r);
    assert_int_equal(told_tokens(r, &hears), 900);
    says_tokens(r, 1000, false);
    says_tokens(r, 200, false); // a new process of the worker
    assert_int_equal(told_tokens(r, &hears), 1000);
    says_tokens(r, 1100, true); // its last report
    cut_its_power(r);
    assert_int_equal(told_tokens(r, &hears), 1100);
    assert_false(hears); // a run that waits for its first workers
    r->coordinator->plan.phase = LH_PHASE_RUN;
    (void)told_tokens(r, &hears);
    assert_true(hears);
    rig_run(r, 6 * LH_SECOND); // some never report again
    (void)told_tokens(r, &hears);
    assert_false(hears);
    rig_free(r);
}

TEST(tokens_of_a_worker_that_is_gone_outlive_the_coordinator)
{
    bool hears;
    struct rig *r = both_there(1);
    says_tokens(r, 700, false);
    rig_run(r, 11 * LH_SECOND);
    says_tokens(r, 900, false);
    says_tokens(r, 1000, false); // too soon after the last to be stored
    rig_run(r, 3 * r->coordinator->conf.worker_timeout_ns);
    cut_its_power(r);
    assert_int_equal(told_tokens(r, &hears), 1000);
    rig_free(r);
}

// Its last speed would count in the run's speed and in the time that is left.
TEST(a_worker_that_stands_still_has_no_speed)
{
    bool hears;
    struct rig *r = both_there(1);
    says_tokens(r, 700, false);
    uint32_t i = ps_co_worker_index(r->coordinator, lh_worker_id(&r->w[0].self));
    struct ps_co_worker *w = &r->coordinator->worker[i];
    w->tokens_per_s = 50;
    assert_true(told(r, "tokens_per_s", &hears) == 50);
    w->drained = true;
    assert_true(told(r, "tokens_per_s", &hears) == 0);
    w->drained = false;
    rig_run(r, 3 * r->coordinator->conf.worker_timeout_ns);
    assert_true(!w->live && w->tokens_per_s == 50); // lost; the balancer still knows it
    assert_true(told(r, "tokens_per_s", &hears) == 0);
    rig_free(r);
}

// The workers would not go on, so the operator must not be told that they do.
TEST(a_run_that_closes_takes_no_drain_back)
{
    struct rig *r = both_there(1);
    const char *region = r->w[1].self.region, *name = r->w[1].self.name;
    assert_int_equal(drain(r, region, "", false), LH_OK);
    r->coordinator->plan.phase = LH_PHASE_CLOSE;
    assert_int_equal(drain(r, region, "", true), LH_ERR_INVALID);
    assert_int_equal(drain(r, region, name, true), LH_ERR_INVALID);
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), "too late: the run is closing"));
    assert_int_equal(drain(r, "", "", true), LH_ERR_INVALID);
    assert_int_equal(drain(r, region, name, false), LH_OK);
    rig_free(r);
}

// A run that closes, and whose only shard ends at version 5.
enum told { ALL, NOTHING, ANOTHER_PHASE, AN_OLDER_PLAN, A_COPY_OF_ANOTHER_EPOCH, AN_OLDER_COPY };

static struct rig *closing(void)
{
    struct rig *r = both_there(1);
    struct ps_coordinator *c = r->coordinator;
    c->conf.drain_floor_ns = 10 * LH_SECOND;
    c->ending = true;
    c->plan.phase = LH_PHASE_CLOSE;
    c->phase_ns = c->listener.ns;
    return r;
}

static void tick_at_the_end(struct rig *r, enum told told)
{
    struct ps_coordinator *c = r->coordinator;
    struct ps_co_shard *s = &c->shard[0];
    rig_run(r, LH_SECOND);
    for (uint32_t i = 0; i < c->workers; i++) {
        c->worker[i].seen_ns = ps_co_now(c);
        c->worker[i].live = true;
    }
    s->reported = told != NOTHING;
    s->heard_ns = ps_co_now(c);
    s->phase = told == ANOTHER_PHASE ? LH_PHASE_DRAIN : LH_PHASE_CLOSE;
    s->plan = c->plan.number - (told == AN_OLDER_PLAN);
    s->head = s->stable = (struct lh_point){.epoch = 1, .version = 5};
    s->stable.epoch -= told == A_COPY_OF_ANOTHER_EPOCH;
    s->stable.version -= told == AN_OLDER_COPY;
    ps_co_tick(c);
}

TEST(a_run_ends_when_its_shards_closed_and_have_a_last_copy)
{
    struct rig *r = closing();
    for (enum told told = NOTHING; told <= AN_OLDER_COPY; told++) {
        for (int i = 0; i < 3; i++) tick_at_the_end(r, told);
        assert_int_equal(r->coordinator->plan.phase, LH_PHASE_CLOSE);
    }
    tick_at_the_end(r, ALL);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_END);
    rig_free(r);
}

// Workers that were left out may still make a copy of the last version, while the drain lasts.
TEST(a_run_ends_without_a_last_copy_when_the_drain_is_over)
{
    struct rig *r = closing();
    struct ps_coordinator *c = r->coordinator;
    for (uint32_t i = 0; i < c->workers; i++) c->plan.left_out[c->plan.left++] = c->worker[i].id;
    int64_t end = c->phase_ns + ps_co_drain_bound(c);
    for (int i = 0; i < 200 && c->plan.phase == LH_PHASE_CLOSE; i++)
        tick_at_the_end(r, AN_OLDER_COPY);
    assert_int_equal(c->plan.phase, LH_PHASE_END);
    assert_in_range(c->listener.ns, end, end + 2 * LH_SECOND);
    rig_free(r);
}

// Its units are free for others once its current step is over, not only at the next answer.
RIG_TEST(a_worker_s_units_go_back_when_its_step_is_over, struct rig *r)
{
    struct rig_life l = {0};
    rig_serve(r, 0);
    struct wk_conf conf = rig_life_conf(r, &l, 5000);
    rig_life_start(&l, &conf);
    struct wk_worker *w = l.worker;
    for (int i = 0; i < 60000 && !(w->stepping && w->queued); i++) rig_run(r, LH_MS);
    assert_true(w->stepping && w->queued > 0);
    assert_int_equal(drain(r, r->w[1].self.region, "", false), LH_OK);
    for (int i = 0; i < 5000 && w->phase < LH_PHASE_DRAIN; i++) rig_run(r, LH_MS);
    assert_true(w->phase >= LH_PHASE_DRAIN && w->stepping);
    assert_true(w->queued > 0);
    uint64_t steps = w->count.steps;
    for (int i = 0; i < 100000 && w->count.steps == steps; i++) rig_run(r, 100000);
    assert_int_equal(w->count.steps, steps + 1);
    assert_int_equal(w->queued, 0);
    rig_life_end(r, &l, false);
}

// Tokens in the slot delay a drain only where a loop beside the worker is to push them.
TEST(returned_tokens_delay_a_loop_beside_the_worker_alone)
{
    const struct wk_beside_conf beside = {0};
    struct wk_slot slot = {.tokens = 64};
    struct wk_shard s = {.slot = {.committed = &slot}};
    struct wk_worker w = {.phase = LH_PHASE_DRAIN, .shards = 1, .shard = &s};
    w.beside.state = WK_BESIDE_AWAY;
    s.worker = &w;
    assert_true(wk_units_drained(&w));
    w.conf.beside = &beside;
    assert_false(wk_units_drained(&w));
    slot.tokens = 0;
    assert_true(wk_units_drained(&w));
}

// The time for a drain follows the longest round of the workers that go on.
TEST(a_drain_takes_rounds_of_those_that_go_on)
{
    struct rig *r = both_there(1);
    struct ps_coordinator *c = r->coordinator;
    c->conf.drain_floor_ns = LH_SECOND;
    c->conf.drain_rounds = 2;
    for (uint32_t i = 0; i < RIG_WORKERS; i++) {
        c->worker[i].live = true;
        c->worker[i].stall.local_steps = 10;
        c->worker[i].stall.step_ns = (i ? 3 : 1) * LH_SECOND;
    }
    assert_int_equal(ps_co_drain_bound(c), 60 * LH_SECOND);
    c->worker[1].left = true;
    assert_int_equal(ps_co_drain_bound(c), 20 * LH_SECOND);
    c->worker[0].live = false;
    assert_int_equal(ps_co_drain_bound(c), LH_SECOND);
    rig_free(r);
}
