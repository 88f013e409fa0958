// common/format/ledger.c: bodies of wrong length, more workers than fit, workers without a row,
// invalid norms. Correct logs are tested in ledger.c.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/ledger.h"
#include "tests/test.h"
#include "tests/unit/common/format/frame_case.h"

static const uint8_t JOB[LH_JOB_BYTES] = {1, 2, 3};
static const struct lh_hash MANIFEST = {{9, 8, 7}};
static const struct lh_incarnation FIRST = {1, 77};

static int make_ledger(void **state)
{
    struct lh_ledger *l = calloc(1, sizeof *l);
    *state = l;
    return l && lh_ledger_create(l, JOB, &MANIFEST, 0, 1) == LH_OK ? 0 : -1;
}

static int free_ledger(void **state)
{
    lh_ledger_free(*state);
    free(*state);
    return 0;
}

static lh_err apply(struct lh_ledger *l, uint16_t kind, struct lh_buf *body)
{
    struct lh_record r = {
        .kind = kind, .epoch = kind == LH_EPOCH ? 2 : 0, .scale = 1, .body = lh_buf_span(body)};
    lh_ledger_next(l, &r);
    lh_err err = lh_ledger_apply(l, &r);
    lh_buf_free(body);
    return err;
}

static lh_err fence(struct lh_ledger *l, uint64_t worker)
{
    struct lh_buf b = lh_buf(64);
    lh_fence_write(worker, FIRST, &b);
    return apply(l, LH_FENCE, &b);
}

// Applies a body with `more` surplus bytes at its end, or with that many missing.
static lh_err misshapen(struct lh_ledger *l, uint16_t kind, int more)
{
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    struct lh_plan plan = {.number = 1, .phase = LH_PHASE_RUN};
    if (kind == LH_FENCE) lh_fence_write(5, FIRST, &b);
    if (kind == LH_PLAN) lh_plan_write(&plan, &b);
    if (kind == LH_EPOCH) lh_put_u64(&b, 2);
    if (kind == LH_EPOCH) lh_put_u64(&b, l->version);
    if (kind == LH_DIGEST_RECORD) lh_put_zeros(&b, LH_HASH_BYTES);
    if (more > 0) lh_put_zeros(&b, (size_t)more);
    if (more < 0) b.len -= (size_t)-more;
    return apply(l, kind, &b);
}

#define ON_LEDGER(name, parameter) TEST_WITH(name, parameter, make_ledger, free_ledger)

// LH_EPOCH comes first, at version 0, where even half a body names the right base.
ON_LEDGER(bodies_have_their_length, struct lh_ledger *l)
{
    static const uint16_t kinds[] = {LH_EPOCH, LH_FENCE, LH_PLAN, LH_DIGEST_RECORD};
    for (size_t i = 0; i < LH_COUNT(kinds); i++) {
        uint64_t version = l->version;
        assert_int_not_equal(misshapen(l, kinds[i], -8), LH_OK);
        assert_int_not_equal(misshapen(l, kinds[i], -1), LH_OK);
        assert_int_not_equal(misshapen(l, kinds[i], 1), LH_OK);
        assert_int_equal(l->version, version);
        assert_int_equal(misshapen(l, kinds[i], 0), LH_OK);
    }
}

ON_LEDGER(more_workers_than_fit_are_refused, struct lh_ledger *l)
{
    for (uint64_t w = 1; w <= LH_WORKERS_MAX; w++) assert_int_equal(fence(l, 2 * w), LH_OK);
    assert_int_equal(fence(l, 7), LH_ERR_TOO_LARGE);
    assert_int_equal(l->rows, LH_WORKERS_MAX);
    assert_null(lh_ledger_row(l, 7));
    assert_int_equal(lh_row_step(NULL), 0);
    assert_int_equal(lh_row_step(lh_ledger_row(l, 2)), 0); // admitted, but no push yet
    struct lh_ledger back = {.shards = 1};
    struct lh_buf b = lh_buf(1 << 20);
    lh_ledger_write(l, &b);
    struct lh_cursor c = lh_cursor(lh_buf_span(&b));
    assert_int_equal(lh_ledger_read(&back, &c), LH_OK); // a full ledger is valid
    assert_int_equal(back.rows, LH_WORKERS_MAX);
    lh_ledger_free(&back);
    lh_buf_free(&b);
}

