// Writes the corpora of the formats that are awkward to type, with the encoders of the product:
// `fuzz_seeds tests/fuzz/corpus`. Run it again after a change of a format; what a fuzzer found is
// added by hand and stays.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/check.h"
#include "common/env/env_fake.h"
#include "common/format/ledger.h"
#include "common/format/manifest.h"
#include "common/format/tokens.h"
#include "common/net/rpc.h"
#include "common/net/state_seal.h"
#include "kernels/codec.h"
#include "kernels/fragment.h"
#include "kernels/state/checkpoint.h"
#include "longhaul/v1/shard.pb-c.h"
#include "common/format/units_index.h"
#include "server/coordinator/store.h"
#include "server/state/disk_full.h"
#include "server/wal/wal_format.h"
#include "tests/fuzz/disk.h"
#include "tests/fuzz/seeds.h"
#include "worker/push/slot.h"

static const uint8_t job[LH_JOB_BYTES] = "fuzz";

struct out {
    const char *corpus;
    struct fuzz_disk disk;
};

// Writes corpus/FORMAT/NAME: `head` bytes of choice before the format's own.
static void put(const struct out *o, const char *format, const char *name, struct lh_span head,
                struct lh_span bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", o->corpus, format);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", o->corpus, format, name);
    FILE *file = fopen(path, "wb");
    size_t written = file ? fwrite(head.data, 1, head.len, file) : 0;
    if (file) written += fwrite(bytes.data, 1, bytes.len, file);
    if (!file || fclose(file) || written != head.len + bytes.len) {
        perror(path);
        exit(1);
    }
}

static struct lh_span none(void)
{
    return lh_span("", 0);
}

static struct lh_frame make_frame(void)
{
    struct lh_frame f = {.index_code = 1,
                         .value_code = 1,
                         .cipher = 1,
                         .density = 0.5f,
                         .key_id = 7,
                         .worker = 11,
                         .incarnation = {1ull << 32, 5},
                         .step = 1,
                         .tokens = 512,
                         .steps = 4,
                         .claims = 2,
                         .values = 3,
                         .plain_bytes = 9,
                         .claim = {0, 2}};
    memcpy(f.job, job, LH_JOB_BYTES);
    return f;
}

static void frames(const struct out *o, struct lh_buf *whole)
{
    struct lh_frame f = make_frame();
    struct lh_buf stub = lh_buf(4096);
    lh_frame_write_head(&f, whole);
    for (int i = 0; i < 9 + LH_SEAL_TAG_BYTES; i++) lh_put_u8(whole, (uint8_t)i); // never opened
    lh_frame_write_stub(lh_buf_span(whole), &f, &stub);
    put(o, "frame", "whole", none(), lh_buf_span(whole));
    put(o, "frame", "stub", none(), lh_buf_span(&stub));
    put(o, "frame", "without-its-tag", none(),
        lh_span(whole->data, whole->len - LH_SEAL_TAG_BYTES));
    lh_buf_free(&stub);
}

static void put_record(const struct out *o, const char *name, const struct lh_record *r)
{
    struct lh_buf b = lh_buf(1 << 16);
    lh_record_write_header(r, &b);
    lh_put(&b, r->body.data, r->body.len);
    put(o, "record", name, none(), lh_buf_span(&b));
    lh_buf_free(&b);
}

static void records(const struct out *o, struct lh_span frame, struct lh_span plan,
                    struct lh_span fence)
{
    struct lh_record r = {.version = 1, .epoch = 1, .kind = LH_FENCE, .body = fence};
    put_record(o, "fence", &r);
    r = (struct lh_record){.version = 1, .epoch = 1, .kind = LH_PLAN, .body = plan};
    put_record(o, "plan", &r);
    r = (struct lh_record){
        .version = 1, .epoch = 1, .kind = LH_ADMIT, .scale = 0.5f, .body = frame};
    put_record(o, "admit", &r);
    struct lh_buf move = lh_buf(16);
    lh_move_write(&(struct lh_move){2, 77}, &move);
    r = (struct lh_record){.version = 1, .epoch = 1, .kind = LH_MOVE, .body = lh_buf_span(&move)};
    put_record(o, "move", &r);
    lh_buf_free(&move);
    r = (struct lh_record){.version = 1, .epoch = 1, .kind = LH_DIGEST_RECORD};
    put_record(o, "digest-without-body", &r);
}

