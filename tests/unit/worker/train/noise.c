// worker/train/noise.c: the measured noise scale of a gradient whose noise is known, and the
// warm-up that waits for it.
#include <math.h>

#include "common/base/check.h"
#include "kernels/optimizer.h"
#include "tests/test.h"
#include "worker/train/noise.h"

enum { DIMENSIONS = 200, BATCH = 8, FIRST = 2, STEPS = 400 };

// Each sequence's gradient is (1, 1, ...) plus normal noise of this deviation, so |G|^2 is
// DIMENSIONS and tr(S) deviation^2 * DIMENSIONS: their ratio is deviation^2.
static void add_step(struct wk_noise *n, uint64_t step, double deviation, uint32_t ranks)
{
    static float sequence[DIMENSIONS];
    double whole[DIMENSIONS] = {0}, first[DIMENSIONS];
    struct wk_gathered sum = {.samples = ranks};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        double square = 0;
        for (int d = 0; d < DIMENSIONS; d++) first[d] = 0;
        for (uint32_t s = 0; s < BATCH / ranks; s++) {
            lk_normal_fill(step, rank * BATCH + s, deviation, DIMENSIONS, sequence);
            for (int d = 0; d < DIMENSIONS; d++) {
                // gradients of a pass are parts of the mean
                double g = (1.0 + (double)sequence[d]) / BATCH;
                whole[d] += g;
                if (s < FIRST) first[d] += g;
            }
        }
        for (int d = 0; d < DIMENSIONS; d++) square += first[d] * first[d];
        sum.sample[rank] = (struct wk_share){.first = FIRST, .first_square = square};
    }
    double square = 0;
    for (int d = 0; d < DIMENSIONS; d++) square += whole[d] * whole[d];
    wk_noise_add(n, square, BATCH, &sum);
}

TEST(the_ratio_is_that_of_the_noise)
{
    static const double deviation[] = {0.5, 1, 3};
    for (size_t i = 0; i < LH_COUNT(deviation); i++)
        for (uint32_t ranks = 1; ranks <= 2; ranks++) {
            struct wk_noise n = {0};
            for (uint64_t step = 0; step < STEPS; step++) add_step(&n, step, deviation[i], ranks);
            double want = deviation[i] * deviation[i] / BATCH;
            assert_true(fabs(wk_noise_ratio(&n, BATCH) / want - 1) < 0.15);
            // a step twice as large
            assert_true(fabs(wk_noise_ratio(&n, 2 * BATCH) / want - 0.5) < 0.1);
        }
}

TEST(nothing_is_said_without_a_sample)
{
    struct wk_noise n = {0};
    struct wk_gathered sum = {0};
    wk_noise_add(&n, 1, BATCH, &sum);
    sum.samples = 1;
    // the whole step is no sample
    sum.sample[0] = (struct wk_share){.first = BATCH, .first_square = 1};
    wk_noise_add(&n, 1, BATCH, &sum);
    sum.sample[0] = (struct wk_share){.first = FIRST, .first_square = NAN};
    wk_noise_add(&n, 1, BATCH, &sum);
    assert_int_equal(n.steps, 0);
    assert_true(wk_noise_ratio(&n, BATCH) == 0);
    n = (struct wk_noise){.signal = -1, .variance = 5, .steps = 30};
    assert_true(isinf(wk_noise_ratio(&n, BATCH)));
}

static const struct wk_warmup_conf conf = {
    .threshold = 0.5, .hold = 0.1, .cap_tokens = 10000, .ramp_tokens = 1000};

TEST(the_rate_is_held_until_the_noise_falls)
{
    struct wk_warmup w = {0};
    uint64_t credited = 0;
    for (; credited < 100; credited++) { // ratio 9/8: above the threshold
        add_step(&w.noise, credited, 3, 1);
        wk_warmup_step(&w, &conf, BATCH, credited);
        assert_true(!w.released && wk_warmup_factor(&w, &conf, credited) == 0.1);
    }
    for (; !w.released && credited < 1000; credited++) { // ratio 1/32
        add_step(&w.noise, credited, 0.5, 1);
        wk_warmup_step(&w, &conf, BATCH, credited);
    }
    assert_true(w.released && credited > 101); // the average follows slowly
    uint64_t at = w.released_at;
    assert_int_equal(at, credited - 1);
    assert_true(wk_warmup_factor(&w, &conf, at) == 0.1);
    assert_true(fabs(wk_warmup_factor(&w, &conf, at + 500) - 0.55) < 1e-12);
    assert_true(wk_warmup_factor(&w, &conf, at + 1000) == 1);
    add_step(&w.noise, 1, 30, 1);
    wk_warmup_step(&w, &conf, BATCH, at + 1); // once released, it stays released
    assert_true(w.released && w.released_at == at);
}

TEST(the_cap_releases_it_in_any_case)
{
    struct wk_warmup w = {0};
    add_step(&w.noise, 1, 3, 1);
    wk_warmup_step(&w, &conf, BATCH, conf.cap_tokens - 1);
    assert_false(w.released);
    wk_warmup_step(&w, &conf, BATCH, conf.cap_tokens);
    assert_true(w.released);
}

TEST(a_few_quiet_steps_are_not_enough)
{
    struct wk_warmup w = {0};
    for (uint64_t step = 1; step <= WK_WARMUP_STEPS; step++) {
        assert_false(w.released);
        add_step(&w.noise, step, 0.1, 1);
        wk_warmup_step(&w, &conf, BATCH, step);
    }
    assert_true(w.released);
}

TEST(off_means_the_schedule_alone)
{
    struct wk_warmup_conf off = conf;
    struct wk_warmup w = {0};
    off.threshold = 0;
    assert_true(wk_warmup_factor(&w, &off, 0) == 1);
    wk_warmup_step(&w, &off, BATCH, conf.cap_tokens);
    assert_false(w.released);
}
