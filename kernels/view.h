// The arithmetic of a worker's local view and of its error feedback (DESIGN.md#section-6): what
// training runs on, what a cut takes from it. All arrays have n values of one shard and do not
// overlap.
#ifndef LK_VIEW_H
#define LK_VIEW_H

#include <stdint.h>

// local = anchor = theta - kappa * residual: a view without progress.
void lk_view_start(const float *theta, float kappa, const float *residual, float *local,
                   float *anchor, uint64_t n);
// The same, for whoever is elsewhere: out = theta - kappa * residual.
void lk_view_of(const float *theta, float kappa, const float *residual, float *out, uint64_t n);
// Another theta or residual under the same progress: local becomes
// theta - kappa * residual + (local - anchor), anchor the view without the progress.
void lk_view_renew(const float *theta, float kappa, const float *residual, float *local,
                   float *anchor, uint64_t n);
// Takes the progress since the last cut: out = beta * residual + (anchor - local), base minus local
// as deltas are; anchor becomes local.
void lk_view_cut(float beta, const float *residual, const float *local, float *anchor, float *out,
                 uint64_t n);
// The same of progress that is there as a delta: in_out = beta * residual + in_out.
void lk_view_feed(float beta, const float *residual, float *in_out, uint64_t n);
// Gives the progress back that lk_view_cut took into `out`, to within its roundings.
void lk_view_uncut(float beta, const float *residual, const float *out, float *anchor, uint64_t n);

#endif