static struct lh_plan make_plan(void)
{
    return (struct lh_plan){.number = 1,
                            .phase = LH_PHASE_END,
                            .eta = 1.4f,
                            .damping = 0.5f,
                            .staleness_per_live = 4,
                            .live = 2,
                            .worker = {11, 12},
                            .ends = 1,
                            .end = {9}};
}

// A ledger after its MOVE, up to the next epoch.
static void moved_ledgers(const struct out *o, struct lh_ledger *l)
{
    struct lh_record r = {.kind = LH_MOVE};
    struct lh_buf b = lh_buf(1 << 16), body = lh_buf(16);
    lh_move_write(&(struct lh_move){2, 77}, &body);
    r.body = lh_buf_span(&body);
    lh_ledger_next(l, &r);
    lh_err err = lh_ledger_apply(l, &r);
    LH_ASSERT(err == LH_OK);
    lh_ledger_write(l, &b);
    put(o, "ledger", "moved", none(), lh_buf_span(&b));
    lh_buf_clear(&b);
    l->move.target = 0;
    lh_ledger_write(l, &b);
    put(o, "ledger", "moved-nowhere", none(), lh_buf_span(&b));
    lh_buf_free(&b);
    lh_buf_free(&body);
}

// A ledger that a fence and a plan were applied to, and then a move.
static void ledgers(const struct out *o, struct lh_span plan, struct lh_span fence)
{
    struct lh_hash manifest = {{0}};
    struct lh_ledger l;
    struct lh_buf b = lh_buf(1 << 16);
    lh_err err = lh_ledger_create(&l, job, &manifest, 1, 2);
    for (int i = 0; !err && i < 2; i++) {
        struct lh_record r = {.kind = i ? LH_PLAN : LH_FENCE, .body = i ? plan : fence};
        lh_ledger_next(&l, &r);
        err = lh_ledger_apply(&l, &r);
    }
    LH_ASSERT(err == LH_OK);
    lh_ledger_write(&l, &b);
    put(o, "ledger", "fence-and-plan", none(), lh_buf_span(&b));
    put(o, "ledger", "cut-short", none(), lh_span(b.data, b.len - 1));
    moved_ledgers(o, &l);
    lh_buf_free(&b);
    lh_ledger_free(&l);
}

// Fold states of one shard of 80 values: new, and after a plan under this optimizer.
static void put_replica(const struct out *o, const char *name, int optimizer, size_t cut)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{40, 2, 0}};
    struct lh_manifest m = {0};
    struct lk_replica r;
    struct lh_plan p = make_plan();
    struct lh_buf b = lh_buf(1 << 16), plan = lh_buf(4096);
    char ranges[64];
    if (optimizer != LH_OPT_SGD) p.momentum = 0.6f, p.effective_step_max = 1.5f;
    p.optimizer = (uint8_t)optimizer;
    p.phase = LH_PHASE_RUN;
    p.ends = 0;
    lh_plan_write(&p, &plan);
    lh_err err = lh_manifest_build(&m, 1, names, shapes, 1, NULL);
    if (!err) err = lk_replica_create(&r, job, &m, 0, NULL);
    struct lh_record record = {.kind = LH_PLAN, .body = lh_buf_span(&plan)};
    if (!err) lh_ledger_next(&r.ledger, &record);
    if (!err) err = lk_replica_apply(&r, &record);
    if (!err) err = lk_replica_save(&r, &b);
    LH_ASSERT(err == LH_OK);
    put(o, "replica", name, lh_span("\x07\x01", 2), lh_span(b.data, b.len - cut));
    snprintf(ranges, sizeof ranges, "%s-in-ranges", name);
    put(o, "replica", ranges, lh_span("\x07\x03", 2), lh_span(b.data, b.len - cut));
    lk_replica_free(&r);
    lh_manifest_free(&m);
    lh_buf_free(&plan);
    lh_buf_free(&b);
}

