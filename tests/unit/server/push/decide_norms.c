// Decide: the norm gate (server/docs/0000-protocol.md#rule-31). No worker moves the bound alone. A
// worker far above the others is set aside, and none is set aside for its data, its H or what
// another one reports.
#include <float.h>

#include "common/base/check.h"
#include "tests/unit/server/push/decide_case.h"

// Handles a push of this norm as the server does: decides it, and applies it if it was admitted.
static struct ps_decision push_norm(struct ps_shard *s, uint64_t worker, uint32_t steps,
                                    double norm)
{
    const struct lh_row *row = lh_ledger_row(s->head, worker);
    struct lh_frame f = push_of(worker, row ? lh_row_step(row) + 1 : 1);
    f.base_others = lh_ledger_others(s->head, worker);
    f.steps = steps;
    struct ps_decision d = value_of(s, GATE, &f, LH_OK, norm);
    struct lh_buf b = case_bytes(&f), stub = lh_buf(1 << 10);
    lh_frame_write_stub(lh_buf_span(&b), &f, &stub);
    bool admitted = d.kind == LH_ADMIT;
    apply(s,
          (struct lh_record){.kind = d.kind,
                             .scale = d.scale,
                             .reason = admitted ? lh_record_norm_bits(&d.noted) : (uint32_t)d.error,
                             .body = lh_buf_span(admitted ? &b : &stub)});
    lh_buf_free(&b);
    lh_buf_free(&stub);
    return d;
}

static bool whole(const struct ps_decision *d)
{
    return d->kind == LH_ADMIT && !d->noted.clipped;
}

static void live(struct ps_shard *s, uint32_t workers)
{
    given.plan.live = workers;
    for (uint32_t i = 0; i < workers; i++) {
        given.plan.worker[i] = ME + i;
        if (!lh_ledger_row(s->head, ME + i)) fence(s, ME + i, FIRST);
    }
}

ON_SHARD(the_first_push_is_bounded_by_the_shards_own_size, struct ps_shard *s)
{
    struct ps_decision d = push_norm(s, ME, 1, 1e30);
    assert_true(d.kind == LH_ADMIT && d.noted.clipped);
    assert_true((double)d.scale * 1e30 <= 0.5 * 100 * (1 + 1e-6));
    assert_true((double)d.noted.at_equal_h <= 4 * 100); // its own claim of a norm is bounded too
    d = push_norm(s, OTHER, 1, 100);
    assert_true(whole(&d));
}

// A push of 3e38: its scale would not be a normal fp32 number.
ON_SHARD(a_push_too_large_to_fold_is_refused, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    struct ps_decision d = value_of(s, GATE, &f, LH_OK, 3e42);
    assert_refused(&d, LH_ERR_TOO_LARGE);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e31); // the gate is off, but the fold must stay finite
    assert_refused(&d, LH_ERR_TOO_LARGE);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e30);
    assert_int_equal(d.kind, LH_ADMIT);
    given.plan.momentum = 0.9f;
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e30); // momentum multiplies a lasting push
    assert_refused(&d, LH_ERR_TOO_LARGE);
    struct ps_gate far = {0, 0, 100, 1e37};
    d = value_of(s, far, &f, LH_OK, 1e29);
    assert_refused(&d, LH_ERR_TOO_LARGE);
}

ON_SHARD(a_norm_above_the_gate_is_scaled_down_to_it, struct ps_shard *s)
{
    for (int i = 0; i < 8; i++) {
        push_norm(s, ME, 1, 20);
        push_norm(s, OTHER, 1, 22);
    }
    assert_true(given.norm_reference >= 20 && given.norm_reference <= 22);
    struct lh_frame f = push_of(ME, 9);
    f.base_others = 8;
    struct ps_decision d = value_of(s, GATE, &f, LH_OK, 190);
    assert_true(whole(&d) && d.norm == 190);
    assert_scale(&d, 0.5);
    d = value_of(s, GATE, &f, LH_OK, 800);
    assert_true(d.noted.clipped &&
                fabs((double)d.scale * 800 - 0.5 * 10 * given.norm_reference) < 1e-3);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e6);
    assert_scale(&d, 0.5); // the gate is off
    f.base_others = 4;     // the scale multiplies the damping
    d = value_of(s, GATE, &f, LH_OK, 800);
    assert_true(fabs((double)d.scale * 800 - 0.5 * pow(1 + 3, -0.5) * 10 * given.norm_reference) <
                1e-3);
}

