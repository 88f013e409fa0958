// Evaluation during training: held-out losses every so many tokens, within a share of the time.
//
// It runs between two steps on the compute lane, on the parameters that training goes on from. What
// it costs is measured: the next one waits until all together take no more than the share of the
// time since the start that the settings give them.
#ifndef WK_EVALUATION_H
#define WK_EVALUATION_H

#include "common/env/env.h"
#include "common/format/units.h"
#include "worker/train/trainer.h"
#include "worker/train/passes.h"

struct wk_evaluation_conf {
    struct lh_env *env;
    const struct lh_units *units; // its held-out texts; not kept
    const char *dir;              // folder of their files
    uint64_t every_tokens;        // trained between two
    uint64_t tokens;              // how much of each text, from its start; 0: all
    double share;                 // the most of the time that it may take
};

struct wk_evaluation;

// Reads and checks (sha256) the texts. LH_ERR_CONFIG: the data has none; LH_ERR_NOT_FOUND,
// LH_ERR_CORRUPT with the file.
LH_MUST lh_err wk_evaluation_open(const struct wk_evaluation_conf *conf,
                                  struct wk_evaluation **out);
void wk_evaluation_close(struct wk_evaluation *e); // NULL is allowed

// After a step of so many tokens: evaluates when it is due. *out stays NULL when not.
LH_MUST lh_err wk_evaluation_step(struct wk_evaluation *e, const struct wk_passes *passes,
                                  const float *params, uint64_t tokens,
                                  const struct wk_evaluated **out);

#endif
