// The ledger, a pure fold of records. A record that no correct server writes changes nothing, a
// unit is credited once, and a ledger reads back byte for byte.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/ledger.h"
#include "tests/test.h"
#include "tests/unit/common/format/frame_case.h"

enum { SHARD = 1, SHARDS = 4, W1 = 101, W2 = 102, W3 = 103 };
static const uint8_t JOB[LH_JOB_BYTES] = {1, 2, 3};
static const struct lh_hash MANIFEST = {{9, 8, 7}};
static const struct lh_incarnation FIRST = {UINT64_C(1) << 32, 77};

static int make_ledger(void **state)
{
    struct lh_ledger *l = calloc(1, sizeof *l);
    *state = l;
    return l && lh_ledger_create(l, JOB, &MANIFEST, SHARD, SHARDS) == LH_OK ? 0 : -1;
}

static int free_ledger(void **state)
{
    lh_ledger_free(*state);
    free(*state);
    return 0;
}

// ---------------------------------------------------------------- records

static lh_err apply(struct lh_ledger *l, struct lh_record r)
{
    lh_ledger_next(l, &r);
    return lh_ledger_apply(l, &r);
}

static struct lh_frame push_of(uint64_t worker, uint64_t step)
{
    struct lh_frame f = case_frame();
    f.shard = SHARD;
    f.worker = worker;
    f.incarnation = FIRST;
    f.step = step;
    f.tokens = 10 * step;
    f.claims = 0;
    return f;
}

static lh_err admit(struct lh_ledger *l, const struct lh_frame *f)
{
    struct lh_buf b = case_bytes(f);
    lh_err err =
        apply(l, (struct lh_record){.kind = LH_ADMIT, .scale = 0.5f, .body = lh_buf_span(&b)});
    lh_buf_free(&b);
    return err;
}

static lh_err refuse(struct lh_ledger *l, const struct lh_frame *f)
{
    struct lh_buf b = case_bytes(f), stub = lh_buf(1 << 10);
    lh_frame_write_stub(lh_buf_span(&b), f, &stub);
    lh_err err = apply(
        l,
        (struct lh_record){.kind = LH_REFUSE, .reason = LH_ERR_STALE, .body = lh_buf_span(&stub)});
    lh_buf_free(&b);
    lh_buf_free(&stub);
    return err;
}

static lh_err fence(struct lh_ledger *l, uint64_t worker, struct lh_incarnation i)
{
    struct lh_buf b = lh_buf(64);
    lh_fence_write(worker, i, &b);
    lh_err err = apply(l, (struct lh_record){.kind = LH_FENCE, .body = lh_buf_span(&b)});
    lh_buf_free(&b);
    return err;
}

static lh_err plan(struct lh_ledger *l, uint64_t number, uint32_t live)
{
    struct lh_plan p = {.number = number, .phase = LH_PHASE_RUN, .eta = 0.7f, .live = live};
    for (uint32_t i = 0; i < live; i++) p.worker[i] = W1 + i;
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_plan_write(&p, &b);
    lh_err err = apply(l, (struct lh_record){.kind = LH_PLAN, .body = lh_buf_span(&b)});
    lh_buf_free(&b);
    return err;
}

static lh_err epoch(struct lh_ledger *l, uint64_t number, uint64_t named, uint64_t base)
{
    struct lh_buf b = lh_buf(64);
    lh_put_u64(&b, named);
    lh_put_u64(&b, base);
    lh_err err =
        apply(l, (struct lh_record){.kind = LH_EPOCH, .epoch = number, .body = lh_buf_span(&b)});
    lh_buf_free(&b);
    return err;
}

static struct lh_buf bytes_of(const struct lh_ledger *l)
{
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_ledger_write(l, &b);
    assert_int_equal(lh_buf_err(&b), LH_OK);
    return b;
}

