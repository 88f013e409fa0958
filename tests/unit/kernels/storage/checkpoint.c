// kernels/storage/checkpoint.c and checkpoint_read.c: a state copied while records are folded is
// the state of its version; no damaged byte is accepted; signatures count where they are required.
// Folders of checkpoints are tested in checkpoint_folder.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/storage/checkpoint_format.h"
#include "kernels/storage/checkpoint_read.h"
#include "tests/history/rig.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static lh_err read_file(struct history_rig *r, const struct lk_checkpoint_name *name,
                        struct lh_hash *digest)
{
    char path[LH_PATH_BYTES];
    struct lk_replica got = history_scratch(&r->h, name->shard);
    assert_int_equal(lk_checkpoint_path(r->h.checkpoints, name, path), LH_OK);
    lh_err err = lk_checkpoint_read(&r->h.conf, path, &got);
    if (!err && digest) *digest = lk_replica_digest(&got);
    if (!err && !name->weights) assert_int_equal(got.ledger.version, name->version);
    lk_replica_free(&got);
    return err;
}

// ---------------------------------------------------------------- copying while folding

static void fold_one(struct history_rig *r, uint32_t shard, enum lh_kind kind,
                     struct lk_checkpoint *c)
{
    r->h.taking = c;
    history_add(&r->h, shard, kind);
    r->h.taking = NULL;
}

// Writes the checkpoint, reads its file again, and compares the digest with that of its version.
static void is_of_its_version(struct history_rig *r, struct lk_checkpoint *c)
{
    struct lh_hash digest;
    struct lk_checkpoint_name name = {1, c->version, c->weights};
    assert_int_equal(lk_checkpoint_write(c), LH_OK);
    assert_int_equal(read_file(r, &name, &digest), LH_OK);
    assert_true(lh_hash_equal(&digest, &r->h.digest[1][c->version]));
}

// Folds one of `count` records between two steps of a copy. The number of steps differs each round,
// so each record meets copies that are nearly empty and nearly complete. A plan record sets the
// optimizer `next`.
static void copy_between(struct history_rig *r, const enum lh_kind *kinds, const uint8_t *next,
                         size_t count, bool weights)
{
    uint64_t values = r->h.manifest.shard[1].values, each = 3 * sizeof(float);
    for (uint64_t steps = 1; steps <= count; steps += 2) {
        struct lk_checkpoint c;
        uint64_t began = r->h.replica[1].ledger.version;
        assert_int_equal(lk_checkpoint_begin(&r->h.conf, &r->h.replica[1], &c), LH_OK);
        c.weights = weights;
        lk_checkpoint_touch(&c);
        for (uint64_t i = 0; i < steps; i++) {
            uint64_t bytes = values / (steps + 1) * each;
            if (r->h.replica[1].outer.kind == LH_OPT_SGD) bytes /= 3;
            assert_int_equal(lk_checkpoint_copy(&c, &r->h.replica[1], bytes), LH_OK);
            assert_false(c.whole);
            r->h.optimizer = next ? next[i] : LH_OPT_SGD;
            fold_one(r, 1, kinds[i], &c);
            assert_false(c.whole); // completing a copy in a fold would block the loop
        }
        c.weights = false; // a full checkpoint became due
        while (!c.whole)
            assert_int_equal(lk_checkpoint_copy(&c, &r->h.replica[1], values * each / 4), LH_OK);
        assert_int_equal(c.version, began + steps);
        fold_one(r, 1, LH_ADMIT, &c); // newer than the checkpoint, so not in it
        if (r->h.hold_late && steps > 1) assert_true(r->h.late_count > 0);
        history_repeat(&r->h, &c);
        is_of_its_version(r, &c);
        lk_checkpoint_free(&c);
    }
}

#define IN_HISTORY(name, parameter)                                                                \
    TEST_WITH(name, parameter, history_set_up_shards, history_tear_down)

IN_HISTORY(a_state_copied_between_folds_is_that_of_its_version, struct history_rig *r)
{
    static const enum lh_kind kinds[] = {LH_ADMIT,         LH_ADMIT, LH_REFUSE, LH_ADMIT,
                                         LH_DIGEST_RECORD, LH_ADMIT, LH_EPOCH};
    copy_between(r, kinds, NULL, LH_COUNT(kinds), false);
    r->h.hold_late = true;
    copy_between(r, kinds, NULL, LH_COUNT(kinds), false);
    r->h.hold_late = false;
}

