// The modelled trainer: a step lasts as long as its tokens take at the region's speed.
#ifndef BENCH_SIM_TRAINER_H
#define BENCH_SIM_TRAINER_H

#include "bench/sim/scene.h"
#include "common/env/env.h"
#include "worker/train/trainer.h"

// The work of a region, over all restarts of its worker.
struct modelled_work {
    uint64_t tokens;
    int64_t busy_ns;
};

// `values` parameters. Times count from *begins_ns, which may be set later. Borrows all three.
struct wk_trainer *modelled_trainer(struct lh_env *env, uint64_t values,
                                    const struct scene_region *region, const int64_t *begins_ns,
                                    struct modelled_work *work);

#endif
