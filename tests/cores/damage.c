// A push that can no longer be read, and a power cut: the push can't be cleared from an older
// snapshot of the residual, so that snapshot does not count (server/docs/0000-protocol.md#rule-11).
// The other shard's does.
#include <stdio.h>
#include <stdlib.h>

#include "tests/cores/life.h"
#include "worker/push/outcome.h"

enum { HURT = 1, WHOLE = 0 }; // shards

static struct wk_entry *above_snapshot(const struct wk_shard *s)
{
    struct wk_entry *e = s->outbox.first;
    while (e &&
           wk_entry_compare(e, s->slot.snapshot.incarnation.number, s->slot.snapshot.step) <= 0)
        e = e->next;
    return e;
}

static bool snapshot_is_behind(const struct life *l)
{
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct wk_shard *s = &l->worker->shard[k];
        const struct wk_entry *above = above_snapshot(s);
        bool below = s->outbox.first != above;
        if (s->cut || !s->slot.snapshot.present || !below || !above || !above->next) return false;
    }
    return true;
}

// Each shard has a snapshot, a push below it, and at least two above it.
static struct life *life_with_snapshots(uint64_t seed)
{
    struct life *l = life_begin(seed, RIG_SHARDS);
    for (int i = 0; i < 20000 && !snapshot_is_behind(l); i++) life_run(l, LH_MS);
    assert_true(snapshot_is_behind(l));
    return l;
}

static void file_of(const struct wk_shard *s, const struct wk_entry *e, char path[160])
{
    snprintf(path, 160, "%s/%04x-%016llx-%016llx", s->outbox.dir, s->id,
             (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
}

static void kill_and_start(struct life *l, bool power)
{
    rig_life_end(l->rig, &l->core, power);
    life_start(l);
}

static unsigned held(const struct wk_shard *s) // values of the residual that are not zero
{
    unsigned n = 0;
    for (uint64_t i = 0; i < s->layout->values; i++) n += s->slot.residual[i] != 0;
    return n;
}

// Checks that no mass counts twice; deltas are never below zero.
static void check_mass(const struct life *l)
{
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct wk_shard *s = &l->worker->shard[k];
        for (uint64_t i = 0; i < s->layout->values; i++) {
            double initial = (double)l->rig->initial[s->layout->first + i];
            double found = initial - (double)s->replica.theta[i] + (double)s->slot.residual[i];
            if (found > l->raw[k][i])
                fail_msg("shard %u, value %u: %g was cut, %g is there", k, (unsigned)i,
                         l->raw[k][i], found);
        }
    }
}

static void go_on(struct life *l)
{
    life_cut(l, 4);
    life_rest(l);
    check_mass(l);
    life_end(l);
}

// `first`: a process finds the damage while its slot is there; else the one after the power cut
// does.
static void damage_one(uint64_t seed, bool first, bool newest)
{
    struct life *l = life_with_snapshots(seed);
    struct wk_shard *s = &l->worker->shard[HURT];
    struct wk_entry *e = above_snapshot(s);
    char path[160];
    while (newest && e->next) e = e->next;
    file_of(s, e, path);
    assert_true(held(s) > 0);
    assert_int_equal(lh_fake_flip(l->rig->w[1].env, path, e->bytes / 2, 1), LH_OK);
    if (first) kill_and_start(l, false);
    kill_and_start(l, true);
    assert_int_equal(held(&l->worker->shard[HURT]), 0);
    assert_true(held(&l->worker->shard[WHOLE]) > 0);
    assert_int_equal(l->worker->count.lost, first ? 2 : 3); // two slots; the push, if found now
    assert_int_equal(life_said(l, "residual.snapshot"), 1);
    assert_int_equal(life_said(l, "outbox.damaged"), 1);
    go_on(l);
}

TEST(a_residual_that_cant_be_cleared_begins_at_zero)
{
    for (int newest = 0; newest < 2; newest++) damage_one(31, false, newest);
}

TEST(a_push_set_aside_earlier_leaves_no_residual)
{
    // The power cut of this seed keeps the name under which the push was put aside; otherwise the
    // push is found again.
    for (int newest = 0; newest < 2; newest++) damage_one(33, true, newest);
}

// A snapshot made after the push lacks nothing.
TEST(one_that_the_snapshot_knows_costs_no_residual)
{
    struct life *l = life_with_snapshots(33);
    struct wk_shard *s = &l->worker->shard[HURT];
    struct wk_entry *e = s->outbox.first;
    char path[160];
    assert_true(e != above_snapshot(s));
    file_of(s, e, path);
    assert_int_equal(lh_fake_flip(l->rig->w[1].env, path, e->bytes / 2, 1), LH_OK);
    kill_and_start(l, true);
    assert_true(held(&l->worker->shard[HURT]) > 0);
    assert_int_equal(life_said(l, "residual.snapshot"), 0);
    assert_int_equal(life_said(l, "outbox.damaged"), 1);
    go_on(l);
}

static struct wk_entry *undecided(const struct life *l)
{
    const struct wk_shard *s = &l->worker->shard[HURT];
    return s->cut ? NULL : wk_outbox_undecided(&s->outbox);
}

// If a push is to be sent again and can't be read, the snapshot is removed too.
TEST(an_undecided_one_takes_the_snapshot_with_it)
{
    struct life *l = life_with_snapshots(34);
    struct wk_slot snap = {0};
    char path[160];
    const struct wk_shard *before = &l->worker->shard[HURT];
    for (int i = 0; i < 9 && before->slot.snapshot.step + 1 != before->slot.committed->next; i++) {
        life_cut(l, 1); // until a cut made a snapshot: the next cut makes none
        life_rest(l);
    }
    assert_int_equal(before->slot.snapshot.step + 1, before->slot.committed->next);
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 20000 && !undecided(l); i++) life_run(l, LH_MS);
    kill_and_start(l, false);
    struct wk_shard *s = &l->worker->shard[HURT];
    struct wk_entry *e = undecided(l);
    assert_non_null(e);
    assert_int_equal(wk_snapshot_load(&s->slot.files, &snap, NULL), LH_OK);
    assert_true(e->head.step >= snap.next);
    wk_slot_free(&snap);
    file_of(s, e, path);
    assert_int_equal(lh_fake_flip(l->rig->w[1].env, path, e->bytes / 2, 1), LH_OK);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    for (int i = 0; i < 20000 && !l->worker->count.lost; i++) life_run(l, LH_MS);
    assert_int_equal(l->worker->count.lost, 1);
    assert_int_equal(wk_snapshot_load(&s->slot.files, &snap, NULL), LH_ERR_NOT_FOUND);
    go_on(l);
}

