// Writes the corpora of the binary formats, with the product's encoders: `fuzz_seeds
// tests/fuzz/corpus`. Run it again after a format changes. Inputs that a fuzzer found are added by
// hand and stay.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/check.h"
#include "common/format/ledger.h"
#include "common/format/manifest.h"
#include "common/net/rpc.h"
#include "common/net/state_seal.h"
#include "kernels/codec.h"
#include "kernels/fragment.h"
#include "kernels/state/replica.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/fuzz/seeds.h"

static const uint8_t job[LH_JOB_BYTES] = FUZZ_JOB;

void fuzz_seed(const struct fuzz_seeds *o, const char *format, const char *name,
               struct lh_span head, struct lh_span bytes)
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

static void frames(const struct fuzz_seeds *o, struct lh_buf *whole)
{
    struct lh_frame f = make_frame();
    struct lh_buf stub = lh_buf(4096);
    lh_frame_write_head(&f, whole);
    for (int i = 0; i < 9 + LH_SEAL_TAG_BYTES; i++) lh_put_u8(whole, (uint8_t)i); // never unsealed
    lh_frame_write_stub(lh_buf_span(whole), &f, &stub);
    fuzz_seed(o, "frame", "whole", lh_span("", 0), lh_buf_span(whole));
    fuzz_seed(o, "frame", "stub", lh_span("", 0), lh_buf_span(&stub));
    fuzz_seed(o, "frame", "without-its-tag", lh_span("", 0),
              lh_span(whole->data, whole->len - LH_SEAL_TAG_BYTES));
    lh_buf_free(&stub);
}

static void put_record(const struct fuzz_seeds *o, const char *name, const struct lh_record *r)
{
    struct lh_buf b = lh_buf(1 << 16);
    lh_record_write_header(r, &b);
    lh_put(&b, r->body.data, r->body.len);
    fuzz_seed(o, "record", name, lh_span("", 0), lh_buf_span(&b));
    lh_buf_free(&b);
}

static void records(const struct fuzz_seeds *o, struct lh_span frame, struct lh_span plan,
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

// A ledger after a MOVE, and one whose MOVE has no target.
static void moved_ledgers(const struct fuzz_seeds *o, struct lh_ledger *l)
{
    struct lh_record r = {.kind = LH_MOVE};
    struct lh_buf b = lh_buf(1 << 16), body = lh_buf(16);
    lh_move_write(&(struct lh_move){2, 77}, &body);
    r.body = lh_buf_span(&body);
    lh_ledger_next(l, &r);
    lh_err err = lh_ledger_apply(l, &r);
    LH_ASSERT(err == LH_OK);
    lh_ledger_write(l, &b);
    fuzz_seed(o, "ledger", "moved", lh_span("", 0), lh_buf_span(&b));
    lh_buf_clear(&b);
    l->move.target = 0;
    lh_ledger_write(l, &b);
    fuzz_seed(o, "ledger", "moved-nowhere", lh_span("", 0), lh_buf_span(&b));
    lh_buf_free(&b);
    lh_buf_free(&body);
}

// A ledger after a fence and a plan, a truncated one, and moved ones.
static void ledgers(const struct fuzz_seeds *o, struct lh_span plan, struct lh_span fence)
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
    fuzz_seed(o, "ledger", "fence-and-plan", lh_span("", 0), lh_buf_span(&b));
    fuzz_seed(o, "ledger", "cut-short", lh_span("", 0), lh_span(b.data, b.len - 1));
    moved_ledgers(o, &l);
    lh_buf_free(&b);
    lh_ledger_free(&l);
}

// Saved fold states of a shard of 80 values, after a plan with this optimizer; `cut`: bytes
// missing.
static void put_replica(const struct fuzz_seeds *o, const char *name, int optimizer, size_t cut)
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
    fuzz_seed(o, "replica", name, lh_span("\x07\x01", 2), lh_span(b.data, b.len - cut));
    snprintf(ranges, sizeof ranges, "%s-in-ranges", name);
    fuzz_seed(o, "replica", ranges, lh_span("\x07\x03", 2), lh_span(b.data, b.len - cut));
    lk_replica_free(&r);
    lh_manifest_free(&m);
    lh_buf_free(&plan);
    lh_buf_free(&b);
}

static void message(const struct fuzz_seeds *o, const char *name, int type, uint8_t slice,
                    struct lh_span bytes)
{
    const uint8_t first[] = {(uint8_t)type, slice};
    fuzz_seed(o, "message", name, lh_span(first, sizeof first), bytes);
}

