// Older copy: does a standby's point prove that this server's directory is an older copy
// (server/docs/0000-protocol.md#rule-27)?
#ifndef PS_OLDER_COPY_H
#define PS_OLDER_COPY_H

#include "server/shard.h"

// Does a standby's point prove it? Ignores whether the standby is trusted.
LH_MUST lh_err ps_older_copy_shown(const struct ps_shard *s, uint64_t standby,
                                   const struct lh_point *held, bool *shown);
// LH_ERR_FENCED, with a text for the operator.
LH_MUST lh_err ps_older_copy_error(const struct ps_shard *s, const struct lh_point *held);
// Checks the point that a standby reports. LH_ERR_FENCED: it is the noted standby and proves an
// older copy; LH_ERR_BUSY: it would prove one, but the coordinator has not yet named the noted
// standby.
LH_MUST lh_err ps_older_copy_check(const struct ps_shard *s, uint64_t standby,
                                   const struct lh_point *held);

#endif