// Eight times the steps move a model at most eight times as far. A worker that names more steps
// counts as if it had eight times the others'.
ON_SHARD(norms_are_compared_at_equal_steps, struct ps_shard *s)
{
    for (int i = 0; i < 8; i++) {
        push_norm(s, ME, 1, 20);
        push_norm(s, OTHER, 4, 40);
    }
    assert_true(given.norm_reference == 20);
    struct lh_frame f = push_of(ME, 9);
    f.base_others = 8;
    f.steps = UINT32_MAX;
    double bound = ps_norm_bound(s, &GATE, &f);
    assert_true(fabs(bound - 200 * sqrt(8 * 4)) < 1e-9);
}

// One of three alone can't move the reference up or down, and the others' pushes go in whole.
ON_SHARD(one_of_three_does_not_move_the_reference, struct ps_shard *s)
{
    live(s, 3);
    for (int i = 0; i < 8; i++)
        for (uint64_t w = ME; w < ME + 3; w++) push_norm(s, w, 1, 20);
    double x = 20;
    for (int i = 0; i < 200; i++) {
        struct ps_decision d = push_norm(s, ME + 2, 1, x);
        if (whole(&d)) x *= 1.5;
        d = push_norm(s, ME, 1, 20);
        assert_true(whole(&d));
        assert_true(given.norm_reference <= 20);
    }
    for (int i = 0; i < 200; i++) {
        struct ps_decision d = push_norm(s, ME + 1, 1, 1e-9);
        d = push_norm(s, ME, 1, 20);
        assert_true(whole(&d) || given.norm_reference > 0);
    }
}

// One of two lies: the other's pushes go in whole, and the liar's stay bounded.
ON_SHARD(one_of_two_does_not_move_the_reference, struct ps_shard *s)
{
    double x = 1e30;
    push_norm(s, OTHER, 1, x); // the liar comes first
    for (int i = 0; i < 100; i++) {
        struct ps_decision d = push_norm(s, ME, 1, 20);
        assert_true(whole(&d));
        d = push_norm(s, OTHER, 1, x);
        assert_true(d.kind == LH_REFUSE || (double)d.scale * x <= 0.5 * 200 * (1 + 1e-6));
    }
    assert_true(given.norm_reference == 20);
}

ON_SHARD(next_to_nothing_does_not_shut_the_other_out, struct ps_shard *s)
{
    push_norm(s, OTHER, 1, 1e-12);
    for (int i = 0; i < 100; i++) {
        struct ps_decision d = push_norm(s, ME, 1, 3); // 3 % of the shard
        assert_true(whole(&d));
        d = push_norm(s, ME, 1, 30); // clipped, but never set aside
        assert_int_equal(d.kind, LH_ADMIT);
        assert_false(d.noted.outlier);
        push_norm(s, OTHER, 1, 1e-12);
    }
}

ON_SHARD(the_reference_grows_by_a_bounded_factor, struct ps_shard *s)
{
    for (int i = 0; i < 8; i++) {
        push_norm(s, ME, 1, 1);
        push_norm(s, OTHER, 1, 1);
    }
    for (int i = 0; i < 4; i++) { // both at once, as in a warm-up: their medians follow
        double before = given.norm_reference;
        push_norm(s, ME, 1, 9);
        push_norm(s, OTHER, 1, 9);
        assert_true(given.norm_reference <= before * 1.25 * 1.25 * (1 + 1e-12));
    }
    for (int i = 0; i < 20; i++) {
        push_norm(s, ME, 1, 9);
        push_norm(s, OTHER, 1, 9);
    }
    assert_true(given.norm_reference == 9);
}

