// The slot: the newest intact file counts, never a torn one, and after a power cut only a synced
// one.
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "tests/world/env_fake.h"
#include "worker/push/slot.h"

enum { VALUES = 300 }; // more than a sector, so that a write can be torn
static const char A[] = "state/slot-0003-a", B[] = "state/slot-0003-b";

struct machine {
    struct lh_fake_world *world;
    struct lh_env *env;
    float residual[VALUES], got[VALUES];
    struct wk_claim claim[3];
    struct wk_position position[5];
};

static int make_machine(void **state)
{
    struct machine *m = calloc(1, sizeof *m);
    if (!m) return -1;
    m->world = lh_fake_world_create(7);
    m->env = lh_fake_node(m->world, NULL, NULL);
    lh_fake_boot(m->env);
    for (uint32_t i = 0; i < 3; i++) {
        m->claim[i].unit = (uint32_t[]){3, 99, UINT32_MAX}[i];
        m->claim[i].grant = (struct lh_grant){7 + i, {[0] = (uint8_t)i, [15] = 0xff}};
    }
    for (uint64_t i = 0; i < 5; i++) m->position[i] = (struct wk_position){100 + i, 1000 * i + 1};
    *state = m;
    return 0;
}

static int free_machine(void **state)
{
    struct machine *m = *state;
    lh_fake_world_destroy(m->world);
    free(m);
    return 0;
}

// Opens the slots as a fresh process does.
static struct wk_slots open_slots(struct machine *m)
{
    struct wk_slots s = {.env = m->env, .dir = "state", .shard = 3, .values = VALUES};
    m->env->ops->boot_id(m->env, s.boot);
    return s;
}

// The n-th slot; every field and value is derived from n.
static struct wk_slot slot_of(struct machine *m, uint64_t n)
{
    for (int i = 0; i < VALUES; i++) m->residual[i] = (float)n * 1000 + (float)i;
    bool beside = n % 3 == 2; // the slot of an external trainer has a cut
    return (struct wk_slot){.incarnation = {n << 32 | 1, n + 7},
                            .cut = beside ? n + 50 : 0,
                            .life = {beside ? (uint8_t)n : 0, [15] = beside ? 9 : 0},
                            .gone_incarnation = n + 20,
                            .gone_step = n + 21,
                            .next = n + 30,
                            .decided = n + 29,
                            .decided_admitted = n % 2 != 0,
                            .decided_epoch = n * 9000000000001,
                            .tokens = n + 40,
                            .claim = m->claim,
                            .position = m->position,
                            .claim_count = (uint32_t)(n % 4),
                            .position_count = (uint32_t)(n % 6)};
}

static lh_err flip(struct machine *m, struct wk_slots *s, uint64_t n, bool sync)
{
    struct wk_slot slot = slot_of(m, n);
    return wk_slot_flip(s, &slot, m->residual, sync);
}

static void assert_slot(struct machine *m, const struct wk_slot *got, uint64_t n)
{
    struct wk_slot want = slot_of(m, n);
    assert_true(lh_incarnation_equal(got->incarnation, want.incarnation));
    assert_int_equal(got->gone_incarnation, want.gone_incarnation);
    assert_int_equal(got->gone_step, want.gone_step);
    assert_int_equal(got->next, want.next);
    assert_int_equal(got->decided, want.decided);
    assert_int_equal(got->decided_admitted, want.decided_admitted);
    assert_int_equal(got->decided_epoch, want.decided_epoch);
    assert_int_equal(got->tokens, want.tokens);
    assert_int_equal(got->cut, want.cut);
    assert_memory_equal(got->life, want.life, sizeof want.life);
    assert_int_equal(got->position_count, want.position_count);
    assert_memory_equal(got->position, m->position, want.position_count * sizeof *m->position);
    assert_int_equal(got->claim_count, want.claim_count);
    assert_memory_equal(got->claim, m->claim, want.claim_count * sizeof *m->claim);
    assert_memory_equal(m->got, m->residual, sizeof m->got);
}

