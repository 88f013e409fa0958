// A trainer's copy and renew, for parameters in an array of this process.
//
// Both use all processors: memory bandwidth limits a boundary.
#ifndef WK_HOST_H
#define WK_HOST_H

#include "worker/train/trainer.h"

// wk_trainer_ops.copy of value[the manifest's values].
void wk_host_copy(const float *value, uint64_t first, uint64_t values, float *slot);
// wk_trainer_ops.renew of value[the manifest's values].
void wk_host_renew(float *value, const struct wk_renewal *r);

#endif
