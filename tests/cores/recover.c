// Starts of a server whose log was cut below its newest checkpoint: the records in between are
// lost, so the server depends on its checkpoints (server/docs/0000-protocol.md#rule-18, #rule-23).
#include <stdio.h>
#include <stdlib.h>

#include "server/recovery/epoch.h"
#include "server/state/checkpointer.h"
#include "server/state/disk_full.h"
#include "server/wal/quarantine.h"
#include "tests/cores/image.h"

enum { RECORDS = 12, CUT = 9, CHECKPOINT = 10, CALLS_MAX = 400 };

static void damage(struct rig *r, const char *path, uint64_t from, uint64_t to)
{
    lh_fake_boot(r->s.env);
    for (uint64_t at = from; at < to; at += 8)
        assert_int_equal(lh_fake_flip(r->s.env, path, at, 1), LH_OK);
    lh_fake_kill(r->s.env, false);
}

// Leaves records 1 to CUT - 1, and the checkpoints of versions 5 and CHECKPOINT.
static void cut_the_log(struct rig *r)
{
    char path[160];
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, RECORDS);
    assert_int_equal(r->server->shard[0]->checkpointed, CHECKPOINT);
    const struct ps_shard *s = r->server->shard[0];
    struct ps_place first = *ps_shard_place(s, CUT), last = *ps_shard_place(s, RECORDS);
    assert_int_equal(first.segment, last.segment);
    rig_kill_server(r, false);
    snprintf(path, sizeof path, "%s/log/%016llx.seg", r->s.dir, (unsigned long long)first.segment);
    damage(r, path, first.at, last.at + 512); // 512: the mark behind the records
}

static void cut_below_the_checkpoint(struct rig *r)
{
    cut_the_log(r);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1); // EPOCH
    assert_int_equal(r->server->shard[0]->index[0].version, CHECKPOINT + 1);
}

RIG_TEST(a_second_checkpoint_is_written_at_once, struct rig *r)
{
    cut_below_the_checkpoint(r);
    rig_run(r, LH_SECOND); // without any push
    rig_kill_server(r, true);
    char path[160];
    snprintf(path, sizeof path, "%s/checkpoints/0000-%016x.ckpt", r->s.dir, CHECKPOINT);
    damage(r, path, 0, 8);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1);
    assert_int_equal(r->server->shard[0]->replica.ledger.row[0].incarnation.number >> 32,
                     CHECKPOINT);
}

// A checkpoint that found no disk space leaves another one due, which is tried after a pause.
RIG_TEST(a_second_checkpoint_that_was_not_written_stays_due, struct rig *r)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, RECORDS);
    struct ps_shard *shard = r->server->shard[0];
    shard->alone = true;
    lh_fake_disk_limit(r->s.env, lh_fake_disk_used(r->s.env) + 64);
    ps_checkpointer_start(shard);
    rig_run(r, LH_SECOND);
    assert_true(shard->unwritten && shard->alone);
    lh_fake_disk_limit(r->s.env, 0);
    rig_log(r, RECORDS + 1, RECORDS + 1);
    rig_run(r, 30 * LH_SECOND);
    assert_int_equal(shard->checkpointed, RECORDS + 1);
    assert_false(shard->unwritten || shard->alone);
    // The next checkpoint need not wait if the disk is full again.
    assert_int_equal(shard->disk_retry_at_ns, 0);
}

static lh_err there_is(struct rig *r, const char *path)
{
    struct lh_file *file;
    const struct lh_files_ops *files = r->s.env->ops->files;
    lh_err err = files->open(r->s.env, path, LH_OPEN_READ, &file);
    if (!err) files->close(file);
    return err;
}

// A damaged checkpoint that a start skipped is kept for inspection until the disk is full.
RIG_TEST(a_damaged_checkpoint_stays_until_there_is_no_room, struct rig *r)
{
    char path[160], aside[160];
    bool room;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, RECORDS);
    rig_kill_server(r, false);
    snprintf(path, sizeof path, "%s/checkpoints/0000-%016x.ckpt", r->s.dir, CHECKPOINT);
    snprintf(aside, sizeof aside, "%s/checkpoints/0000-%016x.damaged", r->s.dir, CHECKPOINT);
    damage(r, path, 0, 8);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(there_is(r, aside), LH_OK);
    assert_int_equal(ps_quarantine_remove(r->server, &room), LH_OK);
    assert_true(room);
    assert_int_equal(there_is(r, aside), LH_ERR_NOT_FOUND);
    assert_int_equal(ps_quarantine_remove(r->server, &room), LH_OK);
    assert_false(room);
}

