// The accountants against published values, against each other, and properties that all must have.
//
// Reference values: dp-accounting 0.6.0 (RDP with its default orders; PLD at 1e-4) and Opacus.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/privacy/account.h"
#include "common/privacy/fft.h"
#include "common/privacy/gaussian.h"
#include "common/privacy/normal.h"
#include "common/privacy/pld.h"
#include "common/privacy/rdp.h"
#include "tests/test.h"

static bool near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

static double by(enum lh_accountant a, double sigma, double q, uint64_t steps, double delta)
{
    double epsilon = -1;
    struct lh_account_terms t = {sigma, q, steps, delta};
    assert_int_equal(lh_account_epsilon(a, &t, &epsilon), LH_OK);
    return epsilon;
}

TEST(reference_values)
{
    static const struct {
        double sigma, q;
        uint64_t steps;
        double delta, rdp, pld;
    } row[] = {
        {1.5, 0.04, 2250, 1e-5, 7.329335, 6.768787},
        {1.0, 0.01, 1000, 1e-5, 2.101367, 1.828244},
        {1.1, 256.0 / 60000, 14062, 1e-5, 2.596556, 2.381686},
        {1.3, 250.0 / 60000, 3600, 1e-5, 0.942200, 0.853030},
        {0.8, 0.001, 20000, 1e-6, 1.897196, 1.286152},
        {1.5, 0.05, 1000, 1e-6, 6.667814, 6.199695},
        {2.0, 0.05, 1000, 1e-6, 4.475501, 4.162611},
        {3.0, 0.2, 100, 1e-6, 3.639665, 3.371055},
        {0.8, 0.2, 100, 1e-6, 26.477500, 24.322620},
        {4.0, 1, 200, 1e-6, 23.703891, 22.424516},
        {10, 1, 500, 1e-6, 13.376379, 12.595247},
        {1, 1, 1, 1e-5, 4.728507, 4.377178},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        double sigma = row[i].sigma, q = row[i].q, delta = row[i].delta;
        double rdp = by(LH_ACCOUNTANT_RDP, sigma, q, row[i].steps, delta);
        double pld = by(LH_ACCOUNTANT_PLD, sigma, q, row[i].steps, delta);
        assert_true(near(rdp, row[i].rdp, 5e-5));
        assert_true(near(pld, row[i].pld, 5e-5));
        if (q < 1) continue;
        double exact = by(LH_ACCOUNTANT_ANALYTIC, sigma, q, row[i].steps, delta);
        assert_true(near(exact, row[i].pld, 1e-6));
        assert_true(pld >= exact * (1 - 1e-9) && pld < exact * 1.001);
    }
}

// Opacus' accountants_test: divergences of 50 steps, q = 0.01, sigma = 2.5.
TEST(divergences)
{
    static const double order[] = {1.5, 2.5, 5, 50, 100};
    static const double want[] = {6.70579741e-4, 1.08548710e-3, 2.18075656e-3, 2.38460375e-2,
                                  167.416308};
    for (size_t i = 0; i < LH_COUNT(order); i++)
        assert_true(near(50 * lh_rdp_step(2.5, 0.01, order[i]), want[i], 1e-6));
    assert_true(near(lh_rdp_step(2, 1, 3), 3.0 / 8, 1e-15));
    assert_true(lh_rdp_step(2, 0, 3) == 0);
    for (size_t i = 1; i < LH_RDP_ORDERS; i++) assert_true(lh_rdp_order(i) > lh_rdp_order(i - 1));
    for (size_t i = 0; i < LH_RDP_ORDERS; i++) { // our conversion is never worse
        double a = lh_rdp_order(i), r = lh_rdp_step(1, 0.1, a);
        assert_true(lh_rdp_epsilon(r, a, 1e-6) <= r + log(1e6) / (a - 1)); // arXiv 1702.07476
    }
}

