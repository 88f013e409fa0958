// AdamW, clipping and the schedule against PyTorch's results (tests/fixtures/trainer); the
// exponential and the generator of initial values.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/layers/expf.h"
#include "kernels/optimizer.h"
#include "tests/test.h"
#include "worker/train/schedule.h"

static float fixture_value(int i, int step)
{
    return (float)(((i * 7919 + step * 104729) % 2003 - 1001) / 1001.0);
}

TEST(adamw_agrees_with_torch)
{
    enum { N = 24 };
    int n, matrix, steps;
    double beta1, beta2, eps, decay, limit;
    FILE *f = fopen("tests/fixtures/trainer/adamw.txt", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d %d %d %lf %lf %lf %lf %lf", &n, &matrix, &steps, &beta1, &beta2,
                            &eps, &decay, &limit),
                     8);
    assert_true(n == N);
    float p[N], g[N], m[N] = {0}, v[N] = {0};
    for (int i = 0; i < N; i++) p[i] = fixture_value(i, 0);
    for (int step = 1; step <= steps; step++) {
        double norm, want_norm;
        for (int i = 0; i < N; i++) g[i] = fixture_value(i, step) * (step % 3 ? 1.0f : 0.1f);
        norm = sqrt(lk_sum_squares(N, g));
        struct lk_adamw c = {0.01 / (1.0 + 0.1 * step), beta1, beta2, eps, (uint64_t)step,
                             lk_clip_scale(norm, limit)};
        size_t first = (size_t)matrix, rest = (size_t)(N - matrix);
        lk_adamw(&c, decay, first, g, m, v, p);
        lk_adamw(&c, 0.0, rest, g + first, m + first, v + first, p + first);
        assert_int_equal(fscanf(f, "%lf", &want_norm), 1);
        assert_true(fabs(norm / want_norm - 1.0) < 1e-6);
        for (int i = 0; i < N; i++) {
            double want;
            assert_int_equal(fscanf(f, "%lf", &want), 1);
            assert_true(fabs((double)p[i] - want) < 1e-6 + 1e-6 * fabs(want));
        }
    }
    fclose(f);
}

// lk_adamw_into() gives the bits of lk_adamw(), leaves its inputs as they are, and may write the
// parameters over the gradient.
TEST(a_step_goes_into_other_arrays)
{
    enum { N = 1003 };
    static float g[N], a[3][N], was[3][N], to[2][N], in_place[3][N];
    const struct lk_adamw c = {1e-2, 0.9, 0.95, 1e-8, 3, 0.5f};
    lk_normal_fill(1, 0, 1, N, g);
    for (int k = 0; k < 3; k++) lk_normal_fill(2, (uint64_t)k, 1, N, a[k]);
    for (int i = 0; i < N; i++) a[1][i] *= a[1][i];
    memcpy(was, a, sizeof was);
    memcpy(in_place, a, sizeof in_place);
    lk_adamw(&c, 0.1, N, g, in_place[0], in_place[1], in_place[2]);
    lk_adamw_into(&c, 0.1, N, g, &(struct lk_adamw_from){a[0], a[1], a[2]},
                  &(struct lk_adamw_to){to[0], to[1], g});
    assert_memory_equal(was, a, sizeof was);
    assert_memory_equal(to[0], in_place[0], sizeof to[0]);
    assert_memory_equal(to[1], in_place[1], sizeof to[1]);
    assert_memory_equal(g, in_place[2], sizeof g);
}

TEST(clipping_is_torchs)
{
    assert_true(lk_clip_scale(0.5, 1.0) == 1.0f);
    assert_true(lk_clip_scale(8.0, 0.0) == 1.0f);
    assert_true(lk_clip_scale(4.0, 1.0) == (float)(1.0 / (4.0 + 1e-6)));
    float bad[3] = {1.0f, NAN, 2.0f}, large[2] = {3e38f, 3e38f};
    assert_true(!isfinite(lk_sum_squares(3, bad)));
    assert_true(isfinite(lk_sum_squares(2, large)) != 0);
}

// Lanes are counted from the first value, so alignment does not change the sum.
TEST(norms_do_not_depend_on_addresses)
{
    enum { N = 1003 };
    static float room[N + 16];
    double first = 0.0;
    for (size_t shift = 0; shift < 16; shift++) {
        for (int i = 0; i < N; i++) room[shift + (size_t)i] = fixture_value(i, 4);
        double sum = lk_sum_squares(N, room + shift);
        if (shift == 0) first = sum;
        assert_true(sum == first);
    }
}

TEST(schedule_agrees_with_torch)
{
    FILE *f = fopen("tests/fixtures/trainer/schedule.txt", "r");
    assert_non_null(f);
    unsigned long long budget, credited;
    double warmup, peak, min_ratio, want;
    int lines = 0;
    while (fscanf(f, "%llu %lf %lf %lf %llu %lf", &budget, &warmup, &peak, &min_ratio, &credited,
                  &want) == 6) {
        struct wk_schedule s = {budget, warmup, peak, min_ratio, 0, 0, 0};
        double rate = wk_schedule_rate(&s, credited);
        assert_true(fabs(rate - want) < 1e-9 * peak);
        lines++;
    }
    fclose(f);
    assert_true(lines > 40);
}

