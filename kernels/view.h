// The arithmetic of a worker's local view and of its error feedback (DESIGN.md#section-6): what
// training runs on, what a cut takes from it. All arrays have n values of one shard and do not
// overlap.
//
// start(), renew(), cut() and uncut() change parameters in place; the CUDA kernels do this on a
// device. A worker's parameters belong to its trainer, so it uses of(), make(), move() and delta().
#ifndef LK_VIEW_H
#define LK_VIEW_H

#include <stdint.h>

enum { LK_VIEW_LINE = 16 }; // values of a cache line: what a bit of `changed` stands for

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
// Takes progress from parameters that were copied: out = beta * residual + (base - local), with
// lk_view_cut's bits. Neither base nor local changes.
void lk_view_delta(float beta, const float *residual, const float *base, const float *local,
                   float *out, uint64_t n);
// A renewal in two: make() while training goes on, move() between two steps. make() gives the new
// view, out = theta - kappa * residual, and which lines of it are other ones than those of `from`:
// bit i % 64 of changed[i / 64] is line i, changed[(n + 1023) / 1024]. move() puts the new view
// under the progress where it is another one, local = to + (local - from), and where few lines
// changed it reads no others. Values that did not change keep their bits; those without progress
// become `to` exactly.
void lk_view_make(const float *theta, float kappa, const float *residual, const float *from,
                  float *out, uint64_t *changed, uint64_t n);
void lk_view_move(const float *from, const float *to, const uint64_t *changed, float *local,
                  uint64_t n);

#endif
