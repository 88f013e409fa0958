// A run's final parameters. See up_weights.c.
#ifndef DP_UP_WEIGHTS_H
#define DP_UP_WEIGHTS_H

#include "deploy/up/up.h"

// Reads the final parameters from the nodes' checkpoints into theta[manifest.values].
LH_MUST lh_err dp_weights_final(struct dp_up *up, float *theta);

#endif
