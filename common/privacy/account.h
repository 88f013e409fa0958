// A run's noise and its price: epsilon at delta by each accountant, and the noise for a target.
//
// sigma is here the noise's standard deviation over the sensitivity, which is the most that a
// neighbour changes in a release: lh_account_sigma().
#ifndef LH_COMMON_PRIVACY_ACCOUNT_H
#define LH_COMMON_PRIVACY_ACCOUNT_H

#include <stdint.h>

#include "common/base/err.h"

#define LH_ACCOUNT_DELTA_MIN 1e-9 // below it a double's rounding would no longer be negligible

// Share of delta that goes to what accountants do not see: the sampler's error and truncated draws,
// at most 1/1000 each. Accountants get the rest.
#define LH_ACCOUNT_SLACK 1e-3

struct lh_account_terms {
    double sigma, q; // q: rate of Poisson sampling; 1: none
    uint64_t steps;
    double delta; // the whole claim's
};

// How neighbours differ: a record is emptied, and its gradient of norm C at most is gone; or all of
// a region's data is replaced, and one delta of norm C becomes another one, 2C apart at most.
enum lh_account_unit { LH_ACCOUNT_EMPTIED, LH_ACCOUNT_REPLACED };
// The accountants' sigma of noise whose standard deviation is `noise` times C. At region level each
// of S shards is clipped to C / sqrt(S) and has noise of `noise` times C: a push of every shard is
// one step.
double lh_account_sigma(double noise, enum lh_account_unit unit);

enum lh_accountant { LH_ACCOUNTANT_RDP, LH_ACCOUNTANT_PLD, LH_ACCOUNTANT_ANALYTIC };
enum { LH_ACCOUNTANTS = 3 };
const char *lh_accountant_name(enum lh_accountant a); // "rdp", "pld", "analytic"

// LH_ERR_CONFIG, with what is wrong and the nearest sound value: sigma not in [0.1, 1e6], q not in
// (0, 1], steps not in [1, 1e9], delta not in [1e-9, 0.1].
LH_MUST lh_err lh_account_check(const struct lh_account_terms *t);

// Epsilon by one accountant, at exactly t->delta. LH_ERR_INVALID for the analytic one with q < 1.
LH_MUST lh_err lh_account_epsilon(enum lh_accountant a, const struct lh_account_terms *t,
                                  double *epsilon);

// The accountant whose epsilon a run claims: analytic without sampling, else PLD.
enum lh_accountant lh_account_by(double q);

struct lh_account_price {
    double epsilon[LH_ACCOUNTANTS]; // analytic: NAN where q < 1
    double claimed;                 // the claim's: that of lh_account_by()
    double delta_accounted;         // what the accountants were given of delta
    double order;                   // RDP's best order
};
// Charges LH_ACCOUNT_SLACK twice: epsilons are at delta * (1 - 2 * LH_ACCOUNT_SLACK).
LH_MUST lh_err lh_account_prices(const struct lh_account_terms *t, struct lh_account_price *out);
// The claim's epsilon alone, as in lh_account_prices(). steps = 0: 0.
LH_MUST lh_err lh_account_claim(const struct lh_account_terms *t, double *epsilon);

// The claim of steps that were counted in parts, rounded up; INFINITY where the terms are none.
double lh_account_spent(double sigma, double q, double steps, double delta);

// A sigma whose claim is at most `epsilon`, and at most 2e-4 of itself above the smallest such one.
// t->sigma is ignored. LH_ERR_CONFIG where none in the range of lh_account_check() does.
LH_MUST lh_err lh_account_calibrate(const struct lh_account_terms *t, double epsilon,
                                    double *sigma);
// Steps whose claim is at most `epsilon`, and at most 1e-3 of themselves fewer than there could be;
// 0 where one step is too many. t->steps is ignored.
LH_MUST lh_err lh_account_steps(const struct lh_account_terms *t, double epsilon, uint64_t *steps);

#endif
