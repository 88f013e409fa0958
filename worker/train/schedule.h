// The learning rate and the density of pushes as pure functions of the run's credited tokens
// (DESIGN.md#section-6, "one clock").
#ifndef WK_SCHEDULE_H
#define WK_SCHEDULE_H

#include <stdint.h>

struct wk_schedule {
    uint64_t budget_tokens; // end of the run
    double warmup;          // fraction of the budget, 0 to 1
    double peak, min_ratio; // rate at the end of warm-up; final rate as a fraction of it
    double decay; // final fraction of the budget in which the rate falls; 0: all but the warm-up
    // The previous budget, in force until `changed_tokens` were credited; 0: the budget never
    // changed.
    uint64_t old_budget_tokens, changed_tokens;
};

// Linear from max(min_ratio, 0.01) * peak to peak over the warm-up, flat until the decay begins,
// then half a cosine down to min_ratio * peak at the budget, then flat. The start is not 0:
// credited tokens move only when a push is admitted, so with a rate of 0 every worker's first round
// would be empty. After a change of the budget, the rate moves linearly from its value at the
// change to the new schedule, over `warmup` of the tokens that were left then.
double wk_schedule_rate(const struct wk_schedule *s, uint64_t credited_tokens);

// Fraction of the values that a push carries: linear from `start` down to `rest` over the first
// `part` of the budget; `rest` from the beginning if `start` is not above it. (The warm-up of DGC,
// Lin et al. 2018, arXiv 1712.01887, has the same aim and goes down in powers of 4.)
struct wk_fall {
    double start, rest, part;
};
double wk_schedule_density(const struct wk_schedule *s, const struct wk_fall *f,
                           uint64_t credited_tokens);

#endif
