// A communicator for a sharded optimizer (worker/ranks/zero.h), by its operations alone.
#ifndef WK_COMM_ZERO_H
#define WK_COMM_ZERO_H

#include "worker/ranks/comm/comm.h"

// An epoch begins: parameters from rank 0 to all; the moments that are left to rank 0's mirror, and
// from there to their new owners, unless nobody came or went: then all keep theirs.
// LH_ERR_PROTOCOL: a rank has not what the leader believes.
LH_MUST lh_err wk_comm_zero_share(struct wk_comm *c);
// The rest of a step, once all sums are there: norm, update, and the new parameters to all.
LH_MUST lh_err wk_comm_zero_step(struct wk_comm *c);

#endif
