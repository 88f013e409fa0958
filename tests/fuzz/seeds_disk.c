// Seeds of the formats that are files on a node's disk: logs, slots, checkpoints, the coordinator's
// store, units' tokens and their index.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "common/format/tokens.h"
#include "common/format/units_index.h"
#include "kernels/storage/checkpoint.h"
#include "server/coordinator/store.h"
#include "server/state/disk_full.h"
#include "server/wal/wal_format.h"
#include "tests/fuzz/seeds.h"
#include "tests/world/env_fake.h"
#include "worker/push/slot.h"

static const uint8_t job[LH_JOB_BYTES] = FUZZ_JOB;

static void tokens(const struct fuzz_seeds *o)
{
    struct lh_buf b = lh_buf(2 * LH_TOKENS_HEADER_BYTES);
    lh_tokens_put_header(&b, 2, 3);
    for (uint32_t i = 0; i < 3; i++) lh_tokens_put(&b, 2, 30000 * i);
    fuzz_seed(o, "tokens", "two-bytes", lh_span("\0\x7f", 2), lh_buf_span(&b));
    fuzz_seed(o, "tokens", "two-bytes-where-four-are", lh_span("\1\x7f", 2), lh_buf_span(&b));
    fuzz_seed(o, "tokens", "header-cut-short", lh_span("\0\x7f", 2), lh_span(b.data, 600));
    lh_buf_clear(&b);
    lh_tokens_put_header(&b, 4, 2);
    lh_tokens_put(&b, 4, 7);
    lh_tokens_put(&b, 4, UINT32_MAX);
    fuzz_seed(o, "tokens", "four-bytes", lh_span("\1\xff", 2), lh_buf_span(&b));
    lh_buf_free(&b);
}

static lh_err no_replay(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    (void)arg;
    (void)shard;
    (void)r;
    (void)place;
    return LH_OK;
}

// Returns the first segment of a log with two groups of this record and a mark, without the
// preallocated space behind them. The caller frees it.
static struct lh_buf make_log(struct fuzz_seeds *o, const char *dir, struct lh_record r)
{
    struct ps_wal_conf conf = {
        .env = o->disk.env, .dir = dir, .segment_bytes = 4096, .job = "fuzz"};
    struct lh_buf b = lh_buf(1 << 20);
    struct ps_place place;
    struct ps_wal *w;
    bool torn;
    lh_err err = ps_wal_open(&conf, no_replay, NULL, &torn, &w);
    for (uint32_t shard = 0; !err && shard < 2; shard++) {
        err = ps_wal_add(w, shard, &r, &place);
        if (!err) err = ps_wal_commit(w);
        if (!err) ps_wal_group_done(w);
    }
    LH_ASSERT(err == LH_OK);
    if (ps_wal_mark(w)) {
        err = ps_wal_commit(w);
        ps_wal_group_done(w);
    }
    size_t len = w->at;
    char path[LH_PATH_BYTES];
    ps_wal_segment_path(w, w->segment, path);
    ps_wal_close(w);
    if (!err) err = lh_file_load(o->disk.env, path, &b);
    LH_ASSERT(err == LH_OK && b.len >= len);
    b.len = len;
    return b;
}

static void logs(struct fuzz_seeds *o, struct lh_span fence)
{
    struct lh_record r = {.version = 1, .epoch = 1, .kind = LH_FENCE, .body = fence};
    struct lh_buf b = make_log(o, "w", r), body = lh_buf(16), move;
    size_t len = b.len;
    lh_move_write(&(struct lh_move){2, 77}, &body);
    r = (struct lh_record){.version = 1, .epoch = 1, .kind = LH_MOVE, .body = lh_buf_span(&body)};
    move = make_log(o, "wm", r);
    fuzz_seed(o, "wal", "moves", lh_span("\0", 1), lh_buf_span(&move));
    lh_buf_free(&move);
    lh_buf_free(&body);
    fuzz_seed(o, "wal", "two-groups-and-a-mark", lh_span("\0", 1), lh_span(b.data, len));
    fuzz_seed(o, "wal", "torn-tail", lh_span("\0", 1), lh_span(b.data, len - 9));
    fuzz_seed(o, "wal", "checksums-repaired", lh_span("\1", 1), lh_span(b.data, len));
    b.data[80] ^= 1;
    fuzz_seed(o, "wal", "damaged-below-the-mark", lh_span("\0", 1), lh_span(b.data, len));
    lh_buf_free(&b);
}

