// A trainer's two operations at a boundary, where its parameters lie in an array of this process.
//
// All processors work on both: a boundary is as short as the memory allows.
#ifndef WK_HOST_H
#define WK_HOST_H

#include "worker/train/trainer.h"

// wk_trainer_ops.copy of value[the manifest's values].
void wk_host_copy(const float *value, uint64_t first, uint64_t values, float *slot);
// wk_trainer_ops.renew of them.
void wk_host_renew(float *value, const struct wk_renewal *r);

#endif
