// The learning rate as a pure function of the run's credited tokens (DESIGN.md#section-6, "one
// clock").
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

#endif