// There is no disk space for a whole segment: the new epoch's record gets one that just holds it.
RIG_TEST(a_new_epoch_needs_little_room, struct rig *r)
{
    char path[160];
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, RECORDS);
    struct ps_place last = *ps_shard_place(r->server->shard[0], RECORDS);
    rig_kill_server(r, false);
    snprintf(path, sizeof path, "%s/log/%016llx.seg", r->s.dir, (unsigned long long)last.segment);
    damage(r, path, last.at, last.at + 512);
    lh_fake_disk_limit(r->s.env, lh_fake_disk_used(r->s.env) + 1024);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.epoch, 2);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, RECORDS);
    rig_kill_server(r, true);
    lh_fake_disk_limit(r->s.env, 0);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, RECORDS);
}

// A process that was killed before it removed the oldest checkpoint left three.
RIG_TEST(one_checkpoint_too_many_goes_before_room_matters, struct rig *r)
{
    char from[160], to[160];
    struct lh_buf b = lh_buf(1 << 16);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, RECORDS);
    rig_kill_server(r, false);
    lh_fake_boot(r->s.env);
    uint64_t used = lh_fake_disk_used(r->s.env);
    snprintf(from, sizeof from, "%s/checkpoints/0000-%016x.ckpt", r->s.dir, CHECKPOINT);
    snprintf(to, sizeof to, "%s/checkpoints/0000-%016x.ckpt", r->s.dir, 1);
    assert_int_equal(lh_file_load(r->s.env, from, &b), LH_OK);
    assert_int_equal(lh_file_replace(r->s.env, to, lh_buf_span(&b)), LH_OK);
    lh_fake_disk_limit(r->s.env, used + 128); // the first segment needs the removed one's space
    lh_fake_kill(r->s.env, false);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(lh_file_load(r->s.env, to, &b), LH_ERR_NOT_FOUND);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, RECORDS);
    lh_buf_free(&b);
}

static bool is_there(struct rig *r, const char *name)
{
    char path[160];
    struct lh_buf b = lh_buf(1 << 21);
    snprintf(path, sizeof path, "%s/%s", r->s.dir, name);
    lh_err err = lh_file_load(r->s.env, path, &b);
    lh_buf_free(&b);
    return !err;
}

// Kills a process between a checkpoint and the cut of the log that it allows. Returns false if the
// n-th file operation from the checkpoint's record on does not lie there.
static bool a_log_is_left_uncut(struct rig *r, int64_t n)
{
    static const char first[] = "log/0000000000000001.seg";
    char newest[64];
    snprintf(newest, sizeof newest, "checkpoints/0000-%016x.ckpt", CHECKPOINT);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, 3);
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, true), LH_OK); // begins another segment
    rig_log(r, 4, CHECKPOINT - 1);
    lh_fake_crash_at(r->s.env, n, false);
    rig_greet(r, 0, (uint64_t)CHECKPOINT << 32, 0, 1);
    rig_run(r, LH_SECOND);
    rig_kill_server(r, false);
    lh_fake_boot(r->s.env);
    bool left = is_there(r, first) && is_there(r, newest);
    lh_fake_kill(r->s.env, false);
    return left;
}

// No record is left for another checkpoint: the cut that the last one allows frees the space.
TEST(a_full_disk_cuts_what_was_left)
{
    struct rig *r = rig_new(1);
    int64_t n = 0;
    while (!a_log_is_left_uncut(r, n)) {
        rig_free(r);
        r = rig_new(1);
        assert_true(++n < CALLS_MAX);
    }
    lh_fake_disk_limit(r->s.env, lh_fake_disk_used(r->s.env)); // leaves space for a segment's head
    assert_int_equal(rig_start_server(r, true), LH_OK);
    uint64_t room = ps_disk_full_reserve(r->server) + (1 << 20) - 100; // a segment lacks 100 bytes
    lh_fake_disk_limit(r->s.env, lh_fake_disk_used(r->s.env) + room);
    rig_greet(r, 0, (uint64_t)(CHECKPOINT + 1) << 32, 0, 1); // finds no disk space
    rig_run(r, LH_SECOND);
    rig_greet(r, 0, (uint64_t)(CHECKPOINT + 1) << 32, 0, 1);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->server->count.full, 1);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1);
    assert_false(r->server->disk_full.now);
    assert_int_equal(r->server->shard[0]->checkpointed, CHECKPOINT); // no further one was written
    rig_free(r);
}

