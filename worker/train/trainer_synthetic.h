// The synthetic trainer: random steps for any model size, without data and with almost no work. It
// measures the delays around training (bench/round) and drills failures at full size.
#ifndef WK_TRAINER_SYNTHETIC_H
#define WK_TRAINER_SYNTHETIC_H

#include "common/format/manifest.h"
#include "worker/train/trainer.h"

struct wk_synthetic_conf {
    uint64_t values;              // parameters
    uint32_t sequence, sequences; // tokens per sequence; sequences per step
    uint64_t seed;
    double tokens_per_s; // throttle: fills wk_step_out.least_ns; 0: none
};

// A step moves every parameter by learning_rate times a standard normal number; its loss is 0.
// LH_ERR_CONFIG for a step without tokens. Memory: 4 bytes a parameter and 1 MiB.
LH_MUST lh_err wk_synthetic_create(const struct wk_synthetic_conf *conf, struct wk_trainer **out);

#endif
