// Gradient noise scale and the warm-up that depends on it. See noise.h.
#include "worker/train/noise.h"

#include <math.h>

static const double decay = 0.95; // about 20 steps

// A moving average that starts as a plain mean, so it has no initial bias.
static void average(double *mean, double value, uint64_t steps)
{
    double keep = 1.0 - 1.0 / (double)steps;
    if (keep > decay) keep = decay;
    *mean = keep * *mean + (1.0 - keep) * value;
}

void wk_noise_add(struct wk_noise *n, double square, uint32_t sequences,
                  const struct wk_gathered *sum)
{
    double small = 0, inverse = 0, whole = sequences;
    uint32_t samples = 0;
    for (uint32_t i = 0; i < sum->samples; i++) {
        const struct wk_share *s = &sum->sample[i];
        if (!s->first || s->first >= sequences) continue;
        double up = whole / s->first; // as a mean of its own
        small += s->first_square * up * up;
        inverse += 1.0 / s->first;
        samples++;
    }
    if (!samples || !isfinite(small) || !isfinite(square)) return;
    double variance = (small / samples - square) / (inverse / samples - 1.0 / whole);
    n->steps++;
    average(&n->variance, variance, n->steps);
    average(&n->signal, square - variance / whole, n->steps);
}

double wk_noise_ratio(const struct wk_noise *n, uint32_t sequences)
{
    if (!n->steps) return 0;
    if (n->signal <= 0) return INFINITY;
    return fmax(0, n->variance / sequences / n->signal);
}

double wk_warmup_factor(const struct wk_warmup *w, const struct wk_warmup_conf *c,
                        uint64_t credited_tokens)
{
    if (c->threshold <= 0) return 1;
    if (!w->released) return c->hold;
    uint64_t since = credited_tokens > w->released_at ? credited_tokens - w->released_at : 0;
    if (since >= c->ramp_tokens) return 1;
    return c->hold + (1 - c->hold) * (double)since / (double)c->ramp_tokens;
}

void wk_warmup_step(struct wk_warmup *w, const struct wk_warmup_conf *c, uint32_t sequences,
                    uint64_t credited_tokens)
{
    if (w->released || c->threshold <= 0) return;
    bool quiet =
        w->noise.steps >= WK_WARMUP_STEPS && wk_noise_ratio(&w->noise, sequences) < c->threshold;
    if (!quiet && credited_tokens < c->cap_tokens) return;
    w->released = true;
    w->released_at = credited_tokens;
}
