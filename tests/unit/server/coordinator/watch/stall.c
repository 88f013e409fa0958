// Stall: which workers make no progress, by what they and the shards' servers report.
// ctest: coordinator_stall
#include "server/coordinator/watch/stall.h"
#include "tests/unit/server/coordinator/hand.h"

enum { FLOOR = 10 }; // seconds
static const int64_t S = LH_SECOND;
static struct ps_co_path *path[WORKERS]; // each worker's only one

// Four workers with steps of a second, two a round, whose pushes take a tenth. All shards are
// heard.
static void begin(void)
{
    hand_end(NULL);
    hand_begin(NULL);
    c->listener.ns = 1000 * S;
    c->conf.stall_floor_ns = c->conf.drain_floor_ns = FLOOR * S;
    c->conf.stall_rounds = 4;
    c->conf.drain_rounds = 10;
    for (int i = 0; i < SHARDS; i++) {
        c->shard[i].reported = true;
        c->shard[i].heard_ns = c->listener.ns;
    }
    for (int i = 0; i < WORKERS; i++) {
        struct ps_co_worker *w = &c->worker[i];
        path[i] = calloc(1, sizeof *path[i]);
        path[i]->push_s.mean = 0.1;
        w->seen_ns = c->listener.ns;
        w->stall = (struct ps_co_stall){.step_ns = S, .local_steps = 2};
        w->measured.path = path[i];
        w->measured.paths = 1;
    }
}

static enum ps_co_stall_why judge(void)
{
    assert_int_equal(ps_co_judge_stalls(c), LH_OK);
    return c->worker[CEM].stall.why;
}

// A bound is the floor, or four of the worker's own rounds; ten floors where nothing is measured.
TEST(a_bound_is_by_rounds)
{
    static const struct {
        int64_t step_s, idle_s, waits_s;
        double push_s;
        enum ps_co_stall_why at, above; // `above`: a nanosecond later
    } row[] = {{1, 10, 0, 0.1, PS_CO_GOES_ON, PS_CO_NO_STEP},
               {5, 40, 0, 0.1, PS_CO_GOES_ON, PS_CO_NO_STEP},
               {0, 100, 0, 0.1, PS_CO_GOES_ON, PS_CO_NO_STEP},
               {1, 0, 10, 0.1, PS_CO_GOES_ON, PS_CO_NO_PUSH},
               {5, 0, 40, 0.1, PS_CO_GOES_ON, PS_CO_NO_PUSH},
               {1, 0, 20, 5, PS_CO_GOES_ON, PS_CO_NO_PUSH},
               {1, 0, 100, 0, PS_CO_GOES_ON, PS_CO_NO_PUSH},
               {1, 10, 10, 0.1, PS_CO_GOES_ON, PS_CO_NO_STEP}};
    hand_begin(NULL);
    for (size_t i = 0; i < LH_COUNT(row); i++)
        for (int above = 0; above < 2; above++) {
            begin();
            struct ps_co_stall *s = &c->worker[CEM].stall;
            s->step_ns = row[i].step_s * S;
            path[CEM]->push_s.mean = row[i].push_s;
            if (row[i].idle_s) s->idle_ns = row[i].idle_s * S + above;
            if (row[i].waits_s) s->waits_ns = row[i].waits_s * S + above;
            enum ps_co_stall_why why = judge(), wanted = above ? row[i].above : row[i].at;
            if (why != wanted) fail_msg("row %zu, %d: %d instead of %d", i, above, why, wanted);
            if (!above) continue;
            assert_int_equal(s->since_ns, c->listener.ns);
            assert_int_equal(s->bound_ns, (row[i].idle_s ? row[i].idle_s : row[i].waits_s) * S);
            assert_int_equal(c->worker[ANN].stall.why, PS_CO_GOES_ON);
        }
    hand_end(NULL);
}

// A push that waits for 11 seconds stalls its worker, if the shard serves others.
TEST(a_shard_that_serves_nobody_stalls_nobody)
{
    enum {
        BASE,
        MUTE,
        MOVES,
        SILENT,
        NEARLY,
        BACK,
        LONG_BACK,
        OTHER,
        OTHER_SHARD,
        OTHER_GONE,
        OTHER_LESS,
        GREW,
        GREW_BEFORE,
        FAR_LONGER,
        ALL,
        RESTS,
        HALTED,
        OFF
    };
    static const bool stalls[] = {
        [BASE] = true,         [MUTE] = false,      [MOVES] = false,     [SILENT] = false,
        [NEARLY] = true,       [BACK] = false,      [LONG_BACK] = true,  [OTHER] = false,
        [OTHER_SHARD] = true,  [OTHER_GONE] = true, [OTHER_LESS] = true, [GREW] = true,
        [GREW_BEFORE] = false, [FAR_LONGER] = true, [ALL] = false,       [RESTS] = false,
        [HALTED] = false,      [OFF] = false};
    hand_begin(NULL);
    for (int why = 0; why < (int)LH_COUNT(stalls); why++) {
        begin();
        struct ps_co_shard *s = &c->shard[1];
        struct ps_co_stall *other = &c->worker[BOB].stall;
        c->worker[CEM].stall.shard = 1;
        c->worker[CEM].stall.waits_ns = why == FAR_LONGER ? 40 * S + 1 : 11 * S;
        if (why == MUTE) s->reported = false;
        if (why == MOVES) s->move.target = 1;
        if (why == SILENT || why == NEARLY) s->heard_ns -= 4 * S + (why == SILENT);
        if (why == BACK || why == LONG_BACK) s->back_ns = c->listener.ns - 10 * S;
        if (why == LONG_BACK) s->back_ns -= 1;
        if (why >= OTHER && why <= FAR_LONGER) {
            other->waits_ns = why == OTHER_LESS ? 5 * S : 5 * S + 1;
            other->shard = why != OTHER_SHARD;
        }
        if (why == OTHER_GONE) c->worker[BOB].live = false;
        if (why == GREW) s->grew_ns = c->listener.ns - 11 * S + 1;
        if (why == GREW_BEFORE) s->grew_ns = c->listener.ns - 11 * S;
        for (int i = 0; why == ALL && i < WORKERS; i++) {
            c->worker[i].stall.waits_ns = 50 * S;
            c->worker[i].stall.shard = 1;
        }
        if (why == RESTS) c->listener.rest_ns = 1;
        if (why == HALTED) c->pause.is = true;
        if (why == OFF) c->conf.stall_floor_ns = 0;
        enum ps_co_stall_why is = judge();
        if ((is == PS_CO_NO_PUSH) != stalls[why]) fail_msg("case %d: %d", why, is);
    }
    hand_end(NULL);
}