// All grow together and are clipped for a while; none is an outlier.
ON_SHARD(a_worker_growing_with_the_others_is_no_outlier, struct ps_shard *s)
{
    live(s, 3);
    double x = 1;
    for (int i = 0; i < 60; i++, x *= 1.6)
        for (uint64_t w = ME; w < ME + 3; w++) {
            struct ps_decision d = push_norm(s, w, 1, x);
            assert_int_equal(d.kind, LH_ADMIT);
            assert_false(d.noted.outlier);
        }
}

ON_SHARD(after_ten_outliers_a_worker_is_set_aside_until_it_is_let_back, struct ps_shard *s)
{
    live(s, 3);
    for (int i = 0; i < 8; i++)
        for (uint64_t w = ME; w < ME + 3; w++) push_norm(s, w, 1, 1);
    struct ps_decision d = {0};
    for (int i = 0; i < LH_OUTLIERS_MAX - 1; i++) push_norm(s, ME, 1, 1e6);
    d = push_norm(s, ME, 1, 1); // a push within the bound: the count starts again
    assert_true(whole(&d));
    for (int i = 0; i < LH_OUTLIERS_MAX; i++) {
        // two voices suffice, even for a push that the shard's own size would explain
        d = push_norm(s, ME, 1, i % 2 ? 500 : 1e6);
        assert_true(d.kind == LH_ADMIT && d.noted.outlier);
    }
    d = push_norm(s, ME, 1, 1);
    assert_refused(&d, LH_ERR_SET_ASIDE);
    d = push_norm(s, OTHER, 1, 1);
    assert_true(whole(&d));
    struct lh_plan *plan = malloc(sizeof *plan);
    *plan = given.plan;
    plan->number++;
    plan->lets_back = 1;
    plan->let_back[0] = (struct lh_let_back){ME, 1};
    for (int i = 0; i < 2; i++, plan->number++) { // saying it twice lets the worker back once
        struct lh_buf b = lh_buf(LH_SMALL_BYTES);
        lh_plan_write(plan, &b);
        apply(s, (struct lh_record){.kind = LH_PLAN, .body = lh_buf_span(&b)});
        lh_buf_free(&b);
        d = push_norm(s, ME, 1, 1);
        assert_true(i == 0 ? whole(&d) : d.error == LH_ERR_SET_ASIDE);
        for (int k = 0; k < LH_OUTLIERS_MAX; k++) push_norm(s, ME, 1, 1e6);
    }
    free(plan);
}

// The shard's norm is 100. Pushes of 90 are 90 times the others' and are clipped, but local steps
// can move a shard by that.
ON_SHARD(two_with_little_to_train_do_not_set_the_third_aside, struct ps_shard *s)
{
    live(s, 3);
    for (int i = 0; i < 3 * LH_OUTLIERS_MAX; i++) {
        push_norm(s, OTHER, 1, 1);
        push_norm(s, ME + 2, 1, 1);
        struct ps_decision d = push_norm(s, ME, i % 2 ? 1 : 8, 90);
        assert_int_equal(d.kind, LH_ADMIT);
        assert_false(d.noted.outlier);
        assert_true(d.noted.clipped || i < LH_NORMS);
    }
    struct ps_decision d = push_norm(s, ME, 1, 101);
    assert_true(d.noted.outlier);
}

