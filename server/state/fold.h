// Fold: what changes a shard's durable state, and the digest of that state (fold.c, digest.c).
#ifndef PS_FOLD_H
#define PS_FOLD_H

#include "server/shard.h"

// ---- fold.c
// One durable record, in order: folds it, indexes it. `plain` and `norm` are those of an ADMIT that
// was unsealed to decide it, and empty where it was not (at a start).
LH_MUST lh_err ps_fold_record(struct ps_shard *s, const struct lh_record *r, struct lh_span plain,
                              double norm, struct ps_place place);
// As at the run's beginning, in memory.
LH_MUST lh_err ps_fold_anew(struct ps_shard *s);
// A whole state takes the place of what the replica holds. An error leaves that as it was.
LH_MUST lh_err ps_fold_load(struct ps_shard *s, struct lh_span state);

// ---- digest.c
// Is the digest of the replica's version there? Else it is made beside the loop, and PS_WISHED is
// raised when it is. `holds`: nothing of the shard is decided before it is asked for again.
bool ps_digest_ready(struct ps_shard *s, bool holds);
// The same of all shards, for records of one group: nothing of any shard is decided before.
bool ps_digest_all_ready(struct ps_server *s);
bool ps_digest_holds(const struct ps_shard *s);
bool ps_digest_busy(const struct ps_shard *s);    // one is made, or its record is not decided yet
struct lh_hash ps_digest_now(struct ps_shard *s); // made at once, however long it takes
// A DIGEST record: checked against the digest that is there, or against one that is made now.
LH_MUST lh_err ps_digest_fold(struct ps_shard *s, const struct lh_record *r);
void ps_digest_free(struct ps_shard *s);

#endif