// A stall ends with progress. A failing loop needs no bound; a worker that is gone or done has
// none.
TEST(stalls_begin_and_end)
{
    hand_begin(NULL);
    begin();
    struct ps_co_worker *w = &c->worker[CEM];
    want(0, CEM);
    lease(1, ANN, CO_BEGUN);
    assert_int_equal(ps_co_lease_second(c, 1, CEM), LH_OK);
    w->stall.failing = true;
    assert_int_equal(judge(), PS_CO_FAILING);
    assert_int_equal(c->wanted_by[0], 0); // nothing is recalled for it
    assert_int_equal(c->seconds, 0);
    c->listener.ns += S;
    w->stall.failing = false;
    assert_int_equal(judge(), PS_CO_GOES_ON);
    assert_int_equal(w->stall.ended_ns, c->listener.ns);
    w->stall.failing = true;
    w->live = false;
    assert_int_equal(judge(), PS_CO_GOES_ON);
    w->live = w->done = true;
    assert_int_equal(judge(), PS_CO_GOES_ON);
    w->done = false;
    assert_int_equal(judge(), PS_CO_FAILING);
    w->stall.failing = false;
    c->plan.phase = LH_PHASE_END; // nobody can move any more
    assert_int_equal(judge(), PS_CO_FAILING);
    hand_end(NULL);
}

// The longest round of workers that make progress, but at most four times the lower median.
TEST(a_drain_waits_for_rounds)
{
    static const struct {
        int64_t step_s[WORKERS];
        double push_s;
        int64_t bound_s;
    } row[] = {{{0, 0, 0, 0}, 0.1, 10},
               {{1, 1, 1, 1}, 1, 30},
               {{1, 1, 1, 9}, 0, 80},
               {{1, 3, 9, 9}, 0, 180},
               {{1, 3, 9, 99}, 0, 240}};
    hand_begin(NULL);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        begin();
        for (int k = 0; k < WORKERS; k++) {
            c->worker[k].stall.step_ns = row[i].step_s[k] * S;
            path[k]->push_s.mean = row[i].push_s;
        }
        assert_int_equal(ps_co_drain_bound(c), row[i].bound_s * S);
    }
    c->worker[DEE].live = false; // 1, 3 and 9 seconds are left
    assert_int_equal(ps_co_drain_bound(c), 180 * S);
    c->worker[CEM].left = true;
    assert_int_equal(ps_co_drain_bound(c), 60 * S);
    c->worker[BOB].stall.why = PS_CO_NO_STEP;
    assert_int_equal(ps_co_drain_bound(c), 20 * S);
    hand_end(NULL);
}

TEST(operators_see_why)
{
    static const struct {
        enum ps_co_stall_why why;
        const char *row;
    } row[] = {{PS_CO_GOES_ON, "{'stalled': null, 'why': null}"},
               {PS_CO_NO_STEP, "{'stalled': {'why': 'no step', 'age_s': 30.0, 'bound_s': 10.0, "
                               "'for_s': 5.0}, 'why': 'no step for 30 s'}"},
               {PS_CO_NO_PUSH, "{'stalled': {'why': 'no push', 'age_s': 20.0, 'bound_s': 10.0, "
                               "'for_s': 5.0, 'shard': 1}, "
                               "'why': 'no push admitted by shard 1 for 20 s'}"},
               {PS_CO_HOLDS_ROUND, "{'stalled': {'why': 'holds the round', 'age_s': 15.0, "
                                   "'bound_s': 10.0, 'for_s': 5.0, 'shard': 0}, "
                                   "'why': 'others wait for its push of a round'}"},
               {PS_CO_FAILING, "{'stalled': {'why': 'failing', 'for_s': 5.0}, "
                               "'why': 'failing: its values are not finite'}"}};
    hand_begin(NULL);
    begin();
    struct ps_co_worker *w = &c->worker[CEM];
    w->stall = (struct ps_co_stall){.idle_ns = 30 * S,
                                    .waits_ns = 20 * S,
                                    .shard = 1,
                                    .holds_ns = 15 * S,
                                    .bound_ns = 10 * S,
                                    .since_ns = c->listener.ns - 5 * S};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        json_t *told = json_object();
        w->stall.why = row[i].why;
        ps_co_tell_stall(c, w, told);
        assert_has(told, row[i].row);
        if (i) assert_int_equal(json_object_size(told), 2);
        json_decref(told);
    }
    hand_end(NULL);
}
