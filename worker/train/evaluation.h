// Evaluation during training: held-out losses at an interval of tokens, within a share of the time.
//
// It runs between two steps on the compute lane, on the current parameters. Its cost is measured:
// the next evaluation waits until all together take no more than the configured share of the time
// since the start.
#ifndef WK_EVALUATION_H
#define WK_EVALUATION_H

#include "common/env/env.h"
#include "common/format/units.h"
#include "worker/train/passes.h"
#include "worker/train/trainer.h"

struct wk_evaluation_conf {
    struct lh_env *env;
    const struct lh_units *units; // its held-out texts; not retained
    const char *dir;              // folder with their files
    uint64_t every_tokens;        // trained tokens between two evaluations
    uint64_t tokens;              // tokens of each text, from its start; 0: all
    double share;                 // maximum share of the time
};

struct wk_evaluation;

// Reads and checks (sha256) the texts. LH_ERR_CONFIG: the data has none; LH_ERR_NOT_FOUND and
// LH_ERR_CORRUPT name the file.
LH_MUST lh_err wk_evaluation_open(const struct wk_evaluation_conf *conf,
                                  struct wk_evaluation **out);
void wk_evaluation_close(struct wk_evaluation *e); // NULL is allowed

// After a step of this many tokens: evaluates if due; otherwise *out stays NULL.
LH_MUST lh_err wk_evaluation_step(struct wk_evaluation *e, const struct wk_passes *passes,
                                  const float *params, uint64_t tokens,
                                  const struct wk_evaluated **out);

#endif
