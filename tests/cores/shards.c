// Two shards of one server, with one log: each operation covers both shards. A loop that ended
// after the first would pass every test with one shard.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/wal/quarantine.h"
#include "tests/cores/image.h"

static int two_shards(void **state)
{
    struct rig *r = rig_new(1);
    *state = r;
    rig_two_shards(r);
    return 0;
}

static const struct lh_ledger *ledger(struct rig *r, uint32_t shard)
{
    return &r->server->shard[shard]->replica.ledger;
}

static void assert_settled(struct rig *r)
{
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        const struct lh_ledger *head = r->server->shard[k]->head;
        assert_int_equal(head->version, ledger(r, k)->version);
        assert_int_equal(head->rows, ledger(r, k)->rows);
        assert_true(lh_hash_equal(&head->chain, &ledger(r, k)->chain));
    }
}

// Worker 0 greets both shards with its n-th incarnation, without waiting between: one group.
static void greet_both(struct rig *r, uint64_t n)
{
    for (r->shard = 0; r->shard < RIG_SHARDS; r->shard++) rig_greet(r, 0, n << 32, 0, 1);
    r->shard = 0;
}

static void restart(struct rig *r, bool alone)
{
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, alone), LH_OK);
}

// ---------------------------------------------------------------- a damaged file

#define TWO(name, parameter) TEST_WITH(name, parameter, two_shards, rig_tear_down)

// Each shard can be rebuilt from its own state, even if the other shard's file is damaged.
TWO(a_damaged_file_of_one_leaves_the_other_its_state, struct rig *r)
{
    char path[160];
    for (uint64_t i = 0; i < r->manifest.values; i++) r->initial[i] = 32;
    rig_serve(r, LH_SECOND);
    rig_kill_server(r, false);
    lh_fake_boot(r->s.env);
    snprintf(path, sizeof path, "%s/epoch-%04x", r->s.dir, r->shard);
    assert_int_equal(lh_fake_flip(r->s.env, path, 12, 1), LH_OK);
    lh_fake_kill(r->s.env, false);
    r->rebuild_damaged = true;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    assert_true(r->server->log.damaged);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_true(r->server->shard[k]->replica.theta[0] == 32);
}

// ---------------------------------------------------------------- a full disk

TWO(a_full_disk_takes_back_both_shards, struct rig *r)
{
    r->segment_bytes = 1024;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->server->conf.checkpoint_every = 0;
    greet_both(r, 1);
    rig_run(r, LH_SECOND);
    lh_fake_disk_limit(r->s.env, 1);
    uint64_t n = 1, groups = r->server->count.groups;
    while (!r->server->count.full && n < 20) {
        greet_both(r, ++n);
        rig_run(r, 20 * LH_MS);
    }
    assert_int_equal(r->server->count.full, 1);
    assert_true(r->server->count.groups > groups);
    assert_settled(r);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) { // the failed group changed neither shard
        assert_int_equal(ledger(r, k)->version, n - 1);
        assert_int_equal(ledger(r, k)->row[0].incarnation.number >> 32, n - 1);
    }
    lh_fake_disk_limit(r->s.env, 0);
    greet_both(r, n);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(r->fatal_count, 0);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(ledger(r, k)->version, n);
    restart(r, true);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(ledger(r, k)->version, n);
}

// The disk is full at the n-th file operation from here, in the middle of a group of both shards;
// then come a smaller group, if `smaller`, and a crash. Returns whether an operation failed.
static bool full_at(int n, bool smaller, bool power)
{
    struct rig *r = rig_new(1);
    rig_two_shards(r);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->server->conf.mark_ns = 60 * LH_SECOND; // no mark between the groups
    greet_both(r, 1);
    rig_run(r, LH_SECOND);
    lh_fake_fail_at(r->s.env, n, LH_ERR_DISK_FULL);
    for (uint64_t i = 2; i <= 4; i++) greet_both(r, i);
    rig_run(r, 500 * LH_MS);
    bool failed = lh_fake_failed(r->s.env),
         ended = r->fatal_count > 0; // a sync failed: this is final
    lh_fake_fail_at(r->s.env, -1, LH_OK);
    assert_true(ended || r->server->count.full == failed);
    uint64_t version[RIG_SHARDS];
    if (!ended) assert_settled(r);
    if (!ended && smaller) rig_hello(r, 1, UINT64_C(77) << 32, 0, 1); // one record
    for (uint32_t k = 0; k < RIG_SHARDS; k++) version[k] = ledger(r, k)->version;
    rig_kill_server(r, power);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    bool torn = r->server->log.torn; // if so, an EPOCH record follows
    assert_true(!torn || (power && !smaller));
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        if (!ended) assert_int_equal(ledger(r, k)->version, version[k] + torn);
        if (!ended) assert_int_equal(ledger(r, k)->rows, 1 + (!k && smaller));
        assert_true(ledger(r, k)->version >= version[k]);
    }
    rig_free(r);
    return failed;
}

