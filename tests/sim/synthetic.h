// The synthetic trainer: costs nothing, and its deltas are positive. See synthetic.c.
#ifndef SIM_SYNTHETIC_H
#define SIM_SYNTHETIC_H

#include "common/env/env.h"
#include "worker/train/trainer.h"

#define SIM_FOR_GOOD (INT64_C(1000000) * LH_SECOND)

// Creates a trainer with `values` parameters and steps of 16 tokens that last at least `step_ms`.
// Its progress comes from the env's random numbers. Free it with its destroy().
struct wk_trainer *sim_trainer_new(struct lh_env *env, uint64_t values, uint64_t step_ms);
// Its parameters, [values], valid until destroy().
float *sim_trainer_values(struct wk_trainer *t);
// Makes progress a multiple of `quantum`, a power of two, instead of a quarter.
void sim_trainer_quantum(struct wk_trainer *t, float quantum);
// Sets the loss that its steps report.
void sim_trainer_tells(struct wk_trainer *t, float loss);
// Sets how long the next step takes.
void sim_trainer_hang(struct wk_trainer *t, int64_t ns);
// Sets the units with damaged files, whose steps fail. Borrows unread[units].
void sim_trainer_unread(struct wk_trainer *t, const bool *unread, uint64_t units);
// Sets the error of such a step, instead of that for a damaged file.
void sim_trainer_unread_as(struct wk_trainer *t, lh_err err);

#endif