TEST(exact_curve)
{
    static const double row[][3] = {// epsilon, delta, sigma of one step
                                    {0.5, 1e-5, 7.031827}, {1, 1e-5, 3.730632}, {1, 1e-6, 4.224679},
                                    {2, 1e-6, 2.230476},   {4, 1e-6, 1.193519}, {8, 1e-5, 0.600229},
                                    {8, 1e-6, 0.652935}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        double mu = 1 / row[i][2], epsilon = lh_gaussian_epsilon(mu, row[i][1]);
        assert_true(near(epsilon, row[i][0], 2e-6));
        assert_true(lh_gaussian_delta(mu, epsilon) <= row[i][1]);
        assert_true(near(lh_gaussian_delta(mu, epsilon), row[i][1], 1e-9));
    }
    static const double sigmas[][4] = {// epsilon 8, 4, 1 at 1e-6
                                       {50, 4.617, 8.439, 29.873},
                                       {200, 9.234, 16.879, 59.746},
                                       {1000, 20.648, 37.742, 133.60}};
    static const double epsilon[] = {8, 4, 1};
    for (size_t i = 0; i < LH_COUNT(sigmas); i++)
        for (size_t j = 0; j < 3; j++)
            assert_true(near(lh_gaussian_epsilon(sqrt(sigmas[i][0]) / sigmas[i][j + 1], 1e-6),
                             epsilon[j], 1e-4));
    assert_true(lh_gaussian_epsilon(1e-9, 1e-6) == 0);
}

static uint64_t dice = 7;
static double uniform(double low, double high)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * ((double)(dice >> 11) / 9007199254740992.0);
}

// One step's epsilon in closed form: the privacy loss is monotone, so the curve needs no grid.
static double one_step(double sigma, double q, double delta)
{
    double low = 0, high = 200;
    for (int i = 0; i < 200; i++) {
        double e = (low + high) / 2, t = log1p(expm1(e) / q), x = sigma * sigma * t + 0.5;
        double all = lh_normal_above(x / sigma), one = lh_normal_above((x - 1) / sigma);
        double removed = q * one + (1 - q - exp(e)) * all, added = 0;
        double other = 1 + expm1(-e) / q; // e^t at the point where ADD's loss is e
        if (other > 0) {
            double y = sigma * sigma * log(other) + 0.5;
            double below = lh_normal_above(-y / sigma),
                   below_one = lh_normal_above((1 - y) / sigma);
            added = below - exp(e) * (q * below_one + (1 - q) * below);
        }
        if (fmax(removed, added) <= delta)
            high = e;
        else
            low = e;
    }
    return high;
}

// PLD is above the exact value and close to it; RDP is above PLD.
TEST(bounds_hold)
{
    int rounds = getenv("LH_TEST_QUICK") ? 5 : 15;
    for (int i = 0; i < rounds; i++) {
        double sigma = exp(uniform(log(0.35), log(20))), q = exp(uniform(log(1e-4), 0));
        double delta = exp(uniform(log(1e-9), log(1e-4)));
        double pld = by(LH_ACCOUNTANT_PLD, sigma, q, 1, delta), truth = one_step(sigma, q, delta);
        assert_true(pld >= truth * (1 - 1e-9) - 1e-12);
        assert_true(pld <= truth * 1.001 + 2e-5);
        uint64_t steps = (uint64_t)exp(uniform(0, log(20000)));
        pld = by(LH_ACCOUNTANT_PLD, sigma, q, steps, delta);
        assert_true(pld <= by(LH_ACCOUNTANT_RDP, sigma, q, steps, delta) * (1 + 1e-9) + 1e-6);
        if (q > 0.999) continue;
        assert_true(pld <= by(LH_ACCOUNTANT_ANALYTIC, sigma, 1, steps, delta) * 1.001 + 1e-4);
    }
}

TEST(monotone)
{
    double before[3] = {INFINITY, INFINITY, INFINITY};
    for (double sigma = 0.5; sigma < 40; sigma *= 1.7) { // decreases with sigma
        for (int a = 0; a < 2; a++) {
            double e = by((enum lh_accountant)a, sigma, 0.02, 500, 1e-6);
            assert_true(e < before[a]);
            before[a] = e;
        }
        double e = by(LH_ACCOUNTANT_ANALYTIC, sigma, 1, 500, 1e-6);
        assert_true(e < before[2]);
        before[2] = e;
    }
    for (int a = 0; a < 2; a++) {
        double last = 0;
        for (double q = 1e-4; q < 1; q *= 4) { // increases with q
            double e = by((enum lh_accountant)a, 1, q, 300, 1e-6);
            assert_true(e > last);
            last = e;
        }
        last = 0;
        for (uint64_t steps = 1; steps < 30000; steps *= 5) { // increases with steps
            double e = by((enum lh_accountant)a, 1.2, 0.01, steps, 1e-6);
            assert_true(e > last);
            last = e;
        }
        last = INFINITY;
        for (double delta = 1e-9; delta < 0.01; delta *= 30) { // decreases with delta
            double e = by((enum lh_accountant)a, 1.2, 0.01, 800, delta);
            assert_true(e < last);
            last = e;
        }
    }
}

