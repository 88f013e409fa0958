// server/wal.c, server/wal_scan.c: what was committed is replayed; damage is cut or refused, by its
// place. Layout of the segments: wal.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/env_fake.h"
#include "common/limits.h"
#include "server/wal.h"

enum { BODY = 24, SEEN_MAX = 64, HEADER = 64, ENTRY = 40 + LH_RECORD_HEADER + BODY + 8, MARK = 48 };

struct rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct ps_wal_conf conf;
    struct ps_wal *wal;
    bool torn;
    size_t seen;
    uint64_t version[SEEN_MAX];
    struct ps_place place[SEEN_MAX];
    uint8_t body[SEEN_MAX][BODY]; // of records that are not committed yet
    bool same[SEEN_MAX];          // shard and body are those that record() gave the version
};

static void body_of(uint64_t version, uint8_t body[BODY])
{
    for (size_t i = 0; i < BODY; i++) body[i] = (uint8_t)(version * 31 + i);
}

static uint32_t shard_of(uint64_t version)
{
    return (uint32_t)(version % 3);
}

static struct lh_record record(uint64_t version, uint8_t body[BODY])
{
    body_of(version, body);
    return (struct lh_record){
        .version = version, .epoch = 1, .kind = LH_FENCE, .scale = 1, .body = lh_span(body, BODY)};
}

static lh_err note(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    struct rig *rig = arg;
    uint8_t body[BODY];
    body_of(r->version, body);
    if (rig->seen == SEEN_MAX) return LH_ERR_INTERNAL;
    rig->version[rig->seen] = r->version;
    rig->place[rig->seen] = place;
    rig->same[rig->seen++] = shard == shard_of(r->version) && r->kind == LH_FENCE &&
                             lh_span_equal(r->body, lh_span(body, BODY));
    return LH_OK;
}

static struct rig start(uint64_t seed)
{
    struct rig r = {.world = lh_fake_world_create(seed)};
    r.env = lh_fake_node(r.world, NULL, NULL);
    lh_fake_boot(r.env);
    r.conf = (struct ps_wal_conf){.env = r.env, .dir = "log", .segment_bytes = 4096, .job = {7}};
    return r;
}

static void finish(struct rig *r)
{
    ps_wal_close(r->wal);
    lh_fake_world_destroy(r->world);
}

static lh_err open_wal(struct rig *r)
{
    ps_wal_close(r->wal);
    r->wal = NULL;
    r->seen = 0;
    r->torn = false;
    return ps_wal_open(&r->conf, note, r, &r->torn, &r->wal);
}

static void add(struct rig *r, uint64_t version)
{
    struct lh_record rec = record(version, r->body[version % LH_COUNT(r->body)]);
    struct ps_place place;
    assert_int_equal(ps_wal_add(r->wal, shard_of(version), &rec, &place), LH_OK);
    assert_int_equal(place.bytes, LH_RECORD_HEADER + BODY);
}

static void commit(struct rig *r)
{
    assert_int_equal(ps_wal_commit(r->wal), LH_OK);
    ps_wal_group_done(r->wal);
}

// Versions `from` to `to`, each a group of its own.
static void fill(struct rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t v = from; v <= to; v++) {
        add(r, v);
        commit(r);
    }
}

static void mark(struct rig *r)
{
    assert_true(ps_wal_mark(r->wal));
    commit(r);
}

// What was replayed is versions 1 to n.
static void check_seen(const struct rig *r, size_t n)
{
    assert_int_equal(r->seen, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(r->version[i], i + 1);
        assert_true(r->same[i]);
    }
}

static void check_bytes(struct rig *r, struct ps_place place, uint64_t version)
{
    uint8_t body[BODY];
    struct lh_record rec = record(version, body);
    struct lh_buf want = lh_buf(1024);
    struct lh_blob *got;
    lh_record_write_header(&rec, &want);
    lh_put(&want, body, BODY);
    assert_int_equal(ps_wal_read(r->wal, place, 0, place.bytes, &got), LH_OK);
    assert_true(lh_span_equal(lh_blob_span(got), lh_buf_span(&want)));
    lh_blob_release(got);
    lh_buf_free(&want);
}

static void segment_path(uint64_t number, char out[LH_PATH_SIZE])
{
    assert_int_equal(lh_path(out, LH_PATH_SIZE, "log", "%016llx.seg", (unsigned long long)number),
                     LH_OK);
}

