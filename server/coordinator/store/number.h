// The number of a coordinator that leads (server/docs/0000-protocol.md#rule-38).
#ifndef PS_STORE_NUMBER_H
#define PS_STORE_NUMBER_H

#include "server/coordinator/store.h"

// Takes the next number and makes it the store's row `leader`. It is above that row, and at or
// above the milliseconds since 1970 at the last full second: so a store that was put back to an old
// copy still gives a higher number than before. Blocks. LH_ERR_DISK_FULL: `*out` is right, but not
// durable.
LH_MUST lh_err ps_store_number(struct lh_env *env, struct ps_store *s, uint64_t *out);

#endif
