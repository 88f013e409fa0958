// A log on the fake env's disk, filled with records whose bodies follow from their versions, and
// the result of its replay. For the tests of server/wal/wal.c and server/wal/wal_scan.c.
#ifndef TESTS_UNIT_WAL_RIG_H
#define TESTS_UNIT_WAL_RIG_H

#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "server/wal/wal.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum {
    BODY = 24,
    SEEN_MAX = 64,
    HEADER = 64,
    ENTRY = 40 + LH_RECORD_HEADER_BYTES + BODY + 8,
    MARK = 48
};

struct rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct ps_wal_conf conf;
    struct ps_wal *wal;
    bool torn;
    size_t seen;
    uint64_t version[SEEN_MAX];
    struct ps_place place[SEEN_MAX];
    uint8_t body[SEEN_MAX][BODY]; // bodies of uncommitted records
    bool same[SEEN_MAX];          // shard and body are what record() gave the version
};

static inline void body_of(uint64_t version, uint8_t body[BODY])
{
    for (size_t i = 0; i < BODY; i++) body[i] = (uint8_t)(version * 31 + i);
}

static inline uint32_t shard_of(uint64_t version)
{
    return (uint32_t)(version % 3);
}

static inline struct lh_record record(uint64_t version, uint8_t body[BODY])
{
    body_of(version, body);
    return (struct lh_record){
        .version = version, .epoch = 1, .kind = LH_FENCE, .scale = 1, .body = lh_span(body, BODY)};
}

static inline LH_MUST lh_err note(void *arg, uint32_t shard, const struct lh_record *r,
                                  struct ps_place place)
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

static inline struct rig start(uint64_t seed)
{
    struct rig r = {.world = lh_fake_world_create(seed)};
    r.env = lh_fake_node(r.world, NULL, NULL);
    lh_fake_boot(r.env);
    lh_fake_folders_apart(r.env);
    r.conf = (struct ps_wal_conf){.env = r.env, .dir = "log", .segment_bytes = 4096, .job = {7}};
    return r;
}

static inline void finish(struct rig *r)
{
    ps_wal_close(r->wal);
    lh_fake_world_destroy(r->world);
}

static inline LH_MUST lh_err open_wal(struct rig *r)
{
    ps_wal_close(r->wal);
    r->wal = NULL;
    r->seen = 0;
    r->torn = false;
    return ps_wal_open(&r->conf, note, r, &r->torn, &r->wal);
}

static inline void add(struct rig *r, uint64_t version)
{
    struct lh_record rec = record(version, r->body[version % LH_COUNT(r->body)]);
    struct ps_place place;
    assert_int_equal(ps_wal_add(r->wal, shard_of(version), &rec, &place), LH_OK);
    assert_int_equal(place.bytes, LH_RECORD_HEADER_BYTES + BODY);
}

static inline void commit(struct rig *r)
{
    assert_int_equal(ps_wal_commit(r->wal), LH_OK);
    ps_wal_group_done(r->wal);
}

// Writes versions `from` to `to`, each as a group of its own.
static inline void fill(struct rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t v = from; v <= to; v++) {
        add(r, v);
        commit(r);
    }
}

static inline void mark(struct rig *r)
{
    assert_true(ps_wal_mark(r->wal));
    commit(r);
}

// Checks that versions 1 to n were replayed.
static inline void check_seen(const struct rig *r, size_t n)
{
    assert_int_equal(r->seen, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(r->version[i], i + 1);
        assert_true(r->same[i]);
    }
}

static inline void check_bytes(struct rig *r, struct ps_place place, uint64_t version)
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

static inline void segment_path(uint64_t number, char out[LH_PATH_BYTES])
{
    assert_int_equal(lh_path(out, LH_PATH_BYTES, "log", "%016llx.seg", (unsigned long long)number),
                     LH_OK);
}

static inline void flip(struct rig *r, uint64_t segment, uint64_t at)
{
    char path[LH_PATH_BYTES];
    segment_path(segment, path);
    assert_int_equal(lh_fake_flip(r->env, path, at, 0x10), LH_OK);
}

static inline bool exists(struct rig *r, uint64_t segment)
{
    char path[LH_PATH_BYTES];
    struct lh_file *file;
    segment_path(segment, path);
    if (r->env->ops->files->open(r->env, path, LH_OPEN_READ, &file)) return false;
    r->env->ops->files->close(file);
    return true;
}

#endif
