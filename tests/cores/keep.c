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

TEST(a_plan_that_closes_the_run_is_in_what_was_copied)
{
    int before = 0;
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
TEST(a_slow_disk_writes_checkpoints_of_all_shards)
{
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

// The second shard's snapshot comes late.
static int64_t one_late(void *arg, const char *from, const char *to, enum lh_rpc rpc, size_t head,
                        size_t bulk)
{
    (void)from, (void)to, (void)head;
    uint32_t *snapshots = arg;
    return rpc == LH_RPC_SNAPSHOT && bulk && ++*snapshots == 2 ? LH_SECOND : 0;
}

// A checkpoint of the first shard is always under way.
TEST(a_standby_with_a_slow_disk_takes_snapshots_of_all_shards)
{
    enum { TRIMMED = 30, ROUNDS = 40 };
    struct rig *r = rig_new(1);
    uint32_t snapshots = 0;
    uint64_t version = TRIMMED;
    r->segment_bytes = 1024;
    rig_two_shards(r);
    rig_serve(r, 0);
    r->server->conf.checkpoint_every = 1;
    rig_run(r, LH_SECOND);
    for (uint64_t v = 1; v <= TRIMMED; v++)
        for (r->shard = 0; r->shard < RIG_SHARDS; r->shard++) rig_hello(r, 0, v << 32, 0, 1);
    lh_fabric_pace(r->fabric, one_late, &snapshots);
    assert_int_equal(rig_start_standby(r), LH_OK);
    struct ps_shard **shard = r->standby->shard;
    for (int i = 0; i < 300 && snapshots < 2; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(snapshots, 2);
    r->standby->conf.checkpoint_every = 1;
    lh_fake_jobs(r->t.env, wait_on_copy_lane, NULL);
    for (uint64_t v = 1; v <= ROUNDS && !shard[1]->replica.ledger.version; v++) {
        r->shard = 0;
        rig_hello(r, 0, (version + v) << 32, 0, 1);
        rig_run(r, 50 * LH_MS);
        run_copy_lane();
        rig_run(r, 50 * LH_MS);
    }
    assert_true(shard[0]->replica.ledger.version > 0);
    assert_true(shard[1]->replica.ledger.version > 0);
    lh_fake_jobs(r->t.env, NULL, NULL);
    run_copy_lane();
    rig_run(r, LH_SECOND);
    rig_free(r);
}

TEST(a_take_over_waits_for_one_checkpoint_alone)
{
    enum { INCARNATIONS = 8 };
    struct rig *r = rig_new(1);
    r->replicated = true;
    rig_two_shards(r);
    rig_serve(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    struct ps_server *s = r->standby;
    rig_run(r, 2 * LH_SECOND);
    for (uint64_t v = 1; v <= INCARNATIONS; v++) {
        if (v == INCARNATIONS) {
            rig_run(r, LH_SECOND);
            s->conf.checkpoint_every = 1;
            lh_fake_jobs(r->t.env, wait_on_copy_lane, NULL);
        }
        for (r->shard = 0; r->shard < RIG_SHARDS; r->shard++) rig_hello(r, 0, v << 32, 0, 1);
    }
    rig_run(r, 100 * LH_MS);
    assert_true(s->shard[0]->checkpointer && ps_checkpointer_due(s->shard[1]));
    uint64_t before = s->shard[1]->checkpointed;
    rig_kill_server(r, false);
    rig_run(r, 10 * LH_SECOND);
    assert_true(s->standby.taking);
    for (int i = 0; i < 4 && s->phase != PS_SERVING; i++) {
        run_copy_lane();
        rig_run(r, LH_SECOND);
    }
    assert_true(s->phase == PS_SERVING);
    assert_int_equal(s->shard[1]->checkpointed, before);
    lh_fake_jobs(r->t.env, NULL, NULL);
    run_copy_lane();
    rig_run(r, LH_SECOND);
    rig_free(r);
}