// Empty pushes of workers without data make no outlier of a worker that trains.
ON_SHARD(empty_pushes_do_not_count_among_the_norms, struct ps_shard *s)
{
    live(s, 3);
    for (int i = 0; i < 8; i++)
        for (uint64_t w = ME; w < ME + 3; w++) push_norm(s, w, 1, 1);
    for (int i = 0; i < 30; i++) {
        push_norm(s, ME, 0, 1e-3);
        push_norm(s, OTHER, 1, 0);
        struct ps_decision d = push_norm(s, ME + 2, 1, 1);
        assert_true(whole(&d));
    }
}

// A worker that was always far too large is set aside by one other voice. A worker whose data make
// larger pushes is not, whatever its H.
ON_SHARD(one_of_two_that_was_always_too_large_is_set_aside, struct ps_shard *s)
{
    struct ps_decision d = {0};
    for (int i = 0; i < 3 * LH_OUTLIERS_MAX; i++) {
        d = push_norm(s, OTHER, 1, 2e3);
        struct ps_decision honest = push_norm(s, ME, 1, 1);
        assert_true(whole(&honest));
    }
    assert_refused(&d, LH_ERR_SET_ASIDE);
}

ON_SHARD(one_of_two_with_other_data_is_not_set_aside, struct ps_shard *s)
{
    for (int i = 0; i < 3 * LH_OUTLIERS_MAX; i++) {
        struct ps_decision d = push_norm(s, OTHER, i % 2 ? 1 : 64, 40);
        assert_int_equal(d.kind, LH_ADMIT);
        assert_false(d.noted.outlier);
        d = push_norm(s, ME, 1, 1);
        assert_true(whole(&d));
    }
}

// A worker that reports no steps is no voice. It does not keep the first bound, the shard's size,
// in force.
ON_SHARD(no_steps_do_not_keep_the_first_bound, struct ps_shard *s)
{
    for (int i = 0; i < 60; i++) {
        struct ps_decision d = push_norm(s, OTHER, 0, 90);
        double moved = (double)d.scale * 90;
        assert_true(moved <= (i < LH_NORMS ? 0.5 * 90 : 0.5 * 10) * (1 + 1e-6));
        d = push_norm(s, ME, 1, 1);
        assert_true(whole(&d));
    }
    assert_true(given.norm_reference == 1);
}

// The only voice beside a silent worker moves the reference alone, but the shard's size still
// bounds it.
ON_SHARD(one_voice_beside_silence_is_bounded_by_the_shards_size, struct ps_shard *s)
{
    double x = 1;
    for (int i = 0; i < LH_NORMS; i++) push_norm(s, OTHER, 0, 0);
    for (int i = 0; i < 200; i++) {
        struct ps_decision d = push_norm(s, ME, 1, x);
        assert_true((double)d.scale * x <= 0.5 * 100 * (1 + 1e-6));
        if (whole(&d)) x *= 1.5;
    }
    assert_true(given.norm_reference > 10);
}

// A reference made by one voice, while the other live worker was silent, is dropped at the other
// one's first norm.
ON_SHARD(the_second_voice_sets_the_reference_anew, struct ps_shard *s)
{
    push_norm(s, OTHER, 1, 1e30);
    for (int i = 0; i < LH_NORMS; i++) push_norm(s, ME, 1, 0);
    push_norm(s, OTHER, 1, 1e30);
    assert_true(given.norm_reference > 100);
    push_norm(s, ME, 1, 5);
    assert_true(given.norm_reference == 5);
    struct ps_decision d = push_norm(s, OTHER, 1, 1e30);
    assert_true((double)d.scale * 1e30 <= 0.5 * 50 * (1 + 1e-6));
}

// A worker with nearly empty pushes does not hold the reference down once two others are heard.
ON_SHARD(the_third_voice_sets_the_reference_anew, struct ps_shard *s)
{
    live(s, 3);
    push_norm(s, OTHER, 1, 1e-12);
    for (int i = 0; i < LH_NORMS; i++) push_norm(s, ME, 1, 1);
    assert_true(given.norm_reference < 1e-11);
    push_norm(s, ME + 2, 1, 2);
    assert_true(given.norm_reference == 1);
    struct ps_decision d = push_norm(s, ME + 2, 1, 2);
    assert_true(whole(&d));
    live(s, 4);
    push_norm(s, ME + 3, 1, 50); // the fourth one resets nothing: its first push is one voice more
    assert_true(given.norm_reference == 1);
}

