// common/format/plan.c: a plan reads back byte for byte, and anything else is refused.
#include <math.h>

#include "common/base/check.h"
#include "common/format/plan.h"
#include "tests/test.h"

enum { W1 = 101, W2 = 102, W3 = 103 };

// Writes p into *b, and reads it into *got.
static lh_err reread(const struct lh_plan *p, struct lh_buf *b, struct lh_plan *got)
{
    lh_buf_clear(b);
    lh_plan_write(p, b);
    return lh_plan_parse(lh_buf_span(b), got);
}

TEST(a_plan_reads_back_and_nothing_else)
{
    struct lh_plan p = {.number = 6,
                        .phase = LH_PHASE_END,
                        .mode = LH_MODE_BSP,
                        .weighting = LH_WEIGHT_TOKENS,
                        .eta = 0.7f,
                        .damping = 0.5f,
                        .staleness_per_live = 4,
                        .live = 2,
                        .worker = {W1, W3},
                        .ends = 3,
                        .end = {10, 11, 12},
                        .expelled_count = 2,
                        .expelled = {W2, W3},
                        .lets_back = 1,
                        .let_back = {{W1, 3}},
                        .steps_max = 32,
                        .step_tokens_max = 4096,
                        .data = LH_DATA_OWN,
                        .exceptions = 2,
                        .exception = {{W1, LH_DATA_LEASED}, {W2, LH_DATA_PRIVATE}}},
                   got;
    struct lh_buf b = lh_buf(1 << 10), again = lh_buf(1 << 10);
    lh_plan_write(&p, &b);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_OK);
    lh_plan_write(&got, &again);
    assert_true(lh_span_equal(lh_buf_span(&b), lh_buf_span(&again)));
    assert_true(lh_plan_has(&got, W3));
    assert_false(lh_plan_has(&got, W2));
    assert_false(lh_plan_expelled(&got, W1));
    assert_true(lh_plan_expelled(&got, W2) && lh_plan_expelled(&got, W3));
    assert_true(got.let_back[0].worker == W1 && got.let_back[0].count == 3);
    assert_int_equal(lh_plan_data(&got, W1), LH_DATA_LEASED);
    assert_int_equal(lh_plan_data(&got, W2), LH_DATA_PRIVATE);
    assert_int_equal(lh_plan_data(&got, W3), LH_DATA_OWN);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(lh_plan_parse(lh_span(b.data, n), &got), LH_ERR_MALFORMED);
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {{0, 0},  {0, 3},  {0, 5},  {10, LH_PHASE_END + 1},
               {11, 2}, {12, 2}, {25, 3}, {26, 255}};
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        uint8_t old = b.data[bad[i].at];
        b.data[bad[i].at] = bad[i].value;
        assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
        b.data[bad[i].at] = old;
    }
    size_t last = b.len - 2; // end of the last exception; the privacy terms' level follows
    b.data[last] = LH_DATA_PRIVATE + 1;
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    b.data[last] = LH_DATA_PRIVATE;
    lh_put_u8(&b, 0);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    p.expelled[0] = W3; // the same worker twice
    assert_int_equal(reread(&p, &b, &got), LH_ERR_MALFORMED);
    p.expelled[0] = W2;
    p.eta = NAN;
    assert_int_equal(reread(&p, &b, &got), LH_ERR_MALFORMED);
    lh_buf_free(&b);
    lh_buf_free(&again);
}

TEST(a_plan_that_closes_names_whom_it_leaves_out)
{
    struct lh_plan p = {.number = 6, .phase = LH_PHASE_CLOSE, .left = 2, .left_out = {W1, W3}}, got;
    struct lh_buf b = lh_buf(1 << 10);
    lh_plan_write(&p, &b);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_OK);
    assert_true(lh_plan_left_out(&got, W1) && lh_plan_left_out(&got, W3));
    assert_false(lh_plan_left_out(&got, W2));
    size_t whole = b.len, without = whole - 4 - 2 * 8;
    for (size_t n = 0; n < whole; n++)
        assert_int_equal(lh_plan_parse(lh_span(b.data, n), &got),
                         n == without ? LH_OK : LH_ERR_MALFORMED);
    b.data[10] = LH_PHASE_DRAIN;
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    b.data[10] = LH_PHASE_END;
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_OK);
    b.data[without] = 0; // an empty list has no bytes
    assert_int_equal(lh_plan_parse(lh_span(b.data, without + 4), &got), LH_ERR_MALFORMED);
    p.left_out[1] = W1; // the same worker twice
    assert_int_equal(reread(&p, &b, &got), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}

