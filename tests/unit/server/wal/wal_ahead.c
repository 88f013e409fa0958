// server/wal/wal.c: bodies that are written ahead of their records. Whatever happens to them,
// committed records are replayed, and a body without a record never makes the log look torn after
// the next commit.
#include <string.h>

#include "common/base/check.h"
#include "server/state/disk_full.h"
#include "tests/test.h"
#include "tests/unit/server/wal/wal_case.h"
#include "tests/world/env_fake.h"

enum { BODY = CASE_BODY, ENTRY = CASE_ENTRY, VERSIONS_MAX = 16, GENERATIONS = 256 };

struct rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct ps_wal_conf conf;
    struct ps_wal *wal;
    struct lh_log *log;
    uint8_t body[VERSIONS_MAX][BODY]; // body of each version
    bool torn, wrong;
    uint64_t seen; // versions 1 to this were replayed
};

static lh_err note(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    struct rig *rig = arg;
    (void)shard;
    (void)place;
    rig->wrong |=
        r->version != ++rig->seen || !lh_span_equal(r->body, lh_span(rig->body[r->version], BODY));
    return LH_OK;
}

static void reopen(struct rig *r)
{
    ps_wal_close(r->wal);
    r->wal = NULL;
    r->seen = 0;
    assert_int_equal(ps_wal_open(&r->conf, note, r, &r->torn, &r->wal), LH_OK);
    assert_false(r->wrong);
}

static struct rig *start(uint64_t segment_bytes)
{
    static struct rig r; // its bodies keep their addresses
    r = (struct rig){.world = lh_fake_world_create(1)};
    r.env = lh_fake_node(r.world, NULL, NULL);
    lh_fake_boot(r.env);
    r.conf = (struct ps_wal_conf){.env = r.env, .dir = "log", .segment_bytes = segment_bytes};
    assert_int_equal(lh_log_open(&r.log, r.env, "test", LH_INFO, false, "events"), LH_OK);
    r.conf.log = r.log;
    for (size_t v = 0; v < VERSIONS_MAX; v++) memset(r.body[v], (int)(v + 100), BODY);
    reopen(&r);
    return &r;
}

static void finish(struct rig *r)
{
    ps_wal_close(r->wal);
    lh_log_close(r->log);
    lh_fake_world_destroy(r->world);
}

static void ahead(struct rig *r, uint64_t version)
{
    ps_wal_write_ahead(r->wal, lh_span(r->body[version], BODY));
}

static void add(struct rig *r, uint64_t version)
{
    struct lh_record record = {.version = version,
                               .epoch = 1,
                               .kind = LH_FENCE,
                               .scale = 1,
                               .body = lh_span(r->body[version], BODY)};
    assert_int_equal(ps_wal_add(r->wal, 0, &record, NULL), LH_OK);
}

static void commit(struct rig *r)
{
    assert_int_equal(ps_wal_commit(r->wal), LH_OK);
    ps_wal_group_done(r->wal);
}

static void fill(struct rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t v = from; v <= to; v++) {
        add(r, v);
        commit(r);
    }
}

static void check_replay(struct rig *r, uint64_t versions, bool torn)
{
    reopen(r);
    assert_int_equal(r->seen, versions);
    assert_int_equal(r->torn, torn);
}

// Whether the body of `version` is where its record will be, as the n-th of segment 1.
static bool stands(struct rig *r, uint64_t version, size_t n)
{
    char path[LH_PATH_BYTES];
    struct lh_buf bytes = lh_buf(1 << 20);
    ps_wal_segment_path(r->wal, 1, path);
    assert_int_equal(lh_file_load(r->env, path, &bytes), LH_OK);
    size_t at =
        PS_SEGMENT_HEADER_BYTES + (n - 1) * ENTRY + PS_ENTRY_HEADER_BYTES + LH_RECORD_HEADER_BYTES;
    assert_true(at + BODY <= bytes.len);
    bool same = memcmp(bytes.data + at, r->body[version], BODY) == 0;
    lh_buf_free(&bytes);
    return same;
}

// ---------------------------------------------------------------- the body is used

TEST(it_stands_in_its_record)
{
    struct rig *r = start(4096);
    fill(r, 1, 2);
    assert_false(stands(r, 3, 3));
    ahead(r, 3);
    assert_true(stands(r, 3, 3));
    add(r, 3);
    add(r, 4);
    commit(r);
    fill(r, 5, 6);
    assert_int_equal(ps_wal_segment(r->wal), 1);
    check_replay(r, 6, false);
    finish(r);
}

