// A slot is lost in a power cut, and then the server loses its history. A push that was admitted is
// returned to the residual, but one that the snapshot's residual already has is not returned twice
// (server/docs/0000-protocol.md#rule-11).
#include <stdlib.h>

#include "tests/cores/life.h"
#include "worker/push/outcome.h"
#include "worker/replica/follow.h"

enum { OPERATIONS = 24, SNAPSHOT_CUTS = 3 }; // more operations than a return has; as in setup.c

static struct wk_shard *shard(const struct life *l)
{
    return &l->worker->shard[0];
}

static struct wk_entry *newest(const struct life *l)
{
    struct wk_entry *e = shard(l)->outbox.first;
    while (e && e->next) e = e->next;
    return e;
}

// Whether the next cut comes with a snapshot, and no durable copy has the newest push.
static bool stands(const struct life *l)
{
    const struct wk_entry *e = newest(l);
    return (shard(l)->progress.cut_count + 1) % SNAPSHOT_CUTS == 0 && e &&
           e->version > shard(l)->copies.durable.version;
}

// The newest push of the worker's earlier incarnation.
struct pushed {
    struct lh_incarnation incarnation;
    uint64_t step, version;
};

// All pushes were admitted; then the server is killed and the worker raises its incarnation.
static struct life *life_raised(uint64_t seed, struct pushed *p)
{
    struct life *l = life_begin(seed, 1);
    for (int i = 0; i < 50 && (i < 5 || !stands(l)); i++) {
        life_cut(l, 1);
        life_rest(l);
    }
    assert_true(stands(l));
    life_mass(l);
    const struct wk_entry *e = newest(l);
    *p = (struct pushed){e->head.incarnation, e->head.step, e->version};
    rig_kill_server(l->rig, false);
    assert_int_equal(wk_bump(l->worker, 0), LH_OK);
    return l;
}

// Waits for the first push of the new incarnation, which comes with a snapshot.
static struct wk_entry *cut_with_snapshot(struct life *l)
{
    struct wk_shard *s = shard(l);
    for (int i = 0; i < 20000 && (s->cut || !wk_outbox_undecided(&s->outbox)); i++)
        life_run(l, LH_MS);
    assert_null(s->cut);
    assert_int_equal(s->slot.snapshot.incarnation.number, l->worker->incarnation.number);
    assert_int_equal(s->slot.snapshot.step, 1);
    return wk_outbox_undecided(&s->outbox);
}

static struct wk_entry *find(const struct life *l, const struct pushed *p)
{
    return wk_outbox_find(&shard(l)->outbox, p->incarnation.number, p->step);
}

static void lose_slot(struct life *l, const struct pushed *p)
{
    rig_life_end(l->rig, &l->core, true);
    life_start(l);
    assert_int_equal(life_said(l, "rebuilt from its snapshot"), 1);
    assert_true(shard(l)->copies.durable.version < p->version);
}

// The server loses its disk, and is rebuilt from the worker's durable copy.
static void lose_history(struct life *l)
{
    lh_fake_disk_wipe(l->rig->s.env);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_cut(l, 2);
    life_rest(l);
    assert_int_equal(shard(l)->replica.ledger.epoch, 2);
}

// Sets the expected sums anew after the slot was lost: the log, whose parameters are `theta`, and
// the residual are what is left.
static void declare(struct life *l, const float *theta)
{
    const struct wk_shard *s = shard(l);
    for (uint64_t i = 0; i < s->layout->values; i++)
        l->raw[0][i] = (double)l->rig->initial[i] - (double)theta[i] + (double)s->slot.residual[i];
}

