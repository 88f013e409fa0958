// Start: a worker resumes from its directory. See start.c.
#ifndef WK_START_H
#define WK_START_H

#include "worker/worker.h"

// Reads identity, slots, outbox, replicas and the optimizer's state. LH_ERR_CORRUPT, LH_ERR_IO: a
// required file can't be read.
LH_MUST lh_err wk_start_resume(struct wk_worker *w);
// Reserves memory for the parameters of a first snapshot, before its bytes arrive. LH_OK if the
// replica already has a state.
LH_MUST lh_err wk_start_reserve(struct wk_shard *s);

#endif
