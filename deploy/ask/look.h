// The present state of a run, from three sources: the coordinator's status, each shard's server,
// and, in a run's folder, the workers' status files.
#ifndef DP_LOOK_H
#define DP_LOOK_H

#include "deploy/ask/admin.h"

// {"run": {"phase", "draining", "ending", "drained_regions", "plan", "workers", "live",
// "tokens_per_s",
//          "credited_tokens", "budget_tokens", "percent", "eta_s", "units", "data_epoch",
//          "data_epochs", "credited", "leased"},
//  "regions": [{"region", "workers", "live", "drained", "tokens", "tokens_per_s", "loss", "h",
//               "silent_s", "sent_bytes", "received_bytes", "utilisation", "rtt_ms", "push_ms"}],
//  "shards": [the coordinator's row, with "answers", and of its server "admitted", "refused",
//             "followers", "parameters", "staleness_p50", "_p99", "_max", "_bound"],
//  "workers": [the coordinator's row, with "rtt_ms" and "push_ms" of its slowest ways to a server,
//              and "state", "step", "loss", "rounds", "accepted", "returned", "sent_bytes",
//              "received_bytes", "stall_s" of its file]}
// A region's "utilisation" is the mean of its live workers; "rtt_ms" and "push_ms" are the largest.
// Unknown fields are missing. `servers`: each server's answer by address; `files`: each worker's
// status.json. A new reference; NULL: no memory.
json_t *dp_look_merge(const json_t *status, const json_t *servers, const json_t *files);

// The status of each server that the coordinator's status names, by address; null: it does not
// answer. A new reference.
json_t *dp_look_servers(struct dp_admin *a, const json_t *status);
// Each worker's status.json by its name, where a->dir has one. A new reference.
json_t *dp_look_files(const struct dp_admin *a, const json_t *status);

// Queries all three. A server or file that does not answer leaves its fields out.
LH_MUST lh_err dp_look(struct dp_admin *a, json_t **out);

#endif