TEST(it_opens_the_next_segment_where_it_has_to)
{
    struct rig *r = start(PS_SEGMENT_HEADER_BYTES + 2 * ENTRY);
    for (uint64_t v = 1; v <= 7; v++) {
        ahead(r, v);
        add(r, v);
        commit(r);
    }
    assert_true(ps_wal_segment(r->wal) >= 4);
    check_replay(r, 7, false);
    finish(r);
}

TEST(a_group_that_fills_the_segment_to_the_byte_stays_in_it)
{
    struct rig *r = start(PS_SEGMENT_HEADER_BYTES + 2 * ENTRY);
    ahead(r, 1);
    add(r, 1);
    add(r, 2);
    commit(r);
    assert_int_equal(ps_wal_segment(r->wal), 1);
    assert_true(stands(r, 2, 2));
    check_replay(r, 2, false);
    finish(r);
}

// ---------------------------------------------------------------- the body is abandoned

TEST(another_record_leaves_it_behind)
{
    struct rig *r = start(4096);
    fill(r, 1, 2);
    ahead(r, 9); // record 9 does not come next
    fill(r, 3, 4);
    assert_int_equal(ps_wal_segment(r->wal), 2);
    ahead(r, 6); // record 6 is the second of its group
    add(r, 5);
    add(r, 6);
    commit(r);
    assert_int_equal(ps_wal_segment(r->wal), 3);
    ahead(r, 9);
    assert_true(ps_wal_mark(r->wal)); // a smaller entry
    commit(r);
    check_replay(r, 6, false);
    finish(r);
}

TEST(a_group_too_large_for_the_segment_leaves_it_behind)
{
    struct rig *r = start(PS_SEGMENT_HEADER_BYTES + 2 * ENTRY + 7); // 7 bytes to align the end
    fill(r, 1, 1);
    ahead(r, 2); // alone, it would just fit
    assert_true(stands(r, 2, 2));
    add(r, 2);
    add(r, 3);
    commit(r);
    assert_int_equal(ps_wal_segment(r->wal), 2);
    check_replay(r, 3, false);
    finish(r);
}

// The segment is closed nevertheless: the next group's bytes may end before the abandoned body's.
TEST(one_left_behind_on_a_full_disk_ends_its_segment)
{
    struct rig *r = start(4096);
    fill(r, 1, 2);
    ahead(r, 9);
    lh_fake_disk_limit(r->env, 1);
    add(r, 3);
    assert_int_equal(ps_wal_commit(r->wal), LH_ERR_DISK_FULL);
    ps_wal_drop_group(r->wal);
    assert_true(ps_wal_mark(r->wal)); // the mark would fit
    assert_int_equal(ps_wal_commit(r->wal), LH_ERR_DISK_FULL);
    ps_wal_drop_group(r->wal);
    lh_fake_disk_limit(r->env, 0);
    fill(r, 3, 4);
    assert_int_equal(ps_wal_segment(r->wal), 2);
    check_replay(r, 4, false);
    finish(r);
}

// The beginning of the body may be in the segment, so bytes would remain behind a smaller group.
TEST(one_that_found_no_room_half_way_leaves_nothing_behind)
{
    uint8_t large[1000];
    struct rig *r = start(4096);
    memset(large, 7, sizeof large);
    fill(r, 1, 2);
    lh_fake_fail_at(r->env, 0, LH_ERR_DISK_FULL); // some of its bytes are written
    ps_wal_write_ahead(r->wal, lh_span(large, sizeof large));
    assert_true(lh_fake_failed(r->env));
    fill(r, 3, 3);
    check_replay(r, 3, false);
    finish(r);
}

// Nothing of it was acknowledged, so it is cut, and the start reports a torn tail.
TEST(a_crash_before_the_commit_leaves_a_torn_tail)
{
    struct rig *r = start(4096);
    fill(r, 1, 2);
    ahead(r, 3);
    lh_fake_kill(r->env, false);
    lh_fake_boot(r->env);
    check_replay(r, 2, true);
    fill(r, 3, 4);
    check_replay(r, 4, false);
    finish(r);
}

static bool told(const struct rig *r)
{
    struct lh_buf text = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(r->env, "events", &text), LH_OK);
    lh_put_u8(&text, 0);
    assert_int_equal(lh_buf_err(&text), LH_OK);
    bool found = strstr((const char *)text.data, "WARN test log.ahead a frame was not written");
    lh_buf_free(&text);
    return found;
}