TEST(a_change_of_the_budget_reads_back_and_has_one_form)
{
    struct lh_plan p = {.number = 7, .phase = LH_PHASE_WAIT}, got;
    struct lh_buf b = lh_buf(1 << 10);
    lh_plan_write(&p, &b);
    size_t without = b.len;
    p.budget_tokens = 300, p.old_budget_tokens = 200, p.changed_tokens = 210;
    // with the list of left-out workers before it, and without
    for (int closes = 0; closes < 2; closes++) {
        if (closes) p.phase = LH_PHASE_END, p.left = 1, p.left_out[0] = W1;
        size_t left_out = without + (closes ? 4 + 8 : 0);
        assert_int_equal(reread(&p, &b, &got), LH_OK);
        assert_true(got.budget_tokens == 300 && got.old_budget_tokens == 200 &&
                    got.changed_tokens == 210 && got.left == (uint32_t)closes);
        for (size_t n = without; n < b.len; n++) {
            bool whole = n == without || n == left_out;
            assert_int_equal(lh_plan_parse(lh_span(b.data, n), &got),
                             whole ? LH_OK : LH_ERR_MALFORMED);
        }
    }
    lh_put_u8(&b, 0);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    p.old_budget_tokens = 0; // no run had a budget of 0
    assert_int_equal(reread(&p, &b, &got), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}

TEST(a_pause_reads_back_and_has_one_form)
{
    struct lh_plan p = {.number = 7, .phase = LH_PHASE_RUN}, got;
    struct lh_buf b = lh_buf(1 << 10);
    lh_plan_write(&p, &b);
    size_t without = b.len;
    p.paused = true;
    // with the change of the budget before it, and without
    for (int changed = 0; changed < 2; changed++) {
        if (changed) p.budget_tokens = 300, p.old_budget_tokens = 200;
        assert_int_equal(reread(&p, &b, &got), LH_OK);
        assert_true(got.paused && got.budget_tokens == p.budget_tokens && !got.retired_up_to);
        for (size_t n = without; n < b.len; n++) {
            bool whole = n == without || (changed && n == b.len - 1);
            assert_int_equal(lh_plan_parse(lh_span(b.data, n), &got),
                             whole ? LH_OK : LH_ERR_MALFORMED);
        }
    }
    b.data[b.len - 1] = 0; // a plan without a pause has no such byte
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    b.data[b.len - 1] = 1;
    b.data[10] = LH_PHASE_DRAIN; // no worker trains in this phase
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}

TEST(a_plans_optimizer_reads_back_and_sgd_has_one_form)
{
    struct lh_plan p = {.number = 1,
                        .eta = 1,
                        .live = 1,
                        .worker = {W1},
                        .optimizer = LH_OPT_DELAYED_NESTEROV,
                        .momentum = 0.5f,
                        .outer_every = 3,
                        .effective_step_max = 1.5f},
                   got;
    struct lh_buf b = lh_buf(1 << 10), plain = lh_buf(1 << 10);
    lh_plan_write(&p, &b);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_OK);
    assert_int_equal(got.optimizer, LH_OPT_DELAYED_NESTEROV);
    assert_true(got.momentum == 0.5f && got.effective_step_max == 1.5f);
    assert_int_equal(lh_plan_outer_every(&got), 3);
    p.outer_every = 0;
    assert_int_equal(lh_plan_outer_every(&p), 1); // the number of live workers, at least 1
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(lh_plan_parse(lh_span(b.data, n), &got), LH_ERR_MALFORMED);
    size_t at = b.len - 13 - 18; // the optimizer, its three constants, then the bounds
    static const uint8_t bad[] = {LH_OPT_SGD, LH_OPT_DELAYED_NESTEROV + 1};
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        b.data[at] = bad[i];
        assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    }
    b.data[at] = LH_OPT_DELAYED_NESTEROV;
    lh_buf_patch_u32(&b, at + 1, 0); // a momentum of 0
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_OK);
    lh_buf_patch_u32(&b, at + 9, 0x7f800000); // an infinite bound
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    lh_buf_patch_u32(&b, at + 9, 0);
    b.data[at + 4] = 0x40; // above 1
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    lh_buf_patch_u32(&b, at + 1, 0x3f800000); // 1: old pushes would never fade
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    p.optimizer = LH_OPT_SGD; // has no constants
    lh_plan_write(&p, &plain);
    assert_int_equal(plain.len, b.len);
    assert_int_equal(lh_plan_parse(lh_buf_span(&plain), &got), LH_OK);
    assert_true(got.momentum <= 0 && got.effective_step_max <= 0 && !got.outer_every);
    for (size_t i = at + 1; i < at + 13; i += 8) { // momentum and bound
        lh_buf_patch_u32(&plain, i, 0x80000000);   // -0 is a second form of none
        assert_int_equal(lh_plan_parse(lh_buf_span(&plain), &got), LH_ERR_MALFORMED);
        lh_buf_patch_u32(&plain, i, 0);
    }
    for (size_t i = at + 1; i < at + 13; i += 4) { // each constant alone
        lh_buf_patch_u32(&plain, i, 0x3f000000);   // 0.5, or a number of pushes
        assert_int_equal(lh_plan_parse(lh_buf_span(&plain), &got), LH_ERR_MALFORMED);
        lh_buf_patch_u32(&plain, i, 0);
    }
    lh_buf_free(&b);
    lh_buf_free(&plain);
}

