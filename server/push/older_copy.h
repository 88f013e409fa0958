// Older copy: does what a standby holds show that this server's directory is an older copy
// (server/docs/0000-protocol.md#rule-27)?
#ifndef PS_OLDER_COPY_H
#define PS_OLDER_COPY_H

#include "server/shard.h"

// Does what a standby holds show it, whether it is believed or not?
LH_MUST lh_err ps_older_copy_shown(const struct ps_shard *s, uint64_t standby,
                                   const struct lh_point *held, bool *shown);
// LH_ERR_FENCED, with a text for the operator.
LH_MUST lh_err ps_older_copy_error(const struct ps_shard *s, const struct lh_point *held);
// A standby came with what it holds. LH_ERR_FENCED: it is the noted one and shows an older copy;
// LH_ERR_BUSY: it shows one, and the coordinator has not said yet which standby is noted.
LH_MUST lh_err ps_older_copy_check(const struct ps_shard *s, uint64_t standby,
                                   const struct lh_point *held);

#endif
