// A worker's local view and its error feedback. See kernels/view.h.
#include "kernels/view.h"

void lk_view_start(const float *theta, float kappa, const float *residual, float *local,
                   float *anchor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) local[i] = anchor[i] = theta[i] - kappa * residual[i];
}

void lk_view_of(const float *theta, float kappa, const float *residual, float *out, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) out[i] = theta[i] - kappa * residual[i];
}

void lk_view_renew(const float *theta, float kappa, const float *residual, float *local,
                   float *anchor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float view = theta[i] - kappa * residual[i];
        float progress = local[i] - anchor[i];
        local[i] = view + progress;
        anchor[i] = view;
    }
}

void lk_view_cut(float beta, const float *residual, const float *local, float *anchor, float *out,
                 uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float delta = anchor[i] - local[i];
        out[i] = beta * residual[i] + delta;
        anchor[i] = local[i];
    }
}

void lk_view_feed(float beta, const float *residual, float *in_out, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) in_out[i] = beta * residual[i] + in_out[i];
}

void lk_view_uncut(float beta, const float *residual, const float *out, float *anchor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) anchor[i] += out[i] - beta * residual[i];
}