// Outer steps between pushes, and optimizer changes, which apply pending records. No record
// completes the copy, and the copy contains them all, also if it began as weights only.
static void copy_between_plans(struct history_rig *r, const uint8_t next[9])
{
    static const enum lh_kind kinds[] = {LH_PLAN,  LH_ADMIT, LH_ADMIT, LH_ADMIT, LH_PLAN,
                                         LH_ADMIT, LH_ADMIT, LH_ADMIT, LH_PLAN};
    copy_between(r, kinds, next, LH_COUNT(kinds), false);
    r->h.hold_late = true;
    copy_between(r, kinds, next, LH_COUNT(kinds), true);
    r->h.hold_late = false;
}

enum { SGD = LH_OPT_SGD, NESTEROV = LH_OPT_DELAYED_NESTEROV };

IN_HISTORY(nesterov_and_what_follows_it_is_repeated, struct history_rig *r)
{
    copy_between_plans(r, (uint8_t[9]){NESTEROV, 0, 0, 0, NESTEROV, 0, 0, 0, SGD});
}

IN_HISTORY(the_first_state_and_its_last_are_repeated, struct history_rig *r)
{
    copy_between_plans(r, (uint8_t[9]){SGD, 0, 0, 0, NESTEROV, 0, 0, 0, NESTEROV});
}

// ---------------------------------------------------------------- damage

static lh_err check_file(struct history_rig *r, const struct lk_checkpoint_name *name)
{
    char path[LH_PATH_BYTES];
    struct lk_checkpoint_info info;
    assert_int_equal(lk_checkpoint_path(r->h.checkpoints, name, path), LH_OK);
    return lk_checkpoint_check(&r->h.conf, path, &info);
}

static void load_bytes(struct history_rig *r, const struct lk_checkpoint_name *name,
                       struct lh_buf *out)
{
    char path[LH_PATH_BYTES];
    assert_int_equal(lk_checkpoint_path(r->h.checkpoints, name, path), LH_OK);
    assert_int_equal(lh_file_load(r->env, path, out), LH_OK);
}

static void store_bytes(struct history_rig *r, const struct lk_checkpoint_name *name,
                        struct lh_span bytes)
{
    char path[LH_PATH_BYTES];
    assert_int_equal(lk_checkpoint_path(r->h.checkpoints, name, path), LH_OK);
    assert_int_equal(lh_file_replace(r->env, path, bytes), LH_OK);
}

static bool damage(lh_err err)
{
    return err == LH_ERR_CORRUPT || err == LH_ERR_UNSEAL || err == LH_ERR_VERSION;
}

#define SIGNED(name, parameter) TEST_WITH(name, parameter, history_set_up_signed, history_tear_down)

SIGNED(no_damaged_byte_is_accepted, struct history_rig *r)
{
    struct lh_buf b = lh_buf(1 << 20);
    for (int weights = 0; weights < 2; weights++) {
        struct lk_checkpoint_name name = {0, 2, weights};
        r->h.conf.signer = r->signer[weights]; // each kind is signed once
        history_write(&r->h, 0, weights);
        load_bytes(r, &name, &b);
        assert_int_equal(read_file(r, &name, NULL), LH_OK);
        assert_int_equal(check_file(r, &name), LH_OK);
        for (size_t at = 0; at < b.len; at++) {
            b.data[at] ^= 0x10;
            store_bytes(r, &name, lh_buf_span(&b));
            b.data[at] ^= 0x10;
            if (!damage(read_file(r, &name, NULL)) || !damage(check_file(r, &name)))
                fail_msg("byte %zu of %zu", at, b.len);
        }
        for (size_t cut = 0; cut < b.len; cut++) {
            store_bytes(r, &name, lh_span(b.data, cut));
            if (!damage(read_file(r, &name, NULL)) || !damage(check_file(r, &name)))
                fail_msg("cut at %zu of %zu", cut, b.len);
        }
        lh_put_u8(&b, 0);
        store_bytes(r, &name, lh_buf_span(&b));
        assert_true(damage(read_file(r, &name, NULL)) && damage(check_file(r, &name)));
    }
    lh_buf_free(&b);
}

