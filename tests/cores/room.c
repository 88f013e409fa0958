// A full disk without space for another segment, and the part of the log that a start needs and
// keeps.
#include <stdio.h>
#include <stdlib.h>

#include "server/core.h"
#include "server/state/checkpointer.h"
#include "tests/cores/rig.h"

enum { SEGMENT = 1024, RECORDS = 60, CHECKPOINT = 5 };

static int small_segments(void **state)
{
    struct rig *r = rig_new(1);
    *state = r;
    r->segment_bytes = SEGMENT;
    return 0;
}

static struct ps_shard *shard_of(struct rig *r)
{
    return r->server->shard[0];
}

// Leaves checkpoints of CHECKPOINT and of the last version, RECORDS, and many segments after the
// older one.
static void checkpoint_the_end(struct rig *r)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, CHECKPOINT);
    r->server->conf.checkpoint_every = 0;
    rig_log(r, CHECKPOINT + 1, RECORDS);
    assert_int_equal(shard_of(r)->checkpointed, CHECKPOINT);
    r->server->conf.checkpoint_every = 1;
    ps_checkpointer_start(shard_of(r));
    rig_run(r, LH_SECOND);
    assert_int_equal(shard_of(r)->checkpointed, RECORDS);
    rig_kill_server(r, false);
}

static void leave_a_damaged_checkpoint(struct rig *r, const char *path)
{
    const uint8_t bytes[256] = {0};
    lh_fake_boot(r->s.env);
    assert_int_equal(lh_file_replace(r->s.env, path, lh_span(bytes, sizeof bytes)), LH_OK);
    lh_fake_kill(r->s.env, false);
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, small_segments, rig_tear_down)

// No newer checkpoint is possible, and the older one keeps the whole log. The file that was set
// aside is removed, and a record of the server's own allows another checkpoint, which cuts the log.
IN_RIG(a_checkpoint_of_the_last_version_is_no_dead_end, struct rig *r)
{
    char aside[160];
    snprintf(aside, sizeof aside, "%s/checkpoints/0000-%016x.damaged", r->s.dir, CHECKPOINT + 1);
    checkpoint_the_end(r);
    leave_a_damaged_checkpoint(r, aside);
    lh_fake_disk_limit(r->s.env, lh_fake_disk_used(r->s.env)); // the start gets space for a header
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(shard_of(r)->replica.ledger.version, RECORDS);
    uint64_t room = ps_checkpointer_bytes(r->server->shard[0]) + SEGMENT / 2;
    lh_fake_disk_limit(r->s.env, lh_fake_disk_used(r->s.env) + room);
    rig_greet(r, 0, (uint64_t)(RECORDS + 1) << 32, 0, 1); // finds no disk space
    rig_run(r, LH_SECOND);
    rig_greet(r, 0, (uint64_t)(RECORDS + 1) << 32, 0, 1); // nor for its own segment
    rig_run(r, 5 * LH_SECOND);
    struct lh_buf b = lh_buf(1024);
    assert_int_equal(lh_file_load(r->s.env, aside, &b), LH_ERR_NOT_FOUND);
    lh_buf_free(&b);
    assert_int_equal(r->server->count.full, 2);
    assert_int_equal(shard_of(r)->replica.ledger.version, RECORDS + 1); // only DIGEST was added
    assert_int_equal(shard_of(r)->checkpointed, RECORDS + 1);
    assert_int_equal(shard_of(r)->index[0].version, RECORDS + 1);
    rig_hello(r, 0, (uint64_t)(RECORDS + 2) << 32, 0, 1);
    assert_int_equal(shard_of(r)->replica.ledger.version, RECORDS + 2);
    assert_int_equal(r->fatal_count, 0);
}

// After a rebuild the log begins above its oldest checkpoint; nothing of the rest may be trimmed.
IN_RIG(a_log_that_begins_late_is_kept, struct rig *r)
{
    checkpoint_the_end(r);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->server->conf.checkpoint_every = 0;
    rig_log(r, RECORDS + 1, 2 * RECORDS);
    struct ps_shard *s = shard_of(r);
    const struct ps_place *first = ps_shard_place(s, RECORDS + 1);
    ps_shard_forget_before(s, first->segment + 1); // as if it had begun there
    assert_true(s->index[0].version > CHECKPOINT + 1);
    uint64_t segment = s->index[0].place.segment;
    assert_true(segment + 3 < ps_wal_segment(r->server->wal));
    assert_int_equal(ps_checkpointer_trim(r->server), LH_OK);
    char path[160];
    struct lh_buf b = lh_buf(1 << 16);
    for (uint64_t k = segment - 1; k <= segment; k++) {
        snprintf(path, sizeof path, "%s/log/%016llx.seg", r->s.dir, (unsigned long long)k);
        assert_int_equal(lh_file_load(r->s.env, path, &b), k < segment ? LH_ERR_NOT_FOUND : LH_OK);
    }
    lh_buf_free(&b);
}

// There is space for the log, but not for a checkpoint. It is tried again, even without new
// records; until then the shard depends on the older one.
IN_RIG(a_checkpoint_that_found_no_room_is_tried_again, struct rig *r)
{
    r->segment_bytes = 1 << 16;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, CHECKPOINT);
    r->server->conf.checkpoint_every = 0;
    rig_log(r, CHECKPOINT + 1, 2 * CHECKPOINT);
    struct ps_shard *s = shard_of(r);
    assert_int_equal(s->checkpointed, CHECKPOINT);
    s->replay_ns = 7 * LH_SECOND; // as with large records
    lh_fake_disk_limit(r->s.env, lh_fake_disk_used(r->s.env) + 64);
    r->server->conf.checkpoint_every = 1;
    ps_checkpointer_start(s);
    rig_run(r, LH_SECOND);
    assert_true(s->unwritten && !r->server->disk_full.now);
    assert_int_equal(s->checkpointed, CHECKPOINT);
    assert_int_equal(s->replay_ns, 7 * LH_SECOND);
    lh_fake_disk_limit(r->s.env, 0);
    rig_run(r, 25 * LH_SECOND);
    assert_int_equal(s->checkpointed, CHECKPOINT); // not before the pause is over
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(s->checkpointed, 2 * CHECKPOINT);
    assert_false(s->unwritten);
    assert_int_equal(s->replay_ns, 0);
    assert_int_equal(r->fatal_count, 0);
}