TEST(a_group_that_was_taken_back_leaves_nothing_behind)
{
    for (int way = 0; way < 4; way++) {
        int n = 0;
        while (full_at(n, way & 1, way & 2)) n++;
        assert_true(n > 6); // head and body of each record, and the sync
    }
}

// ---------------------------------------------------------------- the log's two ends

// Shard 1 has no checkpoint, so it needs the log from its beginning; shard 0 has many.
TWO(records_that_either_shard_needs_stay_in_the_log, struct rig *r)
{
    r->segment_bytes = 1024;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->shard = 1;
    rig_log(r, 1, 3);
    r->shard = 0;
    rig_log(r, 1, 60);
    rig_run(r, LH_SECOND);
    assert_true(r->server->shard[0]->checkpointed > 50);
    assert_int_equal(r->server->shard[1]->checkpointed, 0);
    restart(r, true);
    assert_int_equal(ledger(r, 0)->version, 60);
    assert_int_equal(ledger(r, 1)->version, 3);
    r->shard = 1;
    rig_log(r, 4, 20); // checkpoints of both shards cut the log
    rig_run(r, LH_SECOND);
    assert_non_null(ps_shard_place_from(r->server->shard[1], 1));
    assert_true(ps_shard_place_from(r->server->shard[1], 1)->segment > 1);
    restart(r, true);
    assert_int_equal(ledger(r, 1)->version, 20);
}

// Only one state is copied at a time. A shard that waited for the other's checkpoint makes its own
// after that, even if nothing is pushed.
TWO(a_checkpoint_that_waited_for_the_other_shard_s_is_made, struct rig *r)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->server->conf.checkpoint_every = 5;
    r->server->conf.mark_ns = 60 * LH_SECOND; // a mark is a group too, which checks all shards
    for (uint64_t n = 1; n <= 5; n++) {
        greet_both(r, n);
        rig_run(r, n < 5 ? 100 * LH_MS : 5 * LH_SECOND);
    }
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_equal(ledger(r, k)->version, 5);
        assert_int_equal(r->server->shard[k]->checkpointed, 5);
    }
}

// A torn tail may have held records of either shard.
TWO(a_torn_tail_begins_a_new_epoch_of_both_shards, struct rig *r)
{
    rig_serve(r, 2 * LH_SECOND);
    r->server->conf.mark_ns = 600 * LH_SECOND; // no mark says that the last group was durable
    greet_both(r, 1);
    rig_run(r, 10 * LH_MS);
    greet_both(r, 2);
    rig_run(r, 10 * LH_MS);
    uint64_t epoch[RIG_SHARDS];
    for (uint32_t k = 0; k < RIG_SHARDS; k++) epoch[k] = ledger(r, k)->epoch;
    rig_kill_server(r, false);
    image_damage_tail(&r->s);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    assert_true(r->server->log.torn);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(ledger(r, k)->epoch, epoch[k] + 1);
    assert_int_equal(r->fatal_count, 0);
}

// Checkpoints and segments are in different folders: a sync of one does not cover the other.
TEST(a_power_cut_takes_no_name_that_is_needed)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rig *r = rig_new(seed);
        rig_two_shards(r);
        r->segment_bytes = 1024;
        lh_fake_folders_apart(r->s.env);
        for (uint64_t life = 0; life < 3; life++) {
            assert_int_equal(rig_start_server(r, true), LH_OK);
            for (uint64_t n = 1; n <= 7; n++) {
                greet_both(r, 7 * life + n);
                rig_run(r, (int64_t)(seed % 4) * 10 * LH_MS); // some greetings share a group
            }
            rig_run(r, LH_SECOND);
            uint64_t version[RIG_SHARDS] = {ledger(r, 0)->version, ledger(r, 1)->version};
            for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_true(version[k] >= 7 * life);
            rig_kill_server(r, true);
            assert_int_equal(rig_start_server(r, true), LH_OK);
            for (uint32_t k = 0; k < RIG_SHARDS; k++)
                assert_int_equal(ledger(r, k)->version, version[k]);
            rig_kill_server(r, true);
        }
        rig_free(r);
    }
}

// ---------------------------------------------------------------- a plan

// The coordinator is down and sent the plan only once: it waits in memory until its record is
// durable.
TWO(a_plan_that_found_no_room_is_not_forgotten, struct rig *r)
{
    r->segment_bytes = 1024;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->server->conf.checkpoint_every = 0;
    lh_fake_disk_limit(r->s.env, 1);
    uint64_t n = 0;
    while (!r->server->count.full && n < 20) { // until the segment is full
        greet_both(r, ++n);
        rig_run(r, 20 * LH_MS);
    }
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        struct ps_shard *s = r->server->shard[k];
        s->plan = calloc(1, sizeof *s->plan);
        assert_non_null(s->plan);
        *s->plan = (struct lh_plan){.number = 7, .phase = LH_PHASE_RUN, .eta = 1};
    }
    rig_run(r, 5 * LH_SECOND);
    assert_true(r->server->count.full > 1);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(ledger(r, k)->plan.number, 0);
    lh_fake_disk_limit(r->s.env, 0);
    rig_run(r, 5 * LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_equal(ledger(r, k)->plan.number, 7);
        assert_null(r->server->shard[k]->plan);
    }
    assert_int_equal(r->fatal_count, 0);
}

