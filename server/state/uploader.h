// Uploader: a server's newest checkpoints go into an object store, beside training
// (kernels/state/stored.h).
//
// It has a thread of its own, which looks at the folder of checkpoints and knows nothing of the
// core: a store that is away, slow or full costs nothing but the age of what it holds. A process
// that dies in the middle leaves nothing that counts.
#ifndef PS_UPLOADER_H
#define PS_UPLOADER_H

#include <jansson.h>

#include "common/env/log.h"
#include "common/objects/objects.h"

struct ps_uploader;

struct ps_uploader_conf {
    struct lh_env *env;
    struct lh_log *log;
    const char *dir; // folder of the checkpoints
    const uint32_t *shards;
    uint32_t shard_count;
    unsigned keep;                // checkpoints of each shard and channel that the store keeps
    struct lh_objects_conf store; // env and stop are the uploader's
    int64_t look_ns, again_ns;    // between two looks, and after a failure; 0: 2 s and 10 s
};

// Borrows what conf points at. LH_ERR_CONFIG, LH_ERR_UNSUPPORTED, LH_ERR_NO_MEMORY.
LH_MUST lh_err ps_uploader_start(const struct ps_uploader_conf *conf, struct ps_uploader **out);
// Whether the shards are served here: a standby's are the owner's to upload. Any thread.
void ps_uploader_serve(struct ps_uploader *u, bool serves);
// {"age_s", "away", "uploads", "bytes", "failures"}; NULL: no memory. Any thread.
json_t *ps_uploader_status(struct ps_uploader *u);
// Uploads what is new, for at most PS_UPLOADER_END_S, and ends. NULL is allowed.
// Less than `longhaul up` waits for a process that it ends.
enum { PS_UPLOADER_END_S = 5 };
void ps_uploader_stop(struct ps_uploader *u);

#endif