// Seed 5094460 of the simulator. The push that came with the snapshot was refused and removed. The
// newest push that is left is of the earlier incarnation, and was admitted.
TEST(an_admitted_push_below_the_snapshot_comes_back)
{
    struct pushed p;
    struct life *l = life_raised(61, &p);
    float theta[LIFE_VALUES];
    for (uint64_t i = 0; i < shard(l)->layout->values; i++) theta[i] = shard(l)->replica.theta[i];
    assert_int_equal(wk_entry_decided(shard(l), cut_with_snapshot(l), false), LH_OK);
    assert_ptr_equal(newest(l), find(l, &p));
    lose_slot(l, &p);
    assert_ptr_equal(newest(l), find(l, &p));
    declare(l, theta);
    lose_history(l);
    assert_null(find(l, &p));
    life_mass(l);
    life_end(l);
}

// The push before it, which came with the snapshot, was admitted; nobody knows whether this one
// was.
TEST(the_push_after_the_snapshot_is_undecided)
{
    struct life *l = life_begin(64, 1);
    struct wk_shard *s = shard(l);
    life_rest(l);
    for (int i = 0; i < 50 && s->slot.snapshot.step != s->slot.committed->next - 1; i++) {
        life_cut(l, 1);
        life_rest(l);
    }
    assert_true(s->slot.committed->decided_admitted);
    uint64_t step = s->slot.committed->next;
    assert_int_equal(s->slot.snapshot.step, step - 1);
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 20000 && (s->cut || !wk_outbox_undecided(&s->outbox)); i++)
        life_run(l, LH_MS);
    assert_int_equal(wk_outbox_undecided(&s->outbox)->head.step, step);
    assert_int_equal(s->slot.snapshot.step, step - 1);
    rig_life_end(l->rig, &l->core, true);
    life_start(l);
    assert_int_equal(life_said(l, "rebuilt from its snapshot"), 1);
    assert_int_equal(newest(l)->head.step, step);
    assert_int_equal(newest(l)->status, WK_UNDECIDED);
    life_end(l);
}

// Returns the push's mass to the residual, but the disk is too full to remove its file.
static void take_back(struct life *l, const struct pushed *p)
{
    lh_err err = LH_OK;
    for (int n = 0; n < OPERATIONS && shard(l)->slot.committed->gone_step != p->step; n++) {
        lh_fake_fail_at(l->rig->w[1].env, n, LH_ERR_DISK_FULL);
        err = wk_entry_return(shard(l), find(l, p));
    }
    lh_fake_fail_at(l->rig->w[1].env, -1, LH_OK);
    assert_int_equal(err, LH_ERR_DISK_FULL);
    assert_int_equal(shard(l)->slot.committed->gone_incarnation, p->incarnation.number);
    assert_non_null(find(l, p));
}

// `killed`: so is the process after the power cut, before it hears any server.
static void leave_file(uint64_t seed, bool killed)
{
    struct pushed p;
    struct life *l = life_raised(seed, &p);
    take_back(l, &p);
    cut_with_snapshot(l);
    lose_slot(l, &p);
    if (killed) {
        life_kill(l);
        life_start(l);
    }
    lose_history(l);
    assert_null(find(l, &p));
    life_mass(l);
    life_end(l);
}

TEST(one_that_the_snapshot_took_back_comes_back_once)
{
    leave_file(62, false);
}

TEST(a_killed_start_brings_it_back_once_too)
{
    leave_file(63, true);
}

// It is told only: at a start the coordinator has not heard the server's first report yet.
TEST(a_start_before_the_epoch_is_named_does_not_warn)
{
    struct wk_shard s = {.ready = false};
    assert_int_equal(wk_follow_broken_level(&s, LH_ERR_UNAVAILABLE), LH_INFO);
    assert_int_equal(wk_follow_broken_level(&s, LH_ERR_MALFORMED), LH_WARN);
    s.stream.tries = 8;
    assert_int_equal(wk_follow_broken_level(&s, LH_ERR_UNAVAILABLE), LH_WARN);
    s = (struct wk_shard){.ready = true};
    assert_int_equal(wk_follow_broken_level(&s, LH_ERR_UNAVAILABLE), LH_WARN);
}