static void flip(struct rig *r, uint64_t segment, uint64_t at)
{
    char path[LH_PATH_SIZE];
    segment_path(segment, path);
    assert_int_equal(lh_fake_flip(r->env, path, at, 0x10), LH_OK);
}

static bool exists(struct rig *r, uint64_t segment)
{
    char path[LH_PATH_SIZE];
    struct lh_file *file;
    segment_path(segment, path);
    if (r->env->ops->files->open(r->env, path, LH_OPEN_READ, &file)) return false;
    r->env->ops->files->close(file);
    return true;
}

// ---------------------------------------------------------------- writing and reading back

static void committed_records_are_replayed_in_order_with_their_places(void **state)
{
    (void)state;
    struct rig r = start(1);
    assert_int_equal(open_wal(&r), LH_OK);
    uint64_t before = ps_wal_generation(r.wal);
    assert_true(before > UINT32_MAX); // of 63 random bits, or this seed's are odd
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
    fill(&r, 7, 8); // goes on where it was
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 8);
    finish(&r);
}

static void segments_roll_and_are_trimmed(void **state)
{
    (void)state;
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

static void a_mark_follows_records_only(void **state)
{
    (void)state;
    struct rig r = start(3);
    assert_int_equal(open_wal(&r), LH_OK);
    add(&r, 1);
    assert_false(ps_wal_mark(r.wal)); // the group is not empty
    commit(&r);
    mark(&r);
    assert_false(ps_wal_mark(r.wal)); // the last entry is one
    fill(&r, 2, 2);
    mark(&r);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 2);
    finish(&r);
}

// ---------------------------------------------------------------- crashes

static void a_power_cut_takes_nothing_that_was_committed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct rig r = start(seed);
        r.conf.segment_bytes = HEADER + 2 * ENTRY;
        assert_int_equal(open_wal(&r), LH_OK);
        fill(&r, 1, 5);
        add(&r, 6); // in the group, not committed
        lh_fake_kill(r.env, true);
        lh_fake_boot(r.env);
        assert_int_equal(open_wal(&r), LH_OK);
        check_seen(&r, 5);
        assert_false(r.torn);
        finish(&r);
    }
}

// The crash strikes at every file operation of five commits in turn: what was reported as committed
// is there, and of the group in flight at most its whole.
static void a_crash_inside_a_commit_loses_that_group_at_most(void **state)
{
    (void)state;
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
        lh_fake_kill(r.env, true); // what the start kept is durable by now
        lh_fake_boot(r.env);
        assert_int_equal(open_wal(&r), LH_OK);
        check_seen(&r, kept + 2);
        finish(&r);
    }
}

// ---------------------------------------------------------------- damage

static void load_first(struct rig *r, struct lh_buf *out)
{
    char path[LH_PATH_SIZE];
    segment_path(1, path);
    *out = lh_buf(1 << 20);
    assert_int_equal(lh_file_load(r->env, path, out), LH_OK);
}

// A disk with nothing but this first segment, cut to `bytes`.
static void only_segment(struct rig *r, const struct lh_buf *whole, size_t bytes)
{
    char path[LH_PATH_SIZE];
    ps_wal_close(r->wal);
    r->wal = NULL;
    lh_fake_disk_wipe(r->env);
    segment_path(1, path);
    assert_int_equal(lh_file_replace(r->env, path, lh_span(whole->data, bytes)), LH_OK);
}

static void a_log_cut_anywhere_replays_a_prefix(void **state)
{
    (void)state;
    struct rig r = start(5);
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 5);
    struct lh_buf whole;
    load_first(&r, &whole);
    for (size_t cut = 0; cut <= HEADER + 5 * ENTRY; cut++) {
        only_segment(&r, &whole, cut);
        assert_int_equal(open_wal(&r), LH_OK);
        // the last word of an entry is zero, but it belongs to it
        size_t entries = cut < HEADER ? 0 : (cut - HEADER) / ENTRY;
        check_seen(&r, entries);
        assert_int_equal(r.torn, cut > HEADER && (cut - HEADER) % ENTRY != 0);
    }
    lh_buf_free(&whole);
    finish(&r);
}

// Five records, synced one by one, and a mark when `marked`: whichever byte is damaged, a record
// that a later entry calls durable is replayed or the start is refused.
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

static void no_flipped_byte_hides_a_durable_record(void **state)
{
    (void)state;
    flip_each_byte(true);
    flip_each_byte(false);
}