static void tokens(const struct out *o)
{
    struct lh_buf b = lh_buf(2 * LH_TOKENS_HEADER_BYTES);
    lh_tokens_put_header(&b, 2, 3);
    for (uint32_t i = 0; i < 3; i++) lh_tokens_put(&b, 2, 30000 * i);
    put(o, "tokens", "two-bytes", lh_span("\0\x7f", 2), lh_buf_span(&b));
    put(o, "tokens", "two-bytes-where-four-are", lh_span("\1\x7f", 2), lh_buf_span(&b));
    put(o, "tokens", "header-cut-short", lh_span("\0\x7f", 2), lh_span(b.data, 600));
    lh_buf_clear(&b);
    lh_tokens_put_header(&b, 4, 2);
    lh_tokens_put(&b, 4, 7);
    lh_tokens_put(&b, 4, UINT32_MAX);
    put(o, "tokens", "four-bytes", lh_span("\1\xff", 2), lh_buf_span(&b));
    lh_buf_free(&b);
}

static void messages(const struct out *o)
{
    Longhaul__V1__HelloRequest hello = LONGHAUL__V1__HELLO_REQUEST__INIT;
    uint8_t bytes[256];
    size_t n = longhaul__v1__hello_request__pack(&hello, bytes);
    put(o, "message", "hello-defaults", lh_span("\x08\x01", 2), lh_span(bytes, n));
    // field 15, type bytes, of a part: the bulk "abc" behind an empty head
    put(o, "message", "part-with-bulk", lh_span("\x0f\x02", 2),
        lh_span("\x7a\x03"
                "abc",
                5));
    put(o, "message", "bulk-longer-than-the-message", lh_span("\x0f\x00", 2),
        lh_span("\x7a\x04"
                "abc",
                5));
    put(o, "message", "move-to-a-standby", lh_span("\x1c\x01", 2), lh_span("\x0a\x01s", 3));
    put(o, "message", "endless-varint", lh_span("\x0a\x01", 2),
        lh_span("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12));
}

static lh_err no_replay(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    (void)arg;
    (void)shard;
    (void)r;
    (void)place;
    return LH_OK;
}

// The first segment of a log with two groups of this record and a mark, shorter than the disk keeps
// it; the caller's.
static struct lh_buf make_log(struct out *o, const char *dir, struct lh_record r)
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

static void logs(struct out *o, struct lh_span fence)
{
    struct lh_record r = {.version = 1, .epoch = 1, .kind = LH_FENCE, .body = fence};
    struct lh_buf b = make_log(o, "w", r), body = lh_buf(16), move;
    size_t len = b.len;
    lh_move_write(&(struct lh_move){2, 77}, &body);
    r = (struct lh_record){.version = 1, .epoch = 1, .kind = LH_MOVE, .body = lh_buf_span(&body)};
    move = make_log(o, "wm", r);
    put(o, "wal", "moves", lh_span("\0", 1), lh_buf_span(&move));
    lh_buf_free(&move);
    lh_buf_free(&body);
    put(o, "wal", "two-groups-and-a-mark", lh_span("\0", 1), lh_span(b.data, len));
    put(o, "wal", "torn-tail", lh_span("\0", 1), lh_span(b.data, len - 9));
    put(o, "wal", "checksums-repaired", lh_span("\1", 1), lh_span(b.data, len));
    b.data[80] ^= 1;
    put(o, "wal", "damaged-below-the-mark", lh_span("\0", 1), lh_span(b.data, len));
    lh_buf_free(&b);
}

static void slots(struct out *o, struct lh_span frame)
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
    put(o, "slot", "slot", lh_span("\0", 1), lh_buf_span(&b));
    put(o, "slot", "slot-repaired", lh_span("\1", 1), lh_buf_span(&b));
    lh_buf_clear(&b);
    slot.cut = 7; // a trainer beside the worker has cuts: version 3
    memset(slot.life, 5, sizeof slot.life);
    if (!err) err = wk_slot_flip(&s, &slot, residual, true);
    if (!err) err = lh_file_load(o->disk.env, "s/slot-0000-a", &b);
    put(o, "slot", "slot-beside", lh_span("\0", 1), lh_buf_span(&b));
    put(o, "slot", "slot-beside-repaired", lh_span("\1", 1), lh_buf_span(&b));
    lh_put(&entry, frame.data, frame.len);
    lh_put_u32(&entry, lh_crc32c(0, frame.data, frame.len));
    put(o, "slot", "outbox-entry", lh_span("\0", 1), lh_buf_span(&entry));
    put(o, "slot", "outbox-entry-repaired", lh_span("\2", 1), lh_buf_span(&entry));
    lh_buf_free(&b);
    lh_buf_free(&entry);
}

static void checkpoints(struct out *o)
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
    put(o, "checkpoint", "version-2", lh_span("\0", 1), lh_buf_span(&b));
    put(o, "checkpoint", "version-2-cut-short", lh_span("\1", 1), lh_span(b.data, b.len - 3));
    b.data[b.len - 80] ^= 1; // a bit of the absent signature, which is not looked at
    put(o, "checkpoint", "version-2-manifest-repaired", lh_span("\2", 1), lh_buf_span(&b));
    b.data[b.len - 132] ^= 1; // a bit of a hash
    put(o, "checkpoint", "version-2-wrong-hash", lh_span("\2", 1), lh_buf_span(&b));
    lk_checkpoint_free(&c);
    lk_replica_free(&r);
    lh_manifest_free(&m);
    lh_keyring_destroy(conf.keys);
    lh_buf_free(&b);
}

