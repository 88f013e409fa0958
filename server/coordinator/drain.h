// Drain: an operator pauses the run, a region or a worker, or ends the run.
#ifndef PS_CO_DRAIN_H
#define PS_CO_DRAIN_H

#include "server/coordinator/core.h"

struct lh_drain_request;

// Handles a DrainRequest. *worker: the named worker, or NULL.
LH_MUST lh_err ps_co_drain(struct ps_coordinator *c, const struct lh_drain_request *m,
                           struct ps_co_worker **worker);
void ps_co_on_expel(void *self, struct lh_request *rq, const void *message);
void ps_co_on_pause(void *self, struct lh_request *rq, const void *m);
void ps_co_on_drain(void *self, struct lh_request *rq, const void *m);
LH_MUST lh_err ps_co_load_drains(struct ps_coordinator *c); // after the members

// Removes an operator's command to end or to pause a run that has ended.
LH_MUST lh_err ps_co_forget_end(struct ps_coordinator *c);

#endif
