// A store with the units' files becomes unreachable (worker/units/homes.c): the worker gives its
// units back, stays, trains what it has, and asks again. The worker is europe's; see trip.h.
#include <string.h>

#include "server/coordinator/balance/away.h"
#include "tests/cores/trip.h"
#include "tests/sim/synthetic.h"
#include "worker/units/travel_state.h"
#include "worker/units/units.h"

enum { ASIA, EUROPE }; // homes

struct stored {
    struct trip *t;
    bool unread[TRIP_UNITS];
    uint32_t finds;
    char said[LH_ERR_TEXT_BYTES]; // why the worker ended, if it did
};

static void note_end(void *arg, lh_err err, const char *text)
{
    struct stored *s = arg;
    if (err != LH_ERR_KILLED) snprintf(s->said, sizeof s->said, "%s", text);
}

// Lane of the job that the env runs now. A look-up asks the store and may take a minute, so it must
// not block the lane of the worker's status.
static enum lh_lane lane_now = LH_LANE_COUNT;
static const struct lh_env_ops *real;

static void note_lane(struct lh_env *env, enum lh_lane lane, lh_job job, lh_fn done, void *arg)
{
    enum lh_lane before = lane_now;
    lane_now = lane;
    real->work(env, lane, job, done, arg);
    lane_now = before;
}

static bool find_stored(void *arg, uint64_t unit, bool *kept)
{
    (void)unit;
    assert_int_equal(lane_now, LH_LANE_HOOK);
    *kept = false;
    ((struct stored *)arg)->finds++;
    return true;
}

static void drop_nothing(void *arg, uint64_t unit)
{
    (void)arg, (void)unit;
}

static void count_trained(void *arg, const struct wk_step_in *in)
{
    struct stored *s = arg;
    for (uint32_t i = 0; i < in->pieces; i++)
        s->t->trained[in->piece[i].unit % TRIP_UNITS] += in->piece[i].tokens;
}

// Europe's files are in the store, and asia's too if `asia_too`. No server gives units.
static void start(struct stored *s, bool asia_too)
{
    struct trip *t = s->t = trip_begin();
    t->r->server->conf.units_dir = "";
    struct wk_conf conf = rig_life_conf(t->r, &t->l, 200);
    sim_trainer_unread(t->l.trainer, s->unread, t->units);
    sim_trainer_unread_as(t->l.trainer, LH_ERR_UNAVAILABLE);
    t->cached = true; // asia's units, if not in the store
    if (asia_too)
        t->travel = (struct wk_travel_conf){find_stored, NULL, drop_nothing, s, 8 * TRIP_BYTES};
    if (asia_too) t->observer = (struct wk_observer){.arg = s, .stepped = count_trained};
    static struct lh_env_ops noting;
    real = conf.env->ops;
    noting = *real;
    noting.work = note_lane;
    conf.env->ops = &noting;
    conf.travel = &t->travel;
    conf.observer = &t->observer;
    conf.log = t->log;
    conf.queue_units = 10;
    conf.fatal = note_end;
    conf.fatal_arg = s;
    rig_life_start(&t->l, &conf);
}

// Leases a unit of a closed home to the worker, as a coordinator could that ignores the closing.
static void check_not_here(struct trip *t, uint64_t unit)
{
    struct wk_worker *w = t->l.worker;
    uint32_t found = 0;
    wk_units_take(w, 1, &unit);
    for (uint32_t i = 0; i < w->queued; i++) {
        if (w->queue[i].unit != unit) continue;
        found++;
        assert_false(w->queue[i].here);
    }
    assert_int_equal(found, 1);
}

static void set_away(struct stored *s, bool away)
{
    for (uint32_t i = 0; i < TRIP_UNITS; i++) s->unread[i] = away;
}

TEST(its_own_units_wait_for_the_store_and_others_are_trained)
{
    struct stored s = {.said = ""};
    start(&s, false);
    struct trip *t = s.t;
    const struct ps_coordinator *c = t->r->coordinator;
    trip_run_until_credited(t, 4);
    for (uint32_t i = 1; i < TRIP_UNITS; i += 2) s.unread[i] = true; // europe's
    for (int i = 0; i < 600 && !ps_co_is_closed(c, EUROPE, 0); i++) rig_run(t->r, 100 * LH_MS);
    assert_true(ps_co_is_closed(c, EUROPE, 0));
    assert_false(ps_co_is_closed(c, ASIA, 0));
    assert_true(rig_said(t->r, "units of region europe do not reach this worker: the store is") >
                0);
    assert_int_equal(t->trained[TRIP_UNITS - 1], 0);
    check_not_here(t, TRIP_UNITS - 1);
    uint32_t held = 0, credited = 0;
    for (int i = 0; i < 3000; i++) rig_run(t->r, 100 * LH_MS); // five minutes
    for (uint32_t i = 0; i < TRIP_UNITS; i += 2) credited += t->trained[i] == TRIP_TOKENS;
    assert_int_equal(credited, TRIP_UNITS / 2); // all of asia's
    for (int i = 0; i < 600 && !ps_co_is_closed(c, EUROPE, 0); i++) rig_run(t->r, 100 * LH_MS);
    assert_true(ps_co_is_closed(c, EUROPE, 0));
    for (uint32_t i = 1; i < TRIP_UNITS; i += 2)
        held += c->lease[i] != CO_FREE && t->trained[i] < TRIP_TOKENS;
    assert_int_equal(held, 0); // begun ones too: the outage is long
    assert_true(rig_said(t->r, "units.closed") >= 4);
    assert_true(rig_said(t->r, "units.closed") <= 8); // pauses get longer
    set_away(&s, false);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    assert_true(rig_said(t->r, "units.open") > 0);
    assert_string_equal(s.said, "");
    assert_int_equal(trip_told(t, "refusals"), 0);
    trip_over(t);
}

TEST(units_of_all_homes_come_back_with_the_store)
{
    struct stored s = {.said = ""};
    start(&s, true);
    struct trip *t = s.t;
    trip_run_until_credited(t, 6);
    set_away(&s, true);
    rig_run(t->r, 15 * LH_SECOND); // too short for begun units to be given up
    assert_int_equal(trip_told(t, "given_up"), 0);
    assert_true(trip_told(t, "returned") > 0);
    uint32_t finds = s.finds;
    rig_run(t->r, 4 * LH_SECOND);
    assert_true(s.finds < finds + TRIP_UNITS); // not asked in a loop
    set_away(&s, false);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    assert_string_equal(s.said, "");
    trip_over(t);
}

// An outage that begins minutes after another one starts with a short pause again.
TEST(a_second_outage_is_not_counted_with_the_first)
{
    struct stored s = {.said = ""};
    start(&s, true);
    struct trip *t = s.t;
    trip_run_until_credited(t, 2);
    set_away(&s, true);
    rig_run(t->r, 60 * LH_SECOND);
    uint32_t homes = t->l.worker->travel->homes;
    assert_int_equal(homes, 2);
    assert_true(t->l.worker->travel->home[0].closings >= 3);
    set_away(&s, false);
    sim_trainer_hang(t->l.trainer, 400 * LH_SECOND);
    rig_run(t->r, 420 * LH_SECOND);
    set_away(&s, true);
    rig_run(t->r, 5 * LH_SECOND);
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < homes; i++)
        if (t->l.worker->travel->home[i].closed && t->l.worker->travel->home[i].closings < least)
            least = t->l.worker->travel->home[i].closings;
    assert_int_equal(least, 1);
    set_away(&s, false);
    trip_run_until_credited(t, TRIP_UNITS);
    assert_string_equal(s.said, "");
    trip_over(t);
}
