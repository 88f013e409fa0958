// Fold: records, or a whole state, change a shard's durable state.
#ifndef PS_FOLD_H
#define PS_FOLD_H

#include "server/shard.h"

// One durable record, in order: folds it, indexes it. `plain` is that of an ADMIT that was unsealed
// to decide it, and empty where it was not (at a start).
LH_MUST lh_err ps_fold_record(struct ps_shard *s, const struct lh_record *r, struct lh_span plain,
                              struct ps_place place);
// As at the run's beginning, in memory.
LH_MUST lh_err ps_fold_anew(struct ps_shard *s);
// A whole state takes the place of what the replica holds. An error leaves that as it was.
LH_MUST lh_err ps_fold_load(struct ps_shard *s, struct lh_span state);

#endif