// The server is away. Returns an undecided push that no process has in memory, with a damaged file.
static struct wk_entry *undecided_and_damaged(struct life *l)
{
    char path[160];
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 20000 && !undecided(l); i++) life_run(l, LH_MS);
    kill_and_start(l, false);
    struct wk_entry *e = undecided(l);
    assert_non_null(e);
    file_of(&l->worker->shard[HURT], e, path);
    assert_int_equal(lh_fake_flip(l->rig->w[1].env, path, e->bytes / 2, 1), LH_OK);
    return e;
}

// The push counts as lost once, and only when its decision is durable: each file operation in turn
// finds no room.
TEST(a_refused_one_is_lost_once_its_decision_is_durable)
{
    struct life *l = life_with_snapshots(41);
    struct wk_entry *e = undecided_and_damaged(l);
    struct wk_shard *s = &l->worker->shard[HURT];
    uint64_t step = e->head.step;
    uint32_t lost = l->lost;
    lh_err err = LH_ERR_DISK_FULL;
    int tries = 0;
    for (; err && tries < 40; tries++) {
        lh_fake_fail_at(l->rig->w[1].env, tries, LH_ERR_DISK_FULL);
        err = wk_entry_decided(s, wk_outbox_undecided(&s->outbox), false);
        bool decided = s->slot.committed->decided == step;
        assert_int_equal(l->lost, lost + decided);
        if (!err) assert_true(decided);
    }
    lh_fake_fail_at(l->rig->w[1].env, -1, LH_OK);
    assert_int_equal(err, LH_OK);
    assert_true(tries > 4);
    assert_int_equal(l->lost, lost + 1);
    kill_and_start(l, false);
    s = &l->worker->shard[HURT];
    assert_int_equal(s->slot.committed->decided, step);
    assert_int_equal(l->lost, lost + 1);
    life_end(l);
}

// A push that is to be sent can't be read. If there is no room to give it up, that is tried again.
TEST(its_end_waits_for_room)
{
    for (int operation = 0; operation < 24; operation++) {
        struct life *l = life_with_snapshots(42);
        undecided_and_damaged(l);
        uint32_t lost = l->lost;
        assert_int_equal(rig_start_server(l->rig, false), LH_OK);
        for (int i = 0; i < 20000 && !l->worker->shard[HURT].session.timer; i++)
            life_run(l, LH_MS / 10);
        lh_fake_fail_at(l->rig->w[1].env, operation, LH_ERR_DISK_FULL);
        for (int i = 0; i < 20000 && l->lost == lost; i++) life_run(l, LH_MS);
        lh_fake_fail_at(l->rig->w[1].env, -1, LH_OK);
        assert_int_equal(l->lost, lost + 1);
        life_end(l);
    }
}

// The entry of a cut that was not committed may be whole; then its mass is there too.
static void count_unfinished(struct life *l)
{
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        for (uint32_t i = 0; l->cutting[k].open && i < LIFE_VALUES; i++)
            l->raw[k][i] += l->cutting[k].delta[i];
        l->cutting[k].open = false;
    }
}

// The power goes within a cut, on a disk that loses sectors in the middle of a write: an unfinished
// push does not count as damaged, and the residual is rebuilt from its snapshot.
TEST(one_that_was_being_written_costs_no_residual)
{
    for (uint64_t seed = 35; seed < 39; seed++)
        for (int64_t operation = 0; operation < 8; operation++) {
            struct life *l = life_with_snapshots(seed);
            struct lh_env *env = l->rig->w[1].env;
            lh_fake_harm(env, &(struct lh_fake_harm){.seed = seed, .torn = true});
            lh_fake_crash_at(env, operation, true);
            for (int i = 0; i < 20000 && lh_fake_alive(env); i++) life_run(l, LH_MS);
            assert_false(lh_fake_alive(env));
            lh_fake_crash_at(env, -1, false);
            count_unfinished(l);
            kill_and_start(l, true);
            assert_int_equal(life_said(l, "residual.rebuilt"), RIG_SHARDS);
            assert_int_equal(life_said(l, "starts from zero"), 0);
            assert_int_equal(life_said(l, "outbox.damaged"), 0);
            go_on(l);
        }
}
