// A claim of differential privacy: its terms, and what follows from them.
#ifndef DP_CLAIM_H
#define DP_CLAIM_H

#include <stdint.h>

#include "common/format/privacy.h"
#include "common/privacy/account.h"

struct dp_claim {
    // Given. terms.level, sigma, rate, clip, delta, steps say what is accounted.
    struct lh_privacy terms;
    uint64_t values;  // d: values that a step or a push carries over all shards; 0: not known
    uint32_t shards;  // shards of a push at region level; at least 1
    uint32_t records; // records of the region, at record level; 0: not known
    uint64_t charged; // steps of this run so far; 0: none
    uint64_t earlier; // steps that earlier runs charged to the same record set
    const char *run, *region; // NULL: not known
    // Computed by dp_claim_compute().
    double sigma;                  // the accountants': noise over sensitivity
    struct lh_account_price price; // the price of all steps
    double so_far;                 // epsilon of charged + earlier steps
    double delta_sampler, delta_truncated;
    uint32_t cap;      // records a step at most; 0: not known
    double noise_norm; // expected norm of a push's or a summed step's noise, over C; 0: not known
};

// LH_ERR_CONFIG: the terms make no sound claim.
LH_MUST lh_err dp_claim_compute(struct dp_claim *c);
// Sets terms.sigma to the smallest noise over C whose claim is at most `epsilon`.
LH_MUST lh_err dp_claim_calibrate(struct dp_claim *c, double epsilon);
enum lh_account_unit dp_claim_unit(const struct dp_claim *c);

#endif
