// A run's noise and its privacy cost: epsilon at delta by each accountant, and the noise for a
// target.
//
// Here sigma is the noise's standard deviation over the sensitivity, the largest change of a
// release between neighbours: lh_account_sigma().
#ifndef LH_COMMON_PRIVACY_ACCOUNT_H
#define LH_COMMON_PRIVACY_ACCOUNT_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/privacy/rdp.h"

#define LH_ACCOUNT_DELTA_MIN 1e-9 // below it the rounding of doubles is not negligible

// Share of delta for each of two effects outside the accountants: the sampler's error and truncated
// draws. Accountants get the rest.
#define LH_ACCOUNT_SLACK 1e-3

struct lh_account_terms {
    double sigma, q; // q: rate of Poisson sampling; 1: no sampling
    uint64_t steps;
    double delta; // delta of the whole claim
};

// The relation of neighbours. EMPTIED: one record is emptied, which removes its gradient, of norm C
// at most. REPLACED: a region's data is replaced, which changes its delta, of norm C at most, by at
// most 2C.
enum lh_account_unit { LH_ACCOUNT_EMPTIED, LH_ACCOUNT_REPLACED };
// The accountants' sigma of noise whose standard deviation is `noise` times C. At region level each
// of S shards is clipped to C / sqrt(S) and gets noise of `noise` times C, so pushes of all shards
// together are one step.
double lh_account_sigma(double noise, enum lh_account_unit unit);

enum lh_accountant { LH_ACCOUNTANT_RDP, LH_ACCOUNTANT_PLD, LH_ACCOUNTANT_ANALYTIC };
enum { LH_ACCOUNTANTS = 3 };
const char *lh_accountant_name(enum lh_accountant a); // "rdp", "pld", "analytic"

// LH_ERR_CONFIG, with the error and the valid range: sigma not in [0.1, 1e6], q not in (0, 1],
// steps not in [1, LH_CHARGED_MAX], delta not in [1e-9, 0.1].
LH_MUST lh_err lh_account_check(const struct lh_account_terms *t);

// Epsilon by one accountant at exactly t->delta. LH_ERR_INVALID: analytic with q < 1.
LH_MUST lh_err lh_account_epsilon(enum lh_accountant a, const struct lh_account_terms *t,
                                  double *epsilon);

// The accountant whose epsilon a run claims: analytic without sampling, else PLD.
enum lh_accountant lh_account_by(double q);

struct lh_account_price {
    double epsilon[LH_ACCOUNTANTS]; // analytic: NAN where q < 1
    double claimed;                 // epsilon of the accountant lh_account_by()
    double delta_accounted;         // the accountants' part of delta
    double order;                   // RDP's best order
};
// Subtracts LH_ACCOUNT_SLACK twice: epsilons are at delta * (1 - 2 * LH_ACCOUNT_SLACK).
LH_MUST lh_err lh_account_prices(const struct lh_account_terms *t, struct lh_account_price *out);
// The claim's epsilon alone, as in lh_account_prices(). steps = 0: 0.
LH_MUST lh_err lh_account_claim(const struct lh_account_terms *t, double *epsilon);

// The claim for `steps`, rounded up to a whole number; INFINITY if the terms are invalid.
double lh_account_spent(double sigma, double q, double steps, double delta);

// An upper bound of the claim by RDP, which costs next to nothing for another number of steps.
// Where nothing is drawn (q = 1) it is the claim.
struct lh_account_bound {
    double sigma, q;
    double divergence[LH_RDP_ORDERS];
};
// Takes some milliseconds where q < 1.
void lh_account_bound_make(double sigma, double q, struct lh_account_bound *out);
double lh_account_bound(const struct lh_account_bound *b, double steps, double delta);

// A sigma whose claim is at most `epsilon`, at most 2e-4 (relative) above the smallest one. Ignores
// t->sigma. LH_ERR_CONFIG: no sigma in the range of lh_account_check() meets it.
LH_MUST lh_err lh_account_calibrate(const struct lh_account_terms *t, double epsilon,
                                    double *sigma);

#endif
