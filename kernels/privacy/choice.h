// Each step's secret draw of records: each one with probability q, by itself.
#ifndef LK_PRIVACY_CHOICE_H
#define LK_PRIVACY_CHOICE_H

#include <stdint.h>

#include "common/env/env.h"

// No record: the pass is padding, its gradient counts as zero.
#define LK_CHOICE_NONE UINT32_MAX

// Draws from `records` records under a fresh key. out[cap]: their numbers, rising, then
// LK_CHOICE_NONE. A draw above the cap loses its last ones (common/privacy/sampling.h says what
// this adds to delta). Returns how many are kept; that number is as secret as the records.
uint32_t lk_choice_draw(struct lh_env *env, uint32_t records, double q, uint32_t cap,
                        uint32_t *out);

#endif
