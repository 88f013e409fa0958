// Status for operators. ps_coordinator_status() and related calls are in coordinator.h.
#ifndef PS_CO_STATUS_H
#define PS_CO_STATUS_H

#include "server/coordinator/core.h"

struct lh_status_request;

// A page of units as JSON.
LH_MUST lh_err ps_co_leases(const struct ps_coordinator *c, const struct lh_status_request *q,
                            struct lh_buf *out);
void ps_co_on_status(void *self, struct lh_request *rq, const void *m);
LH_MUST lh_err ps_co_load_status(struct ps_coordinator *c); // drops a status not yet durable

// A slice of the whole state's text, which a few operators may read at once: *number 0 starts over,
// and stays 0 if `out` holds the whole text. `reader`: id of the caller's certificate.
// LH_ERR_BUSY: too many others, or this reader, started over meanwhile.
LH_MUST lh_err ps_co_status_slice(struct ps_coordinator *c, uint64_t reader, uint64_t *number,
                                  uint64_t from, struct lh_buf *out, uint64_t *bytes);

#endif