// Whole ranges may not be swapped, nor come from another state of the same shard and version.
IN_HISTORY(ranges_belong_to_their_place_and_file, struct history_rig *r)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{(LK_CKPT_RANGE_BYTES / 4) * 10 + 100, 0}};
    static const uint8_t job[LH_JOB_BYTES] = "ranges";
    struct lk_checkpoint_conf conf = r->h.conf;
    struct lh_manifest m = {0};
    struct lk_replica replica, got;
    struct lk_checkpoint c;
    struct lh_buf first = lh_buf(64 << 20), second = lh_buf(64 << 20);
    struct lk_checkpoint_name name = {0, 0, false};
    char path[LH_PATH_BYTES];
    size_t range = LK_CKPT_RANGE_HEAD_BYTES + LK_CKPT_RANGE_BYTES + LH_SEAL_TAG_BYTES;
    assert_int_equal(lh_manifest_build(&m, 1, names, shapes, 1, NULL), LH_OK);
    assert_int_equal(lk_replica_create(&replica, job, &m, 0, conf.keys), LH_OK);
    assert_int_equal(lk_replica_create(&got, job, &m, 0, conf.keys), LH_OK);
    for (uint64_t i = 0; i < m.values; i++) replica.theta[i] = (float)(i % 1013) / 7;
    assert_int_equal(lk_checkpoint_take(&conf, &replica, &c), LH_OK);
    assert_int_equal(lk_checkpoint_path(conf.dir, &name, path), LH_OK);
    assert_int_equal(lk_checkpoint_write(&c), LH_OK);
    assert_int_equal(lh_file_load(r->env, path, &first), LH_OK);
    assert_int_equal(lk_checkpoint_read(&conf, path, &got), LH_OK);
    assert_memory_equal(got.theta, replica.theta, m.values * sizeof(float));
    c.copy.theta[0]++;
    assert_int_equal(lk_checkpoint_write(&c), LH_OK);
    assert_int_equal(lh_file_load(r->env, path, &second), LH_OK);

    uint8_t *at = first.data + LK_CKPT_HEADER_BYTES;
    memcpy(second.data + LK_CKPT_HEADER_BYTES, at, range); // a range of the other state
    assert_int_equal(lh_file_replace(r->env, path, lh_buf_span(&second)), LH_OK);
    assert_int_equal(lk_checkpoint_read(&conf, path, &got), LH_ERR_CORRUPT);
    memcpy(second.data + LK_CKPT_HEADER_BYTES, at + range, range); // swapped
    memcpy(second.data + LK_CKPT_HEADER_BYTES + range, at, range);
    assert_int_equal(lh_file_replace(r->env, path, lh_buf_span(&second)), LH_OK);
    assert_int_equal(lk_checkpoint_read(&conf, path, &got), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "range 0 is damaged (bytes 164 to "));
    // Ranges that claim each other's place: each seal is valid, but the digest differs.
    uint8_t *to = second.data + LK_CKPT_HEADER_BYTES;
    memcpy(second.data, first.data, first.len);
    memcpy(to + range + 8, at + 2 * range + 8, range - 8);
    memcpy(to + 2 * range + 8, at + range + 8, range - 8);
    assert_int_equal(lh_file_replace(r->env, path, lh_buf_span(&second)), LH_OK);
    assert_int_equal(lk_checkpoint_read(&conf, path, &got), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "another digest"));
    lk_checkpoint_free(&c);
    lk_replica_free(&replica);
    lk_replica_free(&got);
    lh_manifest_free(&m);
    lh_buf_free(&first);
    lh_buf_free(&second);
}

// ---------------------------------------------------------------- signatures

