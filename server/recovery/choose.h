// Choose: the state from which a shard recovers. See choose.c.
#ifndef PS_CHOOSE_H
#define PS_CHOOSE_H

#include "server/recovery/rebuilding.h"

struct lh_point ps_rebuild_own(const struct ps_rebuild *b); // the replica's point
// Do the coordinator's points rule this one out? It is above any log's reach, or has another chain
// than the reported one.
bool ps_rebuild_impossible(const struct ps_rebuild *b, const struct lh_point *p);
// Is it part of the shard's history, as far as known above the stable point?
bool ps_rebuild_counts(const struct ps_rebuild *b, const struct lh_point *p);
bool ps_rebuild_enough(const struct ps_rebuild *b, const struct lh_point *p); // stable, or given up
bool ps_state_same(const struct ps_state *a, const struct ps_state *b);
// The best state; *worker 0: our own. False: none is high enough and confirmed. A worker that
// missed its turn is asked again once all others have missed as many
// (server/docs/0000-protocol.md#rule-29).
bool ps_rebuild_choose(const struct ps_rebuild *b, struct ps_state *best, uint64_t *worker);
// Workers hold states that would do if they were confirmed.
bool ps_rebuild_undecided(const struct ps_rebuild *b);
void ps_rebuild_tell_undecided(struct ps_rebuild *b);  // logs the claims when they change
json_t *ps_rebuild_claims(const struct ps_rebuild *b); // gives the object

#endif