// Expects a fresh process to find slot n in this state.
static void assert_loads(struct machine *m, uint64_t n, enum wk_slot_state wanted)
{
    struct wk_slots s = open_slots(m);
    struct wk_slot got;
    enum wk_slot_state found;
    assert_int_equal(wk_slot_load(&s, &got, m->got, &found), LH_OK);
    assert_int_equal(found, wanted);
    assert_int_equal(s.generation, n);
    assert_slot(m, &got, n);
    wk_slot_free(&got);
}

static enum wk_slot_state state_without_slot(struct machine *m)
{
    struct wk_slots s = open_slots(m);
    struct wk_slot got;
    enum wk_slot_state found;
    assert_int_equal(wk_slot_load(&s, &got, m->got, &found), LH_OK);
    assert_null(got.claim);
    assert_int_equal(s.generation, 0);
    return found;
}

#define ON_MACHINE(name, parameter) TEST_WITH(name, parameter, make_machine, free_machine)

ON_MACHINE(the_newest_counts, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    assert_int_equal(state_without_slot(m), WK_SLOT_ABSENT);
    for (uint64_t n = 1; n <= 9; n++) { // the number of claims varies
        assert_int_equal(flip(m, &s, n, false), LH_OK);
        assert_loads(m, n, WK_SLOT_INTACT);
    }
    lh_fake_kill(m->env, false); // kill -9 loses nothing
    lh_fake_boot(m->env);
    assert_loads(m, 9, WK_SLOT_INTACT);
}

ON_MACHINE(the_older_counts_when_the_newest_is_damaged, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    for (uint64_t n = 1; n <= 3; n++) assert_int_equal(flip(m, &s, n, false), LH_OK);
    static const uint64_t at[] = {0, 9, 60, 130, 400, 1000}; // from the magic to the residual
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        assert_int_equal(lh_fake_flip(m->env, B, at[i], 4), LH_OK);
        assert_loads(m, 2, WK_SLOT_INTACT);
        assert_int_equal(lh_fake_flip(m->env, B, at[i], 4), LH_OK);
        assert_loads(m, 3, WK_SLOT_INTACT);
    }
    assert_int_equal(lh_fake_flip(m->env, A, 70, 4), LH_OK);
    assert_int_equal(lh_fake_flip(m->env, B, 70, 4), LH_OK);
    assert_int_equal(state_without_slot(m), WK_SLOT_LOST); // there was a slot, so not ABSENT
}

ON_MACHINE(a_flip_is_all_or_nothing, struct machine *m)
{
    uint64_t have = 4;
    struct wk_slots s = open_slots(m);
    for (uint64_t n = 1; n <= have; n++) assert_int_equal(flip(m, &s, n, false), LH_OK);
    bool torn = false, whole = false;
    for (int round = 0; round < 40; round++) {
        s = open_slots(m);
        s.generation = have;
        lh_fake_crash_at(m->env, round % 6, false);
        lh_err err = flip(m, &s, have + 1, false);
        lh_fake_crash_at(m->env, -1, false);
        if (lh_fake_alive(m->env)) lh_fake_kill(m->env, false);
        lh_fake_boot(m->env);
        struct wk_slots fresh = open_slots(m);
        struct wk_slot got;
        enum wk_slot_state found;
        assert_int_equal(wk_slot_load(&fresh, &got, m->got, &found), LH_OK);
        assert_int_equal(found, WK_SLOT_INTACT);
        assert_true(fresh.generation == have || fresh.generation == have + 1);
        if (!err) assert_int_equal(fresh.generation, have + 1);
        assert_slot(m, &got, fresh.generation);
        wk_slot_free(&got);
        torn = torn || fresh.generation == have;
        whole = whole || fresh.generation > have;
        have = fresh.generation;
    }
    assert_true(torn && whole); // both outcomes occurred
}