SIGNED(only_trusted_signatures_count_where_they_are_asked_for, struct history_rig *r)
{
    struct lk_checkpoint_name name = {0, 2, false};
    struct lh_trusted trusted = {.key = {lh_signer_public(r->signer[0])}, .count = 1};
    history_write(&r->h, 0, false);
    assert_int_equal(read_file(r, &name, NULL), LH_OK);
    r->h.conf.trusted = &trusted;
    assert_int_equal(read_file(r, &name, NULL), LH_ERR_UNAUTHENTICATED); // unsigned
    r->h.conf.signer = r->signer[1];
    history_write(&r->h, 0, false);
    // signed by an untrusted key
    assert_int_equal(read_file(r, &name, NULL), LH_ERR_UNAUTHENTICATED);
    assert_int_equal(check_file(r, &name), LH_ERR_UNAUTHENTICATED);
    r->h.conf.signer = r->signer[0];
    history_write(&r->h, 0, false);
    assert_int_equal(read_file(r, &name, NULL), LH_OK);
    assert_int_equal(check_file(r, &name), LH_OK);
}

// A holder of the job key can make a file, but cannot reuse another file's signature for it.
SIGNED(a_signature_is_of_this_file, struct history_rig *r)
{
    struct lk_checkpoint_name name = {0, 2, false};
    struct lh_buf a = lh_buf(1 << 20), b = lh_buf(1 << 20);
    r->h.conf.signer = r->signer[0];
    history_write(&r->h, 0, false);
    load_bytes(r, &name, &a);
    history_write(&r->h, 0, false); // same state, other nonces
    load_bytes(r, &name, &b);
    assert_int_equal(a.len, b.len);
    size_t tail = LH_SIGN_PUBLIC_BYTES + LH_SIGN_BYTES + 4, at = b.len - tail;
    memcpy(b.data + at, a.data + at, tail);
    size_t manifest = b.len - lk_ckpt_manifest_bytes(1);
    b.len -= 4;
    lh_put_u32(&b, lh_crc32c(0, b.data + manifest, b.len - manifest));
    store_bytes(r, &name, lh_buf_span(&b));
    assert_int_equal(read_file(r, &name, NULL), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "signature"));
    lh_buf_free(&a);
    lh_buf_free(&b);
}

// ---------------------------------------------------------------- files of another writer

// Repairs every checksum and seals the only range again, as a holder of the job key could.
static void forge(struct history_rig *r, const struct lk_checkpoint_name *name, struct lh_buf *b,
                  struct lh_span state)
{
    struct lh_seal_context context = lk_ckpt_context(name->shard, name->version);
    uint8_t *range = b->data + LK_CKPT_HEADER_BYTES;
    const uint8_t *nonce = range + LK_CKPT_RANGE_HEAD_BYTES - LH_SEAL_NONCE_BYTES;
    size_t sealed = LK_CKPT_RANGE_HEAD_BYTES + state.len + LH_SEAL_TAG_BYTES;
    struct lh_buf crc = lh_buf_over(b->data + LK_CKPT_HEADER_BYTES - 4, 4);
    lh_put_u32(&crc, lh_crc32c(0, b->data, LK_CKPT_HEADER_BYTES - 4));
    assert_int_equal(lh_seal(r->h.conf.keys, r->h.conf.cipher, r->h.conf.key_id, &context,
                             lh_span(b->data, LK_CKPT_HEADER_BYTES), nonce, state,
                             range + LK_CKPT_RANGE_HEAD_BYTES),
                     LH_OK);
    struct lh_span whole = lh_span(range, sealed);
    struct lh_hash hash = lh_hash_of((struct lh_span){0}, &whole, 1);
    uint8_t *manifest = b->data + b->len - lk_ckpt_manifest_bytes(1);
    memcpy(manifest + 8, hash.b, LH_HASH_BYTES);
    crc = lh_buf_over(b->data + b->len - 4, 4);
    lh_put_u32(&crc, lh_crc32c(0, manifest, lk_ckpt_manifest_bytes(1) - 4));
    store_bytes(r, name, lh_buf_span(b));
}

