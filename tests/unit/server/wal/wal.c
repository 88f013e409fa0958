// server/wal/wal.c: committed records are replayed in order, with their places; a crash or a full
// disk loses at most the group in flight.
#include "server/state/disk_full.h"
#include "tests/unit/server/wal/wal_rig.h"

// ---------------------------------------------------------------- writing and reading back

TEST(committed_records_are_replayed_in_order_with_their_places)
{
    struct rig r = start(1);
    assert_int_equal(open_wal(&r), LH_OK);
    uint64_t before = ps_wal_generation(r.wal);
    assert_true(before > UINT32_MAX); // it has 63 random bits
    uint8_t body[BODY];
    struct lh_record rec = record(1, body);
    struct ps_place in_group, first;
    assert_int_equal(ps_wal_add(r.wal, shard_of(1), &rec, &in_group), LH_OK);
    add(&r, 2);
    add(&r, 3);
    assert_int_equal(ps_wal_group_bytes(r.wal), 3 * ENTRY);
    assert_int_equal(ps_wal_commit(r.wal), LH_OK);
    first = ps_wal_committed_place(r.wal, in_group);
    ps_wal_group_done(r.wal);
    assert_int_equal(ps_wal_group_bytes(r.wal), 0);
    fill(&r, 4, 6);
    check_bytes(&r, first, 1);

    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 6);
    assert_false(r.torn);
    assert_true(ps_wal_generation(r.wal) > UINT32_MAX);
    assert_true(ps_wal_generation(r.wal) != before);
    assert_int_equal(r.place[0].segment, first.segment);
    assert_int_equal(r.place[0].at, first.at);
    assert_int_equal(r.place[0].bytes, first.bytes);
    for (size_t i = 0; i < r.seen; i++) check_bytes(&r, r.place[i], i + 1);
    fill(&r, 7, 8); // appends where it had stopped
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 8);
    finish(&r);
}

TEST(segments_roll_and_are_trimmed)
{
    struct rig r = start(2);
    r.conf.segment_bytes = HEADER + 3 * ENTRY;
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 20);
    assert_int_equal(ps_wal_segment(r.wal), 7); // 3 entries in each
    add(&r, 21);
    add(&r, 22);
    add(&r, 23);
    add(&r, 24);
    commit(&r); // a group larger than a segment gets one that holds it
    assert_int_equal(ps_wal_segment(r.wal), 8);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 24);
    for (size_t i = 0; i < r.seen; i++) check_bytes(&r, r.place[i], i + 1);
    assert_int_equal(r.place[5].segment, 2);

    assert_int_equal(ps_wal_remove(r.wal, ps_wal_release(r.wal, 3)), LH_OK);
    assert_false(exists(&r, 1));
    assert_false(exists(&r, 2));
    assert_true(exists(&r, 3));
    assert_int_equal(open_wal(&r), LH_OK);
    assert_int_equal(r.seen, 18);
    assert_int_equal(r.version[0], 7);
    finish(&r);
}

TEST(a_mark_follows_records_only)
{
    struct rig r = start(3);
    assert_int_equal(open_wal(&r), LH_OK);
    add(&r, 1);
    assert_false(ps_wal_mark(r.wal)); // the group is not empty
    commit(&r);
    mark(&r);
    assert_false(ps_wal_mark(r.wal)); // the last entry is a mark
    fill(&r, 2, 2);
    mark(&r);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 2);
    finish(&r);
}

TEST(removed_segments_are_not_read)
{
    struct rig r = start(16);
    struct lh_blob *b;
    char path[LH_PATH_BYTES];
    r.conf.segment_bytes = HEADER + 2 * ENTRY;
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 8);
    assert_int_equal(open_wal(&r), LH_OK);
    check_bytes(&r, r.place[0], 1); // its reader stays open
    check_bytes(&r, r.place[2], 3);
    assert_int_equal(ps_wal_remove(r.wal, ps_wal_release(r.wal, 2)), LH_OK);
    assert_int_equal(ps_wal_read(r.wal, r.place[0], 0, r.place[0].bytes, &b), LH_ERR_NOT_FOUND);
    check_bytes(&r, r.place[2], 3);
    struct ps_place beyond = r.place[2];
    beyond.bytes = 1 << 20;
    assert_int_equal(ps_wal_read(r.wal, beyond, 0, beyond.bytes, &b), LH_ERR_CORRUPT);
    segment_path(3, path);
    assert_int_equal(r.env->ops->files->remove(r.env, path), LH_OK);
    assert_int_equal(ps_wal_remove(r.wal, ps_wal_release(r.wal, 1000)),
                     LH_OK); // never the segment that is being written
    assert_true(exists(&r, ps_wal_segment(r.wal)));
    fill(&r, 9, 9);
    finish(&r);
}