// One payload of a codec on a shard of 300 and 21 values, for fuzz_payload's first density.
static void put_payload(const struct out *o, size_t word)
{
    struct lh_extent extent[] = {{.len = 300}, {.tensor = 1, .offset = 300, .len = 21}};
    struct lh_shard_layout l = {.values = 321, .chunks = 2, .extent = extent, .extents = 2};
    struct lk_codec codec = {.density = 64.0f / 4096};
    struct lh_buf b = lh_buf(4096);
    const uint8_t head[] = {(uint8_t)word, 0};
    char name[64];
    float e[321];
    for (int i = 0; i < 321; i++) e[i] = (float)(i * 7919 % 2003 - 1001) / 256;
    lh_err err = lk_codec_parse(lk_codec_word(word), &codec);
    if (!err) err = lk_encode(&codec, &l, 1, NULL, e, &b, NULL);
    LH_ASSERT(err == LH_OK);
    snprintf(name, sizeof name, "%s-shard0-density0", lk_codec_word(word));
    put(o, "payload", name, lh_span(head, 2), lh_buf_span(&b));
    lh_buf_free(&b);
}

// The same shard's fragment; its turn goes round the end of both chunks.
static void put_fragment(const struct out *o)
{
    struct lh_extent extent[] = {{.len = 300}, {.tensor = 1, .offset = 300, .len = 21}};
    struct lh_shard_layout l = {.values = 321, .chunks = 2, .extent = extent, .extents = 2};
    struct lk_codec codec = {LK_INDEX_FRAGMENT, LK_VALUE_FP32, 0.4f};
    struct lh_buf b = lh_buf(4096);
    const uint8_t head[] = {7, 2};
    float values[128];
    for (int i = 0; i < 128; i++) values[i] = (float)(i * 7919 % 2003 - 1001) / 256;
    lh_err err = lk_fragment_encode(&codec, &l, 2, values, &b, NULL);
    LH_ASSERT(err == LH_OK);
    put(o, "payload", "fragment-shard0-density2", lh_span(head, 2), lh_buf_span(&b));
    lh_buf_free(&b);
}

