// Passes over a part of a step. See passes.h.
#include "worker/train/passes.h"

#include "kernels/optimizer.h"

// The first pass is a sample of the gradient on its own, so it must be less than the whole step.
static uint32_t pass_of(const struct wk_passes *p, const struct wk_reduce_step *step, uint32_t done,
                        uint32_t left)
{
    uint32_t most = p->batch;
    if (step->measure && !done && most > step->sequences / 2)
        most = step->sequences > 1 ? step->sequences / 2 : 1;
    return left < most ? left : most;
}

lh_err wk_passes_run(const struct wk_passes *p, const float *params,
                     const struct wk_reduce_step *step, struct wk_part part, bool fresh,
                     float *gradient, const struct wk_final *final, struct wk_share *share)
{
    size_t stride = (size_t)step->length + 1;
    for (uint32_t done = 0; done < part.count;) {
        uint32_t n = pass_of(p, step, done, part.count - done);
        struct wk_batch batch = {step->ids + (part.from + done) * stride, n, step->length, stride};
        bool measured = step->measure && fresh && !done, last = done + n == part.count;
        double nll = 0.0;
        LH_TRY(wk_transformer_gradient(p->transformer, params, &batch, step->scale, gradient,
                                       last && !measured ? final : NULL, &nll));
        if (measured) {
            share->first = n;
            share->first_square = lk_sum_squares(step->values, gradient);
        }
        share->nll += nll;
        done += n;
    }
    return LH_OK;
}
