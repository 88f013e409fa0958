// Digest: the hash of a shard's state that goes into the log, made beside the loop where the state
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
    bool held;  // nothing of the shard is decided until its record is
    bool known; // `hash` is of the state that ends this chain
    struct lh_hash chain, hash;
};

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
