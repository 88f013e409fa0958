// The optimizer's step. See update.h.
#include "worker/train/update.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// End of the piece that begins at `at`, not beyond `end`.
static size_t piece_end(const struct wk_param *is, size_t at, size_t end)
{
    size_t block = (at / WK_UPDATE_BLOCK + 1) * WK_UPDATE_BLOCK, last = is->offset + is->len;
    if (last < end) end = last;
    return block < end ? block : end;
}

lh_err wk_update_norm(const struct wk_params *p, const float *gradient, uint64_t step,
                      struct wk_tensor_norms *norms, double *norm)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct wk_param *is = &p->at[i];
        double part = 0.0;
        for (size_t at = is->offset, end = at + is->len; at < end;) {
            size_t to = piece_end(is, at, end);
            part += lk_sum_squares(to - at, gradient + at);
            at = to;
        }
        if (!isfinite(part))
            return lh_fail(LH_ERR_NON_FINITE, "gradient of %s at step %" PRIu64, is->name, step);
        if (norms) norms[i].gradient = sqrt(part);
        sum += part;
    }
    *norm = sqrt(sum);
    return LH_OK;
}

static double distance(size_t n, const float *a, const float *b)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum);
}

static struct lk_adamw adamw_of(const struct wk_update *u, double norm)
{
    return (struct lk_adamw){
        .rate = u->rate,
        .beta1 = u->beta1,
        .beta2 = u->beta2,
        .eps = u->eps,
        .step = u->step,
        .grad_scale = lk_clip_scale(norm, u->clip),
    };
}

static double decay_of(const struct wk_update *u, const struct wk_param *p)
{
    return wk_param_decays(p) ? u->weight_decay : 0.0;
}

void wk_update_apply(const struct wk_update *u, const struct wk_params *params, double norm,
                     const struct wk_update_arrays *a, struct wk_tensor_norms *norms)
{
    const struct lk_adamw c = adamw_of(u, norm);
    for (uint32_t i = 0; i < params->count; i++) {
        const struct wk_param *p = &params->at[i];
        if (norms) memcpy(a->before, a->value + p->offset, p->len * sizeof *a->before);
        lk_adamw(&c, decay_of(u, p), p->len, a->gradient + p->offset, a->m + p->offset,
                 a->v + p->offset, a->value + p->offset);
        if (!norms) continue;
        norms[i].weight = sqrt(lk_sum_squares(p->len, a->value + p->offset));
        norms[i].update = distance(p->len, a->value + p->offset, a->before);
    }
}
