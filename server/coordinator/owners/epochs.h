// Epochs: where the histories of each shard began, and the compare-and-swap that opens another one.
#ifndef PS_CO_EPOCHS_H
#define PS_CO_EPOCHS_H

#include "server/coordinator/core.h"

// Opens an epoch: *opened, unless the last one is not the expected one, or it begins below
// the stable point and that is not given up. Opened once, the same epoch, point and token are
// again. `from`: the standby whose whole state it begins from; 0: none. While a standby is in sync
// an epoch begins from its state or not at all.
LH_MUST lh_err ps_co_open_epoch(struct ps_coordinator *c, uint32_t shard, uint64_t expect,
                                const struct lh_point *open, uint64_t token, uint64_t from,
                                bool below_stable, bool rewound, bool *opened);
// Each shard's first ticket in this life, whose listener has begun.
void ps_co_first_tickets(struct ps_coordinator *c);
// Uses the ticket up. False: another one is in force, and the request comes late.
bool ps_co_use_ticket(struct ps_co_shard *s, uint64_t ticket);
// Takes an epoch that somebody serves in. begins->version 0: not known where it begins.
LH_MUST lh_err ps_co_adopt_epoch(struct ps_coordinator *c, uint32_t shard,
                                 const struct lh_point *begins);
// Refuses what a server says of a history that is known to be an old copy's: below the stable point
// of its epoch, or below what another process reported in it
// (server/docs/0000-protocol.md#rule-27). The latter is known from this process's life alone.
LH_MUST lh_err ps_co_check_history(const struct ps_coordinator *c, uint32_t shard, uint64_t process,
                                   const struct lh_point *head);
LH_MUST lh_err ps_co_load_epochs(struct ps_coordinator *c);

#endif
