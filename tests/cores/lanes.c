// A cut uses two lanes: when two shards are cut at one step, the second is encoded while the first
// is written. A worker that is closed between the two lanes has cut nothing.
#include <string.h>

#include "tests/cores/life.h"
#include "worker/push/commit.h"

enum { HANDED_MAX = 64 };

// Jobs in the order in which they reach the worker's lanes: e encode, d disk.
static struct {
    const struct lh_env_ops *real;
    struct lh_env_ops ops;
    char handed[HANDED_MAX + 1];
    size_t n;
} watch;

static void watched_work(struct lh_env *env, enum lh_lane lane, lh_job run, lh_fn done, void *arg)
{
    char which = lane == LH_LANE_ENCODE ? 'e' : lane == LH_LANE_DISK ? 'd' : 0;
    if (which && watch.n < HANDED_MAX) watch.handed[watch.n++] = which;
    watch.real->work(env, lane, run, done, arg);
}

static void begin_watch(struct life *l)
{
    struct lh_env *env = l->rig->w[1].env;
    memset(&watch, 0, sizeof watch);
    watch.real = env->ops;
    watch.ops = *env->ops;
    watch.ops.work = watched_work;
    env->ops = &watch.ops;
}

static void end_watch(struct life *l)
{
    l->rig->w[1].env->ops = watch.real;
}

TEST(shards_are_encoded_beside_each_others_commits)
{
    struct life *l = life_begin(21, 2);
    l->worker->conf.stagger = WK_STAGGER_OFF;
    life_cut(l, 2); // from here on both shards are cut at one step
    life_rest(l);
    begin_watch(l);
    life_cut(l, 2);
    life_rest(l);
    end_watch(l);
    if (!strstr(watch.handed, "eedd")) fail_msg("jobs: %s", watch.handed);
    life_mass(l);
    life_end(l);
}

// Closes the worker at every half millisecond of a cut, then cuts its host's power: everything that
// an orderly end writes must be durable.
TEST(a_worker_that_is_closed_between_them_has_cut_nothing)
{
    bool between = false;
    for (int ms = 0; ms < 12; ms++) {
        struct life *l = life_begin(22, 2);
        begin_watch(l);
        while (!strchr(watch.handed, 'e')) life_run(l, LH_MS / 4);
        life_run(l, ms * LH_MS / 2);
        between |= !strchr(watch.handed, 'd');
        end_watch(l);
        wk_worker_close(l->worker); // jobs still on the lanes end after this
        life_run(l, 10 * LH_MS);
        assert_int_equal(wk_worker_settle(l->worker), LH_OK);
        rig_life_end(l->rig, &l->core, true);
        life_start(l);
        assert_int_equal(life_said(l, "residual.rebuilt") + l->lost, 0);
        life_cut(l, 1);
        life_rest(l);
        life_mass(l);
        life_end(l);
    }
    assert_true(between);
}
