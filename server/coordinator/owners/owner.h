// Owners: the row that says whose a shard is, and which standby is in sync.
#ifndef PS_CO_OWNER_H
#define PS_CO_OWNER_H

#include "server/coordinator/core.h"

struct ps_co_owner {
    uint64_t identity; // the identity of the server's directory
    uint64_t server;   // the id of its certificate (lh_worker_id)
    uint64_t standby;  // the standby in sync; 0: none
    uint64_t least;    // the lowest epoch in which the owner may serve
};

// LH_ERR_FENCED: the shard belongs to another server. `identity`: of a server that may stand by;
// else 0.
LH_MUST lh_err ps_co_check_owner(const struct ps_coordinator *c, uint32_t shard, uint64_t identity);
// The shard belongs to that server. Nothing is asked: the caller has.
LH_MUST lh_err ps_co_set_owner(struct ps_coordinator *c, uint32_t shard,
                               const struct ps_co_owner *to);
// The same where its directory's row stays as it is: the certificate alone is another one.
LH_MUST lh_err ps_co_set_server(struct ps_coordinator *c, uint32_t shard, uint64_t server);
// The same while the run goes on: the new owner is heard from now on, and the former one's report
// no longer counts.
LH_MUST lh_err ps_co_hand_over(struct ps_coordinator *c, uint32_t shard,
                               const struct ps_co_owner *to);
LH_MUST lh_err ps_co_set_standby(struct ps_coordinator *c, uint32_t shard, uint64_t standby);
// Takes what the owner knows of its standby. Where it knows of more changes than this store has,
// the store is an old copy, and the owner's word counts.
LH_MUST lh_err ps_co_believe_owner(struct ps_coordinator *c, uint32_t shard, uint64_t standby,
                                   uint64_t changes);
// This standby may lack what it confirmed: if it is the one in sync, none is from now on.
LH_MUST lh_err ps_co_strike_out(struct ps_coordinator *c, uint32_t shard, uint64_t identity);
// This standby gave that name up, because it may lack what it confirmed under it.
LH_MUST lh_err ps_co_note_gone(struct ps_coordinator *c, uint32_t shard, uint64_t identity);
LH_MUST lh_err ps_co_store_insync(struct ps_coordinator *c, uint32_t shard);
LH_MUST lh_err ps_co_load_insync(struct ps_coordinator *c);

#endif
