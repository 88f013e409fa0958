// The arithmetic of a worker's local view and its error feedback (DESIGN.md#section-6): the
// parameters that training uses, and the values that a cut takes from them. All arrays have n
// values of one shard and do not overlap.
//
// start(), renew(), cut() and uncut() change parameters in place; the CUDA kernels do this on a
// device. A worker's parameters belong to its trainer, so it uses of(), make(), move() and delta().
#ifndef LK_VIEW_H
#define LK_VIEW_H

#include <stdint.h>

enum { LK_VIEW_LINE = 16 }; // values of a cache line, which has one bit in `changed`

// local = anchor = theta - kappa * residual: a view without progress.
void lk_view_start(const float *theta, float kappa, const float *residual, float *local,
                   float *anchor, uint64_t n);
// The same into another array: out = theta - kappa * residual.
void lk_view_of(const float *theta, float kappa, const float *residual, float *out, uint64_t n);
// Changes theta or the residual and keeps the progress: local becomes theta - kappa * residual +
// (local - anchor), and anchor the view without the progress.
void lk_view_renew(const float *theta, float kappa, const float *residual, float *local,
                   float *anchor, uint64_t n);
// Takes the progress since the last cut: out = beta * residual + (anchor - local), base minus local
// as deltas are; anchor becomes local.
void lk_view_cut(float beta, const float *residual, const float *local, float *anchor, float *out,
                 uint64_t n);
// The same if the progress is already a delta: in_out = beta * residual + in_out.
void lk_view_feed(float beta, const float *residual, float *in_out, uint64_t n);
// Takes progress from copied parameters: out = beta * residual + (base - local), with lk_view_cut's
// bits. Neither base nor local changes; `out` may be `residual`.
void lk_view_delta(float beta, const float *residual, const float *base, const float *local,
                   float *out, uint64_t n);
// A renewal in two parts: make() during training, move() between two steps. make() gives the new
// view, out = theta - kappa * residual, and marks its lines that differ from `from`: bit i % 64 of
// changed[i / 64] is line i, changed[(n + 1023) / 1024]. move() applies the changed lines, local =
// to + (local - from), and reads only these if few changed. Unchanged values keep their bits;
// values without progress become `to` exactly.
void lk_view_make(const float *theta, float kappa, const float *residual, const float *from,
                  float *out, uint64_t *changed, uint64_t n);
void lk_view_move(const float *from, const float *to, const uint64_t *changed, float *local,
                  uint64_t n);

#endif
