// Moving estimates. See estimate.h.
#include "common/base/estimate.h"

#include <math.h>

static const double WEIGHT = 0.3; // weight of a new sample

void lh_estimate_take(struct lh_estimate *e, double sample)
{
    if (!isfinite(sample) || sample <= 0) return;
    if (e->mean <= 0) {
        *e = (struct lh_estimate){sample, sample / 4}; // initial spread: a guess
        return;
    }
    double off = sample - e->mean;
    e->mean += WEIGHT * off;
    e->spread += WEIGHT * (fabs(off) - e->spread);
}

double lh_estimate_doubt(struct lh_estimate e)
{
    return e.mean > 0 ? fmin(e.spread / e.mean, 1) : 1;
}
