// The learning rate and the density of pushes as pure functions of the run's credited tokens
// (DESIGN.md#section-6, "one clock").
#ifndef WK_SCHEDULE_H
#define WK_SCHEDULE_H

#include <stdint.h>

struct wk_schedule {
    uint64_t budget_tokens; // end of the run
    double warmup;          // fraction of the budget, 0 to 1
    double peak, min_ratio; // rate at the end of warm-up; rate at the end, as a part of it
    double decay; // fraction of the budget, at its end, in which it falls; 0: all but the warm-up
    // The budget was another one until so many tokens were credited; 0: it always was this one.
    uint64_t old_budget_tokens, changed_tokens;
};

// Linear from max(min_ratio, 0.01) * peak to peak over the warm-up, flat until the decay begins,
// then half a cosine down to min_ratio * peak at the budget and flat after it. The start is not 0:
// credited tokens only move when a push was admitted, so a rate of 0 would make every worker's
// first round a nothing. Where the budget was changed, the rate goes in a line from where it stood
// to the new budget's schedule, over `warmup` of the tokens that were left then.
double wk_schedule_rate(const struct wk_schedule *s, uint64_t credited_tokens);

// Part of the values that a push carries: from `start` in a line down to `rest` over the first
// `part` of the budget. A start not above `rest`, 0 too: `rest` from the beginning. (The warm-up of
// DGC, Lin et al. 2018, arXiv 1712.01887, has the same aim and goes down in powers of 4.)
struct wk_fall {
    double start, rest, part;
};
double wk_schedule_density(const struct wk_schedule *s, const struct wk_fall *f,
                           uint64_t credited_tokens);

#endif
