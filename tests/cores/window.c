// The number of units that a worker has in work at once. Begun units can't be recalled, so the
// coordinator limits it (server/coordinator/balance/assign.c), but the worker still fills its steps
// (worker/push/round.c).
#include <string.h>

#include "tests/cores/words.h"
#include "worker/worker.h"

enum { STEP = 16 }; // tokens of the test trainer's step

// The limit is what the worker trains in a quarter of the time that is left, or two units while its
// speed is unknown.
TEST(the_units_that_a_worker_begins_are_bounded)
{
    struct rig *r = begun_run(400, 300 * LH_SECOND);
    struct words unknown = {.want = 16, .ahead = LH_LEASES_MAX};
    struct words fast = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 3, .batch_s = 1};
    struct words slow = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 1, .batch_s = 1};
    balance_by(r, PS_BALANCE_FINISH);
    assert_int_equal(say(r, 1, &unknown).window, 2);
    say(r, 0, &fast);
    say(r, 1, &slow);
    rig_run(r, 2 * LH_SECOND); // now all end after 100 s
    assert_in_range(say(r, 0, &fast).window, 73, 77);
    assert_in_range(say(r, 1, &slow).window, 24, 27);
    slow.units_per_s = 0.2; // it became slow: all end after 125 s
    say(r, 1, &slow);
    rig_run(r, 2 * LH_SECOND);
    assert_in_range(say(r, 1, &slow).window, 5, 8);
    slow.batch_s = 0; // it measured no step yet
    assert_int_equal(say(r, 1, &slow).window, 0);
    rig_free(r);
}

struct seen {
    uint32_t steps, short_ones, most_units;
};

static void stepped(void *arg, const struct wk_step_in *in)
{
    struct seen *s = arg;
    uint64_t tokens = 0;
    uint32_t units = 0;
    for (uint32_t i = 0; i < in->pieces; i++) {
        uint32_t k = 0;
        while (k < i && in->piece[k].unit != in->piece[i].unit) k++;
        units += k == i;
        tokens += in->piece[i].tokens;
    }
    s->steps++;
    s->short_ones += tokens < STEP;
    if (units > s->most_units) s->most_units = units;
}

// Two units are less than a step here: the worker begins as many as fill it.
TEST(a_step_is_full_whatever_the_bound)
{
    struct rig *r = rig_new(1);
    struct rig_life l;
    struct seen seen = {0};
    struct wk_observer observer = {.arg = &seen, .stepped = stepped};
    lh_units_free(&r->units);
    setup_units(&r->units, 2000, STEP / 4, RIG_WORKERS);
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    balance_by(r, PS_BALANCE_FINISH);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    conf.observer = &observer;
    conf.window_units = 16;
    conf.queue_units = 32;
    rig_life_start(&l, &conf);
    for (int i = 0; i < 400 && seen.steps < 4; i++) rig_run(r, 20 * LH_MS);
    assert_true(seen.steps >= 4);
    assert_int_equal(seen.short_ones, 0);
    assert_int_equal(seen.most_units, 4); // more than the two allowed, but no more than needed
    rig_life_end(r, &l, false);
    rig_free(r);
}
