// Shards at any version they had, from servers' directories, for commands: what the flags ask for,
// and what came of it. server/recovery/replay.h folds.
#ifndef DP_REPLAY_H
#define DP_REPLAY_H

#include <jansson.h>

#include "deploy/stored/job.h"
#include "server/recovery/replay.h"

struct dp_replay {
    struct dp_job *job;
    bool weights_only; // from weights-only checkpoints; nothing is folded onto them
    struct ps_replay fold;
    struct lh_hash *weights_digest; // Each file's digest of its parameters, with weights_only.
};

// The job must be open with all its parts.
LH_MUST lh_err dp_replay_create(struct dp_replay *r, struct dp_job *job);
void dp_replay_free(struct dp_replay *r);
// "VERSION", or "SHARD:VERSION" of one shard. LH_ERR_INVALID.
LH_MUST lh_err dp_replay_want(struct dp_replay *r, const char *text);
// Leaves out a worker's pushes: "REGION/NAME", or its 16 digits in logs. They must all be in the
// log, or `from` (NULL: none) must say from which version on: LH_ERR_NOT_FOUND of dp_replay_dir()
// names the first possible one.
LH_MUST lh_err dp_replay_without(struct dp_replay *r, const char *worker, const char *from);
// Brings a directory's shards to their versions. LH_ERR_NOT_FOUND: a version is gone, or not there
// yet; LH_ERR_INVALID: initial parameters are needed, or a shard already came from another
// directory; LH_ERR_CORRUPT: damage, or a DIGEST record made by another state.
LH_MUST lh_err dp_replay_dir(struct dp_replay *r, const char *dir);
// Rows of the shards: shard, version, epoch, from, records, chain, digest. The caller drops it.
LH_MUST lh_err dp_replay_rows(const struct dp_replay *r, json_t **out);
// LH_ERR_NOT_FOUND names the model's shards that no directory had.
LH_MUST lh_err dp_replay_complete(const struct dp_replay *r);
// Writes the parameters (weights_file.h); every shard must be there, as dp_replay_complete() says.
LH_MUST lh_err dp_replay_export(const struct dp_replay *r, const char *path);

#endif
