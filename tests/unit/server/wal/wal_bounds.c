// server/wal/wal.c, wal_scan.c: headers and entries of shapes that our writer never writes, with
// valid checksums. Each is refused, or cut as a torn tail; none is replayed. Also groups of any
// size. Entries of our writer, and damage to them, are tested in wal.c.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/state/disk_full.h"
#include "tests/test.h"
#include "tests/unit/server/wal/wal_case.h"
#include "tests/world/env_fake.h"

enum { SHARD = 3, BODY = CASE_BODY, ENTRY = CASE_ENTRY };

struct rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct lh_buf segment; // bytes of the segment that is being made
    uint64_t seen;         // records of the last scan
    struct ps_wal_found found;
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    if (!r) return -1;
    r->world = lh_fake_world_create(1);
    r->env = lh_fake_node(r->world, NULL, NULL);
    lh_fake_boot(r->env);
    if (r->env->ops->files->make_dir(r->env, "log")) return -1;
    r->segment = lh_buf(1 << 16);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_buf_free(&r->segment);
    lh_fake_world_destroy(r->world);
    free(r);
    return 0;
}

// ---------------------------------------------------------------- making segments

struct header {
    uint16_t version;
    uint64_t number, generation, first;
};

static void begin(struct rig *r, const struct header *h)
{
    struct lh_buf *b = &r->segment;
    static const uint8_t job[LH_JOB_BYTES] = {7};
    lh_buf_clear(b);
    lh_put_u32(b, PS_SEGMENT_MAGIC);
    lh_put_u16(b, h->version);
    lh_put_u16(b, 0);
    lh_put_u64(b, h->number);
    lh_put_u64(b, h->generation);
    lh_put_u64(b, h->first);
    lh_put(b, job, LH_JOB_BYTES);
    lh_put_u64(b, 0);
    lh_put_u32(b, lh_crc32c(0, b->data, b->len));
    lh_put_u32(b, 0);
}

static void begin_usual(struct rig *r)
{
    begin(r, &(struct header){.version = 1, .number = 1, .generation = 1, .first = 1});
}

static void put_entry(struct rig *r, uint64_t sequence, uint64_t durable)
{
    case_put_entry(&r->segment, &(struct case_entry){.generation = 1,
                                                     .sequence = sequence,
                                                     .durable = durable,
                                                     .version = sequence ? sequence : 1,
                                                     .shard = SHARD});
}

static lh_err see(void *arg, const struct ps_wal_entry *e)
{
    struct rig *r = arg;
    r->seen += e->record != NULL;
    return LH_OK;
}

// Scans a log whose first segment holds the bytes made so far, followed by zeros.
static lh_err look(struct rig *r)
{
    size_t len = r->segment.len;
    lh_put_zeros(&r->segment, 2048);
    assert_int_equal(lh_file_replace(r->env, "log/0000000000000001.seg", lh_buf_span(&r->segment)),
                     LH_OK);
    r->segment.len = len;
    r->seen = 0;
    return ps_wal_look(r->env, "log", NULL, see, r, &r->found);
}

// ---------------------------------------------------------------- the tests

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(a_header_of_another_form_is_refused, struct rig *r)
{
    static const struct {
        struct header header;
        lh_err err;
    } c[] = {
        {{1, 1, 1, 1}, LH_OK},
        {{2, 1, 1, 1}, LH_ERR_VERSION}, // a later build's
        {{1, 2, 1, 1}, LH_ERR_CORRUPT}, // another segment's, copied over this one
        {{1, 1, 1, 0}, LH_ERR_CORRUPT}, // entries are counted from 1
        {{1, 1, 1, UINT64_MAX}, LH_ERR_CORRUPT},
        {{1, 1, UINT64_MAX, 1}, LH_ERR_CORRUPT},
    };
    for (size_t i = 0; i < LH_COUNT(c); i++) {
        begin(r, &c[i].header);
        put_entry(r, 1, 0);
        assert_int_equal(look(r), c[i].err);
        assert_int_equal(r->seen, c[i].err ? 0 : 1);
    }
}

// Remains of another log's entry, or one forged by somebody who can't know this log's generation.
IN_RIG(an_entry_of_another_generation_is_a_torn_tail, struct rig *r)
{
    for (uint64_t generation = 0; generation < 4; generation++) {
        begin_usual(r);
        put_entry(r, 1, 0);
        case_put_entry(&r->segment, &(struct case_entry){generation, 2, 1, 2, SHARD});
        assert_int_equal(look(r), LH_OK);
        assert_int_equal(r->seen, generation == 1 ? 2 : 1);
        assert_int_equal(r->found.torn, generation != 1);
        // nor does it prove that the entry before it was durable
        begin_usual(r);
        put_entry(r, 1, 0);
        lh_put_zeros(&r->segment, ENTRY);
        case_put_entry(&r->segment, &(struct case_entry){generation, 3, 2, 3, SHARD});
        assert_int_equal(look(r), generation == 1 ? LH_ERR_CORRUPT : LH_OK);
        assert_int_equal(r->seen, 1);
    }
}

