// The worker's local view: progress survives a new base, is taken once, and comes back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/view.h"

enum { N = 5 };
// Values are small integers and halves, so every result is exact.
static const float THETA[N] = {8, -4, 0, 16, 2}, NEXT[N] = {10, -6, 1, 16, 4};
static const float RESIDUAL[N] = {2, 4, -2, 0, 6}, PROGRESS[N] = {1, -1, 3, 0, -2};

static void train(float *local)
{
    for (int i = 0; i < N; i++) local[i] += PROGRESS[i];
}

static void starts_on_the_base_less_part_of_the_residual(void **state)
{
    (void)state;
    float local[N], anchor[N];
    lk_view_start(THETA, 0.5f, RESIDUAL, local, anchor, N);
    const float expected[N] = {7, -6, 1, 16, -1};
    for (int i = 0; i < N; i++) {
        assert_float_equal(local[i], expected[i], 0);
        assert_float_equal(anchor[i], expected[i], 0);
    }
}

static void keeps_progress_over_a_new_base(void **state)
{
    (void)state;
    float local[N], anchor[N];
    lk_view_start(THETA, 0.5f, RESIDUAL, local, anchor, N);
    train(local);
    lk_view_renew(NEXT, 0.5f, RESIDUAL, local, anchor, N);
    for (int i = 0; i < N; i++) {
        assert_float_equal(anchor[i], NEXT[i] - 0.5f * RESIDUAL[i], 0);
        assert_float_equal(local[i] - anchor[i], PROGRESS[i], 0);
    }
}

static void takes_progress_once_as_base_minus_local(void **state)
{
    (void)state;
    float local[N], anchor[N], out[N];
    lk_view_start(THETA, 0, RESIDUAL, local, anchor, N);
    train(local);
    lk_view_cut(0.5f, RESIDUAL, local, anchor, out, N);
    for (int i = 0; i < N; i++) {
        assert_float_equal(out[i], 0.5f * RESIDUAL[i] - PROGRESS[i], 0);
        assert_float_equal(anchor[i], local[i], 0);
    }
    lk_view_cut(0.5f, RESIDUAL, local, anchor, out, N);
    for (int i = 0; i < N; i++) assert_float_equal(out[i], 0.5f * RESIDUAL[i], 0);
}

// A trainer beside the worker: the view for it, and a delta that it brings.
static void says_the_same_of_parameters_that_are_elsewhere(void **state)
{
    (void)state;
    float local[N], anchor[N], out[N], view[N], delta[N];
    lk_view_start(THETA, 0.5f, RESIDUAL, local, anchor, N);
    lk_view_of(THETA, 0.5f, RESIDUAL, view, N);
    assert_memory_equal(view, anchor, sizeof view);
    train(local);
    for (int i = 0; i < N; i++) delta[i] = anchor[i] - local[i];
    lk_view_cut(0.5f, RESIDUAL, local, anchor, out, N);
    lk_view_feed(0.5f, RESIDUAL, delta, N);
    assert_memory_equal(delta, out, sizeof out);
}

static void gives_a_cut_back(void **state)
{
    (void)state;
    float local[N], anchor[N], out[N];
    lk_view_start(THETA, 0.5f, RESIDUAL, local, anchor, N);
    train(local);
    lk_view_cut(0.5f, RESIDUAL, local, anchor, out, N);
    train(local); // training went on meanwhile
    lk_view_uncut(0.5f, RESIDUAL, out, anchor, N);
    for (int i = 0; i < N; i++) assert_float_equal(local[i] - anchor[i], 2 * PROGRESS[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_on_the_base_less_part_of_the_residual),
        cmocka_unit_test(keeps_progress_over_a_new_base),
        cmocka_unit_test(takes_progress_once_as_base_minus_local),
        cmocka_unit_test(says_the_same_of_parameters_that_are_elsewhere),
        cmocka_unit_test(gives_a_cut_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