static void put_row(struct ps_store *s, const char *key, const struct lh_buf *value)
{
    lh_err err = ps_store_put(s, key, lh_buf_span(value));
    LH_ASSERT(err == LH_OK);
}

// One row of each kind that a coordinator reads at its start.
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
static void units_indexes(struct out *o)
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
    put(o, "units_index", "two-units", lh_span("\0", 1), lh_buf_span(&b));
    put(o, "units_index", "checksums-repaired", lh_span("\1", 1), lh_buf_span(&b));
    put(o, "units_index", "cut-short", lh_span("\0", 1), lh_span(b.data, b.len - 5));
    b.data[LH_UNITS_INDEX_HEADER + 264] = 2; // may_leave is neither
    put(o, "units_index", "a-flag-that-is-none", lh_span("\1", 1), lh_buf_span(&b));
    lh_buf_free(&b);
}

static void stores(struct out *o, struct lh_span plan)
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
    put(o, "store", "a-row-of-each-kind", lh_span("\0", 1), lh_buf_span(&b));
    put(o, "store", "checksums-repaired", lh_span("\1", 1), lh_buf_span(&b));
    put(o, "store", "torn-commit", lh_span("\0", 1), lh_span(b.data, b.len - 5));
    b.data[12] ^= 1;
    put(o, "store", "damaged", lh_span("\0", 1), lh_buf_span(&b));
    lh_buf_free(&b);
}

// A small file of a server: magic, version, and numbers, with its checksum.
static void put_state(struct out *o, const char *name, uint32_t magic, uint16_t version,
                      int numbers)
{
    struct lh_buf b = lh_buf(64);
    lh_put_u32(&b, magic);
    lh_put_u16(&b, version);
    lh_put_u16(&b, 0);
    for (int i = 0; i < numbers; i++) lh_put_u64(&b, 3);
    lh_put_u32(&b, lh_crc32c(0, b.data, b.len));
    put(o, "state", name, lh_span("\0", 1), lh_buf_span(&b));
    if (!strcmp(name, "epoch")) put(o, "state", "cut-short", lh_span("\1", 1), lh_span(b.data, 20));
    lh_buf_free(&b);
}

// fuzz_state_seal.c says what its input is.
static void put_sealed(const struct out *o, const char *name, enum lh_cipher cipher, uint8_t said,
                       size_t cut)
{
    static const struct lh_hash zeros;
    struct lh_seal_key key;
    struct lh_keyring *ring;
    struct lh_state_seal s;
    uint8_t challenge[LH_STATE_RANDOM_BYTES], bytes[512], piece[40 + LH_SEAL_TAG_BYTES];
    const struct lh_span plain = lh_span("forty bytes of a fold state, as they lie.", 40);
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    if (!lh_cipher_available(cipher)) return;
    for (size_t i = 0; i < sizeof key.b; i++) key.b[i] = (uint8_t)(1 + i);
    memset(challenge, said, sizeof challenge);
    lh_err err = lh_keyring_create(&ring);
    if (!err) err = lh_keyring_add(ring, 7, &key);
    if (!err)
        err = lh_state_seal_init(&s, LH_SEAL_SNAPSHOT, ring, job, &zeros, 5,
                                 lh_span(challenge, sizeof challenge));
    LH_ASSERT(!err);
    lh_state_seal_begin(&s, o->disk.env, cipher, 7, 2, 40, &zeros, plain.len);
    struct lh_seal head = lh_state_seal_head(&s);
    err = lh_state_seal_piece(&s, &plain, 1, piece);
    LH_ASSERT(!err);
    lh_put_u32(&b, (uint32_t)plain.len);
    uint8_t packed[256];
    struct lh_buf p = lh_buf_over(packed, sizeof packed);
    err = lh_wire_put(LH_MESSAGE(seal, &head), &p);
    LH_ASSERT(!err);
    lh_put_u16(&b, (uint16_t)p.len);
    lh_put(&b, p.data, p.len);
    lh_put_u16(&b, (uint16_t)(sizeof piece - cut));
    lh_put(&b, piece, sizeof piece - cut);
    put(o, "state_seal", name, none(), lh_buf_span(&b));
    lh_keyring_destroy(ring);
}

