// The auditor on mechanisms whose epsilon is known, and its probability bounds.
#include "common/base/check.h"
#include "common/privacy/gaussian.h"
#include "tests/privacy/auditor.h"
#include "tests/privacy/world.h"

// Randomised response: telling the true bit with probability 3/4 has epsilon log(3).
static double response(void *arg, int world)
{
    (void)arg;
    return (world_uniform() < 0.75) == world;
}

static double laplace(void *arg, int world)
{
    double u = world_uniform() - 0.5, scale = *(double *)arg;
    return world - scale * copysign(log(1 - 2 * fabs(u)), u);
}

static double gaussian(void *arg, int world)
{
    return world + *(double *)arg * world_gaussian();
}

static double nothing(void *arg, int world)
{
    (void)arg;
    (void)world;
    return world_uniform();
}

static double everything(void *arg, int world)
{
    (void)arg;
    return world;
}

// The statistics differ only in sign: an auditor that compared magnitudes would miss that.
static double signs(void *arg, int world)
{
    (void)arg;
    return world ? 1 : -1;
}

int main(int argc, char **argv)
{
    size_t n = world_runs(argc, argv);
    double at = 0.5, sigma = 1;
    // Clopper-Pearson bounds computed by hand: no success, all successes, one of 100.
    world_must(fabs(audit_upper(0, 1000, 5e-4) - (1 - pow(5e-4, 1e-3))) < 1e-12, "none of 1,000",
               audit_upper(0, 1000, 5e-4));
    world_must(fabs(audit_lower(1000, 1000, 5e-4) - pow(5e-4, 1e-3)) < 1e-12, "all of 1,000",
               audit_lower(1000, 1000, 5e-4));
    world_must(fabs(audit_lower(1, 100, 5e-4) - (1 - pow(1 - 5e-4, 0.01))) < 1e-12, "1 of 100",
               audit_lower(1, 100, 5e-4));
    double b = audit(response, NULL, n, 0);
    world_must(b < log(3) && b > log(3) - 0.05, "randomised response, 1.0986", b);
    b = audit(laplace, &at, n, 0);
    world_must(b < 2 && b > 1.9, "Laplace, 2", b);
    b = audit(gaussian, &sigma, n, 1e-5);
    world_must(b < lh_gaussian_epsilon(1, 1e-5) && b > 2, "Gaussian, 4.377", b);
    b = audit(nothing, NULL, n, 0);
    world_must(b < 0.05, "the same in both worlds, 0", b);
    double perfect = log(audit_lower(n, n, 5e-4) / audit_upper(0, n, 5e-4));
    b = audit(everything, NULL, n, 0);
    world_must(fabs(b - perfect) < 1e-9 && b > 9.4, "a perfect distinguisher", b);
    b = audit(signs, NULL, n, 0);
    world_must(fabs(b - perfect) < 1e-9, "signs alone", b);
    return 0;
}
