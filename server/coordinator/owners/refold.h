// Refold: an operator's order to take all shards back, to earlier versions or to the fold without a
// worker's pushes (server/docs/0000-protocol.md#rule-33; the servers' half is
// server/recovery/refold.c).
#ifndef PS_CO_REFOLD_H
#define PS_CO_REFOLD_H

#include "server/coordinator/core.h"

struct lh_refold_order;
struct lh_refold_reply;
struct lh_refold_request;
struct lh_report_request;
struct lh_peer;
struct lh_request;

LH_MUST lh_err ps_co_refold_make(struct ps_coordinator *c);
LH_MUST lh_err ps_co_load_refold(struct ps_coordinator *c);

// An operator's request: begins an order, joins the current one, or asks for its result.
// LH_ERR_INVALID, LH_ERR_NOT_FOUND, LH_ERR_BUSY: nothing was changed; the text says why.
LH_MUST lh_err ps_co_refold(struct ps_coordinator *c, const struct lh_peer *asker,
                            const struct lh_refold_request *m, struct lh_refold_reply *out);
void ps_co_on_refold(void *self, struct lh_request *rq, const void *m);

// Handles the part of an owner's report about the order.
LH_MUST lh_err ps_co_refold_heard(struct ps_coordinator *c, const struct lh_report_request *m);
// Fills in the order for the answer to an owner's report; false: none. The caller frees out->to.
bool ps_co_refold_tell(struct ps_coordinator *c, const struct lh_report_request *m,
                       struct lh_refold_order *out);

// True: an order is being carried out, and the shard's server has not yet reported its result.
// Until then no standby joins the shard, and the shard is not moved.
bool ps_co_refold_goes(const struct ps_coordinator *c, uint32_t shard);

#endif