// Expects `expression` to give `wanted` and to leave the ledger byte for byte as it was.
#define ASSERT_REFUSED(l, wanted, expression)                                                      \
    do {                                                                                           \
        struct lh_buf before_ = bytes_of(l);                                                       \
        assert_int_equal(expression, wanted);                                                      \
        struct lh_buf after_ = bytes_of(l);                                                        \
        assert_true(lh_span_equal(lh_buf_span(&before_), lh_buf_span(&after_)));                   \
        lh_buf_free(&before_);                                                                     \
        lh_buf_free(&after_);                                                                      \
    } while (0)

// Two workers, a plan, a refusal, credits, a later epoch: every field has a value.
static void fill(struct lh_ledger *l)
{
    assert_int_equal(plan(l, 1, 2), LH_OK);
    assert_int_equal(fence(l, W2, FIRST), LH_OK);
    assert_int_equal(fence(l, W1, FIRST), LH_OK);
    for (uint64_t step = 1; step <= 3; step++) {
        struct lh_frame f = push_of(W1, step);
        f.claims = 1;
        f.claim[0] = 4 * 9 * step + SHARD;
        assert_int_equal(admit(l, &f), LH_OK);
    }
    struct lh_frame f = push_of(W2, 1);
    assert_int_equal(refuse(l, &f), LH_OK);
    assert_int_equal(epoch(l, 5, 5, l->version), LH_OK);
}

// ---------------------------------------------------------------- tests

TEST(the_empty_log_is_of_one_job_manifest_and_shard)
{
    uint8_t job[LH_JOB_BYTES] = {1, 2, 4};
    struct lh_hash manifest = {{9, 8, 6}};
    struct lh_ledger l[6];
    assert_int_equal(lh_ledger_create(&l[0], JOB, &MANIFEST, 1, 4), LH_OK);
    assert_int_equal(lh_ledger_create(&l[1], job, &MANIFEST, 1, 4), LH_OK);
    assert_int_equal(lh_ledger_create(&l[2], JOB, &manifest, 1, 4), LH_OK);
    assert_int_equal(lh_ledger_create(&l[3], JOB, &MANIFEST, 2, 4), LH_OK);
    assert_int_equal(lh_ledger_create(&l[4], JOB, &MANIFEST, 1, 5), LH_OK);
    assert_int_equal(lh_ledger_create(&l[5], JOB, &MANIFEST, 1, 4), LH_OK);
    assert_int_equal(l[0].version, 0);
    assert_int_equal(l[0].epoch, 1);
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < a; b++) assert_false(lh_hash_equal(&l[a].chain, &l[b].chain));
    assert_true(lh_hash_equal(&l[0].chain, &l[5].chain));
    for (int a = 0; a < 6; a++) lh_ledger_free(&l[a]);
}

#define WITH_LEDGER(name, parameter) TEST_WITH(name, parameter, make_ledger, free_ledger)

WITH_LEDGER(a_fence_makes_a_row_and_only_rises, struct lh_ledger *l)
{
    assert_null(lh_ledger_row(l, W1));
    assert_int_equal(fence(l, W1, FIRST), LH_OK);
    const struct lh_row *row = lh_ledger_row(l, W1);
    assert_non_null(row);
    assert_true(lh_incarnation_equal(row->incarnation, FIRST));
    assert_int_equal(lh_row_step(row), 0);
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, fence(l, W1, (struct lh_incarnation){FIRST.number - 1, 77}));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, fence(l, W1, (struct lh_incarnation){FIRST.number, 78}));
    assert_int_equal(fence(l, W1, (struct lh_incarnation){FIRST.number + 1, 78}), LH_OK);
    assert_int_equal(l->version, 2);
}

