// A moving estimate with its spread, for repeated measurements: a speed, a link's rate, the time of
// a push. Pure.
#ifndef LH_COMMON_ESTIMATE_H
#define LH_COMMON_ESTIMATE_H

struct lh_estimate {
    double mean, spread; // spread: the mean deviation from the mean; mean 0: unknown
};

// Adds a sample; ignores one that is not finite or not above zero.
void lh_estimate_take(struct lh_estimate *e, double sample);
// The spread as a share of the mean, 1 at most; 1 if the mean is unknown.
double lh_estimate_doubt(struct lh_estimate e);

#endif
