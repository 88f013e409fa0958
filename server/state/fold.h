// Fold: applies records, or a whole state, to a shard's durable state.
#ifndef PS_FOLD_H
#define PS_FOLD_H

#include "server/shard.h"

// Folds one durable record, in log order, and indexes it. `plain` is the payload of an ADMIT
// unsealed for its decision; empty otherwise (at a start).
LH_MUST lh_err ps_fold_record(struct ps_shard *s, const struct lh_record *r, struct lh_span plain,
                              struct ps_place place);
// Resets the shard, in memory, to the run's beginning.
LH_MUST lh_err ps_fold_anew(struct ps_shard *s);
// Replaces the replica's state by a whole state. An error leaves the replica unchanged.
LH_MUST lh_err ps_fold_load(struct ps_shard *s, struct lh_span state);

#endif