ON_MACHINE(another_boot_loses_what_was_not_synced, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    assert_int_equal(flip(m, &s, 1, true), LH_OK);
    lh_fake_kill(m->env, true);
    lh_fake_boot(m->env);
    assert_loads(m, 1, WK_SLOT_INTACT);
    // The disk lost nothing, but the machine was restarted, so the unsynced slot does not count.
    assert_int_equal(flip(m, &s, 2, false), LH_OK);
    struct lh_file *file; // an unrelated sync makes the bytes durable
    assert_int_equal(m->env->ops->files->open(m->env, A, LH_OPEN_WRITE, &file), LH_OK);
    assert_int_equal(m->env->ops->files->sync(file), LH_OK);
    m->env->ops->files->close(file);
    assert_int_equal(m->env->ops->files->sync_dir(m->env, "state"), LH_OK);
    lh_fake_kill(m->env, true);
    lh_fake_boot(m->env);
    assert_loads(m, 2, WK_SLOT_LOST);
}

// Flips after the synced slot of an orderly end may have been followed by sends, so that slot is
// outdated.
ON_MACHINE(a_synced_slot_does_not_outlive_later_flips, struct machine *m)
{
    for (int round = 0; round < 60; round++) {
        lh_fake_disk_wipe(m->env);
        struct wk_slots s = open_slots(m);
        assert_int_equal(flip(m, &s, 1, true), LH_OK);
        lh_fake_kill(m->env, true);
        lh_fake_boot(m->env);
        s = open_slots(m);
        struct wk_slot got;
        enum wk_slot_state found;
        assert_int_equal(wk_slot_load(&s, &got, m->got, &found), LH_OK);
        assert_int_equal(found, WK_SLOT_INTACT);
        wk_slot_free(&got);
        for (uint64_t n = 2; n <= 2 + (uint64_t)round % 4; n++)
            assert_int_equal(flip(m, &s, n, false), LH_OK);
        lh_fake_kill(m->env, true);
        lh_fake_boot(m->env);
        s = open_slots(m);
        assert_int_equal(wk_slot_load(&s, &got, m->got, &found), LH_OK);
        assert_int_equal(found, WK_SLOT_LOST);
        wk_slot_free(&got);
    }
}

// The two flips after a start or after a synced flip are synced too, one in each file, so that no
// file still claims to be synced. Later flips do not wait for the disk.
ON_MACHINE(two_flips_are_synced_and_no_more, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    assert_int_equal(flip(m, &s, 1, true), LH_OK);
    assert_int_equal(flip(m, &s, 2, false), LH_OK);
    lh_fake_fail_sync_at(m->env, 0);
    assert_int_equal(flip(m, &s, 3, false), LH_ERR_IO);
    assert_int_equal(flip(m, &s, 3, false), LH_OK);
    lh_fake_fail_sync_at(m->env, 0);
    assert_int_equal(flip(m, &s, 4, false), LH_OK);
    lh_fake_fail_sync_at(m->env, -1);
}

ON_MACHINE(a_snapshot_that_was_removed_stays_away_after_a_power_cut, struct machine *m)
{
    struct wk_slot got, slot = slot_of(m, 5);
    // a power cut randomly keeps or loses unsynced writes
    for (int round = 0; round < 12; round++) {
        struct wk_slots s = open_slots(m);
        assert_int_equal(wk_snapshot_write(&s, &slot, m->residual), LH_OK);
        assert_int_equal(wk_snapshot_remove(&s), LH_OK);
        lh_fake_kill(m->env, true);
        lh_fake_boot(m->env);
        s = open_slots(m);
        assert_int_equal(wk_snapshot_load(&s, &got, m->got), LH_ERR_NOT_FOUND);
    }
}

ON_MACHINE(a_snapshot_survives_a_power_cut, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    struct wk_slot got, slot = slot_of(m, 5);
    assert_int_equal(wk_snapshot_load(&s, &got, m->got), LH_ERR_NOT_FOUND);
    s.generation = 5;
    assert_int_equal(wk_snapshot_write(&s, &slot, m->residual), LH_OK);
    lh_fake_kill(m->env, true);
    lh_fake_boot(m->env);
    s = open_slots(m);
    assert_int_equal(wk_snapshot_load(&s, &got, m->got), LH_OK);
    assert_slot(m, &got, 5);
    wk_slot_free(&got);
    assert_int_equal(lh_fake_flip(m->env, "state/residual-0003", 700, 1), LH_OK);
    assert_int_equal(wk_snapshot_load(&s, &got, m->got), LH_ERR_NOT_FOUND);
    assert_null(got.claim);
}