WITH_LEDGER(pushes_move_the_row, struct lh_ledger *l)
{
    assert_int_equal(fence(l, W1, FIRST), LH_OK);
    for (uint64_t step = 1; step <= 4; step++) {
        struct lh_frame f = push_of(W1, step);
        assert_int_equal(step == 3 ? refuse(l, &f) : admit(l, &f), LH_OK);
        const struct lh_row *row = lh_ledger_row(l, W1);
        struct lh_buf b = case_bytes(&f);
        struct lh_digest digest = lh_frame_digest(lh_buf_span(&b), &f);
        lh_buf_free(&b);
        assert_int_equal(lh_row_step(row), step);
        assert_int_equal(row->last_version, l->version);
        assert_int_equal(row->last_reason, step == 3 ? LH_ERR_STALE : 0);
        assert_true(lh_digest_equal(&row->last_digest, &digest));
        assert_int_equal(row->round, step);
    }
    const struct lh_row *row = lh_ledger_row(l, W1);
    assert_int_equal(row->admitted, 3);
    assert_int_equal(row->refused, 1);
    assert_int_equal(row->tokens, 10 + 20 + 40);
    assert_int_equal(l->admitted, 3);
    assert_int_equal(l->refused, 1);
    assert_int_equal(l->tokens, 70);
    // A new incarnation counts its steps from 1 and keeps the counters.
    struct lh_incarnation second = {FIRST.number + 1, 5};
    assert_int_equal(fence(l, W1, second), LH_OK);
    assert_int_equal(lh_row_step(lh_ledger_row(l, W1)), 0);
    struct lh_frame f = push_of(W1, 1);
    f.incarnation = second;
    assert_int_equal(admit(l, &f), LH_OK);
    assert_int_equal(lh_ledger_row(l, W1)->admitted, 4);
}

WITH_LEDGER(an_impossible_push_changes_nothing, struct lh_ledger *l)
{
    struct lh_frame f = push_of(W1, 1);
    f.claims = 1;
    f.claim[0] = SHARD;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, admit(l, &f)); // the worker has no row yet
    assert_int_equal(fence(l, W1, FIRST), LH_OK);
    struct lh_frame bad = f;
    bad.step = 2;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, admit(l, &bad));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, refuse(l, &bad));
    bad = f;
    bad.incarnation.number++;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, admit(l, &bad));
    bad = f;
    bad.incarnation.random++;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, admit(l, &bad));
    bad = f;
    bad.shard = SHARD + 1;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, admit(l, &bad));
    bad = f;
    bad.worker = W2;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, admit(l, &bad));
    assert_int_equal(admit(l, &f), LH_OK);
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, admit(l, &f)); // the same push twice
}

WITH_LEDGER(an_unknown_record_changes_nothing, struct lh_ledger *l)
{
    fill(l);
    uint8_t hash[LH_HASH_BYTES] = {0};
    struct lh_record r = {.kind = LH_DIGEST_RECORD, .body = lh_span(hash, sizeof hash - 1)};
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, apply(l, r));
    r.kind = LH_KEY_RETIRE;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, apply(l, r));
    r.kind = LH_ADMIT; // no frame
    ASSERT_REFUSED(l, LH_ERR_MALFORMED, apply(l, r));
    r.kind = LH_FENCE;
    ASSERT_REFUSED(l, LH_ERR_MALFORMED, apply(l, r));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, plan(l, 1, 2)); // the number in force
    r = (struct lh_record){.kind = LH_DIGEST_RECORD, .body = lh_span(hash, sizeof hash)};
    assert_int_equal(apply(l, r), LH_OK);
}

static lh_err move(struct lh_ledger *l, uint64_t number, uint64_t target, size_t bytes)
{
    struct lh_move m = {number, target};
    struct lh_buf b = lh_buf(64);
    lh_move_write(&m, &b);
    lh_put_u64(&b, 0);
    struct lh_record r = {.kind = LH_MOVE, .body = lh_span(b.data, bytes)};
    lh_err err = apply(l, r);
    lh_buf_free(&b);
    return err;
}