// Starts the server with its n-th file operation failing: at the first start after the cut, or at
// the second. Returns whether that operation was reached.
static bool a_start_fails(int n, bool first)
{
    struct rig *r = rig_new(1);
    cut_the_log(r);
    if (!first) assert_int_equal(rig_start_server(r, true), LH_OK);
    if (!first) rig_kill_server(r, false); // before it writes another checkpoint
    lh_fake_fail_at(r->s.env, n, LH_ERR_IO);
    lh_err err = rig_start_server(r, true);
    bool failed = lh_fake_failed(r->s.env);
    lh_fake_fail_at(r->s.env, -1, LH_OK);
    if (err)
        assert_int_equal(err, LH_ERR_IO);
    else
        assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1);
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1);
    rig_free(r);
    return failed;
}

TEST(a_checkpoint_that_was_not_read_is_not_taken_for_lost)
{
    for (int first = 0; first < 2; first++) {
        int n = 0;
        while (a_start_fails(n, first)) assert_true(++n < CALLS_MAX);
        assert_true(n > 20);
    }
}

// The same if the settings let followers replace damaged state, and there are no followers: the
// next start, which can read the checkpoint, has everything. Returns whether the n-th operation was
// reached.
static bool it_is_given_up(int n)
{
    struct rig *r = rig_new(1);
    cut_the_log(r);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_kill_server(r, false);
    r->rebuild_damaged = true;
    rig_start_coordinator(r);
    lh_fake_fail_at(r->s.env, n, LH_ERR_IO);
    if (!rig_start_server(r, false)) rig_run(r, 20 * LH_SECOND);
    bool failed = lh_fake_failed(r->s.env);
    lh_fake_fail_at(r->s.env, -1, LH_OK);
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 20 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(r->server->shard[0]->replica.ledger.row[0].incarnation.number >> 32,
                     CHECKPOINT);
    rig_free(r);
    return failed;
}

TEST(a_failed_read_gives_up_no_checkpoint)
{
    int n = 0;
    while (it_is_given_up(n)) assert_true(++n < CALLS_MAX);
    assert_true(n > 20);
}

// One shard's file says that the directory is an older copy (server/docs/0000-protocol.md#rule-27):
// this holds for all its shards, as a killed start may already have begun an epoch of the others.
TEST(an_older_copy_is_one_for_all_its_shards)
{
    enum { OLDER = 1 }; // as in epoch.c
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        struct rig *r = rig_new(k + 1);
        rig_two_shards(r);
        rig_serve(r, 2 * LH_SECOND);
        uint64_t epoch = r->server->shard[k]->replica.ledger.epoch;
        assert_int_not_equal(epoch, 0);
        rig_kill_server(r, false);
        lh_fake_boot(r->s.env);
        assert_int_equal(ps_epoch_write(r->s.env, r->s.dir, k, epoch + 1, OLDER), LH_OK);
        lh_fake_kill(r->s.env, false);
        assert_int_equal(rig_start_server(r, false), LH_ERR_CORRUPT);
        rig_free(r);
    }
}

// A torn log, which each start notices, does not change that.
RIG_TEST(an_older_copy_with_a_torn_log_stays_one, struct rig *r)
{
    enum { OLDER = 1 }; // as in epoch.c
    rig_serve(r, 2 * LH_SECOND);
    for (uint64_t i = 1; i <= 6; i++) rig_hello(r, 0, i << 32, 0, 1);
    uint64_t epoch = r->server->shard[0]->replica.ledger.epoch;
    rig_kill_server(r, false);
    image_damage_tail(&r->s);
    lh_fake_boot(r->s.env);
    assert_int_equal(ps_epoch_write(r->s.env, r->s.dir, 0, epoch + 1, OLDER), LH_OK);
    lh_fake_kill(r->s.env, false);
    for (int starts = 0; starts < 2; starts++) {
        assert_int_equal(rig_start_server(r, false), LH_ERR_CORRUPT);
        r->server = NULL;
        rig_kill_server(r, false);
    }
}