TEST(schedule_holds_at_its_ends)
{
    struct wk_schedule s = {1000, 0.1, 2.0, 0.25, 0, 0, 0};
    assert_true(wk_schedule_rate(&s, 0) == 0.5);
    assert_true(wk_schedule_rate(&s, 100) == 2.0);
    assert_true(wk_schedule_rate(&s, 1000) == 0.5);
    assert_true(wk_schedule_rate(&s, UINT64_MAX) == 0.5);
    for (uint64_t at = 100; at < 1000; at++)
        assert_true(wk_schedule_rate(&s, at) > wk_schedule_rate(&s, at + 1));
    s = (struct wk_schedule){0, 0.1, 2.0, 0.25, 0, 0, 0};
    assert_true(wk_schedule_rate(&s, 0) == 0.5);
    s = (struct wk_schedule){10, 1.0, 2.0, 0.25, 0, 0, 0};
    assert_true(wk_schedule_rate(&s, 10) == 0.5);
    assert_true(wk_schedule_rate(&s, 9) > 1.8);
}

TEST(schedule_stays_at_its_peak_until_it_decays)
{
    struct wk_schedule s = {1000, 0.1, 2.0, 0.25, 0.2, 0, 0};
    assert_true(wk_schedule_rate(&s, 50) < 2.0);
    for (uint64_t at = 100; at <= 800; at += 50) assert_true(wk_schedule_rate(&s, at) == 2.0);
    assert_true(fabs(wk_schedule_rate(&s, 900) - 2.0 * (0.25 + 0.75 / 2)) < 1e-12);
    for (uint64_t at = 800; at < 1000; at++)
        assert_true(wk_schedule_rate(&s, at) > wk_schedule_rate(&s, at + 1));
    assert_true(wk_schedule_rate(&s, 1000) == 0.5);
    struct wk_schedule all = {1000, 0.1, 2.0, 0.25, 0.9, 0, 0},
                       none = {1000, 0.1, 2.0, 0.25, 0, 0, 0};
    s.decay = 1; // longer than the rest after the warm-up: decays over all of that rest
    for (uint64_t at = 0; at < 1000; at += 50) {
        assert_true(wk_schedule_rate(&s, at) == wk_schedule_rate(&none, at));
        assert_true(fabs(wk_schedule_rate(&all, at) - wk_schedule_rate(&none, at)) < 1e-12);
    }
}

TEST(exponential_keeps_its_bound)
{
    double worst = 0.0;
    for (double x = -87.0; x <= 88.0; x += 1.37e-4) {
        float at = (float)x;
        double error = fabs((double)lk_expf(at) / exp((double)at) - 1.0);
        worst = error > worst ? error : worst;
    }
    print_message("lk_expf: worst relative error %.3e\n", worst);
    assert_true(worst < 1e-7);
    assert_true(lk_expf(0.0f) == 1.0f);
    assert_true(lk_expf(-1e30f) == lk_expf(-87.0f) && lk_expf(-INFINITY) < 2e-38f);
    assert_true(isnan(lk_expf(NAN)) != 0);
}

TEST(normal_is_counter_based)
{
    float whole[9], part[4];
    lk_normal_fill(5, 3, 2.0, 9, whole);
    lk_normal_fill(5, 3, 2.0, 4, part);
    assert_memory_equal(whole, part, sizeof part);
    lk_normal_fill(5, 4, 2.0, 4, part);
    assert_memory_not_equal(whole, part, sizeof part);
    lk_normal_fill(6, 3, 2.0, 4, part);
    assert_memory_not_equal(whole, part, sizeof part);
}

// A changed budget does not make the rate jump: it goes in a line from its old value to the new
// budget's schedule.
TEST(a_changed_budget_ramps)
{
    const struct wk_schedule was = {1000, 0.1, 2.0, 0.1, 0, 0, 0};
    struct wk_schedule is = {2000, 0.1, 2.0, 0.1, 0, 1000, 600},
                       fresh = {2000, 0.1, 2.0, 0.1, 0, 0, 0};
    for (uint64_t at = 0; at <= 600; at += 100)
        assert_true(wk_schedule_rate(&is, at) == wk_schedule_rate(&was, at));
    assert_true(wk_schedule_rate(&fresh, 600) > wk_schedule_rate(&was, 600) + 0.5);
    double before = wk_schedule_rate(&is, 600);
    for (uint64_t at = 601; at < 2100; at++) { // the ramp takes 140 tokens
        double rate = wk_schedule_rate(&is, at);
        assert_true(fabs(rate - before) < 0.02);
        if (at >= 740) assert_true(rate == wk_schedule_rate(&fresh, at));
        before = rate;
    }
    is.changed_tokens = 2000; // the new budget is already met
    assert_true(wk_schedule_rate(&is, 2000) == wk_schedule_rate(&fresh, 2000));
}
