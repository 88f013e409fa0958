// A run that has ended goes on with a larger budget: `longhaul up --continue`. The log of a run
// that has ended takes no further record, so each *leg* is a log of its own, in the same folder.
//
//   DIR/leg-1/       all that was in the folder when the first leg had ended, its keys too
//   DIR/weights.bin  the parameters that the leg before ended with
//   DIR/leg          tokens that the legs before credited
//   DIR/left/        units.json of what none of them credited, and links to its token files
//
// A leg begins with the parameters, with keys of its own, and with the built-in trainer's warm-up.
// Residuals and the optimizers' moments do not come along.
#ifndef DP_UP_LEG_H
#define DP_UP_LEG_H

#include "deploy/up/up.h"

// With --continue: begins the next leg in the locked folder. LH_ERR_CONFIG: the run has not ended,
// or nothing is left to train.
LH_MUST lh_err dp_leg_begin(struct dp_up *up);
// Takes what earlier legs credited off the budget, and their units off the data. Nothing happens in
// a folder of one leg.
LH_MUST lh_err dp_leg_apply(struct dp_up *up);
// Tokens that the legs before credited.
LH_MUST lh_err dp_leg_before(const struct dp_up *up, uint64_t *tokens);

#endif
