// The start of a worker on its directory: the trainer's state, pushes that were trimmed or never
// committed, missing slots, and durable copies that can't be read.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/recovery/rebuild.h"
#include "server/recovery/rebuilding.h"
#include "tests/cores/life.h"
#include "worker/units/units.h"

static struct wk_shard *shard(struct life *l)
{
    return &l->worker->shard[0];
}

static struct lh_env *disk(const struct life *l)
{
    return l->rig->w[1].env;
}

static void until_snapshot(struct life *l)
{
    for (int i = 0; i < 20000 && !shard(l)->slot.snapshot.present; i++) life_run(l, LH_MS);
    assert_true(shard(l)->slot.snapshot.present);
}

// ---------------------------------------------------------------- the trainer's state

TEST(a_start_goes_on_with_the_trainers_state)
{
    struct life *l = life_begin(41, 1);
    struct lh_buf kept = lh_buf(64), loaded = lh_buf(64);
    char path[64];
    snprintf(path, sizeof path, "%s/trainer", l->rig->w[1].dir);
    until_snapshot(l);
    life_rest(l);
    assert_int_equal(lh_file_load(disk(l), path, &kept), LH_OK);
    assert_true(kept.len > 0);
    life_kill(l);
    life_start(l);
    struct wk_trainer *t = l->core.trainer;
    assert_int_equal(t->ops->save(t, &loaded), LH_OK);
    assert_int_equal(loaded.len, kept.len);
    assert_memory_equal(loaded.data, kept.data, kept.len);
    lh_buf_free(&kept);
    lh_buf_free(&loaded);
    life_end(l);
}

// Memory is reserved for a state that has to be fetched: a worker with its own state reserves none.
TEST(a_start_that_has_its_state_keeps_no_room_for_another)
{
    struct life *l = life_begin(42, 1);
    life_rest(l);
    life_kill(l);
    life_start(l);
    assert_true(shard(l)->ready);
    assert_null(shard(l)->arrival.reserved);
    life_end(l);
}

// ---------------------------------------------------------------- the outbox

static void count(void *arg, const char *name)
{
    uint32_t of;
    uint64_t incarnation, step;
    *(size_t *)arg += wk_outbox_named(name, &of, &incarnation, &step);
}

static size_t files(struct life *l)
{
    size_t n = 0;
    lh_err err = disk(l)->ops->files->list(disk(l), shard(l)->outbox.dir, count, &n);
    assert_int_equal(err, LH_OK);
    return n;
}

// A push that is stable, folded and covered by a snapshot is not needed any more; its file is
// removed.
TEST(trimmed_pushes_lose_their_files)
{
    struct life *l = life_begin(43, 1);
    until_snapshot(l);
    life_cut(l, 40);
    const struct wk_outbox *o = &shard(l)->outbox;
    bool same = false;
    for (int i = 0; i < 2000 && !same; i++) {
        life_run(l, LH_MS);
        same = !shard(l)->cut && files(l) == o->entries;
    }
    assert_true(same);
    assert_true(o->entries < shard(l)->progress.cut_count);
    life_end(l);
}

// A file above the slot was never committed. It must stay removed: if a power cut brought it back
// and lost the slot, it would count as a lost push.
TEST(uncommitted_files_stay_removed)
{
    for (uint64_t seed = 44; seed < 56; seed++) { // a power cut's losses are random
        struct life *l = life_begin(seed, 1);
        struct lh_buf b = lh_buf(64);
        char path[160];
        life_rest(l);
        snprintf(path, sizeof path, "%s/0000-%016llx-%016llx", shard(l)->outbox.dir,
                 (unsigned long long)l->worker->incarnation.number,
                 (unsigned long long)shard(l)->slot.committed->next);
        life_kill(l);
        lh_fake_boot(disk(l));
        assert_int_equal(lh_file_replace(disk(l), path, lh_span("torn", 4)), LH_OK);
        lh_fake_kill(disk(l), false);
        life_start(l);
        assert_int_equal(l->worker->count.lost, 0);
        rig_life_end(l->rig, &l->core, true);
        life_start(l);
        assert_int_equal(lh_file_load(disk(l), path, &b), LH_ERR_NOT_FOUND);
        assert_int_equal(life_said(l, "outbox.damaged"), 0);
        lh_buf_free(&b);
        life_end(l);
    }
}

// ---------------------------------------------------------------- slots

