// The run's folder: keys, certificates, model, weights, a settings file per node. See up_dir.c and
// up_settings.c.
#ifndef DP_UP_DIR_H
#define DP_UP_DIR_H

#include "deploy/up/up.h"

// Writes a manifest of units that are never leased, for commands with their own data.
LH_MUST lh_err dp_dir_own_data(struct dp_up *up);
// Sets shape, manifest and plan from the topology; touches no file.
LH_MUST lh_err dp_dir_model(struct dp_up *up);
// The folder of a region's token files; that of all files unless the region names one.
LH_MUST lh_err dp_dir_data(const struct dp_up *up, unsigned region, char out[DP_PATH_BYTES]);
// Makes or checks the folder: its topology must be the one it was made from. Lists the nodes. Locks
// the folder: LH_ERR_EXISTS, another `up` uses it.
LH_MUST lh_err dp_dir_open(struct dp_up *up);
// A run that had ended goes on: keeps the topology that --continue began with.
LH_MUST lh_err dp_dir_went_on(struct dp_up *up);
void dp_dir_close(struct dp_up *up);          // releases the lock, if held
LH_MUST lh_err dp_dir_list(struct dp_up *up); // lists the nodes
// Makes keys, certificates, manifest and weights; keeps existing ones.
LH_MUST lh_err dp_dir_prepare(struct dp_up *up);
// Writes model.json, and weights.bin unless it exists.
LH_MUST lh_err dp_dir_model_files(struct dp_up *up);
// Writes every node's settings file, anew for every `up`; addresses must be known.
LH_MUST lh_err dp_dir_settings(struct dp_up *up);
// The text of one node's settings file.
LH_MUST lh_err dp_node_settings(struct dp_up *up, const struct dp_node *node, struct lh_buf *out);
// Removes shared memory that killed workers left.
void dp_dir_forget_ranks(const struct dp_up *up);

#endif