// ---------------------------------------------------------------- logs set aside

static void count(void *arg, const char *name)
{
    (void)name;
    ++*(uint64_t *)arg;
}

static uint64_t segments(const struct rig *r)
{
    uint64_t n = 0;
    assert_int_equal(r->s.env->ops->files->list(r->s.env, r->server->wal_dir, count, &n), LH_OK);
    return n;
}

enum { FOLDERS = 3 };

static uint64_t left_in(const struct rig *r, uint64_t folder)
{
    char path[LH_PATH_BYTES];
    uint64_t n = 0;
    assert_int_equal(lh_path(path, sizeof path, r->server->conf.dir, "damaged-%016" PRIx64, folder),
                     LH_OK);
    lh_err err = r->s.env->ops->files->list(r->s.env, path, count, &n);
    assert_true(!err || err == LH_ERR_NOT_FOUND);
    return n;
}

static void put_aside(const struct rig *r, uint64_t folder)
{
    const struct lh_files_ops *files = r->s.env->ops->files;
    char path[LH_PATH_BYTES];
    assert_int_equal(lh_path(path, sizeof path, r->server->conf.dir, "damaged-%016" PRIx64, folder),
                     LH_OK);
    assert_int_equal(files->make_dir(r->s.env, path), LH_OK);
    for (int i = 0; i < 2; i++) {
        char file[LH_PATH_BYTES];
        assert_int_equal(lh_path(file, sizeof file, path, "segment-%d", i), LH_OK);
        assert_int_equal(lh_file_replace(r->s.env, file, lh_span("what was", 8)), LH_OK);
    }
    assert_int_equal(files->sync_dir(r->s.env, r->server->conf.dir), LH_OK);
}

// Cuts the power at the n-th file operation of a removal. Returns whether it was reached.
static bool removal_cut_at(uint64_t seed, int64_t n)
{
    struct rig *r = rig_new(seed);
    bool any;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (uint64_t k = 1; k <= FOLDERS; k++) put_aside(r, k);
    lh_fake_folders_apart(r->s.env);
    lh_fake_crash_at(r->s.env, n, true);
    lh_err err = ps_quarantine_remove(r->server, &any);
    bool cut = !lh_fake_alive(r->s.env);
    assert_true(cut || (!err && any));
    if (!cut) lh_fake_crash_at(r->s.env, -1, true);
    rig_kill_server(r, true);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(ps_quarantine_remove(r->server, &any), LH_OK);
    for (uint64_t k = 1; k <= FOLDERS; k++) assert_int_equal(left_in(r, k), 0);
    rig_free(r);
    return cut;
}

// Folders are numbered from 1 and looked up in order: a gap would hide the later ones forever.
TEST(a_removal_that_a_power_cut_ends_leaves_no_gap)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        int64_t n = 0;
        while (removal_cut_at(seed, n)) n++;
        assert_true(n > 2 * FOLDERS);
    }
}

static const struct lh_env_ops *real;
static int64_t dirs_left;
static bool kept; // the last synced folder is one of logs that were set aside

static lh_err sync_dir(struct lh_env *env, const char *path)
{
    kept = strstr(path, "/damaged-") != NULL;
    return dirs_left-- ? real->files->sync_dir(env, path) : lh_fail(LH_ERR_IO, "%s: no", path);
}

// Fails the n-th sync of a folder; *gone of *all segments were moved by then.
static lh_err set_aside(int64_t n, uint64_t *gone, uint64_t *all)
{
    struct rig *r = rig_new(5);
    r->segment_bytes = 1024;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->server->conf.checkpoint_every = 0;
    rig_log(r, 1, 30);
    *all = segments(r);
    real = r->s.env->ops;
    struct lh_files_ops files = *real->files;
    struct lh_env_ops failing = *real;
    files.sync_dir = sync_dir;
    failing.files = &files;
    dirs_left = n;
    r->s.env->ops = &failing;
    lh_err err = ps_quarantine_log(r->server);
    r->s.env->ops = real;
    *gone = *all - segments(r);
    rig_free(r);
    return err;
}

// A segment is moved only when the move of the one before it is durable: after a power cut the
// segments that are left are the log's end.
TEST(a_log_is_set_aside_one_segment_after_the_other)
{
    uint64_t gone, all, before = 0, stopped = 0;
    lh_err err = LH_ERR_IO;
    for (int64_t n = 0; err; n++) {
        err = set_aside(n, &gone, &all);
        assert_true(n < 100 && gone <= before + 1);
        stopped += err && gone == before + 1;
        before = gone;
    }
    assert_true(all > 3);
    assert_int_equal(gone, all);
    assert_int_equal(stopped, all);
    assert_true(kept); // a file system may sync each folder's names separately
}