static void put_bytes(const void *arg, const char *name, struct lh_span head, struct lh_span bytes)
{
    put(arg, "channel", name, head, bytes);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds tests/fuzz/corpus\n");
        return 2;
    }
    struct out o = {.corpus = argv[1], .disk = fuzz_disk_create()};
    struct lh_plan p = make_plan();
    struct lh_buf frame = lh_buf(4096), plan = lh_buf(4096), fence = lh_buf(64);
    lh_plan_write(&p, &plan);
    lh_fence_write(11, (struct lh_incarnation){1ull << 32, 5}, &fence);
    put(&o, "plan", "ended", none(), lh_buf_span(&plan));
    put(&o, "plan", "a-byte-left-over", none(), lh_span(plan.data, plan.len - 1));
    p.left = 1;
    p.left_out[0] = 12;
    struct lh_buf leaves_out = lh_buf(4096);
    lh_plan_write(&p, &leaves_out);
    put(&o, "plan", "leaves-out", none(), lh_buf_span(&leaves_out));
    lh_buf_free(&leaves_out);
    p.left = 0;
    p.optimizer = LH_OPT_DELAYED_NESTEROV;
    p.momentum = 0.6f;
    p.effective_step_max = 1.5f;
    struct lh_buf nesterov = lh_buf(4096);
    lh_plan_write(&p, &nesterov);
    put(&o, "plan", "delayed-nesterov", none(), lh_buf_span(&nesterov));
    lh_buf_free(&nesterov);
    frames(&o, &frame);
    records(&o, lh_buf_span(&frame), lh_buf_span(&plan), lh_buf_span(&fence));
    ledgers(&o, lh_buf_span(&plan), lh_buf_span(&fence));
    messages(&o);
    put_replica(&o, "sgd", LH_OPT_SGD, 0);
    put_replica(&o, "delayed-nesterov", LH_OPT_DELAYED_NESTEROV, 0);
    put_replica(&o, "delayed-nesterov-cut-short", LH_OPT_DELAYED_NESTEROV, 1);
    tokens(&o);
    logs(&o, lh_buf_span(&fence));
    slots(&o, lh_buf_span(&frame));
    checkpoints(&o);
    stores(&o, lh_buf_span(&plan));
    units_indexes(&o);
    fuzz_channel_seeds(put_bytes, &o);
    put_state(&o, "epoch", 0x5045484c, 2, 2);
    put_state(&o, "epoch-version-1", 0x5045484c, 1, 1);
    put_state(&o, "standby", 0x4253484c, 1, 1);
    put_sealed(&o, "opens-xchacha20", LH_CIPHER_XCHACHA20, 0x33, 0);
    put_sealed(&o, "opens-aes256gcm", LH_CIPHER_AES256GCM, 0x33, 0);
    put_sealed(&o, "another-challenge", LH_CIPHER_XCHACHA20, 0x34, 0);
    put_sealed(&o, "cut-short", LH_CIPHER_XCHACHA20, 0x33, 1);
    for (size_t i = 0; lk_codec_word(i); i++) put_payload(&o, i);
    put_fragment(&o);
    lh_buf_free(&frame);
    lh_buf_free(&plan);
    lh_buf_free(&fence);
    fuzz_disk_destroy(&o.disk);
    return 0;
}