static void damage_below_a_mark_is_refused_with_its_place(void **state)
{
    (void)state;
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

static void damage_in_an_earlier_segment_is_refused(void **state)
{
    (void)state;
    struct rig r = start(8);
    r.conf.segment_bytes = HEADER + 3 * ENTRY;
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 6);
    flip(&r, 1, HEADER + 2 * ENTRY + 60);
    assert_int_equal(open_wal(&r), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "log/0000000000000001.seg"));
    flip(&r, 1, HEADER + 2 * ENTRY + 60); // as it was
    flip(&r, 2, 9);
    assert_int_equal(open_wal(&r), LH_ERR_CORRUPT); // the header of the last, which has entries
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "log/0000000000000002.seg"));
    flip(&r, 2, 9);
    assert_int_equal(open_wal(&r), LH_OK);
    check_seen(&r, 6);
    finish(&r);
}

static void a_missing_segment_is_refused(void **state)
{
    (void)state;
    struct rig r = start(9);
    r.conf.segment_bytes = HEADER + 2 * ENTRY;
    assert_int_equal(open_wal(&r), LH_OK);
    fill(&r, 1, 6);
    char path[LH_PATH_SIZE];
    segment_path(2, path);
    assert_int_equal(r.env->ops->files->remove(r.env, path), LH_OK);
    assert_int_equal(open_wal(&r), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "a segment is missing"));
    finish(&r);
}

// Behind a damaged entry, only a later one shows that it had been synced.
static void an_older_entry_behind_damage_proves_nothing(void **state)
{
    (void)state;
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

static void other_names_are_no_segments(void **state)
{
    (void)state;
    struct rig r = start(14);
    struct ps_wal_found found;
    char dir[LH_PATH_SIZE];
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

static void a_start_may_be_stopped_before_it_writes(void **state)
{
    (void)state;
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

static void what_is_not_there_any_more_is_not_read(void **state)
{
    (void)state;
    struct rig r = start(16);
    struct lh_blob *b;
    char path[LH_PATH_SIZE];
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
                     LH_OK); // never the one that is written
    assert_true(exists(&r, ps_wal_segment(r.wal)));
    fill(&r, 9, 9);
    finish(&r);
}

static void damage_in_the_last_entry_is_a_torn_tail(void **state)
{
    (void)state;
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

static void the_log_of_another_job_is_refused(void **state)
{
    (void)state;
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

static void a_full_disk_loses_the_group_and_nothing_else(void **state)
{
    (void)state;
    struct rig r = start(12);
    lh_fake_disk_limit(r.env, 1024);
    r.conf.segment_bytes = 4096;
    assert_int_equal(open_wal(&r), LH_ERR_DISK_FULL); // where there is no log yet
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
    assert_int_equal(open_wal(&r), LH_OK); // a start needs no more than a header
    check_seen(&r, 2);
    add(&r, 3);
    assert_int_equal(ps_wal_commit(r.wal), LH_ERR_DISK_FULL);
    assert_int_equal(ps_wal_commit_small(r.wal), LH_ERR_DISK_FULL);
    ps_wal_drop_group(r.wal);
    lh_fake_disk_limit(r.env, lh_fake_disk_used(r.env) + HEADER + ENTRY);
    add(&r, 3);
    assert_int_equal(ps_wal_commit(r.wal), LH_ERR_DISK_FULL); // a whole segment has no room
    assert_int_equal(ps_wal_commit_small(r.wal), LH_OK);      // but this group has
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_records_are_replayed_in_order_with_their_places),
        cmocka_unit_test(segments_roll_and_are_trimmed),
        cmocka_unit_test(a_mark_follows_records_only),
        cmocka_unit_test(a_power_cut_takes_nothing_that_was_committed),
        cmocka_unit_test(a_crash_inside_a_commit_loses_that_group_at_most),
        cmocka_unit_test(a_log_cut_anywhere_replays_a_prefix),
        cmocka_unit_test(no_flipped_byte_hides_a_durable_record),
        cmocka_unit_test(damage_below_a_mark_is_refused_with_its_place),
        cmocka_unit_test(damage_in_an_earlier_segment_is_refused),
        cmocka_unit_test(a_missing_segment_is_refused),
        cmocka_unit_test(an_older_entry_behind_damage_proves_nothing),
        cmocka_unit_test(other_names_are_no_segments),
        cmocka_unit_test(a_start_may_be_stopped_before_it_writes),
        cmocka_unit_test(what_is_not_there_any_more_is_not_read),
        cmocka_unit_test(damage_in_the_last_entry_is_a_torn_tail),
        cmocka_unit_test(the_log_of_another_job_is_refused),
        cmocka_unit_test(a_full_disk_loses_the_group_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