// Sets the version in a file's head of `head` bytes and fixes the checksum.
static void says_version(struct machine *m, const char *path, uint8_t version, size_t head)
{
    struct lh_buf b = lh_buf(1 << 16), field = lh_buf(8);
    assert_int_equal(lh_file_load(m->env, path, &b), LH_OK);
    b.data[4] = version;
    lh_put_u32(&field, lh_crc32c(0, b.data, head));
    memcpy(b.data + head, field.data, 4);
    assert_int_equal(lh_file_replace(m->env, path, lh_buf_span(&b)), LH_OK);
    lh_buf_free(&b);
    lh_buf_free(&field);
}

ON_MACHINE(a_version_that_never_was_does_not_count, struct machine *m)
{
    static const uint8_t versions[] = {4, 0, 3, 5}; // 4 is the version that is written
    for (size_t i = 0; i < LH_COUNT(versions); i++) {
        struct wk_slots s = open_slots(m);
        assert_int_equal(flip(m, &s, 1, false), LH_OK); // slot 1 has one claim and one position
        says_version(m, B, versions[i], 144 + 24 + 16 + 4);
        if (i == 0)
            assert_loads(m, 1, WK_SLOT_INTACT);
        else
            assert_int_equal(state_without_slot(m), WK_SLOT_LOST);
    }
}

ON_MACHINE(a_slot_of_another_model_does_not_count, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    assert_int_equal(flip(m, &s, 1, false), LH_OK);
    s = open_slots(m);
    s.values = VALUES - 1;
    struct wk_slot got;
    enum wk_slot_state found;
    assert_int_equal(wk_slot_load(&s, &got, m->got, &found), LH_OK);
    assert_int_equal(found, WK_SLOT_LOST);
    assert_null(got.claim);
}

static enum wk_slot_state load_first(struct machine *m, uint64_t next)
{
    static const float zero[VALUES];
    struct wk_slots s = open_slots(m);
    struct wk_slot got;
    enum wk_slot_state found;
    assert_int_equal(wk_slot_load(&s, &got, m->got, &found), LH_OK);
    if (found == WK_SLOT_INTACT) {
        assert_int_equal(got.next, next);
        assert_memory_equal(m->got, zero, sizeof zero);
    }
    wk_slot_free(&got);
    return found;
}

// A first slot is complete or absent, because there is no other to fall back to. A file that a
// killed process left unfinished does not count.
ON_MACHINE(a_first_slot_is_whole_and_durable, struct machine *m)
{
    struct wk_slot slot = slot_of(m, 3);
    lh_err err = LH_ERR_IO;
    int absent = 0;
    for (int64_t at = 0; err; at++) {
        struct wk_slots s = open_slots(m);
        lh_fake_crash_at(m->env, at, false);
        err = wk_slot_flip(&s, &slot, NULL, true);
        lh_fake_crash_at(m->env, -1, false);
        if (err) lh_fake_boot(m->env);
        enum wk_slot_state found = load_first(m, slot.next);
        assert_int_not_equal(found, WK_SLOT_LOST);
        absent += found == WK_SLOT_ABSENT;
    }
    assert_true(absent >= 3);
    // a power cut randomly keeps or loses unsynced writes
    for (int round = 0; round < 12; round++) {
        lh_fake_disk_wipe(m->env);
        struct wk_slots s = open_slots(m);
        assert_int_equal(wk_slot_flip(&s, &slot, NULL, true), LH_OK);
        lh_fake_kill(m->env, true); // power cut
        lh_fake_boot(m->env);
        assert_int_equal(load_first(m, slot.next), WK_SLOT_INTACT);
    }
}

