// In sync: which standby may take a shard over, and when. `server` is always the id of a server's
// certificate (lh_worker_id).
#ifndef PS_CO_INSYNC_H
#define PS_CO_INSYNC_H

#include "server/coordinator/core.h"

struct lh_report_request;

// An operator gives the shard to this server, regardless of its owner and standby.
LH_MUST lh_err ps_co_give_up_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                                   uint64_t server);
// Handles a message of the shard's owner. LH_ERR_FENCED: it is not the owner, or may not go on.
LH_MUST lh_err ps_co_heard_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                                 uint64_t server, uint64_t process, const struct lh_point *head);
// Handles a standby's report. *serves: it owns all of its shards, newly or already.
LH_MUST lh_err ps_co_turns(struct ps_coordinator *c, const struct lh_report_request *m,
                           uint64_t server, bool *serves);
void ps_co_on_insync(void *self, struct lh_request *rq, const void *m);

#endif