WITH_LEDGER(after_a_move_comes_nothing_but_a_later_epoch, struct lh_ledger *l)
{
    fill(l);
    uint64_t e = l->epoch;
    uint8_t hash[LH_HASH_BYTES] = {0};
    struct lh_record digest = {.kind = LH_DIGEST_RECORD, .body = lh_span(hash, sizeof hash)};
    ASSERT_REFUSED(l, LH_ERR_MALFORMED, move(l, e + 2, 7, 15));
    ASSERT_REFUSED(l, LH_ERR_MALFORMED, move(l, e + 2, 7, 17));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, move(l, e, 7, 16));     // a past epoch
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, move(l, e + 2, 0, 16)); // no target
    assert_int_equal(move(l, e + 2, 7, 16), LH_OK);
    assert_true(l->move.epoch == e + 2 && l->move.target == 7 && l->epoch == e);
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, apply(l, digest));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, move(l, e + 3, 7, 16));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, plan(l, 100, 1));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT,
                   epoch(l, e + 1, e + 1, l->version)); // before the reserved epoch
    assert_int_equal(epoch(l, e + 2, e + 2, l->version), LH_OK);
    assert_true(!l->move.epoch && !l->move.target && l->epoch == e + 2);
    assert_int_equal(apply(l, digest), LH_OK);
}

static lh_err read_back(struct lh_span bytes, struct lh_ledger *got)
{
    assert_int_equal(lh_ledger_create(got, JOB, &MANIFEST, SHARD, SHARDS), LH_OK);
    struct lh_cursor c = lh_cursor(bytes);
    return lh_ledger_read(got, &c);
}

WITH_LEDGER(a_ledger_that_was_moved_reads_back, struct lh_ledger *l)
{
    struct lh_ledger got;
    enum { MOVE = 90 }; // after version, shard, shards, epoch, version, chain, counters, reference
    fill(l);
    assert_int_equal(move(l, l->epoch + 1, 7, 16), LH_OK);
    struct lh_buf b = bytes_of(l);
    assert_int_equal(read_back(lh_buf_span(&b), &got), LH_OK);
    assert_true(got.move.epoch == l->epoch + 1 && got.move.target == 7);
    struct lh_buf again = bytes_of(&got);
    assert_true(lh_span_equal(lh_buf_span(&b), lh_buf_span(&again)));
    lh_ledger_free(&got);
    for (size_t n = 0; n < b.len; n++) {
        assert_int_equal(read_back(lh_span(b.data, n), &got), LH_ERR_MALFORMED);
        lh_ledger_free(&got);
    }
    for (size_t at = MOVE; at <= MOVE + 8; at += 8) { // MOVE into epoch 0, then to target 0
        memcpy(again.data, b.data, b.len);
        memset(again.data + at, 0, 8);
        assert_int_equal(read_back(lh_buf_span(&again), &got), LH_ERR_MALFORMED);
        lh_ledger_free(&got);
    }
    memcpy(again.data, b.data, b.len);
    again.data[0] = 5; // a later encoding
    assert_int_equal(read_back(lh_buf_span(&again), &got), LH_ERR_MALFORMED);
    lh_ledger_free(&got);
    lh_buf_free(&b);
    lh_buf_free(&again);
}

TEST(identities_of_one_directory_share_their_upper_half)
{
    assert_true(lh_same_directory(5ull << 32 | 1, 5ull << 32 | 9));
    assert_false(lh_same_directory(5ull << 32 | 1, 6ull << 32 | 1));
    assert_false(lh_same_directory(0, 1));
    assert_false(lh_same_directory(1, 0));
}

