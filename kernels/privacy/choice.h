// Each step's secret draw of records: each one independently with probability q.
#ifndef LK_PRIVACY_CHOICE_H
#define LK_PRIVACY_CHOICE_H

#include <stdint.h>

#include "common/env/env.h"

// No record: the pass is padding, and its gradient counts as zero.
#define LK_CHOICE_NONE UINT32_MAX

// Draws from `records` records under a fresh key. out[cap]: their numbers, rising, then
// LK_CHOICE_NONE. A draw above the cap loses its last records (common/privacy/sampling.h gives the
// addition to delta). Returns the number kept, which is as secret as the records.
uint32_t lk_choice_draw(struct lh_env *env, uint32_t records, double q, uint32_t cap,
                        uint32_t *out);

#endif
