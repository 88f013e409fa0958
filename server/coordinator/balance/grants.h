// Grants: numbers and tags that prove a lease to the shards' servers. See grants.c.
#ifndef PS_CO_GRANTS_H
#define PS_CO_GRANTS_H

#include "common/net/wire_member.h"
#include "server/coordinator/core.h"

// Reads the run's grant key; draws one if the store has none. Call before loading leases.
LH_MUST lh_err ps_co_load_grants(struct ps_coordinator *c);
// Stores the key if missing: call before a server gets its part of the key.
LH_MUST lh_err ps_co_grants_keep(struct ps_coordinator *c);
// Appends the grants of the units leased to this worker (its index), except those that its request
// already holds.
LH_MUST lh_err ps_co_grants_tell(const struct ps_coordinator *c, uint32_t worker,
                                 const struct lh_lease_request *m, const uint64_t *unit,
                                 size_t units, struct lh_buf *out);
// The most tokens that the worker's pushes to one shard may count, with the shards' tags.
float ps_co_allowance(const struct ps_coordinator *c, const struct ps_co_worker *w, uint64_t *tag);
struct lh_grant_key ps_co_shard_key(const struct ps_coordinator *c, uint32_t shard);

#endif
