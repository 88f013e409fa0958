// The arithmetic of a worker's local view and its error feedback (DESIGN.md#section-6): the
// parameters that training uses, and the values that a cut takes from them. All arrays have n
// values of one shard and do not overlap.
//
// Devices have kernels with the bits of of(), delta() and of make() with move().
#ifndef LK_VIEW_H
#define LK_VIEW_H

#include <stdint.h>

enum { LK_VIEW_LINE = 16 }; // values of a cache line, which has one bit in `changed`

// out = theta - kappa * residual: a view without progress.
void lk_view_of(const float *theta, float kappa, const float *residual, float *out, uint64_t n);
// Adds the residual to progress that is already a delta: in_out = beta * residual + in_out.
void lk_view_feed(float beta, const float *residual, float *in_out, uint64_t n);
// Takes progress from copied parameters: out = beta * residual + (base - local), base minus local
// as deltas are. Neither base nor local changes; `out` may be `residual`.
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