// After one valid entry, each of these ends the log as bytes that may be torn.
IN_RIG(an_entry_of_another_form_is_a_torn_tail, struct rig *r)
{
    enum { TOTAL = 4, KIND = PS_ENTRY_HEADER_BYTES + 16, BODY_BYTES = PS_ENTRY_HEADER_BYTES + 28 };
    static const struct {
        size_t at;
        uint32_t value;
    } c[] = {
        {TOTAL, 0},       {TOTAL, PS_ENTRY_HEADER_BYTES}, {TOTAL, ENTRY - 4},
        {TOTAL, 1 << 20}, {KIND, LH_ADMIT + 0x7000},      {BODY_BYTES, BODY + 64},
    };
    for (size_t i = 0; i < LH_COUNT(c); i++) {
        begin_usual(r);
        put_entry(r, 1, 0);
        put_entry(r, 2, 1);
        assert_int_equal(look(r), LH_OK);
        assert_int_equal(r->seen, 2);
        assert_false(r->found.torn);
        struct lh_buf field = lh_buf_over(r->segment.data + r->segment.len - ENTRY + c[i].at, 4);
        lh_put_u32(&field, c[i].value);
        case_sum(&r->segment, ENTRY);
        assert_int_equal(look(r), LH_OK);
        assert_int_equal(r->seen, 1);
        assert_true(r->found.torn);
        assert_int_equal(r->found.torn_at, PS_SEGMENT_HEADER_BYTES + ENTRY);
    }
}

IN_RIG(an_entry_out_of_its_turn_is_not_replayed, struct rig *r)
{
    static const uint64_t turn[] = {1, 3}; // one twice, and one left out
    for (size_t i = 0; i < LH_COUNT(turn); i++) {
        begin_usual(r);
        put_entry(r, 1, 0);
        put_entry(r, turn[i], 0);
        assert_int_equal(look(r), LH_OK);
        assert_int_equal(r->seen, 1);
        assert_true(r->found.torn);
    }
}

// Only a later entry that names the damaged one durable proves that it had been synced. An entry
// that names an earlier one does not, nor does a body that looks like an entry's beginning.
IN_RIG(only_a_durable_position_behind_damage_refuses_it, struct rig *r)
{
    static const uint64_t durable[] = {0, 1, 2};
    for (size_t i = 0; i < LH_COUNT(durable); i++) {
        begin_usual(r);
        put_entry(r, 1, 0);
        put_entry(r, 2, 1);
        uint8_t *second = r->segment.data + PS_SEGMENT_HEADER_BYTES + ENTRY;
        second[PS_ENTRY_HEADER_BYTES + LH_RECORD_HEADER_BYTES + 8] ^= 1; // a byte of its body
        memcpy(second + PS_ENTRY_HEADER_BYTES + LH_RECORD_HEADER_BYTES, &PS_ENTRY_MAGIC, 4);
        put_entry(r, 3, durable[i]);
        assert_int_equal(look(r), durable[i] < 2 ? LH_OK : LH_ERR_CORRUPT);
        assert_int_equal(r->seen, 1);
        if (durable[i] < 2) assert_true(r->found.torn);
    }
}

// ---------------------------------------------------------------- writing

struct start {
    struct lh_env *env;
    uint64_t replayed;
    bool torn, asked; // torn: scanned()'s argument; asked: scanned() was called
};

static lh_err replay(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    struct start *s = arg;
    (void)place;
    return shard == SHARD && r->version == ++s->replayed ? LH_OK : LH_ERR_INTERNAL;
}

static lh_err scanned(void *arg, bool torn)
{
    struct start *s = arg;
    struct lh_file *file;
    s->torn = torn;
    s->asked = true;
    // a new segment would hide that bytes were cut
    assert_int_equal(
        s->env->ops->files->open(s->env, "log/0000000000000002.seg", LH_OPEN_READ, &file),
        LH_ERR_NOT_FOUND);
    return LH_OK;
}

IN_RIG(that_bytes_were_cut_is_told_before_a_segment_hides_it, struct rig *r)
{
    struct start s = {.env = r->env};
    struct ps_wal_conf conf = {
        .env = r->env, .dir = "log", .segment_bytes = 4096, .job = {7}, .scanned = scanned};
    struct ps_wal *w;
    bool torn;
    begin_usual(r);
    for (uint64_t i = 1; i <= 2; i++) put_entry(r, i, 0);
    r->segment.data[r->segment.len - ENTRY + 20] ^= 1;
    (void)look(r);
    assert_int_equal(ps_wal_open(&conf, replay, &s, &torn, &w), LH_OK);
    assert_true(s.asked && s.torn && torn);
    assert_int_equal(s.replayed, 1);
    ps_wal_close(w);
}

// More entries than the array initially holds, one without a body, and one too large.
IN_RIG(a_group_takes_many_entries_and_none_too_large, struct rig *r)
{
    enum { MANY = 200 };
    static uint8_t body[MANY];
    struct start s = {.env = r->env};
    struct ps_wal_conf conf = {.env = r->env, .dir = "log", .segment_bytes = 4096, .job = {7}};
    struct lh_record record = {.kind = LH_ADMIT};
    struct ps_place place;
    struct ps_wal *w;
    bool torn;
    assert_int_equal(ps_wal_open(&conf, replay, &s, &torn, &w), LH_OK);
    for (record.version = 1; record.version <= MANY; record.version++) {
        record.body = lh_span(body, (size_t)record.version - 1);
        assert_int_equal(ps_wal_add(w, SHARD, &record, &place), LH_OK);
        assert_int_equal(place.bytes, LH_RECORD_HEADER_BYTES + record.body.len);
    }
    uint64_t bytes = ps_wal_group_bytes(w);
    record.body = lh_span(body, (size_t)LH_RECORD_BYTES_MAX + 1); // never read
    assert_int_equal(ps_wal_add(w, SHARD, &record, &place), LH_ERR_TOO_LARGE);
    assert_int_equal(ps_wal_group_bytes(w), bytes);
    assert_int_equal(ps_wal_commit(w), LH_OK);
    ps_wal_group_done(w);
    ps_wal_close(w);
    assert_int_equal(ps_wal_open(&conf, replay, &s, &torn, &w), LH_OK);
    assert_int_equal(s.replayed, MANY);
    ps_wal_close(w);
}
