// server/wal/wal_scan.c: damage is cut or refused, depending on its place. The layout is in wal.h.
#include <stdio.h>
#include <string.h>

#include "tests/unit/server/wal/wal_rig.h"

static void load_first(struct rig *r, struct lh_buf *out)
{
    char path[LH_PATH_BYTES];
    segment_path(1, path);
    *out = lh_buf(1 << 20);
    assert_int_equal(lh_file_load(r->env, path, out), LH_OK);
}

// Leaves nothing on the disk but this first segment, cut to `bytes`.
static void only_segment(struct rig *r, const struct lh_buf *whole, size_t bytes)
{
    char path[LH_PATH_BYTES];
    ps_wal_close(r->wal);
    r->wal = NULL;
    lh_fake_disk_wipe(r->env);
    segment_path(1, path);
    assert_int_equal(lh_file_replace(r->env, path, lh_span(whole->data, bytes)), LH_OK);
}

TEST(a_log_cut_anywhere_replays_a_prefix)
{
    struct rig r = start(5);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 5);
    struct lh_buf whole;
    load_first(&r, &whole);
    for (size_t cut = 0; cut <= HEADER + 5 * ENTRY; cut++) {
        only_segment(&r, &whole, cut);
        assert_int_equal(open_wal(&r), LH_OK);
        // the last word of an entry is zero, but is part of the entry
        size_t entries = cut < HEADER ? 0 : (cut - HEADER) / ENTRY;
        check_seen(&r, entries);
        assert_int_equal(r.torn, cut > HEADER && (cut - HEADER) % ENTRY != 0);
    }
    lh_buf_free(&whole);
    finish(&r);
}

// Five records, synced one by one, and a mark if `marked`. Whichever byte is damaged, a record that
// a later entry names durable is replayed, or the start is refused.
static void flip_each_byte(bool marked)
{
    struct rig r = start(6);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 5);
    if (marked) mark(&r);
    struct lh_buf whole;
    load_first(&r, &whole);
    size_t end = HEADER + 5 * ENTRY + (marked ? MARK : 0), durable = marked ? 5 : 4, refused = 0;
    for (size_t at = 0; at < end; at++) {
        only_segment(&r, &whole, whole.len);
        flip(&r, 1, at);
        lh_err err = open_wal(&r);
        if (err) {
            assert_int_equal(err, LH_ERR_CORRUPT);
            refused++;
            continue;
        }
        assert_in_range(r.seen, durable, 5);
        check_seen(&r, r.seen);
        assert_true(r.torn || r.seen == 5);
    }
    // all bytes but the last word of the header and of each entry are under a checksum
    assert_int_equal(refused, HEADER - 4 + durable * (ENTRY - 4));
    lh_buf_free(&whole);
    finish(&r);
}

TEST(no_flipped_byte_hides_a_durable_record)
{
    flip_each_byte(true);
    flip_each_byte(false);
}

TEST(damage_below_a_mark_is_refused_with_its_place)
{
    struct rig r = start(7);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 5);
    mark(&r);
    lh_fake_kill(r.env, false);
    lh_fake_boot(r.env);
    flip(&r, 1, HEADER + 4 * ENTRY + 50);
    assert_int_equal(open_wal(&r), LH_ERR_CORRUPT);
    char place[32];
    snprintf(place, sizeof place, "byte %d ", HEADER + 4 * ENTRY);
    const char *text = lh_err_text(LH_ERR_CORRUPT);
    assert_non_null(strstr(text, "log/0000000000000001.seg"));
    assert_non_null(strstr(text, place));
    finish(&r);
}

TEST(damage_in_an_earlier_segment_is_refused)
{
    struct rig r = start(8);
    r.conf.segment_bytes = HEADER + 3 * ENTRY;
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 6);
    flip(&r, 1, HEADER + 2 * ENTRY + 60);
    assert_int_equal(open_wal(&r), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "log/0000000000000001.seg"));
    flip(&r, 1, HEADER + 2 * ENTRY + 60); // undo
    flip(&r, 2, 9);
    assert_int_equal(open_wal(&r), LH_ERR_CORRUPT); // header of the last, which has entries
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "log/0000000000000002.seg"));
    flip(&r, 2, 9);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 6);
    finish(&r);
}

TEST(damage_in_the_last_entry_is_a_torn_tail)
{
    struct rig r = start(10);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 5);
    flip(&r, 1, HEADER + 4 * ENTRY + 50);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 4);
    assert_true(r.torn);
    fill(&r, 5, 6); // the tail is cut: another record takes its sequence
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 6);
    assert_false(r.torn);
    finish(&r);
}

