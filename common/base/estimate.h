// A moving estimate with its spread, of anything that is measured again and again: a speed, a
// link's rate, the time of a push. Pure.
#ifndef LH_COMMON_ESTIMATE_H
#define LH_COMMON_ESTIMATE_H

struct lh_estimate {
    double mean, spread; // spread: the mean deviation from the mean; mean 0: not known
};

// Takes one more sample. One that is not finite, or not above zero, says nothing.
void lh_estimate_take(struct lh_estimate *e, double sample);
// The spread as a share of the mean, 1 at most; 1 where nothing is known.
double lh_estimate_doubt(struct lh_estimate e);

#endif