// Results too large for a double, and smaller than a step of the grid.
TEST(extreme_terms)
{
    double huge = by(LH_ACCOUNTANT_PLD, 0.3, 1, 20000, 1e-6);
    double exact = by(LH_ACCOUNTANT_ANALYTIC, 0.3, 1, 20000, 1e-6);
    assert_true(huge >= exact && huge < 1.005 * exact && huge > 1e5);
    double small = by(LH_ACCOUNTANT_PLD, 50, 1e-6, 100, 1e-5);
    assert_true(small >= 0 && small < 1e-6);
    small = by(LH_ACCOUNTANT_PLD, 0.5, 1e-5, 20000, 1e-9);
    assert_true(small > 0 && small < by(LH_ACCOUNTANT_RDP, 0.5, 1e-5, 20000, 1e-9));
    assert_true(isfinite(by(LH_ACCOUNTANT_RDP, 0.1, 1e-6, 1000000, 1e-9)));
}

TEST(claims)
{
    struct lh_account_terms t = {1.5, 0.04, 2250, 1e-5};
    struct lh_account_price cost;
    double claim, at_delta;
    assert_int_equal(lh_account_prices(&t, &cost), LH_OK);
    assert_int_equal(lh_account_claim(&t, &claim), LH_OK);
    assert_true(claim == cost.claimed && claim == cost.epsilon[LH_ACCOUNTANT_PLD]);
    assert_true(isnan(cost.epsilon[LH_ACCOUNTANT_ANALYTIC]));
    // Part of delta is reserved for the sampler's error and truncated draws; accountants must not
    // spend it.
    at_delta = by(LH_ACCOUNTANT_PLD, 1.5, 0.04, 2250, 1e-5);
    assert_true(claim > at_delta && claim < at_delta * 1.001);
    assert_true(cost.delta_accounted + 2 * LH_ACCOUNT_SLACK * t.delta <= t.delta * (1 + 1e-15));
    t.steps = 0;
    assert_int_equal(lh_account_claim(&t, &claim), LH_OK);
    assert_true(claim == 0);
    t = (struct lh_account_terms){4, 1, 200, LH_ACCOUNT_DELTA_MIN};
    assert_int_equal(lh_account_prices(&t, &cost), LH_OK);
    assert_true(cost.claimed == cost.epsilon[LH_ACCOUNTANT_ANALYTIC]);
}

// The bound shown while a run goes on is never below the claim and not far above it.
TEST(the_bound_is_above_the_claim)
{
    static const struct lh_account_terms row[] = {{1.5, 0.04, 2250, 1e-5},
                                                  {0.69, 0.02, 41, 1e-5},
                                                  {0.8, 0.001, 20000, 1e-6},
                                                  {4, 1, 200, 1e-6}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_account_bound b;
        double claim;
        assert_int_equal(lh_account_claim(&row[i], &claim), LH_OK);
        lh_account_bound_make(row[i].sigma, row[i].q, &b);
        double bound = lh_account_bound(&b, (double)row[i].steps, row[i].delta);
        assert_true(row[i].q < 1 ? bound > claim : bound == claim);
        assert_true(bound < 1.6 * claim);
        assert_true(bound <= lh_account_bound(&b, (double)row[i].steps + 0.5, row[i].delta));
        assert_true(lh_account_bound(&b, 0, row[i].delta) == 0);
    }
}

// A calibration elsewhere ended above its target (opacus, issue 346).
TEST(calibration_never_exceeds)
{
    int rounds = getenv("LH_TEST_QUICK") ? 2 : 5;
    for (int i = 0; i < rounds; i++) {
        struct lh_account_terms t = {.q = i % 3 ? exp(uniform(log(1e-3), log(0.3))) : 1,
                                     .steps = (uint64_t)uniform(1, 3000),
                                     .delta = exp(uniform(log(1e-8), log(1e-5)))};
        double target = exp(uniform(log(0.5), log(12))), sigma, claim;
        assert_int_equal(lh_account_calibrate(&t, target, &sigma), LH_OK);
        t.sigma = sigma;
        assert_int_equal(lh_account_claim(&t, &claim), LH_OK);
        assert_true(claim <= target);
        t.sigma = sigma * (1 - 5e-4);
        if (t.sigma < 0.1) continue;
        assert_int_equal(lh_account_claim(&t, &claim), LH_OK);
        assert_true(claim > target);
    }
}

