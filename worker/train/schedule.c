// Cosine schedule with linear warm-up (Loshchilov and Hutter 2017, without restarts); with a decay
// it is warm-up, stable, decay (WSD).
#include "worker/train/schedule.h"

#include <math.h>

static const double start_ratio_min = 0.01;

static double rate_of(const struct wk_schedule *s, uint64_t budget_tokens, uint64_t credited_tokens)
{
    double budget = (double)budget_tokens, at = (double)credited_tokens;
    double warm = s->warmup * budget;
    if (at < warm) {
        double start = fmax(s->min_ratio, start_ratio_min);
        return s->peak * (start + (1.0 - start) * (at / warm));
    }
    if (at >= budget) return s->peak * s->min_ratio;
    double from = s->decay > 0 ? fmax(warm, (1.0 - s->decay) * budget) : warm;
    if (at < from) return s->peak;
    double x = (at - from) / (budget - from);
    return s->peak *
           (s->min_ratio + (1.0 - s->min_ratio) * 0.5 * (1.0 + cos(3.14159265358979324 * x)));
}

double wk_schedule_rate(const struct wk_schedule *s, uint64_t credited_tokens)
{
    uint64_t changed = s->changed_tokens, budget = s->budget_tokens;
    double is = rate_of(s, budget, credited_tokens);
    if (!s->old_budget_tokens || changed >= budget) return is;
    if (credited_tokens < changed) return rate_of(s, s->old_budget_tokens, credited_tokens);
    double ramp = fmax(1, s->warmup * (double)(budget - changed));
    double x = (double)(credited_tokens - changed) / ramp;
    double stood = rate_of(s, s->old_budget_tokens, changed);
    return x >= 1 ? is : stood + (is - stood) * x;
}
