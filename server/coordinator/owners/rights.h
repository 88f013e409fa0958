// Rights: which servers' certificates may own a shard or stand by for it
// (server/docs/0004-authority.md#identity-before-role).
#ifndef PS_CO_RIGHTS_H
#define PS_CO_RIGHTS_H

#include "server/coordinator/core.h"

struct lh_adopt_request;
struct lh_request;

// Checks a message from the shard's owner: a report, an epoch, a change of its standby. The first
// server of a shard without names becomes its owner. LH_ERR_DENIED: it is not the owner.
LH_MUST lh_err ps_co_speaks_as_owner(struct ps_coordinator *c, uint32_t shard,
                                     const struct lh_peer *peer, uint64_t identity);
// The same for a server about to serve. A server that was adopted, or that may own the shard and
// was started with rebuild.below_stable, takes it from its owner here.
LH_MUST lh_err ps_co_speaks_to_serve(struct ps_coordinator *c, uint32_t shard,
                                     const struct lh_peer *peer, uint64_t identity,
                                     bool below_stable);
// Checks a report from a standby with a directory of that identity. The first standby of a shard
// without names gets the right. LH_ERR_DENIED: it may not stand by.
LH_MUST lh_err ps_co_speaks_as_standby(struct ps_coordinator *c, uint32_t shard,
                                       const struct lh_peer *peer, uint64_t identity);
// The server with that certificate may own the shard from now on (a take-over, a move).
LH_MUST lh_err ps_co_may_own(struct ps_coordinator *c, uint32_t shard, uint64_t server);
// Logs and counts a refused server.
void ps_co_refused_server(struct ps_coordinator *c, const struct lh_peer *peer, const char *event,
                          lh_err err);
// The ids of the certificates with a right to the shard; at most PS_CO_RIGHTS.
size_t ps_co_servers_of(const struct ps_coordinator *c, uint32_t shard, uint64_t *out);

// Checks coordinator.servers: "0-3=asia/ps-0+asia/ps-1,4=europe/ps-0".
LH_MUST lh_err ps_rights_check(const char *text);
LH_MUST lh_err ps_co_load_rights(struct ps_coordinator *c);
// An operator lets a server own shards and stand by for them; *shards: their number.
LH_MUST lh_err ps_co_adopt(struct ps_coordinator *c, const struct lh_adopt_request *m,
                           uint32_t *shards);
void ps_co_on_adopt(void *self, struct lh_request *rq, const void *m);

#endif