IN_HISTORY(forged_headers_are_refused, struct history_rig *r)
{
    enum { VERSION = 4, FLAGS = 7, RANGES = 20, CHAIN = 88, DIGEST = 120, BYTES = 152 };
    struct lh_buf b = lh_buf(1 << 20), plain = lh_buf(1 << 20);
    const struct lk_replica *replica = &r->h.replica[0];
    for (int weights = 0; weights < 2; weights++) {
        struct lk_checkpoint_name name = {0, 2, weights};
        history_write(&r->h, 0, weights);
        load_bytes(r, &name, &b);
        lh_buf_clear(&plain);
        if (weights) lh_put_u64(&plain, replica->layout->values);
        if (weights) lh_put(&plain, replica->theta, replica->layout->values * sizeof(float));
        if (!weights) assert_int_equal(lk_replica_save(replica, &plain), LH_OK);
        forge(r, &name, &b, lh_buf_span(&plain));
        assert_int_equal(read_file(r, &name, NULL), LH_OK); // an unchanged forgery is accepted
        static const struct {
            size_t at;
            uint8_t mask;
            lh_err err;
        } wrong[] = {{VERSION, 3, LH_ERR_VERSION},  {VERSION, 2, LH_ERR_VERSION},
                     {VERSION, 1, LH_ERR_VERSION},  {FLAGS, 4, LH_ERR_VERSION},
                     {RANGES, 3, LH_ERR_CORRUPT},   {DIGEST + 5, 1, LH_ERR_CORRUPT},
                     {BYTES + 7, 1, LH_ERR_CORRUPT}};
        for (size_t i = 0; i < LH_COUNT(wrong); i++) {
            b.data[wrong[i].at] ^= wrong[i].mask;
            forge(r, &name, &b, lh_buf_span(&plain));
            b.data[wrong[i].at] ^= wrong[i].mask;
            lh_err err = read_file(r, &name, NULL);
            if (err != wrong[i].err) fail_msg("case %zu: %s", i, lh_err_name(err));
        }
        memset(b.data + BYTES, 0, 8); // an empty state
        b.data[RANGES] = 0;
        forge(r, &name, &b, lh_buf_span(&plain));
        assert_int_equal(read_file(r, &name, NULL), LH_ERR_CORRUPT);
        history_write(&r->h, 0, weights);
        load_bytes(r, &name, &b);
        b.data[CHAIN] ^= 1;
        forge(r, &name, &b, lh_buf_span(&plain));
        assert_int_equal(read_file(r, &name, NULL), weights ? LH_OK : LH_ERR_CORRUPT);
        b.data[CHAIN] ^= 1;
        plain.data[0] ^= 1; // the count of weights, or the version of the ledger's bytes
        forge(r, &name, &b, lh_buf_span(&plain));
        assert_int_equal(read_file(r, &name, NULL), weights ? LH_ERR_CORRUPT : LH_ERR_MALFORMED);
    }
    lh_buf_free(&b);
    lh_buf_free(&plain);
}

// Weights with another parameter count under the same manifest: fewer, more, and more than any
// state of this shape has.
IN_HISTORY(weights_of_another_shape_are_refused, struct history_rig *r)
{
    struct lk_checkpoint_name name = {0, 2, true};
    struct lk_replica *replica = &r->h.replica[0];
    const struct lh_shard_layout *own = replica->layout;
    struct lh_shard_layout other = *own;
    const uint64_t values[] = {own->values - 1, own->values + 1,
                               lk_replica_bytes_max(own) / sizeof(float) + 1};
    float *theta = calloc(values[2], sizeof *theta), *kept = replica->theta;
    assert_non_null(theta);
    assert_int_equal(read_file(r, &name, NULL), LH_ERR_NOT_FOUND);
    for (size_t i = 0; i < LH_COUNT(values); i++) {
        other.values = values[i];
        replica->layout = &other;
        replica->theta = theta;
        history_write(&r->h, 0, true);
        replica->layout = own;
        replica->theta = kept;
        assert_int_equal(read_file(r, &name, NULL), LH_ERR_CORRUPT);
        assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "of another shape"));
    }
    free(theta);
}

// A file of one shard under another shard's name.
IN_HISTORY(a_checkpoint_of_another_shard_is_refused, struct history_rig *r)
{
    struct lk_checkpoint_name name[2] = {{0, 2, false}, {1, 2, false}};
    struct lh_buf b = lh_buf(1 << 20);
    history_write(&r->h, 1, false);
    load_bytes(r, &name[1], &b);
    store_bytes(r, &name[0], lh_buf_span(&b));
    assert_int_equal(read_file(r, &name[1], NULL), LH_OK);
    assert_int_equal(read_file(r, &name[0], NULL), LH_ERR_CORRUPT);
    lh_buf_free(&b);
}

