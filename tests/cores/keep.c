// A plan is folded while a checkpoint copies the state slice by slice: the checkpoint has the
// plan's changes in all slices, also in those copied before it. Shards that are always due for a
// checkpoint take turns.
#include <stdlib.h>
#include <string.h>

#include "server/core.h"
#include "server/state/checkpointer.h"
#include "tests/cores/rig.h"

enum { SLICE_BYTES = 8, TRIES = 24, STEP_NS = 400000 };

static const struct lh_env_ops *fake;

// Delays each slice, so that a group can end between two slices.
static uint64_t a_little_later(struct lh_env *env, int64_t delay_ns, lh_fn fn, void *arg)
{
    return fake->after(env, delay_ns ? delay_ns : STEP_NS, fn, arg);
}

static void plan(struct rig *r, uint8_t phase)
{
    struct ps_shard *shard = r->server->shard[0];
    struct lh_plan *p = malloc(sizeof *p);
    assert_non_null(p);
    *p = shard->head->plan;
    p->number++;
    p->phase = phase;
    p->eta = 1;
    p->optimizer = LH_OPT_DELAYED_NESTEROV;
    p->momentum = 0.5f;
    p->outer_every = 1000;
    shard->plan = p;
    ps_raise(r->server, PS_WISHED);
}

static void remember_pushes(struct lk_replica *r)
{
    for (uint64_t i = 0; i < r->layout->values; i++) r->outer.u[i] = (float)(i + 1);
}

// Folds a plan `delay_ns` after the copy began; returns whether the copy was still under way.
static bool comes_after(int64_t delay_ns)
{
    struct rig *r = rig_new(1);
    struct lh_env_ops slow;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    struct ps_shard *shard = r->server->shard[0];
    r->server->conf.checkpoint_every = 0;
    r->server->conf.checkpoint_slice_bytes = SLICE_BYTES;
    plan(r, LH_PHASE_RUN);
    rig_run(r, LH_SECOND);
    assert_int_equal(shard->replica.ledger.version, 1);
    remember_pushes(&shard->replica);
    fake = r->s.env->ops;
    slow = *fake;
    slow.after = a_little_later;
    r->s.env->ops = &slow;
    shard->alone = true; // makes a checkpoint due
    ps_checkpointer_start(shard);
    rig_run(r, delay_ns);
    plan(r, LH_PHASE_CLOSE); // resets the optimizer's sums of pushes
    rig_run(r, LH_SECOND);
    assert_int_equal(shard->replica.ledger.version, 2);
    bool before = shard->checkpointed == 2;
    assert_true(before || shard->checkpointed == 1);
    struct lh_hash now = lk_replica_digest(&shard->replica);
    r->s.env->ops = fake;
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    shard = r->server->shard[0];
    assert_int_equal(shard->replica.ledger.version, 2);
    struct lh_hash again = lk_replica_digest(&shard->replica);
    assert_memory_equal(&now, &again, sizeof now);
    rig_free(r);
    return before;
}

static void a_plan_that_closes_the_run_is_in_what_was_copied(void **state)
{
    int before = 0;
    (void)state;
    for (int i = 0; i < TRIES; i++) before += comes_after(i * LH_MS);
    assert_in_range(before, 3, TRIES - 1); // some plans came after the copy's end
}

enum { COPY_JOBS = 4 };

static struct copy_lane { // holds its jobs until run_copy_lane()
    struct copy_job {
        lh_job job;
        lh_fn done;
        void *of;
    } job[COPY_JOBS];
    uint32_t jobs;
} lane;

static bool wait_on_copy_lane(void *arg, enum lh_lane which, lh_job job, lh_fn done, void *of)
{
    (void)arg;
    if (which != LH_LANE_COPY) return false;
    assert_true(lane.jobs < COPY_JOBS);
    lane.job[lane.jobs++] = (struct copy_job){job, done, of};
    return true;
}

static void run_copy_lane(void)
{
    struct copy_lane now = lane;
    lane.jobs = 0;
    for (uint32_t i = 0; i < now.jobs; i++) {
        now.job[i].job(now.job[i].of);
        now.job[i].done(now.job[i].of);
    }
}

// Each shard gets new records before a job of the copy lane ends.
static void a_slow_disk_writes_checkpoints_of_all_shards(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    rig_two_shards(r);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    struct ps_shard **shard = r->server->shard;
    r->server->conf.checkpoint_every = 1;
    lh_fake_jobs(r->s.env, wait_on_copy_lane, NULL);
    for (uint64_t round = 1; round <= 24; round++) {
        for (r->shard = 0; r->shard < RIG_SHARDS; r->shard++) rig_log(r, round, round);
        run_copy_lane();
        rig_run(r, 10 * LH_MS); // time for a copy's slices
    }
    for (uint32_t i = 0; i < RIG_SHARDS; i++) assert_true(shard[i]->checkpointed >= 8);
    lh_fake_jobs(r->s.env, NULL, NULL);
    run_copy_lane(); // the rest
    rig_run(r, LH_SECOND);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_that_closes_the_run_is_in_what_was_copied),
        cmocka_unit_test(a_slow_disk_writes_checkpoints_of_all_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