// Each file operation fails in turn, in a segment with enough space and in one without: the commit
// works without the body, and a warning is logged.
TEST(a_failure_is_no_matter)
{
    for (uint64_t before = 1; before <= 2; before++) {
        bool failed = true;
        for (int64_t when = 0; failed; when++) {
            struct rig *r = start(PS_SEGMENT_HEADER_BYTES + 2 * ENTRY);
            fill(r, 1, before);
            lh_fake_fail_at(r->env, when, LH_ERR_IO);
            ahead(r, before + 1);
            failed = lh_fake_failed(r->env);
            lh_fake_fail_at(r->env, -1, LH_ERR_IO);
            assert_int_equal(told(r), failed);
            fill(r, before + 1, before + 2);
            check_replay(r, before + 2, false);
            finish(r);
            assert_true(when < 20);
        }
    }
}

// ---------------------------------------------------------------- bodies that a worker forges

// A worker chooses its frame's bytes, and they may be an entry with a valid checksum. It would have
// to guess the log's generation; here it tries every small one. After a crash the whole segment is
// searched for entries that name a durable position: a forged one would make the start refuse a log
// that lost nothing.
TEST(a_forged_position_is_not_believed)
{
    struct rig *r = start(1 << 16);
    struct lh_buf body = lh_buf(1 << 16);
    for (uint64_t generation = 0; generation < GENERATIONS; generation++)
        case_put_entry(&body, &(struct case_entry){generation, 1000, 999, 1000, 0});
    assert_int_equal(lh_buf_err(&body), LH_OK);
    fill(r, 1, 2);
    ps_wal_write_ahead(r->wal, lh_buf_span(&body));
    lh_fake_kill(r->env, false);
    lh_fake_boot(r->env);
    check_replay(r, 2, true);
    lh_buf_free(&body);
    finish(r);
}

// The disk is full when the group's head is written. The abandoned body must not stay in the
// segment when a smaller group follows: the bytes behind that group's last entry would be the
// worker's.
static void forge_behind(uint64_t generation)
{
    struct rig *r = start(4096);
    struct lh_buf body = lh_buf(4096);
    lh_put_zeros(&body, ENTRY - PS_ENTRY_HEADER_BYTES - LH_RECORD_HEADER_BYTES);
    case_put_entry(&body, &(struct case_entry){generation, 4, 0, 4, 0});
    fill(r, 1, 2);
    ps_wal_write_ahead(r->wal, lh_buf_span(&body));
    struct lh_record large = {.version = 3, .epoch = 1, .kind = LH_FENCE, .scale = 1};
    large.body = lh_buf_span(&body);
    assert_int_equal(ps_wal_add(r->wal, 0, &large, NULL), LH_OK);
    lh_fake_fail_at(r->env, 0, LH_ERR_DISK_FULL);
    assert_int_equal(ps_wal_commit(r->wal), LH_ERR_DISK_FULL);
    assert_true(lh_fake_failed(r->env));
    ps_wal_drop_group(r->wal);
    add(r, 3);
    commit(r);
    assert_int_equal(ps_wal_segment(r->wal), 2);
    lh_fake_kill(r->env, false);
    lh_fake_boot(r->env);
    check_replay(r, 3, false);
    lh_buf_free(&body);
    finish(r);
}

TEST(a_forged_entry_is_not_taken)
{
    for (uint64_t generation = 0; generation < GENERATIONS; generation++) forge_behind(generation);
}

// Only a checkpoint lets the log be trimmed, so a new segment leaves the space that one needs;
// otherwise no segment is begun and the group fails. A start needs only a header's space.
TEST(a_segment_leaves_a_checkpoint_its_room)
{
    struct rig *r = start(512);
    fill(r, 1, 3);
    lh_fake_disk_limit(r->env, lh_fake_disk_used(r->env) + 512 + 1000);
    ps_wal_reserve(r->wal, 1001);
    add(r, 4);
    assert_int_equal(ps_wal_commit(r->wal), LH_ERR_DISK_FULL);
    assert_int_equal(ps_wal_segment(r->wal), 1);
    ps_wal_drop_group(r->wal);
    const uint64_t unused = 512 - PS_SEGMENT_HEADER_BYTES - 3 * ENTRY; // the start gives these back
    r->conf.reserve = 1001 + unused;
    check_replay(r, 3, false);
    add(r, 4);
    assert_int_equal(ps_wal_commit(r->wal), LH_ERR_DISK_FULL); // only a header was begun
    ps_wal_reserve(r->wal, 1000 + unused - PS_SEGMENT_HEADER_BYTES);
    commit(r);
    check_replay(r, 4, false);
    finish(r);
}