// Whichever part of a flip finds the disk full, and however much was written: after a kill the
// previous slot counts, and the same process writes the new one once there is space.
ON_MACHINE(a_flip_that_found_no_room_is_not_there, struct machine *m)
{
    uint64_t have = 3;
    struct wk_slots s = open_slots(m);
    int full = 0;
    for (uint64_t n = 1; n <= have; n++) assert_int_equal(flip(m, &s, n, false), LH_OK);
    for (int64_t at = 0; at < 8; at++)
        for (int sync = 0; sync < 2; sync++) {
            lh_fake_fail_at(m->env, at, LH_ERR_DISK_FULL);
            lh_err err = flip(m, &s, have + 1, sync);
            lh_fake_fail_at(m->env, -1, LH_OK);
            full += err != LH_OK;
            if (err) {
                assert_int_equal(err, LH_ERR_DISK_FULL);
                assert_int_equal(s.generation, have);
                assert_loads(m, have, WK_SLOT_INTACT);
                assert_int_equal(flip(m, &s, have + 1, sync), LH_OK);
            }
            assert_loads(m, ++have, WK_SLOT_INTACT);
        }
    assert_true(full >= 8);
}

// The second slot file is new, and its first write got less than a magic number onto the disk.
// Undoing the write must need no space.
ON_MACHINE(a_second_file_that_found_no_room_leaves_the_first, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    assert_int_equal(flip(m, &s, 1, false), LH_OK);
    for (uint64_t left = 0; left < 8; left++) {
        lh_fake_disk_limit(m->env, lh_fake_disk_used(m->env) + left);
        lh_fake_harm(m->env, &(struct lh_fake_harm){.seed = left + 1, .short_writes = true});
        assert_int_equal(flip(m, &s, 2, false), LH_ERR_DISK_FULL);
        lh_fake_disk_limit(m->env, 0);
        assert_loads(m, 1, WK_SLOT_INTACT);
    }
    assert_int_equal(flip(m, &s, 2, false), LH_OK);
    assert_loads(m, 2, WK_SLOT_INTACT);
}

ON_MACHINE(a_first_slot_that_found_no_room_is_not_there, struct machine *m)
{
    struct wk_slot slot = slot_of(m, 3);
    lh_err err = LH_ERR_DISK_FULL;
    int absent = 0;
    for (int64_t at = 0; err; at++) {
        struct wk_slots s = open_slots(m);
        lh_fake_fail_at(m->env, at, LH_ERR_DISK_FULL);
        err = wk_slot_flip(&s, &slot, NULL, true);
        lh_fake_fail_at(m->env, -1, LH_OK);
        if (err) assert_int_equal(err, LH_ERR_DISK_FULL);
        if (err) assert_int_equal(load_first(m, slot.next), WK_SLOT_ABSENT);
        absent += err != LH_OK;
    }
    assert_true(absent >= 5);
    assert_int_equal(load_first(m, slot.next), WK_SLOT_INTACT);
}

static lh_err no_room_to_remove(struct lh_env *env, const char *path)
{
    (void)env;
    return lh_fail(LH_ERR_DISK_FULL, "%s: no room to remove it", path);
}

// The unfinished file can't be removed either. The error must not be "disk full", which would
// promise that nothing was written.
ON_MACHINE(a_first_slot_that_cant_be_undone_is_no_full_disk, struct machine *m)
{
    const struct lh_env_ops *ops = m->env->ops;
    struct lh_env_ops broken = *ops;
    struct lh_files_ops files = *ops->files;
    struct wk_slot slot = slot_of(m, 3);
    struct wk_slots s = open_slots(m);
    files.remove = no_room_to_remove;
    broken.files = &files;
    m->env->ops = &broken;
    lh_fake_disk_limit(m->env, lh_fake_disk_used(m->env) + 8);
    assert_int_equal(wk_slot_flip(&s, &slot, NULL, true), LH_ERR_IO);
    m->env->ops = ops;
}

static enum wk_slot_state reload(struct machine *m, bool power, uint64_t *generation)
{
    struct wk_slots s = open_slots(m);
    struct wk_slot got;
    enum wk_slot_state found;
    lh_fake_kill(m->env, power);
    lh_fake_boot(m->env);
    m->env->ops->boot_id(m->env, s.boot);
    assert_int_equal(wk_slot_load(&s, &got, m->got, &found), LH_OK);
    wk_slot_free(&got);
    *generation = s.generation;
    return found;
}

// Wipes the disk and writes a first slot to it.
static struct wk_slots begun(struct machine *m)
{
    struct wk_slot slot = slot_of(m, 3);
    lh_fake_disk_wipe(m->env);
    struct wk_slots s = open_slots(m);
    assert_int_equal(wk_slot_flip(&s, &slot, NULL, true), LH_OK);
    return s;
}

