// The gradient's noise, and the warm-up that waits for it to fall.
//
// Source: McCandlish, Kaplan, Amodei, OpenAI Dota Team 2018, "An Empirical Model of Large-Batch
// Training", section 2.2 and appendix A.1. With the mean gradient G, the covariance S of one
// sequence's gradient, and a batch of B sequences, E|g_B|^2 = |G|^2 + tr(S)/B. Two batch sizes of
// the same step, the whole and a rank's first pass, give both unknowns; each is averaged over steps
// before the ratio is taken. The *simple noise scale* is tr(S)/|G|^2, in sequences. The threshold
// applies to that scale over the step's own B: the variance of the step's gradient over its squared
// norm.
#ifndef WK_NOISE_H
#define WK_NOISE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/ranks/reduce.h"

struct wk_noise {
    double signal, variance; // moving averages of |G|^2 and tr(S)
    uint64_t steps;          // number of steps in the averages
};

// Adds a step of `sequences` whose mean gradient has this squared norm. The samples' figures are
// raw parts of that mean. A step without a smaller sample changes nothing.
void wk_noise_add(struct wk_noise *n, double square, uint32_t sequences,
                  const struct wk_gathered *sum);
// Variance of a step's gradient over its squared norm; infinity while no signal exceeds the noise,
// 0 before the first step.
double wk_noise_ratio(const struct wk_noise *n, uint32_t sequences);

struct wk_warmup_conf {
    double threshold;     // ratio below which the rate is released; 0: no hold
    double hold;          // factor of the scheduled rate while held
    uint64_t cap_tokens;  // credited tokens that end any hold
    uint64_t ramp_tokens; // tokens over which a released rate rises to the schedule
};

enum { WK_WARMUP_STEPS = 20 }; // the averages need this many steps

// Holds the rate until the ratio falls below the threshold. Progress is counted in the run's
// credited tokens, like the schedule; only the point of release belongs to this worker, so it is
// saved with the optimizer.
struct wk_warmup {
    struct wk_noise noise;
    bool released;
    uint64_t released_at; // credited tokens
};

// Factor of the scheduled rate at this point: `hold` while held, then linear up to 1.
double wk_warmup_factor(const struct wk_warmup *w, const struct wk_warmup_conf *c,
                        uint64_t credited_tokens);
// After a step whose noise has been added: may release the rate.
void wk_warmup_step(struct wk_warmup *w, const struct wk_warmup_conf *c, uint32_t sequences,
                    uint64_t credited_tokens);

#endif