static void slots(struct fuzz_seeds *o, struct lh_span frame)
{
    struct wk_claim claim[] = {{4, {1, {2}}}, {6, {3, {4}}}};
    struct wk_position position[] = {{5, 1024}, {7, 96}};
    float residual[3] = {0.5f, -1, 2};
    struct wk_slots s = {.env = o->disk.env, .dir = "s", .values = 3};
    struct wk_slot slot = {.incarnation = {1ull << 32, 5},
                           .next = 3,
                           .decided = 2,
                           .decided_admitted = true,
                           .tokens = 640,
                           .claim = claim,
                           .position = position,
                           .claim_count = 2,
                           .position_count = 2};
    struct lh_buf b = lh_buf(4096), entry = lh_buf(4096);
    lh_err err = o->disk.env->ops->files->make_dir(o->disk.env, "s");
    if (!err) err = wk_slot_flip(&s, &slot, residual, true);
    if (!err) err = lh_file_load(o->disk.env, "s/slot-0000-a", &b);
    if (err) err = lh_file_load(o->disk.env, "s/slot-0000-b", &b);
    LH_ASSERT(err == LH_OK);
    fuzz_seed(o, "slot", "slot", lh_span("\0", 1), lh_buf_span(&b));
    fuzz_seed(o, "slot", "slot-repaired", lh_span("\1", 1), lh_buf_span(&b));
    lh_buf_clear(&b);
    slot.cut = 7; // a cut, which only a trainer beside the worker has, makes it version 3
    memset(slot.life, 5, sizeof slot.life);
    if (!err) err = wk_slot_flip(&s, &slot, residual, true);
    if (!err) err = lh_file_load(o->disk.env, "s/slot-0000-a", &b);
    fuzz_seed(o, "slot", "slot-beside", lh_span("\0", 1), lh_buf_span(&b));
    fuzz_seed(o, "slot", "slot-beside-repaired", lh_span("\1", 1), lh_buf_span(&b));
    lh_put(&entry, frame.data, frame.len);
    lh_put_u32(&entry, lh_crc32c(0, frame.data, frame.len));
    fuzz_seed(o, "slot", "outbox-entry", lh_span("\0", 1), lh_buf_span(&entry));
    fuzz_seed(o, "slot", "outbox-entry-repaired", lh_span("\2", 1), lh_buf_span(&entry));
    lh_buf_free(&b);
    lh_buf_free(&entry);
}

static void checkpoints(struct fuzz_seeds *o)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{40, 2, 0}};
    struct lk_checkpoint_conf conf = {
        .env = o->disk.env, .dir = "c", .cipher = LH_CIPHER_XCHACHA20, .key_id = 7};
    struct lh_manifest m = {0};
    struct lk_replica r;
    struct lk_checkpoint c;
    struct lh_seal_key key;
    struct lh_buf b = lh_buf(1 << 16);
    for (size_t i = 0; i < sizeof key.b; i++) key.b[i] = (uint8_t)(1 + i);
    lh_err err = lh_keyring_create(&conf.keys);
    if (!err) err = lh_keyring_add(conf.keys, 7, &key);
    if (!err) err = lh_manifest_build(&m, 1, names, shapes, 1, NULL);
    if (!err) err = lk_replica_create(&r, job, &m, 0, conf.keys);
    if (!err) err = o->disk.env->ops->files->make_dir(o->disk.env, "c");
    if (!err) err = lk_checkpoint_take(&conf, &r, &c);
    if (!err) err = lk_checkpoint_write(&c);
    if (!err) err = lh_file_load(o->disk.env, "c/0000-0000000000000000.ckpt", &b);
    LH_ASSERT(err == LH_OK);
    fuzz_seed(o, "checkpoint", "version-2", lh_span("\0", 1), lh_buf_span(&b));
    fuzz_seed(o, "checkpoint", "version-2-cut-short", lh_span("\1", 1), lh_span(b.data, b.len - 3));
    b.data[b.len - 80] ^= 1; // a bit of the absent signature, which is not read
    fuzz_seed(o, "checkpoint", "version-2-manifest-repaired", lh_span("\2", 1), lh_buf_span(&b));
    b.data[b.len - 132] ^= 1; // a bit of a hash
    fuzz_seed(o, "checkpoint", "version-2-wrong-hash", lh_span("\2", 1), lh_buf_span(&b));
    lk_checkpoint_free(&c);
    lk_replica_free(&r);
    lh_manifest_free(&m);
    lh_keyring_destroy(conf.keys);
    lh_buf_free(&b);
}

static void put_row(struct ps_store *s, const char *key, const struct lh_buf *value)
{
    lh_err err = ps_store_put(s, key, lh_buf_span(value));
    LH_ASSERT(err == LH_OK);
}