IN_HISTORY(unwritable_files_and_bad_records_are_errors, struct history_rig *r)
{
    struct lk_checkpoint c;
    struct lk_checkpoint_info info;
    char dir[LH_PATH_BYTES];
    assert_int_equal(lk_checkpoint_take(&r->h.conf, &r->h.replica[0], &c), LH_OK);
    assert_int_equal(lk_checkpoint_copy(&c, &r->h.replica[0], 1), LH_OK); // already complete
    c.conf.key_id = 99;
    assert_int_equal(lk_checkpoint_write(&c), LH_ERR_KEY_MISSING);
    c.conf.key_id = HISTORY_KEY_ID;
    memset(dir, 'd', sizeof dir - 1);
    dir[sizeof dir - 1] = 0;
    c.conf.dir = dir;
    assert_int_equal(lk_checkpoint_write(&c), LH_ERR_TOO_LARGE);
    lk_checkpoint_free(&c);
    assert_int_equal(lk_checkpoint_peek(r->env, "none", &info), LH_ERR_NOT_FOUND);

    // Slices smaller than one parameter, and records that no decided push can be.
    struct lh_record bad = {.kind = LH_ADMIT, .body = lh_span("no frame", 8)};
    struct lk_checkpoint_late late;
    assert_int_equal(lk_checkpoint_begin(&r->h.conf, &r->h.replica[0], &c), LH_OK);
    assert_int_equal(lk_checkpoint_folded(&c, &r->h.replica[0], &bad, &late), LH_OK);
    assert_int_equal(late.below, 0); // nothing copied yet
    assert_int_equal(lk_checkpoint_copy(&c, &r->h.replica[0], 0), LH_OK);
    assert_int_equal(c.copied, 1);
    assert_int_equal(lk_checkpoint_folded(&c, &r->h.replica[0], &bad, &late), LH_ERR_MALFORMED);
    struct lh_buf frame = lh_buf(1 << 16);
    history_frame(&r->h, 0, &frame);
    frame.data[8] = 99; // an unknown index code
    bad.body = lh_buf_span(&frame);
    assert_int_equal(lk_checkpoint_folded(&c, &r->h.replica[0], &bad, &late), LH_ERR_MALFORMED);
    lh_buf_free(&frame);
    lk_checkpoint_free(&c);
}

// ---------------------------------------------------------------- crashes

// The power fails at each file operation of a write: afterwards the older file is unchanged, and
// the newer one is complete or absent.
IN_HISTORY(a_crash_leaves_a_file_whole_or_none, struct history_rig *r)
{
    struct lk_checkpoint_name old = {0, 2, false}, name = {0, 3, false};
    struct lk_checkpoint c;
    unsigned whole = 0, none = 0;
    history_write(&r->h, 0, false);
    history_add(&r->h, 0, LH_ADMIT);
    for (int64_t when = 0; when < 12; when++) {
        assert_int_equal(lk_checkpoint_take(&r->h.conf, &r->h.replica[0], &c), LH_OK);
        lh_fake_crash_at(r->env, when, true);
        lh_err err = lk_checkpoint_write(&c);
        if (lh_fake_alive(r->env)) lh_fake_kill(r->env, true);
        lh_fake_boot(r->env);
        assert_int_equal(read_file(r, &old, NULL), LH_OK);
        lh_err now = read_file(r, &name, NULL);
        assert_true(now == LH_OK || now == LH_ERR_NOT_FOUND);
        if (!err) assert_int_equal(now, LH_OK);
        whole += now == LH_OK;
        none += now == LH_ERR_NOT_FOUND;
        lk_checkpoint_free(&c);
    }
    assert_true(whole && none);
}

IN_HISTORY(a_full_disk_is_said, struct history_rig *r)
{
    struct lk_checkpoint c;
    assert_int_equal(lk_checkpoint_take(&r->h.conf, &r->h.replica[1], &c), LH_OK);
    lh_fake_disk_limit(r->env, 1);
    assert_int_equal(lk_checkpoint_write(&c), LH_ERR_DISK_FULL);
    lh_fake_disk_limit(r->env, 0);
    assert_int_equal(lk_checkpoint_write(&c), LH_OK);
    lk_checkpoint_free(&c);
}