WITH_LEDGER(another_history_is_a_conflict, struct lh_ledger *l)
{
    fill(l);
    struct lh_frame f = push_of(W1, 4);
    struct lh_buf b = case_bytes(&f);
    struct lh_record right = {.kind = LH_ADMIT, .scale = 0.5f, .body = lh_buf_span(&b)};
    lh_ledger_next(l, &right);
    struct lh_record r = right;
    r.chain.b[31] ^= 1;
    ASSERT_REFUSED(l, LH_ERR_CONFLICT, lh_ledger_apply(l, &r));
    r = right;
    r.scale = 0.25f; // the chain covers the fold's scale
    ASSERT_REFUSED(l, LH_ERR_CONFLICT, lh_ledger_apply(l, &r));
    r = right;
    r.version++;
    r.chain = lh_record_chain(&l->chain, &r);
    ASSERT_REFUSED(l, LH_ERR_CONFLICT, lh_ledger_apply(l, &r));
    r.version = l->version;
    r.chain = lh_record_chain(&l->chain, &r);
    ASSERT_REFUSED(l, LH_ERR_CONFLICT, lh_ledger_apply(l, &r));
    r = right;
    r.epoch--;
    r.chain = lh_record_chain(&l->chain, &r);
    ASSERT_REFUSED(l, LH_ERR_CONFLICT, lh_ledger_apply(l, &r));
    assert_int_equal(lh_ledger_apply(l, &right), LH_OK);
    ASSERT_REFUSED(l, LH_ERR_CONFLICT, lh_ledger_apply(l, &right));
    lh_buf_free(&b);
}

WITH_LEDGER(a_record_without_its_payload_folds_the_same, struct lh_ledger *l)
{
    struct lh_ledger other = {0};
    fill(l);
    assert_int_equal(lh_ledger_copy(&other, l), LH_OK);
    struct lh_frame f = push_of(W1, 4);
    struct lh_buf b = case_bytes(&f), stub = lh_buf(1 << 10);
    lh_frame_write_stub(lh_buf_span(&b), &f, &stub);
    struct lh_record whole = {.kind = LH_ADMIT, .scale = 0.5f, .body = lh_buf_span(&b)};
    lh_ledger_next(l, &whole);
    struct lh_record elided = whole;
    elided.flags = LH_RECORD_ELIDED;
    elided.body = lh_buf_span(&stub);
    assert_int_equal(lh_ledger_apply(l, &whole), LH_OK);
    assert_int_not_equal(other.version, l->version); // still at its own version
    assert_int_equal(lh_ledger_apply(&other, &elided), LH_OK);
    struct lh_buf x = bytes_of(l), y = bytes_of(&other);
    assert_true(lh_span_equal(lh_buf_span(&x), lh_buf_span(&y)));
    lh_buf_free(&x);
    lh_buf_free(&y);
    lh_buf_free(&b);
    lh_buf_free(&stub);
    lh_ledger_free(&other);
}

WITH_LEDGER(a_unit_is_credited_once_and_in_its_shard, struct lh_ledger *l)
{
    assert_int_equal(fence(l, W1, FIRST), LH_OK);
    assert_int_equal(fence(l, W2, FIRST), LH_OK);
    struct lh_frame f = push_of(W1, 1);
    f.claims = 4;
    f.claim[0] = 5; // 5 mod 4 is this shard
    f.claim[1] = 6; // a unit of another shard
    f.claim[2] = 5; // the same unit again
    f.claim[3] = 1021;
    struct lh_frame refused = f;
    refused.worker = W2;
    assert_int_equal(refuse(l, &refused), LH_OK); // a refusal credits nothing
    assert_int_equal(l->credited, 0);
    assert_int_equal(admit(l, &f), LH_OK);
    assert_int_equal(l->credited, 2);
    for (uint64_t unit = 0; unit < 1100; unit++)
        assert_int_equal(lh_ledger_credited(l, unit), unit == 5 || unit == 1021);
    assert_false(lh_ledger_credited(l, UINT64_MAX));
    f = push_of(W2, 2);
    f.claims = 2;
    f.claim[0] = 5; // already credited to W1
    f.claim[1] = 9;
    assert_int_equal(admit(l, &f), LH_OK);
    assert_int_equal(l->credited, 3);
    assert_true(lh_ledger_credited(l, 9));
}