// A flip counts at the next start even if a kill came before its sync or the sync failed. A power
// cut must not undo it by restoring the earlier synced slot, because pushes may have been sent
// since.
static void is_not_undone(struct machine *m, bool fails)
{
    int read = 0;
    for (int64_t at = 0; at < 40; at++) {
        uint64_t generation;
        struct wk_slots s = begun(m);
        if (fails)
            lh_fake_fail_at(m->env, at % 6, LH_ERR_IO);
        else
            lh_fake_crash_at(m->env, at % 5, false);
        lh_err err = flip(m, &s, 2, false);
        lh_fake_crash_at(m->env, -1, false);
        lh_fake_fail_at(m->env, -1, LH_OK);
        bool counts = reload(m, false, &generation) == WK_SLOT_INTACT && generation == 2;
        read += err && counts;
        enum wk_slot_state found = reload(m, true, &generation);
        if (counts) assert_true(found == WK_SLOT_LOST && generation == 2);
    }
    assert_true(read);
}

ON_MACHINE(a_flip_read_at_a_start_is_not_undone, struct machine *m)
{
    is_not_undone(m, false);
    is_not_undone(m, true);
}

// The same if the disk restores the synced slot in place of the flip whose sync failed, and the
// flip after the start is torn in the other file.
ON_MACHINE(a_torn_flip_brings_no_synced_one_back, struct machine *m)
{
    int torn = 0;
    for (int64_t at = 0; at < 40; at++) {
        uint64_t generation;
        struct wk_slots s = begun(m);
        assert_int_equal(flip(m, &s, 2, false), LH_OK);
        lh_fake_fail_at(m->env, at % 6, LH_ERR_IO);
        lh_err err = flip(m, &s, 3, false);
        lh_fake_fail_at(m->env, -1, LH_OK);
        bool counts = reload(m, false, &generation) == WK_SLOT_INTACT && generation == 3 && err;
        s = open_slots(m);
        s.settle = 2;
        s.generation = generation;
        lh_fake_crash_at(m->env, at % 5, false);
        torn += counts && flip(m, &s, 4, false);
        lh_fake_crash_at(m->env, -1, false);
        enum wk_slot_state found = reload(m, true, &generation);
        if (counts) assert_true(found == WK_SLOT_LOST && generation >= 3);
    }
    assert_true(torn);
}

// Giving up a change reads the newest file again, also after a flip that found the disk full.
ON_MACHINE(the_newest_residual_is_read_again, struct machine *m)
{
    struct wk_slots s = open_slots(m);
    struct wk_slot first = slot_of(m, 1);
    const float zero[VALUES] = {0};
    struct lh_file *file;
    assert_int_equal(wk_slot_flip(&s, &first, NULL, true), LH_OK);
    assert_int_equal(wk_slot_residual(&s, m->got), LH_OK);
    assert_memory_equal(m->got, zero, sizeof zero);
    for (uint64_t n = 2; n < 5; n++) {
        assert_int_equal(flip(m, &s, n, false), LH_OK);
        lh_fake_fail_at(m->env, (int64_t)n - 1, LH_ERR_DISK_FULL);
        assert_int_equal(flip(m, &s, n + 1, false), LH_ERR_DISK_FULL);
        lh_fake_fail_at(m->env, -1, LH_OK);
        slot_of(m, n);
        memset(m->got, 0xff, sizeof m->got);
        assert_int_equal(wk_slot_residual(&s, m->got), LH_OK);
        assert_memory_equal(m->got, m->residual, sizeof m->got);
    }
    const char *path = s.generation % 2 ? B : A;
    uint64_t size;
    assert_int_equal(m->env->ops->files->open(m->env, path, LH_OPEN_WRITE, &file), LH_OK);
    assert_int_equal(m->env->ops->files->size(file, &size), LH_OK);
    assert_int_equal(m->env->ops->files->write(file, size - 3, lh_span((uint8_t[]){77}, 1)), LH_OK);
    m->env->ops->files->close(file);
    assert_int_equal(wk_slot_residual(&s, m->got), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), path));
}
