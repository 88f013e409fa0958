// Start: a worker resumes from its directory. See start.c.
#ifndef WK_START_H
#define WK_START_H

#include "worker/worker.h"

// Reads identity, slots, outbox, replicas and the optimizer's state. LH_ERR_CORRUPT,
// LH_ERR_IO: a file that the worker can't do without can't be read.
LH_MUST lh_err wk_start_resume(struct wk_worker *w);
// Reserves memory for the parameters of a first snapshot, before its bytes come. LH_OK where the
// replica has its state already.
LH_MUST lh_err wk_start_reserve(struct wk_shard *s);

#endif
