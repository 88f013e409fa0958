// Passes over a part of a step. See passes.h.
#include "worker/train/passes.h"

#include "kernels/optimizer.h"

// The first pass is a separate sample of the gradient, so it must be smaller than the whole step.
static uint32_t pass_of(const struct wk_passes *p, const struct wk_reduce_step *step, uint32_t done,
                        uint32_t left)
{
    uint32_t most = p->batch;
    if (step->measure && !done && most > step->sequences / 2)
        most = step->sequences > 1 ? step->sequences / 2 : 1;
    return left < most ? left : most;
}

static lh_err pass(const struct wk_passes *p, const float *params, const struct wk_batch *batch,
                   float scale, float *gradient, const struct wk_final *final, double *nll)
{
    if (p->device) return wk_device_gradient(p->device, batch, scale, final, nll);
    return wk_transformer_gradient(p->transformer, params, batch, scale, gradient, final, nll);
}

static lh_err square(const struct wk_passes *p, uint64_t values, const float *gradient, double *out)
{
    if (p->device) return wk_device_square(p->device, out);
    *out = lk_sum_squares(values, gradient);
    return LH_OK;
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
        LH_TRY(
            pass(p, params, &batch, step->scale, gradient, last && !measured ? final : NULL, &nll));
        if (measured) {
            share->first = n;
            LH_TRY(square(p, step->values, gradient, &share->first_square));
        }
        share->nll += nll;
        done += n;
    }
    return LH_OK;
}

lh_err wk_passes_text(const struct wk_passes *p, const float *params, const uint32_t *ids,
                      size_t count, double *nll_sum)
{
    const struct wk_transformer_conf *conf =
        p->device ? wk_device_model(p->device) : wk_transformer_made_for(p->transformer);
    struct wk_batch window;
    *nll_sum = 0.0;
    for (size_t at = 0; wk_text_window(conf, ids, count, &at, &window);) {
        double nll = 0.0;
        LH_TRY(p->device ? wk_device_loss(p->device, &window, &nll)
                         : wk_transformer_loss(p->transformer, params, &window, &nll));
        *nll_sum += nll;
    }
    return LH_OK;
}
