// Chooses the unit of the window that gives the next sequence, and the window's width.
#ifndef WK_MIX_H
#define WK_MIX_H

#include <stdint.h>

#include "common/format/units.h"

struct wk_queued;

enum { WK_WINDOW_MIN = 8, WK_WINDOW_MAX = 64 };

// Index of the unit, or -1 if all n units are trained to their end. taken[i]: tokens of unit i that
// this step already has. draw: a number that differs from sequence to sequence; equal draws give
// the same unit. Every unit with tokens left is equally likely, so units end one by one, and
// neighbours in a text are not neighbours in training.
int wk_mix_draw(const struct wk_queued *unit, uint32_t n, const uint64_t *taken, uint64_t draw);

// `data.window: auto`: the 20th part of the run's units, from 8 to 64. A wider window mixes better,
// but its partly trained units are not credited yet, and the learning rate follows the credit.
// budget_tokens: of the run; 0: all units.
uint32_t wk_mix_window(const struct lh_units *units, uint64_t budget_tokens);

#endif
