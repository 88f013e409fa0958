// A step's gradient under differential privacy at record level (deploy/docs/privacy.md).
//
// Each step draws each record with probability q under a fresh secret key, makes the same number of
// passes whatever it drew, clips the gradient of each record on its own, and gives their sum with
// noise over the expected number of records. What the trainer makes of it is post-processing.
//
// A record is a unit of the data: one document. Its first `record_tokens` tokens count, the rest is
// dropped. A pass is of one record, padded to that length, so it takes the same work for each.
#ifndef WK_RECORD_STEP_H
#define WK_RECORD_STEP_H

#include "worker/data/loader.h"
#include "worker/train/trainer.h"
#include "worker/train/transformer.h"

struct wk_record_step;

struct wk_record_step_conf {
    struct wk_records_conf of;
    struct wk_loader *loader;           // borrows
    struct wk_transformer *transformer; // borrows: of one sequence of record_tokens - 1 at least
    uint64_t values;                    // parameters
};

// LH_ERR_CONFIG: the region has no records, or too few for delta; a record is longer than the
// model's context; the noise's sampler is not exact enough for that many values and steps.
LH_MUST lh_err wk_record_step_open(const struct wk_record_step_conf *conf,
                                   struct wk_record_step **out);
void wk_record_step_close(struct wk_record_step *r); // NULL is allowed
// Inputs of all passes of a step: a constant of the run.
uint64_t wk_record_step_tokens(const struct wk_record_step *r);

// Makes gradient[values] of a step at these parameters; *loss: mean over the drawn records' tokens,
// 0 where none was drawn, which only this region may know. The loader's errors.
LH_MUST lh_err wk_record_step_run(struct wk_record_step *r, const float *params, float *gradient,
                                  double *loss);

// For tests: the same sum of clipped gradients before the noise, of a draw that the test made
// (kernels/privacy/choice.h). sum[values] is overwritten.
LH_MUST lh_err wk_record_step_sum(struct wk_record_step *r, const float *params,
                                  const uint32_t *drawn, float *gradient, int64_t *sum,
                                  double *loss);

#endif