ON_LEDGER(the_last_unit_is_credited_and_reads_back, struct lh_ledger *l)
{
    struct lh_ledger back = {.shards = 1};
    struct lh_frame f = case_frame();
    assert_int_equal(fence(l, 101), LH_OK);
    f.shard = 0;
    f.worker = 101;
    f.incarnation = FIRST;
    f.step = 1;
    f.claims = 1;
    f.claim[0] = LH_UNITS_MAX - 1;
    struct lh_buf b = case_bytes(&f);
    assert_int_equal(apply(l, LH_ADMIT, &b), LH_OK);
    assert_int_equal(l->credit_bytes, LH_UNITS_MAX / 8);
    b = lh_buf(1 << 20);
    lh_ledger_write(l, &b);
    assert_int_equal(lh_buf_err(&b), LH_OK);
    struct lh_cursor c = lh_cursor(lh_buf_span(&b));
    assert_int_equal(lh_ledger_read(&back, &c), LH_OK);
    assert_true(lh_ledger_credited(&back, LH_UNITS_MAX - 1));
    lh_ledger_free(&back);
    lh_buf_free(&b);
}

ON_LEDGER(a_ledger_that_does_not_fit_says_so, struct lh_ledger *l)
{
    struct lh_buf b = lh_buf(100);
    assert_int_equal(fence(l, 3), LH_OK);
    lh_ledger_write(l, &b);
    assert_int_not_equal(lh_buf_err(&b), LH_OK);
    lh_buf_free(&b);
}

// The slowest other worker may be one that the plan names but that has no row yet.
ON_LEDGER(a_live_worker_without_a_row_has_done_no_round, struct lh_ledger *l)
{
    struct lh_plan plan = {.number = 1, .phase = LH_PHASE_RUN, .live = 2, .worker = {101, 102}};
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_plan_write(&plan, &b);
    assert_int_equal(apply(l, LH_PLAN, &b), LH_OK);
    assert_int_equal(fence(l, 101), LH_OK);
    struct lh_frame f = case_frame();
    f.shard = 0;
    f.worker = 101;
    f.incarnation = FIRST;
    f.step = 1;
    b = case_bytes(&f);
    assert_int_equal(apply(l, LH_ADMIT, &b), LH_OK);
    assert_int_equal(lh_ledger_row(l, 101)->round, 1);
}

ON_LEDGER(a_ledger_cut_short_is_none, struct lh_ledger *l)
{
    struct lh_buf b = lh_buf(1 << 20);
    assert_int_equal(fence(l, 3), LH_OK);
    lh_ledger_write(l, &b);
    for (size_t cut = 0; cut < b.len; cut++) {
        struct lh_ledger back = {.shards = 1};
        struct lh_cursor c = lh_cursor(lh_span(b.data, cut));
        assert_int_not_equal(lh_ledger_read(&back, &c), LH_OK);
        lh_ledger_free(&back);
    }
    lh_buf_free(&b);
}

ON_LEDGER(rows_are_read_in_their_order_and_each_once, struct lh_ledger *l)
{
    enum { FIRST_ROW = 106 + 4 }; // after the count of rows, see ROWS below
    assert_int_equal(fence(l, 3), LH_OK);
    assert_int_equal(fence(l, 5), LH_OK);
    for (uint32_t worker = 3; worker <= 7; worker++) {
        struct lh_ledger back = {.shards = 1};
        struct lh_buf b = lh_buf(1 << 20);
        lh_ledger_write(l, &b);
        lh_buf_patch_u32(&b, FIRST_ROW, worker);
        struct lh_cursor c = lh_cursor(lh_buf_span(&b));
        assert_int_equal(lh_ledger_read(&back, &c), worker < 5 ? LH_OK : LH_ERR_MALFORMED);
        lh_ledger_free(&back);
        lh_buf_free(&b);
    }
}

// Counts above the limits are refused before any allocation.
ON_LEDGER(counts_above_the_limits_are_refused, struct lh_ledger *l)
{
    enum { ROWS = 106 }; // after version, shard, shards, epoch, version, chain, counters, move
    struct lh_buf b = lh_buf(1 << 20);
    lh_ledger_write(l, &b); // without rows, the credit count comes next
    static const struct {
        size_t at;
        uint32_t most;
        lh_err beyond;
    } count[] = {{ROWS, LH_WORKERS_MAX, LH_ERR_MALFORMED},
                 {ROWS + 4, LH_UNITS_MAX / 8, LH_ERR_MALFORMED}};
    for (size_t i = 0; i < LH_COUNT(count); i++) {
        struct lh_ledger back = {.shards = 1};
        struct lh_buf field = lh_buf_over(b.data + count[i].at, 4);
        struct lh_cursor c = lh_cursor(lh_buf_span(&b));
        char text[32];
        lh_put_u32(&field, count[i].most + 1);
        assert_int_equal(lh_ledger_read(&back, &c), count[i].beyond);
        snprintf(text, sizeof text, "%u", count[i].most + 1);
        // The text names the bad count.
        assert_non_null(strstr(lh_err_text(LH_ERR_MALFORMED), text));
        lh_ledger_free(&back);
        field = lh_buf_over(b.data + count[i].at, 4);
        lh_put_u32(&field, 0);
    }
    struct lh_cursor c = lh_cursor(lh_buf_span(&b));
    assert_int_equal(lh_ledger_read(l, &c), LH_OK);
    lh_buf_free(&b);
}