// Replacing a region's delta moves the sum twice as far as emptying a record. By hand: one release
// of N(v, s) against N(-v, s), |v| = C, is a Gaussian of sensitivity 2C.
TEST(replacing_costs_twice_the_clip)
{
    const double c = 0.5, noise = 3, s = noise * c, epsilon = 1;
    double x = epsilon * s * s / (2 * c); // log(P/Q) = 2 c x / s^2 exceeds epsilon above this x
    double delta = lh_normal_above((x - c) / s) - exp(epsilon) * lh_normal_above((x + c) / s);
    double sigma = lh_account_sigma(noise, LH_ACCOUNT_REPLACED);
    assert_true(near(lh_gaussian_delta(1 / sigma, epsilon), delta, 1e-12));
    assert_true(lh_account_sigma(noise, LH_ACCOUNT_EMPTIED) == noise);
    // A round of S shards is S releases of sigma sqrt(S) each.
    double round = by(LH_ACCOUNTANT_ANALYTIC, sigma, 1, 1, 1e-6);
    assert_true(near(by(LH_ACCOUNTANT_ANALYTIC, sigma * sqrt(16), 1, 16, 1e-6), round, 1e-12));
}

TEST(bad_terms_are_refused)
{
    static const struct lh_account_terms bad[] = {
        {0, 0.1, 1, 1e-5},   {NAN, 0.1, 1, 1e-5},        {1e9, 0.1, 1, 1e-5}, {1, 0, 1, 1e-5},
        {1, 1.1, 1, 1e-5},   {1, NAN, 1, 1e-5},          {1, 0.1, 0, 1e-5},   {1, 0.1, 1, 0},
        {1, 0.1, 1, 0.9e-9}, {1, 0.1, 2000000000, 1e-5}, {1, 0.1, 1, 0.5},    {1, 0.1, 1, NAN},
    };
    struct lh_account_price cost;
    double x;
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        assert_int_equal(lh_account_prices(&bad[i], &cost), LH_ERR_CONFIG);
        assert_int_equal(lh_account_epsilon(LH_ACCOUNTANT_RDP, &bad[i], &x), LH_ERR_CONFIG);
    }
    struct lh_account_terms t = {1, 0.5, 1, 1e-5};
    assert_int_equal(lh_account_epsilon(LH_ACCOUNTANT_ANALYTIC, &t, &x), LH_ERR_INVALID);
    assert_int_equal(lh_account_calibrate(&t, 0, &x), LH_ERR_CONFIG);
    assert_int_equal(lh_account_calibrate(&t, NAN, &x), LH_ERR_CONFIG);
    t = (struct lh_account_terms){1, 1, 1000000000, 1e-9};
    assert_int_equal(lh_account_calibrate(&t, 1e-6, &x), LH_ERR_CONFIG);
}

TEST(transform_is_exact)
{
    enum { N = 64 };
    struct lh_fft f;
    double x[2 * N], want[2 * N] = {0}, back[2 * N];
    assert_int_equal(lh_fft_create(N, &f), LH_OK);
    for (int i = 0; i < 2 * N; i++) x[i] = back[i] = uniform(-1, 1);
    for (int k = 0; k < N; k++)
        for (int j = 0; j < N; j++) {
            double a = -2 * M_PI * j * k / N;
            want[2 * k] += x[2 * j] * cos(a) - x[2 * j + 1] * sin(a);
            want[2 * k + 1] += x[2 * j] * sin(a) + x[2 * j + 1] * cos(a);
        }
    lh_fft_forward(&f, x);
    for (int i = 0; i < 2 * N; i++) assert_true(fabs(x[i] - want[i]) < 1e-12);
    lh_fft_backward(&f, x);
    for (int i = 0; i < 2 * N; i++) assert_true(fabs(x[i] / N - back[i]) < 1e-14);
    lh_fft_destroy(&f);
}

TEST(tails_keep_their_accuracy)
{
    // log P(Z <= x), to 15 digits, with mpmath.
    static const double row[][2] = {{-1, -1.84102164500926351},   {-10, -53.2312851505124706},
                                    {-30, -454.321243956343197},  {-40, -804.608442013753788},
                                    {-100, -5005.52420869420509}, {1, -0.17275377902344989}};
    for (size_t i = 0; i < LH_COUNT(row); i++)
        assert_true(near(lh_normal_log_below(row[i][0]), row[i][1], 1e-13));
    // The two forms of erfc agree where they meet.
    assert_true(near(lh_log_erfc(25 - 1e-12), lh_log_erfc(25), 1e-12));
    assert_true(near(lh_normal_between(9, 10), 1.12851220742359904e-19, 1e-12));
    assert_true(near(lh_normal_between(-10, -9), lh_normal_between(9, 10), 1e-14));
    assert_true(lh_normal_between(-INFINITY, INFINITY) == 1);
}