WITH_LEDGER(staleness_is_others_since_the_base_less_a_turn, struct lh_ledger *l)
{
    assert_int_equal(fence(l, W1, FIRST), LH_OK);
    assert_int_equal(fence(l, W2, FIRST), LH_OK);
    for (uint64_t step = 1; step <= 10; step++) {
        struct lh_frame f = push_of(W1, step);
        assert_int_equal(admit(l, &f), LH_OK);
    }
    struct lh_frame own = push_of(W2, 1);
    assert_int_equal(admit(l, &own), LH_OK);
    assert_int_equal(lh_ledger_others(l, W1), 1);
    assert_int_equal(lh_ledger_others(l, W2), 10);
    assert_int_equal(lh_ledger_others(l, W3), 11);      // a worker without a row: all pushes count
    assert_int_equal(lh_ledger_staleness(l, W2, 4), 6); // no plan: no other live worker to subtract
    assert_int_equal(plan(l, 1, 1), LH_OK);
    assert_int_equal(lh_ledger_staleness(l, W2, 4), 6); // one live worker: nothing to subtract
    assert_int_equal(plan(l, 2, 4), LH_OK);
    assert_int_equal(lh_ledger_staleness(l, W2, 4), 3); // 10 - 4 - 3
    assert_int_equal(lh_ledger_staleness(l, W2, 6), 1);
    assert_int_equal(lh_ledger_staleness(l, W2, 7), 0);
    assert_int_equal(lh_ledger_staleness(l, W2, 10), 0);
    assert_int_equal(lh_ledger_staleness(l, W2, 11), 0); // the base is newer than the log
    assert_int_equal(lh_ledger_staleness(l, W2, UINT64_MAX), 0);
    assert_int_equal(lh_ledger_staleness(l, W1, 0), 0);
}

WITH_LEDGER(one_that_was_away_takes_its_place_in_the_round, struct lh_ledger *l)
{
    assert_int_equal(plan(l, 1, 3), LH_OK);
    for (uint64_t w = W1; w <= W3; w++) assert_int_equal(fence(l, w, FIRST), LH_OK);
    for (uint64_t step = 1; step <= 5; step++)
        for (uint64_t w = W1; w <= W2; w++) {
            struct lh_frame f = push_of(w, step);
            assert_int_equal(admit(l, &f), LH_OK);
        }
    struct lh_frame f = push_of(W3, 1);
    assert_int_equal(admit(l, &f), LH_OK);
    assert_int_equal(lh_ledger_row(l, W1)->round, 5);
    assert_int_equal(lh_ledger_row(l, W3)->round, 5);
    f = push_of(W1, 6); // W2 alone is now the slowest, and the plan does not name it first
    assert_int_equal(admit(l, &f), LH_OK);
    f = push_of(W3, 2);
    assert_int_equal(admit(l, &f), LH_OK);
    assert_int_equal(plan(l, 2, 4), LH_OK);
    assert_int_equal(fence(l, W3 + 1, FIRST), LH_OK);
    f = push_of(W3 + 1, 1);
    assert_int_equal(admit(l, &f), LH_OK);
    assert_int_equal(lh_ledger_row(l, W3 + 1)->round, 5);
}

WITH_LEDGER(an_epoch_follows_the_version_it_names, struct lh_ledger *l)
{
    fill(l); // epoch 5
    uint64_t at = l->version;
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, epoch(l, 5, 5, at));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, epoch(l, 4, 4, at));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, epoch(l, 6, 7, at));
    ASSERT_REFUSED(l, LH_ERR_CORRUPT, epoch(l, 6, 6, at - 1));
    assert_int_equal(epoch(l, 9, 9, at), LH_OK);
    assert_int_equal(l->epoch, 9);
    assert_int_equal(l->version, at + 1);
    struct lh_frame f = push_of(W1, 4);
    assert_int_equal(admit(l, &f), LH_OK);
}

