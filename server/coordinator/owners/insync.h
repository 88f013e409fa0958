// In sync: which standby may take a shard over, and when it does. `server` is always the id of a
// server's certificate (lh_worker_id).
#ifndef PS_CO_INSYNC_H
#define PS_CO_INSYNC_H

#include "server/coordinator/core.h"

struct Longhaul__V1__ReportRequest;

// An operator gives the shard to this server, whoever has it or is in sync.
LH_MUST lh_err ps_co_give_up_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                                   uint64_t server);
// A server speaks as the shard's owner, and is heard. LH_ERR_FENCED: it is not, or may not go on.
LH_MUST lh_err ps_co_heard_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                                 uint64_t server, uint64_t process, const struct lh_point *head);
// A standby reports. *serves: all of its shards are its own, since now or before.
LH_MUST lh_err ps_co_turns(struct ps_coordinator *c, const struct Longhaul__V1__ReportRequest *m,
                           uint64_t server, bool *serves);
void ps_co_on_insync(void *self, struct lh_request *rq, const ProtobufCMessage *m);

#endif