ON_SHARD(a_worker_without_a_row_is_compared_too, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME + 7, 1);
    struct ps_decision d;
    for (int i = 0; i < LH_NORMS; i++) { // a worker's first pushes are small
        push_norm(s, OTHER, 1, 1);
        d = value_of(s, GATE, &f, LH_OK, 1e4);
        assert_int_equal(d.noted.outlier, i == LH_NORMS - 1);
    }
    d = value_of(s, GATE, &f, LH_OK, 500); // large, but the shard's own size explains it
    assert_true(d.noted.clipped && !d.noted.outlier);
    push_norm(s, ME, 1, 1e4);
    f = push_of(ME, 2);
    d = value_of(s, GATE, &f, LH_OK, 2e3); // as its own last push, which is no excuse
    assert_true(d.noted.outlier);
    struct ps_gate huge = {10, 0, 1e40, 0};
    given.norm_reference = 1e39;
    d = value_of(s, huge, &f, LH_OK, 1e39);
    assert_true(d.noted.at_equal_h >= FLT_MAX);
}

// A worker whose push was too large would send it again together with later progress, so every norm
// gets in.
ON_SHARD(no_norm_is_refused, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    for (int i = 0; i < 2; i++) {
        for (double n = 1; n < 1e12; n *= 3) {
            struct ps_decision d = value_of(s, GATE, &f, LH_OK, n);
            assert_int_equal(d.kind, LH_ADMIT);
            assert_true((double)d.scale * n <= 0.5 * 100 * (1 + 1e-6));
        }
        push_norm(s, OTHER, 1, 1);
        f.base_others = 1;
    }
}

// Noise makes up most of a private push, so its norm says nothing of others' pushes. The push is
// bounded by its noise, makes no outlier, and is no voice.
ON_SHARD(a_private_push_is_bounded_by_its_noise, struct ps_shard *s)
{
    given.plan.exceptions = 1;
    given.plan.exception[0] = (struct lh_plan_exception){ME, LH_DATA_PRIVATE};
    given.plan.privacy = (struct lh_privacy){
        .level = LH_PRIVACY_REGION, .sigma = 3, .clip = 2, .rate = 1, .steps = 20};
    struct lh_frame f = push_of(ME, 1);
    f.charged = 1;
    double bound = lh_privacy_norm_max(&given.plan.privacy, f.values, SHARDS);
    struct ps_decision d = value_of(s, GATE, &f, LH_OK, bound);
    assert_true(whole(&d) && d.noted.at_equal_h == 0);
    d = value_of(s, GATE, &f, LH_OK, 1000 * bound);
    assert_true(d.kind == LH_ADMIT && d.noted.clipped && !d.noted.outlier);
    assert_true(d.noted.at_equal_h == 0);
    assert_true((double)d.scale * 1000 * bound <= 0.5 * bound * (1 + 1e-6));
}

ON_SHARD(one_voice_of_two_does_not_raise_the_bound_above_the_shards_size, struct ps_shard *s)
{
    struct lh_frame f = push_of(OTHER, 1);
    given.plan.live = 1;
    for (int i = 0; i < 8; i++) push_norm(s, ME, 1, 1);
    given.plan.live = 2; // the other worker begins
    assert_true(ps_norm_bound(s, &GATE, &f) == 10);
    given.plan.live = 1;
    for (int i = 0; i < 5000 && given.norm_reference < 20; i++) push_norm(s, ME, 1, 90);
    assert_true(ps_norm_bound(s, &GATE, &f) >= 200);
    given.plan.live = 2;
    assert_true(ps_norm_bound(s, &GATE, &f) == 100);
}
