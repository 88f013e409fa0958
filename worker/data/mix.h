// Chooses the unit of the window that gives the next sequence, and the window's width.
#ifndef WK_MIX_H
#define WK_MIX_H

#include <stdint.h>

#include "common/format/units.h"

struct wk_queued;

enum { WK_WINDOW_MIN = 8, WK_WINDOW_MAX = 64 };

// Index of the unit, or -1 when all of the n are trained to their end. taken[i] are the tokens that
// this step has of unit i already; draw is any number that differs from sequence to sequence: the
// same one draws the same unit. Every unit that has tokens left is as likely as another, so units
// end one by one, and what follows in a text is not what follows in training.
int wk_mix_draw(const struct wk_queued *unit, uint32_t n, const uint64_t *taken, uint64_t draw);

// `data.window: auto`: the 20th part of the run's units, from 8 to 64. Wider mixes better; but what
// lies half trained in the windows is not credited yet, and the learning rate follows the credit.
// budget_tokens: of the run; 0: all units.
uint32_t wk_mix_window(const struct lh_units *units, uint64_t budget_tokens);

#endif
