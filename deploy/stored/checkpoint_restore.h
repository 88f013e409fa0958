// Servers' directories out of checkpoints, also onto another number of servers; and the removal of
// what is not needed any more.
#ifndef DP_CHECKPOINT_RESTORE_H
#define DP_CHECKPOINT_RESTORE_H

#include "deploy/stored/job.h"
#include "deploy/tool/cli.h"

struct dp_restore {
    struct dp_job *job; // open with all its parts
    const struct dp_texts *from;
    struct dp_texts to;
    const char *into, *export;             // one of them
    const char *shards, *sign_key, *epoch; // NULL: all; unsigned; as needed
};

// LH_ERR_EXISTS: `into` holds something; LH_ERR_BUSY: a server runs on one of `from`;
// LH_ERR_NOT_FOUND: a shard that nobody holds; and what dp_replay_dir() gives.
LH_MUST lh_err dp_checkpoint_restore(const struct dp_restore *q);
// LH_ERR_BUSY: a server runs there.
LH_MUST lh_err dp_checkpoint_prune(struct dp_job *job, const char *dir, unsigned keep);

#endif