// Puts one row of each kind that a coordinator reads at its start.
static void put_rows(struct ps_store *s, struct lh_span plan)
{
    struct lh_buf worker = lh_buf(512), lease = lh_buf(64), epoch = lh_buf(128), point = lh_buf(64),
                  insync = lh_buf(64), p = lh_buf(4096);
    uint8_t chain[LH_HASH_BYTES] = {1};
    lh_put_u64(&worker, 11);
    lh_put_u32(&worker, 1);
    lh_put_str(&worker, "asia");
    lh_put_str(&worker, "asia-0");
    for (int i = 0; i < 16; i++) lh_put_u64(&worker, (uint64_t)i);
    lh_put_u8(&lease, 1);
    lh_put_u8(&lease, 1);
    lh_put_u64(&lease, 11);
    lh_put_u32(&lease, 1700000000);
    lh_put_u32(&lease, 1);
    lh_put_u64(&point, 1);
    lh_put_u64(&point, 9);
    lh_put(&point, chain, sizeof chain);
    lh_put_u64(&epoch, 77); // token
    lh_put(&epoch, point.data, point.len);
    for (uint64_t i = 0; i < 4; i++) lh_put_u64(&insync, 5 + i);
    lh_put(&p, plan.data, plan.len);
    put_row(s, "worker/000000000000000b", &worker);
    put_row(s, "lease/0000000000", &lease);
    put_row(s, "stable/0001", &point);
    put_row(s, "epoch/0001", &epoch);
    put_row(s, "insync/0001", &insync);
    put_row(s, "plan", &p);
    lh_buf_free(&worker);
    lh_buf_free(&lease);
    lh_buf_free(&epoch);
    lh_buf_free(&point);
    lh_buf_free(&insync);
    lh_buf_free(&p);
}

// Two units and a held-out file.
static void units_indexes(struct fuzz_seeds *o)
{
    struct lh_unit unit[2] = {
        {.file = "a.bin", .language = "ja", .home = "asia", .tokens = 64, .may_leave = true},
        {.id = 1, .file = "a.bin", .language = "ja", .home = "asia", .from = 64, .tokens = 64}};
    struct lh_heldout heldout = {.language = "ja", .file = "h.bin", .tokens = 5, .bytes = 9};
    struct lh_units u = {
        .count = 2, .heldout_count = 1, .vocabulary = 256, .token_bytes = 2, .hash = {{1}}};
    struct lh_buf b = lh_buf(1 << 12);
    uint32_t crc = lh_crc32c(lh_crc32c(0, unit, sizeof unit), &heldout, sizeof heldout);
    lh_units_index_head(&u, crc, &b);
    lh_put(&b, unit, sizeof unit);
    lh_put(&b, &heldout, sizeof heldout);
    fuzz_seed(o, "units_index", "two-units", lh_span("\0", 1), lh_buf_span(&b));
    fuzz_seed(o, "units_index", "checksums-repaired", lh_span("\1", 1), lh_buf_span(&b));
    fuzz_seed(o, "units_index", "cut-short", lh_span("\0", 1), lh_span(b.data, b.len - 5));
    b.data[LH_UNITS_INDEX_HEADER + 264] = 2; // may_leave must be 0 or 1
    fuzz_seed(o, "units_index", "a-flag-that-is-none", lh_span("\1", 1), lh_buf_span(&b));
    lh_buf_free(&b);
}

static void stores(struct fuzz_seeds *o, struct lh_span plan)
{
    struct ps_store *s;
    struct lh_buf b = lh_buf(1 << 16);
    lh_err err = o->disk.env->ops->files->make_dir(o->disk.env, "st");
    if (!err) err = ps_store_open(o->disk.env, "st", &s);
    LH_ASSERT(err == LH_OK);
    put_rows(s, plan);
    bool begun;
    err = ps_store_begin(s, &begun);
    if (!err) err = ps_store_write(s);
    ps_store_end(s, err);
    ps_store_close(s);
    if (!err) err = lh_file_load(o->disk.env, "st/store", &b);
    LH_ASSERT(err == LH_OK);
    fuzz_seed(o, "store", "a-row-of-each-kind", lh_span("\0", 1), lh_buf_span(&b));
    fuzz_seed(o, "store", "checksums-repaired", lh_span("\1", 1), lh_buf_span(&b));
    fuzz_seed(o, "store", "torn-commit", lh_span("\0", 1), lh_span(b.data, b.len - 5));
    b.data[12] ^= 1;
    fuzz_seed(o, "store", "damaged", lh_span("\0", 1), lh_buf_span(&b));
    lh_buf_free(&b);
}

// A small state file of a server: magic, version and numbers, with its checksum.
static void put_state(struct fuzz_seeds *o, const char *name, uint32_t magic, uint16_t version,
                      int numbers)
{
    struct lh_buf b = lh_buf(64);
    lh_put_u32(&b, magic);
    lh_put_u16(&b, version);
    lh_put_u16(&b, 0);
    for (int i = 0; i < numbers; i++) lh_put_u64(&b, 3);
    lh_put_u32(&b, lh_crc32c(0, b.data, b.len));
    fuzz_seed(o, "state", name, lh_span("\0", 1), lh_buf_span(&b));
    if (!strcmp(name, "epoch"))
        fuzz_seed(o, "state", "cut-short", lh_span("\1", 1), lh_span(b.data, 20));
    lh_buf_free(&b);
}

void fuzz_seeds_disk(struct fuzz_seeds *o, struct lh_span frame, struct lh_span plan,
                     struct lh_span fence)
{
    tokens(o);
    logs(o, fence);
    slots(o, frame);
    checkpoints(o);
    stores(o, plan);
    units_indexes(o);
    put_state(o, "epoch", 0x5045484c, 2, 2);
    put_state(o, "epoch-version-1", 0x5045484c, 1, 1);
    put_state(o, "standby", 0x4253484c, 1, 1);
}