TEST(a_missing_segment_is_refused)
{
    struct rig r = start(9);
    r.conf.segment_bytes = HEADER + 2 * ENTRY;
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 6);
    char path[LH_PATH_BYTES];
    segment_path(2, path);
    assert_int_equal(r.env->ops->files->remove(r.env, path), LH_OK);
    assert_int_equal(open_wal(&r), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "a segment is missing"));
    finish(&r);
}

// Only an entry that was written after the damaged one proves that it had been synced.
TEST(an_older_entry_behind_damage_proves_nothing)
{
    struct rig r = start(13);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 3);
    struct lh_buf whole;
    load_first(&r, &whole);
    memcpy(whole.data + HEADER + 3 * ENTRY, whole.data + HEADER + ENTRY, ENTRY); // the second again
    whole.data[HEADER + 2 * ENTRY + 50] ^= 1;                                    // the third
    only_segment(&r, &whole, whole.len);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 2);
    assert_true(r.torn);
    lh_buf_free(&whole);
    finish(&r);
}

// Sets `field` of the entry at `at`, and recomputes its checksum.
static void say(struct lh_buf *log, size_t at, size_t field, uint8_t value)
{
    log->data[at + field] = value;
    lh_buf_patch_u32(log, at + ENTRY - 8, lh_crc32c(0, log->data + at, ENTRY - 8));
}

// A group of three records follows a group of one. One entry of the three names another place or
// another group, so its group is incomplete, although each entry is valid.
TEST(an_entry_of_another_group_ends_none)
{
    enum { SEQUENCE = 16, FOLLOWING = 36 };
    struct rig r = start(9);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 1);
    for (uint64_t v = 2; v <= 4; v++) add(&r, v);
    commit(&r);
    struct lh_buf whole;
    load_first(&r, &whole);
    const size_t third = HEADER + 2 * ENTRY;
    assert_int_equal(whole.data[third + SEQUENCE], 3);
    assert_int_equal(whole.data[third + FOLLOWING], 1);
    const struct {
        size_t field;
        uint8_t value;
        size_t there;
    } said[] = {
        {SEQUENCE, 3, 4}, {SEQUENCE, 2, 1}, {SEQUENCE, 7, 1}, {FOLLOWING, 0, 1}, {FOLLOWING, 2, 1}};
    for (size_t i = 0; i < LH_COUNT(said); i++) {
        say(&whole, third, said[i].field, said[i].value);
        only_segment(&r, &whole, whole.len);
        assert_int_equal(open_wal(&r), LH_OK);
        check_seen(&r, said[i].there);
        assert_int_equal(r.torn, said[i].there < 4);
        say(&whole, third, SEQUENCE, 3);
        say(&whole, third, FOLLOWING, 1);
    }
    lh_buf_free(&whole);
    finish(&r);
}

// ---------------------------------------------------------------- undamaged logs

TEST(the_log_of_another_job_is_refused)
{
    struct rig r = start(11);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 2);
    r.conf.job[3] = 1;
    assert_int_equal(open_wal(&r), LH_ERR_CONFIG);
    assert_int_equal(r.seen, 0);
    r.conf.job[3] = 0;
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 2);
    finish(&r);
}

TEST(other_names_are_no_segments)
{
    struct rig r = start(14);
    struct ps_wal_found found;
    char dir[LH_PATH_BYTES];
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 3);
    static const char *const names[] = {"log/notes", "log/x.seg", "log/0000000000000009.tmp"};
    for (size_t i = 0; i < LH_COUNT(names); i++)
        assert_int_equal(lh_file_replace(r.env, names[i], lh_span("none", 4)), LH_OK);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 3);
    memset(dir, 'd', sizeof dir - 1);
    dir[sizeof dir - 1] = 0;
    r.conf.dir = dir;
    assert_int_equal(open_wal(&r), LH_ERR_TOO_LARGE);
    assert_int_equal(r.env->ops->files->make_dir(r.env, "empty"), LH_OK);
    assert_int_equal(ps_wal_look(r.env, "empty", NULL, NULL, NULL, &found), LH_OK);
    assert_int_equal(found.segments, 0);
    finish(&r);
}

static lh_err stop(void *arg, bool torn)
{
    struct rig *r = arg;
    assert_false(torn);
    assert_int_equal(r->seen, 2); // after the last replay
    return LH_ERR_INTERNAL;
}

TEST(a_start_may_be_stopped_before_it_writes)
{
    struct rig r = start(15);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 2);
    ps_wal_close(r.wal);
    r.wal = NULL;
    r.conf.scanned = stop;
    bool torn;
    assert_int_equal(ps_wal_open(&r.conf, note, &r, &torn, &r.wal), LH_ERR_INTERNAL);
    assert_false(exists(&r, 2));
    finish(&r);
}