static struct lh_buf field_f32(float value)
{
    struct lh_buf b = lh_buf(4);
    lh_put_f32(&b, value);
    return b;
}

static struct lh_buf field_f64(double value)
{
    struct lh_buf b = lh_buf(8);
    lh_put_f64(&b, value);
    return b;
}

static struct lh_buf field_u32(uint32_t value)
{
    struct lh_buf b = lh_buf(4);
    lh_put_u32(&b, value);
    return b;
}

static struct lh_buf field_u8(uint8_t value)
{
    struct lh_buf b = lh_buf(1);
    lh_put_u8(&b, value);
    return b;
}

// Reads a ledger back with `field` in place of its bytes from `at` on; frees `field`.
static lh_err read_with(const struct lh_ledger *l, size_t at, struct lh_buf field)
{
    struct lh_ledger back = {.shards = 1};
    struct lh_buf b = lh_buf(1 << 20);
    lh_ledger_write(l, &b);
    assert_int_equal(lh_buf_err(&b), LH_OK);
    assert_in_range(at + field.len, field.len, b.len);
    memcpy(b.data + at, field.data, field.len);
    struct lh_cursor c = lh_cursor(lh_buf_span(&b));
    lh_err err = lh_ledger_read(&back, &c);
    lh_ledger_free(&back);
    lh_buf_free(&b);
    lh_buf_free(&field);
    return err;
}

ON_LEDGER(norms_that_no_fold_makes_are_refused, struct lh_ledger *l)
{
    enum {
        REFERENCE = 82, // after version, shard, shards, epoch, version, chain, counters
        ROW = 110,      // after the reference, the move and the count of rows
        NORMS = ROW + 8 + 2 * 16 + 2 * 8 + LH_DIGEST_BYTES + 4 + 5 * 8,
        COUNT = NORMS + 4 * LH_NORMS,
        STEPS = COUNT + 4,
        CLIPPED = STEPS + 4,
    };
    static const float no_norm[] = {NAN, INFINITY, -INFINITY, -1};
    assert_int_equal(fence(l, 3), LH_OK);
    for (size_t i = 0; i < LH_COUNT(no_norm); i++) {
        assert_int_equal(read_with(l, REFERENCE, field_f64(no_norm[i])), LH_ERR_MALFORMED);
        for (size_t n = 0; n < LH_NORMS; n++)
            assert_int_equal(read_with(l, NORMS + 4 * n, field_f32(no_norm[i])), LH_ERR_MALFORMED);
    }
    assert_int_equal(read_with(l, REFERENCE, field_f64(0.5)), LH_OK);
    assert_int_equal(read_with(l, NORMS, field_f32(0.5f)), LH_OK);
    assert_int_equal(read_with(l, COUNT, field_u32(LH_NORMS)), LH_OK);
    assert_int_equal(read_with(l, COUNT, field_u32(LH_NORMS + 1)), LH_ERR_MALFORMED);
    assert_int_equal(read_with(l, STEPS, field_u32(LH_NORM_STEPS_MAX)), LH_OK);
    assert_int_equal(read_with(l, STEPS, field_u32(LH_NORM_STEPS_MAX + 1)), LH_ERR_MALFORMED);
    assert_int_equal(read_with(l, CLIPPED, field_u8(1)), LH_OK);
    assert_int_equal(read_with(l, CLIPPED, field_u8(2)), LH_ERR_MALFORMED);
}

// ---------------------------------------------------------------- retired names

static lh_err fence_of(struct lh_ledger *l, uint64_t worker, uint32_t granted, uint64_t random)
{
    struct lh_buf body = lh_buf(64);
    lh_fence_write(worker, (struct lh_incarnation){(uint64_t)granted << 32, random}, &body);
    struct lh_record r = {.kind = LH_FENCE, .body = lh_buf_span(&body)};
    lh_ledger_next(l, &r);
    lh_err err = lh_ledger_apply(l, &r);
    lh_buf_free(&body);
    return err;
}

static lh_err take_plan(struct lh_ledger *l, const struct lh_plan *p)
{
    struct lh_buf body = lh_buf(1 << 16);
    lh_plan_write(p, &body);
    struct lh_record r = {.kind = LH_PLAN, .body = lh_buf_span(&body)};
    lh_ledger_next(l, &r);
    lh_err err = lh_ledger_apply(l, &r);
    lh_buf_free(&body);
    return err;
}

