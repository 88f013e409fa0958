// Drain: an operator lets the run, a region or a worker stand still, or ends the run.
#ifndef PS_CO_DRAIN_H
#define PS_CO_DRAIN_H

#include "server/coordinator/core.h"

// Takes a DrainRequest. *worker: the one it names, or NULL.
LH_MUST lh_err ps_co_drain(struct ps_coordinator *c, const ProtobufCMessage *request,
                           struct ps_co_worker **worker);
void ps_co_on_expel(void *self, struct lh_request *rq, const ProtobufCMessage *message);
void ps_co_on_drain(void *self, struct lh_request *rq, const ProtobufCMessage *m);
LH_MUST lh_err ps_co_load_drains(struct ps_coordinator *c); // after the members

// Forgets what an operator wished of a run that has ended: to end it, or to let it stand still.
LH_MUST lh_err ps_co_forget_end(struct ps_coordinator *c);

#endif
