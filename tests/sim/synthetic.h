// The synthetic trainer: costs nothing, and its deltas are positive. See synthetic.c.
#ifndef SIM_SYNTHETIC_H
#define SIM_SYNTHETIC_H

#include "common/env/env.h"
#include "worker/train/trainer.h"

#define SIM_FOR_GOOD (INT64_C(1000000) * LH_SECOND)

// `values` parameters, steps of 16 tokens that last `step_ms` at least; its progress comes from the
// env's random numbers. Free it with its destroy().
struct wk_trainer *sim_trainer_new(struct lh_env *env, uint64_t values, uint64_t step_ms);
// Its parameters, [values]; until destroy().
float *sim_trainer_values(struct wk_trainer *t);
// Progress in multiples of this as well, not only of a quarter. A power of two.
void sim_trainer_quantum(struct wk_trainer *t, float quantum);
// The loss of its steps: nothing but what the trainer says.
void sim_trainer_tells(struct wk_trainer *t, float loss);
// The next step takes so long.
void sim_trainer_hang(struct wk_trainer *t, int64_t ns);
// Units of the data whose files are damaged: a step of one fails. Borrows unread[units].
void sim_trainer_unread(struct wk_trainer *t, const bool *unread, uint64_t units);
// The error of such a step, instead of that of a damaged file.
void sim_trainer_unread_as(struct wk_trainer *t, lh_err err);

#endif
