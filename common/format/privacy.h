// Terms of differential privacy: what the PLAN fixes for the private regions of a run
// (server/docs/0004-authority.md#private-regions).
//
// Bytes: the fields of struct lh_privacy in order, 65; without privacy the level alone, which is 0.
#ifndef LH_COMMON_PRIVACY_H
#define LH_COMMON_PRIVACY_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/limits.h"

// The place at which clip and noise are enforced. The numbers are those of the plan.
enum lh_privacy_level {
    LH_PRIVACY_NONE = 0,
    LH_PRIVACY_RECORD = 1,   // the built-in trainer clips each record's gradient
    LH_PRIVACY_REGION = 2,   // the worker clips the delta of each push
    LH_PRIVACY_REPORTED = 3, // the loop clips, as it says; count and budget are enforced
};

struct lh_privacy {
    uint8_t level;         // enum lh_privacy_level
    double sigma;          // standard deviation of the noise over the clip
    double rate;           // q: probability with which a step draws a record; 1 at region level
    double clip;           // C: bound of the L2 norm of one record's gradient, or of a delta
    double epsilon, delta; // what `steps` steps cost at most
    uint64_t steps;        // charged steps of one region, in all
    uint64_t ahead;        // A: steps charged beyond the total at the stable point
    uint32_t local_steps;  // H of private regions
    uint32_t record_tokens;
};

void lh_privacy_write(const struct lh_privacy *t, struct lh_buf *out);
// False: no terms. Every field is checked: a number that is not finite is none.
bool lh_privacy_read(struct lh_cursor *c, struct lh_privacy *out);
bool lh_privacy_equal(const struct lh_privacy *a, const struct lh_privacy *b);
// Charged steps that a push costs which stands for `steps` local ones: at region level a push is
// one release, whatever it stands for.
uint64_t lh_privacy_cost(const struct lh_privacy *t, uint32_t steps);
// The accountants' sigma: the noise over what one neighbour can change. At region level the
// neighbour has other data, which can turn a clipped delta round: twice the clip.
double lh_privacy_multiplier(const struct lh_privacy *t);
// Bound of the norm of one shard's push at region level: the clipped delta, and noise of as many
// values as the payload has. An honest push is above it with a probability below 1e-14.
double lh_privacy_norm_max(const struct lh_privacy *t, uint64_t values, uint32_t shards);
const char *lh_privacy_level_name(uint8_t level);

#endif