// A type: twice the RPC's number, and 1 for the answer (fuzz_message.c).
static void messages(const struct fuzz_seeds *o)
{
    Longhaul__V1__HelloRequest hello = LONGHAUL__V1__HELLO_REQUEST__INIT;
    uint8_t bytes[256];
    size_t n = longhaul__v1__hello_request__pack(&hello, bytes);
    message(o, "hello-defaults", 2 * LH_RPC_HELLO, 1, lh_span(bytes, n));
    // A part whose head is empty: field 15, type bytes, holds the bulk "abc".
    message(o, "part-with-bulk", 2 * LH_RPC_FOLLOW + 1, 2,
            lh_span("\x7a\x03"
                    "abc",
                    5));
    message(o, "bulk-longer-than-the-message", 2 * LH_RPC_FOLLOW + 1, 0,
            lh_span("\x7a\x04"
                    "abc",
                    5));
    message(o, "move-to-a-standby", 2 * LH_RPC_MOVE, 1, lh_span("\x0a\x01s", 3));
    message(o, "endless-varint", 2 * LH_RPC_PUSH, 1,
            lh_span("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12));
}

// One codec's payload for a shard of 300 and 21 values, at fuzz_payload's first density.
static void put_payload(const struct fuzz_seeds *o, size_t word)
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
    if (!err) err = lk_encode(&codec, &l, e, &b, NULL);
    LH_ASSERT(err == LH_OK);
    snprintf(name, sizeof name, "%s-shard0-density0", lk_codec_word(word));
    fuzz_seed(o, "payload", name, lh_span(head, 2), lh_buf_span(&b));
    lh_buf_free(&b);
}

// A fragment of the same shard; its range wraps around the end of both chunks.
static void put_fragment(const struct fuzz_seeds *o)
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
    fuzz_seed(o, "payload", "fragment-shard0-density2", lh_span(head, 2), lh_buf_span(&b));
    lh_buf_free(&b);
}

// Writes an input of fuzz_state_seal.c, which gives its format. `said`: byte of the challenge.
static void put_sealed(const struct fuzz_seeds *o, const char *name, enum lh_cipher cipher,
                       uint8_t said, size_t cut)
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
    fuzz_seed(o, "state_seal", name, lh_span("", 0), lh_buf_span(&b));
    lh_keyring_destroy(ring);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds tests/fuzz/corpus\n");
        return 2;
    }
    struct fuzz_seeds o = {.corpus = argv[1], .disk = fuzz_disk_create()};
    struct lh_plan p = make_plan();
    struct lh_buf frame = lh_buf(4096), plan = lh_buf(4096), fence = lh_buf(64);
    lh_plan_write(&p, &plan);
    lh_fence_write(11, (struct lh_incarnation){1ull << 32, 5}, &fence);
    fuzz_seed(&o, "plan", "ended", lh_span("", 0), lh_buf_span(&plan));
    fuzz_seed(&o, "plan", "a-byte-left-over", lh_span("", 0), lh_span(plan.data, plan.len - 1));
    p.left = 1;
    p.left_out[0] = 12;
    struct lh_buf leaves_out = lh_buf(4096);
    lh_plan_write(&p, &leaves_out);
    fuzz_seed(&o, "plan", "leaves-out", lh_span("", 0), lh_buf_span(&leaves_out));
    lh_buf_free(&leaves_out);
    p.left = 0;
    p.optimizer = LH_OPT_DELAYED_NESTEROV;
    p.momentum = 0.6f;
    p.effective_step_max = 1.5f;
    struct lh_buf nesterov = lh_buf(4096);
    lh_plan_write(&p, &nesterov);
    fuzz_seed(&o, "plan", "delayed-nesterov", lh_span("", 0), lh_buf_span(&nesterov));
    lh_buf_free(&nesterov);
    frames(&o, &frame);
    records(&o, lh_buf_span(&frame), lh_buf_span(&plan), lh_buf_span(&fence));
    ledgers(&o, lh_buf_span(&plan), lh_buf_span(&fence));
    messages(&o);
    put_replica(&o, "sgd", LH_OPT_SGD, 0);
    put_replica(&o, "delayed-nesterov", LH_OPT_DELAYED_NESTEROV, 0);
    put_replica(&o, "delayed-nesterov-cut-short", LH_OPT_DELAYED_NESTEROV, 1);
    fuzz_seeds_disk(&o, lh_buf_span(&frame), lh_buf_span(&plan), lh_buf_span(&fence));
    fuzz_seeds_channel(&o);
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
