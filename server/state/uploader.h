// Uploader: copies a server's newest checkpoints into an object store during training
// (kernels/storage/stored.h).
//
// Its own thread looks at the folder of checkpoints and does not touch the core. So if the store is
// unreachable, slow or full, only the stored checkpoints get old. If the process dies, a partly
// uploaded checkpoint does not count.
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
    unsigned keep;                // checkpoints to keep in the store for each shard and channel
    struct lh_objects_conf store; // The uploader sets env and stop.
    int64_t look_ns, again_ns;    // pause between two looks, and after a failure; 0: 2 s and 10 s
};

// Borrows the memory that `conf` points at. LH_ERR_CONFIG, LH_ERR_UNSUPPORTED, LH_ERR_NO_MEMORY.
LH_MUST lh_err ps_uploader_start(const struct ps_uploader_conf *conf, struct ps_uploader **out);
// Sets whether this server serves the shards. Only their owner uploads them. Any thread.
void ps_uploader_serve(struct ps_uploader *u, bool serves);
// {"age_s", "away", "uploads", "bytes", "failures"}; NULL: no memory. Any thread.
json_t *ps_uploader_status(struct ps_uploader *u);
// Uploads new checkpoints for at most PS_UPLOADER_END_S, then ends. That is less than the time that
// `longhaul up` gives a process to end. NULL is allowed.
enum { PS_UPLOADER_END_S = 5 };
void ps_uploader_stop(struct ps_uploader *u);

#endif