// ---------------------------------------------------------------- crashes, full disks

TEST(a_power_cut_takes_nothing_that_was_committed)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct rig r = start(seed);
        r.conf.segment_bytes = HEADER + 2 * ENTRY;
        assert_int_equal(open_wal(&r), LH_OK);
        fill(&r, 1, 5);
        add(&r, 6); // it is in the group, but not committed
        lh_fake_kill(r.env, true);
        lh_fake_boot(r.env);
        assert_int_equal(open_wal(&r), LH_OK);
        check_seen(&r, 5);
        assert_false(r.torn);
        finish(&r);
    }
}

// A crash at every file operation of five commits in turn: committed records are there, and the
// group in flight is there as a whole or not at all.
TEST(a_crash_inside_a_commit_loses_that_group_at_most)
{
    for (int64_t when = 0; when < 40; when++) {
        struct rig r = start((uint64_t)when + 100);
        r.conf.segment_bytes = HEADER + 2 * ENTRY;
        assert_int_equal(open_wal(&r), LH_OK);
        lh_fake_crash_at(r.env, when, when % 2 == 0);
        uint64_t done = 0;
        for (uint64_t v = 1; v <= 5; v++) {
            add(&r, v);
            if (ps_wal_commit(r.wal)) break;
            ps_wal_group_done(r.wal);
            done = v;
        }
        if (lh_fake_alive(r.env)) lh_fake_kill(r.env, true);
        lh_fake_boot(r.env);
        assert_int_equal(open_wal(&r), LH_OK);
        assert_in_range(r.seen, done, done + 1);
        check_seen(&r, r.seen);
        size_t kept = r.seen;
        fill(&r, kept + 1, kept + 2);
        lh_fake_kill(r.env, true); // the start has made durable what it kept
        lh_fake_boot(r.env);
        assert_int_equal(open_wal(&r), LH_OK);
        check_seen(&r, kept + 2);
        finish(&r);
    }
}

TEST(a_full_disk_loses_the_group_and_nothing_else)
{
    struct rig r = start(12);
    lh_fake_disk_limit(r.env, 1024);
    r.conf.segment_bytes = 4096;
    assert_int_equal(open_wal(&r), LH_ERR_DISK_FULL); // there is no log yet
    lh_fake_disk_limit(r.env, 0);
    r.conf.segment_bytes = HEADER + 2 * ENTRY;
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 2);
    lh_fake_disk_limit(r.env, 1);
    add(&r, 3); // needs a new segment
    assert_int_equal(ps_wal_commit(r.wal), LH_ERR_DISK_FULL);
    ps_wal_drop_group(r.wal);
    assert_int_equal(ps_wal_group_bytes(r.wal), 0);
    assert_int_equal(ps_wal_segment(r.wal), 1);
    lh_fake_disk_limit(r.env, lh_fake_disk_used(r.env) + HEADER);
    assert_int_equal(open_wal(&r), LH_OK); // a start needs no more space than a header
    check_seen(&r, 2);
    add(&r, 3);
    assert_int_equal(ps_wal_commit(r.wal), LH_ERR_DISK_FULL);
    assert_int_equal(ps_wal_commit_small(r.wal, 0), LH_ERR_DISK_FULL);
    ps_wal_drop_group(r.wal);
    lh_fake_disk_limit(r.env, lh_fake_disk_used(r.env) + HEADER + ENTRY);
    add(&r, 3);
    assert_int_equal(ps_wal_commit(r.wal), LH_ERR_DISK_FULL); // no space for a whole segment
    assert_int_equal(ps_wal_commit_small(r.wal, 0), LH_OK);   // space for this group
    ps_wal_group_done(r.wal);
    assert_int_equal(open_wal(&r), LH_ERR_DISK_FULL);
    lh_fake_disk_limit(r.env, 0);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 3);
    fill(&r, 4, 6);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 6);
    assert_false(r.torn);
    finish(&r);
}

// Preallocated segments of failed starts would fill the disk before one of the starts serves and a
// checkpoint trims the log.
TEST(starts_that_come_to_nothing_take_a_header_each)
{
    struct rig r = start(13);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 3);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(open_wal(&r), LH_OK);
        check_seen(&r, 3);
        assert_int_equal(lh_fake_disk_used(r.env), 3 * ENTRY + (1 + i) * HEADER + 4096);
        lh_fake_kill(r.env, true);
        lh_fake_boot(r.env);
    }
    assert_false(r.torn);
    finish(&r);
}