// A join that was cut short may leave a slot for one shard and none for the other. The next start
// creates the missing one: only a slot tells a committed cut from one that was never made.
TEST(a_join_that_was_cut_short_is_completed_for_all_shards)
{
    unsigned short_of_one = 0;
    for (int n = 0, joined = 0; !joined; n++) {
        struct life *l = life_begin(57, RIG_SHARDS);
        life_kill(l);
        lh_fake_disk_wipe(disk(l));
        life_start(l);
        lh_fake_crash_at(disk(l), n, false);
        for (int i = 0; i < 10000 && l->worker->fresh && lh_fake_alive(disk(l)); i++)
            life_run(l, LH_MS);
        joined = lh_fake_alive(disk(l));
        lh_fake_crash_at(disk(l), -1, false);
        const struct wk_shard *s = l->worker->shard;
        short_of_one += s[0].slot.files.generation && !s[1].slot.files.generation;
        life_kill(l);
        life_start(l);
        for (int i = 0; i < 10000 && l->worker->fresh; i++) life_run(l, LH_MS);
        assert_false(l->worker->fresh);
        for (uint32_t k = 0; k < RIG_SHARDS; k++)
            assert_true(l->worker->shard[k].slot.files.generation > 0);
        life_cut(l, 2);
        life_rest(l);
        assert_int_equal(life_said(l, "residual.rebuilt"), 0);
        life_end(l);
    }
    assert_true(short_of_one > 0);
}

// ---------------------------------------------------------------- durable copies

static bool offered(const struct rig *r, uint64_t version)
{
    struct ps_rebuild *b = r->server->shard[0]->rebuild;
    const struct ps_offer *o = b ? ps_rebuild_offer(b, lh_worker_id(&r->w[1].self)) : NULL;
    for (uint32_t i = 0; o && i < o->have_count; i++)
        if (o->have[i].at.version == version) return true;
    return false;
}

// A copy that could not be read when it was asked for is not offered again; the state in memory and
// the other copies are.
TEST(a_copy_that_cant_be_read_is_not_offered_again)
{
    for (int readable = 0; readable < 2; readable++) {
        struct life *l = life_begin(45, 1);
        struct rig *r = l->rig;
        const struct lh_ledger *ledger = &shard(l)->replica.ledger;
        for (int i = 0; i < 20000; i++) {
            life_run(l, LH_MS);
            if (shard(l)->copies.durable.version > 6 &&
                ledger->version > shard(l)->copies.durable.version + 1)
                break;
        }
        uint64_t version = shard(l)->copies.durable.version;
        assert_true(version > 6 && ledger->version > version + 1);
        rig_kill_server(r, false);
        lh_fake_disk_wipe(r->s.env);
        if (!readable) shard(l)->restore.unreadable = version;
        assert_int_equal(rig_start_server(r, false), LH_OK);
        for (int i = 0; i < 20000 && !offered(r, ledger->version); i++) life_run(l, LH_MS);
        assert_true(offered(r, ledger->version));
        assert_int_equal(offered(r, version), readable);
        life_end(l);
    }
}

// ---------------------------------------------------------------- units

// Units that are trained in part come first: otherwise each start would begin further ones.
TEST(begun_units_go_on_first)
{
    struct life *l = life_begin(47, 1);
    l->rig->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    uint32_t begun = 0;
    for (int i = 0; i < 400 && !begun; i++) {
        life_run(l, 50 * LH_MS);
        begun = l->worker->queued > 4 ? shard(l)->slot.committed->position_count : 0;
    }
    assert_true(begun > 0);
    life_kill(l);
    life_start(l);
    for (int i = 0; i < 400 && !l->worker->queued; i++) life_run(l, 10 * LH_MS);
    const struct wk_queued *q = l->worker->queue;
    assert_true(l->worker->queued > begun);
    for (uint32_t i = 0; i < begun; i++) assert_true(q[i].done > 0);
    life_end(l);
}

// A unit's position is kept until the unit is credited.
TEST(only_what_is_credited_is_forgotten)
{
    struct life *l = life_begin(48, 1);
    struct wk_worker *w = l->worker;
    const struct lh_ledger *ledger = &shard(l)->replica.ledger;
    uint64_t open[2], done = 0;
    for (int i = 0; i < 20000 && !ledger->credited; i++) life_run(l, LH_MS);
    assert_true(ledger->credited > 0);
    while (!lh_ledger_credited(ledger, done)) done++;
    uint32_t opens = 0;
    for (uint64_t u = 0; opens < 2; u++)
        if (!lh_ledger_credited(ledger, u)) open[opens++] = u;
    w->resume_count = 0;
    wk_units_keep_position(w, open[0], 5);
    wk_units_keep_position(w, done, 6);
    wk_units_keep_position(w, open[1], 7);
    assert_int_equal(w->resume_count, 2);
    assert_true(w->resume[0].unit == open[0] && w->resume[0].tokens == 5);
    assert_true(w->resume[1].unit == open[1] && w->resume[1].tokens == 7);
    life_end(l);
}
