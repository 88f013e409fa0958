// Terms of differential privacy, which the plan fixes for a run's private regions
// (server/docs/0004-authority.md#private-regions).
//
// Bytes: the fields of struct lh_privacy in order, 65; without privacy only the level, 0.
#ifndef LH_COMMON_PRIVACY_H
#define LH_COMMON_PRIVACY_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/limits.h"

// The place where clip and noise are enforced. The plan stores these numbers.
enum lh_privacy_level {
    LH_PRIVACY_NONE = 0,
    LH_PRIVACY_RECORD = 1,   // the built-in trainer clips each record's gradient
    LH_PRIVACY_REGION = 2,   // the worker clips the delta of each push
    LH_PRIVACY_REPORTED = 3, // the loop reports that it clips; count and budget are enforced
};

struct lh_privacy {
    uint8_t level;         // enum lh_privacy_level
    double sigma;          // standard deviation of the noise over the clip
    double rate;           // q: probability that a step draws a record; 1 at region level
    double clip;           // C: bound of the L2 norm of one record's gradient, or of a delta
    double epsilon, delta; // bound on the cost of `steps` steps
    uint64_t steps;        // charged steps of one region in total
    uint64_t ahead;        // A: steps charged beyond the total at the stable point
    uint32_t local_steps;  // H of private regions
    uint32_t record_tokens;
};

void lh_privacy_write(const struct lh_privacy *t, struct lh_buf *out);
// False: invalid terms. Every field is checked; numbers must be finite.
bool lh_privacy_read(struct lh_cursor *c, struct lh_privacy *out);
bool lh_privacy_equal(const struct lh_privacy *a, const struct lh_privacy *b);
// Charged steps of a push of `steps` local steps: at region level a push is one release, regardless
// of its steps.
uint64_t lh_privacy_cost(const struct lh_privacy *t, uint32_t steps);
// The accountants' sigma: the noise over the sensitivity. At region level the neighbour has other
// data, which may reverse a clipped delta: the sensitivity is twice the clip.
double lh_privacy_multiplier(const struct lh_privacy *t);
// Bound of the norm of one shard's push at region level: the clipped delta plus noise on each of
// the payload's `values`. An honest push exceeds it with a probability of at most exp(-32).
double lh_privacy_norm_max(const struct lh_privacy *t, uint64_t values, uint32_t shards);
const char *lh_privacy_level_name(uint8_t level);

#endif