TEST(the_most_workers_and_shards_fit_and_no_more)
{
    struct lh_plan p = {.number = 1, .phase = LH_PHASE_RUN, .eta = 1, .live = LH_WORKERS_MAX}, got;
    for (uint32_t i = 0; i < p.live; i++) p.worker[i] = W1 + i;
    struct lh_buf b = lh_buf(1 << 20);
    lh_plan_write(&p, &b);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_OK);
    assert_int_equal(got.live, LH_WORKERS_MAX);
    assert_true(lh_plan_has(&got, W1 + LH_WORKERS_MAX - 1));
    lh_buf_patch_u32(&b, 25, LH_WORKERS_MAX + 1); // `live`
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    p.live = 0;
    p.ends = LH_SHARDS_MAX;
    assert_int_equal(reread(&p, &b, &got), LH_OK);
    assert_int_equal(got.ends, LH_SHARDS_MAX);
    lh_buf_patch_u32(&b, 29, LH_SHARDS_MAX + 1); // `ends`, when there are no live workers
    lh_put_u64(&b, 0);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    p.ends = 0;
    p.expelled_count = LH_EXPELLED_MAX;
    p.lets_back = LH_LET_BACK_MAX;
    for (uint32_t i = 0; i < LH_EXPELLED_MAX; i++) p.expelled[i] = i + 1;
    assert_int_equal(reread(&p, &b, &got), LH_OK);
    assert_true(lh_plan_expelled(&got, LH_EXPELLED_MAX));
    lh_buf_patch_u32(&b, 33, LH_EXPELLED_MAX + 1);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}

TEST(a_push_may_say_what_its_steps_can_hold)
{
    struct lh_plan p = {.steps_max = 32, .step_tokens_max = 100};
    assert_int_equal(lh_plan_tokens_max(&p), 4100);
    p.step_tokens_max = 0; // not reported yet
    assert_int_equal(lh_plan_tokens_max(&p), 41 * LH_STEP_TOKENS);
    p.step_tokens_max = LH_PUSH_TOKENS_MAX;
    assert_int_equal(lh_plan_tokens_max(&p), LH_PUSH_TOKENS_MAX);
    p.steps_max = 0; // a plan without bounds
    assert_int_equal(lh_plan_tokens_max(&p), LH_PUSH_TOKENS_MAX);
}

TEST(every_phase_has_its_name)
{
    assert_string_equal(lh_phase_name(LH_PHASE_END), "ended");
    assert_string_equal(lh_phase_name(LH_PHASE_END + 1), "?");
}

TEST(retired_names_are_the_last_part_of_a_plan)
{
    struct lh_plan p = {.number = 6, .phase = LH_PHASE_RUN, .eta = 1}, got;
    struct lh_buf b = lh_buf(1 << 10);
    p.retired_up_to = 3;
    p.retired_count = 2;
    p.retired[0] = W1;
    p.retired[1] = W3;
    lh_plan_write(&p, &b);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), &got), LH_OK);
    assert_true(got.retired_up_to == 3 && got.retired_count == 2 && got.retired[1] == W3);
    assert_true(lh_plan_retires(&got, UINT64_C(3) << 32 | 9));
    assert_false(lh_plan_retires(&got, UINT64_C(4) << 32));
    // Truncations within this field, or within the empty list of left-out workers before it.
    for (size_t n = 1; n <= 24; n++)
        assert_int_equal(lh_plan_parse(lh_span(b.data, b.len - n), &got), LH_ERR_MALFORMED);
    p.retired[1] = W1;
    assert_int_equal(reread(&p, &b, &got), LH_ERR_MALFORMED);
    p.retired_up_to = 0;
    assert_int_equal(reread(&p, &b, &got), LH_OK);
    assert_false(got.retired_count || lh_plan_retires(&got, 0));
    lh_buf_free(&b);
}
