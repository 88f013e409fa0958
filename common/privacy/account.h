// A run's noise and its price: epsilon at delta by each accountant, and the noise for a target.
//
// sigma is the noise's standard deviation over the sensitivity: what one neighbour can change in a
// release at most. It is C where a record is emptied, and 2C where a region's data is replaced by
// others.
#ifndef LH_COMMON_PRIVACY_ACCOUNT_H
#define LH_COMMON_PRIVACY_ACCOUNT_H

#include <stdint.h>

#include "common/base/err.h"

#define LH_PRIVACY_DELTA_MIN 1e-9 // below it a double's rounding would no longer be negligible

// Share of delta that goes to what accountants do not see: the sampler's error and truncated draws,
// at most 1/1000 each. Accountants get the rest.
#define LH_PRIVACY_SLACK 1e-3

struct lh_privacy_terms {
    double sigma, q; // q: rate of Poisson sampling; 1: none
    uint64_t steps;
    double delta; // the whole claim's
};

enum lh_accountant { LH_ACCOUNTANT_RDP, LH_ACCOUNTANT_PLD, LH_ACCOUNTANT_ANALYTIC };
enum { LH_ACCOUNTANTS = 3 };
const char *lh_accountant_name(enum lh_accountant a); // "rdp", "pld", "analytic"

// LH_ERR_CONFIG, with what is wrong and the nearest sound value: sigma not in [0.1, 1e6], q not in
// (0, 1], steps not in [1, 1e9], delta not in [1e-9, 0.1].
LH_MUST lh_err lh_privacy_check(const struct lh_privacy_terms *t);

// Epsilon by one accountant, at exactly t->delta. LH_ERR_INVALID for the analytic one with q < 1.
LH_MUST lh_err lh_privacy_epsilon(enum lh_accountant a, const struct lh_privacy_terms *t,
                                  double *epsilon);

// The accountant whose epsilon a run claims: analytic without sampling, else PLD.
enum lh_accountant lh_privacy_accountant(double q);

struct lh_privacy_cost {
    double epsilon[LH_ACCOUNTANTS]; // analytic: NAN where q < 1
    double claimed;                 // the claim's: that of lh_privacy_accountant()
    double delta_accounted;         // what the accountants were given of delta
    double order;                   // RDP's best order
};
// Charges LH_PRIVACY_SLACK twice: epsilons are at delta * (1 - 2 * LH_PRIVACY_SLACK).
LH_MUST lh_err lh_privacy_cost(const struct lh_privacy_terms *t, struct lh_privacy_cost *out);
// The claim's epsilon alone, as in lh_privacy_cost(). steps = 0: 0.
LH_MUST lh_err lh_privacy_claim(const struct lh_privacy_terms *t, double *epsilon);

// A sigma whose claim is at most `epsilon`, and at most 2e-4 of itself above the smallest such one.
// t->sigma is ignored. LH_ERR_CONFIG where none in the range of lh_privacy_check() does.
LH_MUST lh_err lh_privacy_calibrate(const struct lh_privacy_terms *t, double epsilon,
                                    double *sigma);
// Steps whose claim is at most `epsilon`, and at most 1e-3 of themselves fewer than there could be;
// 0 where one step is too many. t->steps is ignored.
LH_MUST lh_err lh_privacy_steps(const struct lh_privacy_terms *t, double epsilon, uint64_t *steps);

#endif
