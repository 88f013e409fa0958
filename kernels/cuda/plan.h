// A shard's layout and codec in the plugin's form (plugin.h).
#ifndef LK_CUDA_PLAN_H
#define LK_CUDA_PLAN_H

#include "kernels/codec.h"
#include "kernels/cuda/plugin.h"

// LH_ERR_UNSUPPORTED, LH_ERR_INVALID: as lk_encode(); LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_gpu_plan_create(const struct lk_codec *codec,
                                  const struct lh_shard_layout *layout, struct lk_gpu_plan *out);
void lk_gpu_plan_free(struct lk_gpu_plan *p);

// A payload that passed lk_payload_check(), for a fold: its codec and its own Rice parameter.
struct lk_gpu_record lk_gpu_record_of(const struct lk_codec *codec, struct lh_span payload,
                                      const uint8_t *device_payload, float scale);

#endif
