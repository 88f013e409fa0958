// Checkpoints in object stores (kernels/storage/stored.h), for the commands that read folders.
//
// The store's endpoint and access key are those of the settings file (--config), or what the
// variables of the environment say (common/objects/objects.h).
#ifndef DP_STORE_H
#define DP_STORE_H

#include "deploy/stored/job.h"
#include "deploy/tool/cli.h"
#include "kernels/storage/stored.h"

// Opens the store at an address, for a job that is open. LH_ERR_CONFIG, LH_ERR_UNSUPPORTED.
LH_MUST lh_err dp_store_open(const struct dp_job *job, const char *address,
                             struct lh_objects **out);

// Folders that stand for stores among a command's sources.
struct dp_fetched {
    char root[DP_PATH_BYTES]; // removed by drop(); "": no source was a store
    char folder[DP_TEXTS_MAX][DP_PATH_BYTES];
};
struct dp_fetch {
    struct dp_job *job;
    const char *near;   // a file or folder that is to be made: what is fetched lies beside it
    const char *shards; // "N,N,..."; NULL: all
    bool weights;       // checkpoints of weights only, instead of full ones
    bool all;           // all of the newest history's, and not the newest alone
};
// Puts a folder with a store's checkpoints in the place of each address among `from`. A checkpoint
// that is damaged is passed over, with a word, for the one before it. LH_ERR_NOT_FOUND: a store
// has none. drop() in any case.
LH_MUST lh_err dp_store_fetch(const struct dp_fetch *q, struct dp_texts *from,
                              struct dp_fetched *out);
void dp_store_drop(struct dp_fetched *f);
void dp_store_remove_folder(const char *path); // removes its files too

// Removes all but the newest `keep` of each shard and channel.
LH_MUST lh_err dp_store_prune(const struct dp_job *job, const char *address, unsigned keep);

#endif