// Compares field by field: a writer that wrote one field twice and left another out would still
// read back the same bytes.
static void assert_same(const struct lh_ledger *a, const struct lh_ledger *b)
{
    assert_true(a->epoch == b->epoch && a->version == b->version);
    assert_true(lh_hash_equal(&a->chain, &b->chain));
    assert_true(a->admitted == b->admitted && a->refused == b->refused && a->tokens == b->tokens);
    assert_true(a->credited == b->credited && a->rows == b->rows);
    assert_true(a->plan.number == b->plan.number && a->plan.live == b->plan.live);
    for (uint32_t i = 0; i < a->rows; i++) {
        const struct lh_row *x = &a->row[i], *y = &b->row[i];
        assert_int_equal(x->worker, y->worker);
        assert_true(lh_incarnation_equal(x->incarnation, y->incarnation));
        assert_true(lh_incarnation_equal(x->last, y->last));
        assert_true(x->last_step == y->last_step && x->last_version == y->last_version);
        assert_true(lh_digest_equal(&x->last_digest, &y->last_digest));
        assert_int_equal(x->last_reason, y->last_reason);
        assert_true(x->admitted == y->admitted && x->refused == y->refused);
        assert_true(x->tokens == y->tokens && x->round == y->round);
    }
}

WITH_LEDGER(a_ledger_reads_back_byte_for_byte, struct lh_ledger *l)
{
    struct lh_ledger got;
    fill(l);
    struct lh_buf b = bytes_of(l);
    assert_int_equal(lh_ledger_create(&got, JOB, &MANIFEST, SHARD, SHARDS), LH_OK);
    for (int twice = 0; twice < 2; twice++) { // first over an empty ledger, then over a full one
        struct lh_cursor c = lh_cursor(lh_buf_span(&b));
        assert_int_equal(lh_ledger_read(&got, &c), LH_OK);
        assert_int_equal(lh_left(&c), 0);
    }
    assert_int_equal(got.credited, 3);
    assert_same(&got, l);
    struct lh_frame f = push_of(W1, 4); // both continue in the same way
    assert_int_equal(admit(l, &f), LH_OK);
    assert_int_equal(admit(&got, &f), LH_OK);
    struct lh_buf x = bytes_of(l), y = bytes_of(&got);
    assert_true(lh_span_equal(lh_buf_span(&x), lh_buf_span(&y)));
    lh_buf_free(&x);
    lh_buf_free(&y);
    lh_buf_free(&b);
    lh_ledger_free(&got);
}

WITH_LEDGER(a_part_of_a_ledger_or_anothers_is_refused, struct lh_ledger *l)
{
    struct lh_ledger got;
    fill(l);
    struct lh_buf b = bytes_of(l);
    for (size_t n = 0; n < b.len; n++) {
        // exact length, so that a sanitizer sees a read past the end
        uint8_t *copy = malloc(n + !n);
        assert_non_null(copy);
        if (n) memcpy(copy, b.data, n);
        assert_int_equal(lh_ledger_create(&got, JOB, &MANIFEST, SHARD, SHARDS), LH_OK);
        struct lh_cursor c = lh_cursor(lh_span(copy, n));
        assert_int_equal(lh_ledger_read(&got, &c), LH_ERR_MALFORMED);
        lh_ledger_free(&got);
        free(copy);
    }
    for (uint32_t shards = SHARDS; shards <= SHARDS + 1; shards++) {
        uint32_t shard = shards == SHARDS ? SHARD + 1 : SHARD;
        assert_int_equal(lh_ledger_create(&got, JOB, &MANIFEST, shard, shards), LH_OK);
        struct lh_cursor c = lh_cursor(lh_buf_span(&b));
        assert_int_equal(lh_ledger_read(&got, &c), LH_ERR_MALFORMED);
        lh_ledger_free(&got);
    }
    lh_buf_free(&b);
}