ON_LEDGER(retired_names_make_place_and_come_back_under_no_old_number, struct lh_ledger *l)
{
    static struct lh_plan p;
    for (uint64_t w = 1; w <= LH_WORKERS_MAX; w++)
        assert_int_equal(fence_of(l, 2 * w, w == 3 ? 7 : 1, w), LH_OK);
    assert_int_equal(fence_of(l, 1, 1, 1), LH_ERR_TOO_LARGE);
    p = (struct lh_plan){.number = 1, .phase = LH_PHASE_RUN, .eta = 1, .live = 3};
    p.worker[0] = 4;
    p.worker[1] = 5; // joined, but said no hello yet
    p.worker[2] = 8;
    p.retired_up_to = 2;
    p.retired_count = 3;
    p.retired[0] = 2;
    p.retired[1] = 4;
    p.retired[2] = 6; // its row is of a higher number: another life
    assert_int_equal(take_plan(l, &p), LH_OK);
    assert_int_equal(l->rows, LH_WORKERS_MAX - 1);
    assert_null(lh_ledger_row(l, 2));
    assert_null(lh_ledger_row(l, 4)); // the plan calls it live until another life comes
    assert_non_null(lh_ledger_row(l, 6));
    assert_int_equal(fence_of(l, 2, 1, 9), LH_ERR_CORRUPT);
    assert_int_equal(fence_of(l, 2, 2, 9), LH_ERR_CORRUPT);
    assert_int_equal(fence_of(l, 2, 3, 9), LH_OK);
    assert_int_equal(fence_of(l, 5, 1, 9), LH_OK);
    assert_int_equal(fence_of(l, 8, 2, 9), LH_OK);
    p.number = 2;
    p.retired_up_to = 1; // must not fall
    assert_int_equal(take_plan(l, &p), LH_ERR_CORRUPT);
    p.retired_up_to = 3;
    p.retired_count = 2;
    p.retired[1] = 3; // never had a row
    assert_int_equal(take_plan(l, &p), LH_OK);
    assert_null(lh_ledger_row(l, 2));
    assert_null(lh_ledger_row(l, 3));
    assert_int_equal(fence_of(l, 2, 3, 10), LH_ERR_CORRUPT);
}

// ---------------------------------------------------------------- workers named by a plan

ON_LEDGER(letting_back_the_same_once_more_changes_nothing, struct lh_ledger *l)
{
    static struct lh_plan p;
    assert_int_equal(fence(l, 5), LH_OK);
    p = (struct lh_plan){.number = 1, .phase = LH_PHASE_RUN, .eta = 1, .lets_back = 2};
    p.let_back[0] = (struct lh_let_back){5, 2};
    p.let_back[1] = (struct lh_let_back){6, 2}; // has no row
    l->row[0].norms.outliers = LH_OUTLIERS_MAX;
    assert_int_equal(take_plan(l, &p), LH_OK);
    assert_int_equal(l->row[0].norms.outliers, 0);
    assert_null(lh_ledger_row(l, 6));
    l->row[0].norms.outliers = 3;
    for (p.number = 2; p.number < 4; p.number++, p.let_back[0].count--) {
        assert_int_equal(take_plan(l, &p), LH_OK);
        assert_int_equal(l->row[0].norms.outliers, 3);
        assert_int_equal(l->row[0].norms.let_back, 2);
    }
    p.let_back[0].count = 3;
    assert_int_equal(take_plan(l, &p), LH_OK);
    assert_int_equal(l->row[0].norms.outliers, 0);
}

ON_LEDGER(the_terms_of_privacy_are_those_of_the_first_plan, struct lh_ledger *l)
{
    static struct lh_plan p;
    p = (struct lh_plan){.number = 1, .phase = LH_PHASE_RUN, .eta = 1};
    p.privacy = (struct lh_privacy){.level = LH_PRIVACY_REGION,
                                    .sigma = 1,
                                    .rate = 1,
                                    .clip = 1,
                                    .epsilon = 8,
                                    .delta = 1e-5,
                                    .steps = 10,
                                    .ahead = 1,
                                    .local_steps = 1};
    assert_int_equal(take_plan(l, &p), LH_OK);
    p.number = 2;
    assert_int_equal(take_plan(l, &p), LH_OK);
    p.number = 3;
    p.privacy.sigma = 0.5;
    assert_int_equal(take_plan(l, &p), LH_ERR_CORRUPT);
    p.privacy.level = LH_PRIVACY_NONE;
    assert_int_equal(take_plan(l, &p), LH_ERR_CORRUPT);
    assert_int_equal(l->plan.number, 2);
}
