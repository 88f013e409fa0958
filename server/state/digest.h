// Digest: the hash of a shard's state that goes into the log, computed beside the loop if the state
// is large.
#ifndef PS_DIGEST_H
#define PS_DIGEST_H

#include "kernels/state/replica.h"

struct ps_server;
struct ps_shard;

struct ps_digest { // the digest of a shard's state
    struct ps_shard *shard;
    struct lk_digest making; // on the compute lane, while `busy`
    lh_err result;
    bool busy;
    bool held;  // the shard decides nothing before this digest's record
    bool known; // `hash` is of the state at `chain`
    struct lh_hash chain, hash;
};

// Is the digest of the replica's current version ready? If not, computes it beside the loop, then
// raises PS_WISHED. `holds`: the shard decides nothing until this is asked again.
bool ps_digest_ready(struct ps_shard *s, bool holds);
// The same for all shards, for records of one group; no shard decides anything before.
bool ps_digest_all_ready(struct ps_server *s);
bool ps_digest_holds(const struct ps_shard *s);
bool ps_digest_busy(const struct ps_shard *s);    // being computed, or its record is not decided
                                                  // yet
struct lh_hash ps_digest_now(struct ps_shard *s); // computed at once, however long it takes
// A DIGEST record: checked against the ready digest, or against one computed now.
LH_MUST lh_err ps_digest_fold(struct ps_shard *s, const struct lh_record *r);
void ps_digest_free(struct ps_shard *s);

#endif
