// Owners: the row with a shard's owner and its standby in sync.
#ifndef PS_CO_OWNER_H
#define PS_CO_OWNER_H

#include "server/coordinator/core.h"

struct ps_co_owner {
    uint64_t identity; // identity of the server's directory
    uint64_t server;   // id of its certificate (lh_worker_id)
    uint64_t standby;  // the standby in sync; 0: none
    uint64_t least;    // the lowest epoch in which the owner may serve
};

// LH_ERR_FENCED: the shard belongs to another server. `identity`: the directory's, if the server
// may stand by; else 0.
LH_MUST lh_err ps_co_check_owner(const struct ps_coordinator *c, uint32_t shard, uint64_t identity);
// Makes that server the owner. The caller has checked everything.
LH_MUST lh_err ps_co_set_owner(struct ps_coordinator *c, uint32_t shard,
                               const struct ps_co_owner *to);
// Changes only the owner's certificate.
LH_MUST lh_err ps_co_set_server(struct ps_coordinator *c, uint32_t shard, uint64_t server);
// Changes the owner while the run goes on: the new one counts as heard now, and the former one's
// report no longer counts.
LH_MUST lh_err ps_co_hand_over(struct ps_coordinator *c, uint32_t shard,
                               const struct ps_co_owner *to);
LH_MUST lh_err ps_co_set_standby(struct ps_coordinator *c, uint32_t shard, uint64_t standby);
// Takes the owner's knowledge of its standby. If it knows of more changes than this store, the
// store is an old copy, and the owner's report counts.
LH_MUST lh_err ps_co_believe_owner(struct ps_coordinator *c, uint32_t shard, uint64_t standby,
                                   uint64_t changes);
// This standby may lack records that it confirmed: if it is in sync, none is from now on.
LH_MUST lh_err ps_co_strike_out(struct ps_coordinator *c, uint32_t shard, uint64_t identity);
// This standby gave up that name, because it may lack records that it confirmed under it.
LH_MUST lh_err ps_co_note_gone(struct ps_coordinator *c, uint32_t shard, uint64_t identity);
LH_MUST lh_err ps_co_store_insync(struct ps_coordinator *c, uint32_t shard);
LH_MUST lh_err ps_co_load_insync(struct ps_coordinator *c);

#endif
