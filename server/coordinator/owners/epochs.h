// Epochs: the beginnings of each shard's histories, and the compare-and-swap that opens a new one.
#ifndef PS_CO_EPOCHS_H
#define PS_CO_EPOCHS_H

#include "server/coordinator/core.h"

// Opens an epoch: sets *opened, unless the last epoch is not `expect`, or the new one begins below
// the stable point without `below_stable`. A repeated request with the same epoch, point and token
// succeeds again. `from`: the standby whose whole state it begins from; 0: none. While a standby is
// in sync, an epoch begins from its state only.
LH_MUST lh_err ps_co_open_epoch(struct ps_coordinator *c, uint32_t shard, uint64_t expect,
                                const struct lh_point *open, uint64_t token, uint64_t from,
                                bool below_stable, bool rewound, bool *opened);
// Refuses an epoch or a version that no log can have reached. No epoch could begin above one near
// 2^64, so a server that reports such a number would keep the shard for ever.
LH_MUST lh_err ps_co_check_reach(const struct ps_coordinator *c, uint32_t shard, uint64_t epoch,
                                 uint64_t version);
// Sets each shard's first ticket of this process; the listener must run.
void ps_co_first_tickets(struct ps_coordinator *c);
// Uses up the ticket. False: another one is valid, so the request is late.
bool ps_co_use_ticket(struct ps_co_shard *s, uint64_t ticket);
// Registers an epoch in which a server already serves. begins->version 0: beginning unknown.
LH_MUST lh_err ps_co_adopt_epoch(struct ps_coordinator *c, uint32_t shard,
                                 const struct lh_point *begins);
// Refuses a report from an older copy: below the stable point of its epoch, or below another
// process's report in it (server/docs/0000-protocol.md#rule-27). This process knows only reports
// that it received itself.
LH_MUST lh_err ps_co_check_history(const struct ps_coordinator *c, uint32_t shard, uint64_t process,
                                   const struct lh_point *head);
LH_MUST lh_err ps_co_load_epochs(struct ps_coordinator *c);

#endif
