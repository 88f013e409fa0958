// The update rule's defaults against the figures that README.md and bench/learning quote.
#include <math.h>

#include "tests/test.h"
#include "worker/rule.h"

static void near(double is, double expected)
{
    if (!(fabs(is - expected) < 1e-12)) fail_msg("%g is not %g", is, expected);
}

TEST(density_follows_the_length)
{
    near(wk_rule_density(100), 1.0 / 6);
    near(wk_rule_density(180), 1.0 / 6);
    near(wk_rule_density(400), 0.075);
    near(wk_rule_density(1600), 0.075);
    near(wk_rule_density(1e6), 0.075);
}

TEST(beta_is_one_where_pushes_are_dense)
{
    near(wk_rule_beta(1), 1);
    near(wk_rule_beta(0.06), 1);
    near(wk_rule_beta((double)0.06f), 1); // 0.06f is below 0.06
    near(wk_rule_beta(0.059), 0.95);
    near(wk_rule_beta(1.0 / 64), 0.95);
}

// Never more than the number of workers, nor than was measured with three of them.
TEST(eta_is_larger_where_pushes_are_sparse)
{
    near(wk_rule_eta(1, 400, 3, false), 1);
    near(wk_rule_eta(0.1, 400, 3, false), 1);
    near(wk_rule_eta((double)0.1f, 400, 3, false), 1);
    near(wk_rule_eta(0.075, 400, 3, false), 1.4);
    near(wk_rule_eta(0.075, 400, 2, false), 1.4);
    near(wk_rule_eta(0.075, 400, 1, false), 1);
    near(wk_rule_eta(0.075, 400, 16, false), 1.4);
    near(wk_rule_eta((double)0.06f, 400, 3, false), 1.4);
    near(wk_rule_eta(0.0599, 400, 3, false), 2);
    near(wk_rule_eta(0.0599, 400, 2, false), 1.4);
    near(wk_rule_eta(0.03, 400, 3, false), 2);
    near(wk_rule_eta((double)0.03f, 400, 3, false), 2); // 0.03f is below 0.03
    near(wk_rule_eta(0.0299, 400, 3, false), 3);
    near(wk_rule_eta(1.0 / 64, 400, 2, false), 2);
    near(wk_rule_eta(1.0 / 64, 400, 16, false), 3);
    near(wk_rule_eta(1.0 / 64, 400, 3, true), 1.4);
    near(wk_rule_eta(0.05, 400, 3, true), 1.4);
    near(wk_rule_eta(0.1, 400, 2, true), 1);
}

TEST(eta_follows_the_length)
{
    near(wk_rule_eta(0.075, 1, 3, false), 1.4);
    near(wk_rule_eta(0.075, 800, 3, false), 1.55);
    near(wk_rule_eta(0.075, 1600, 3, false), 1.7);
    near(wk_rule_eta(0.075, 1e6, 16, false), 1.7);
    near(wk_rule_eta(0.075, 1600, 1, false), 1);
    near(wk_rule_eta(0.05, 1, 3, false), 2);
    near(wk_rule_eta(0.05, 800, 3, false), 1.85);
    near(wk_rule_eta(0.05, 1600, 3, false), 1.7);
    near(wk_rule_eta(0.1, 1600, 3, false), 1);
    near(wk_rule_eta(1.0 / 64, 1600, 3, false), 3); // N = 400's eta; here it lost 1.7 %
    near(wk_rule_eta(0.075, 1600, 3, true), 1.4);
}
