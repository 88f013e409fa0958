// The nodes' reports of themselves, over all their lives. See up_watch.c.
#ifndef DP_UP_WATCH_H
#define DP_UP_WATCH_H

#include "deploy/up/up.h"

void dp_watch_poll(struct dp_up *up); // reads every status.json
// Every worker reports the end, except those that the run left out.
bool dp_watch_done(const struct dp_up *up);
// The worker of a command or a rank; of a worker, itself. NULL: there is none.
const struct dp_node *dp_worker_of(const struct dp_up *up, const struct dp_node *node);
// Why the run goes on, and ends, without this worker, as in "asia-0, which ..."; NULL: it takes
// part.
const char *dp_watch_left(const struct dp_up *up, const struct dp_node *worker);
// Why the coordinator calls a worker stalled, such as "no step for 31 s"; NULL: it does not.
const char *dp_watch_stalls(const struct dp_up *up, const struct dp_node *worker);
// The word on a worker whose command does not train now: "no loop", "loop over"; NULL: it may.
const char *dp_watch_lacks(const struct dp_up *up, const struct dp_node *worker);
// The node's status is from its present process, or the last one of an ended process; not from an
// earlier `up` in the folder.
bool dp_watch_own(const struct dp_node *node);
// The process runs, and its disk is full: by its status, or, as a full disk takes no status, by
// what the file system of its directory has left.
bool dp_watch_full(const struct dp_node *node);
// The word on a running node whose disk takes no write, or which writes no status; NULL: all is
// well.
const char *dp_watch_hangs(const struct dp_node *node, int64_t now_s);
// Tokens of the run: the credited ones; or the trained ones, if commands have their own data.
double dp_watch_tokens(const struct dp_up *up);
// Progress of the run: these tokens over the budget, 0 to 1.
double dp_watch_progress(const struct dp_up *up);
// Versions that a worker lacks on the shard where it lags most, by the servers' last reports.
uint64_t dp_watch_behind(const struct dp_up *up, const struct dp_node *worker);
// A shard as its server reports it; NULL: no report.
const struct dp_holding *dp_watch_shard(const struct dp_up *up, uint32_t shard,
                                        const struct dp_node **server);
struct dp_counts dp_watch_region(const struct dp_up *up, unsigned region);
LH_MUST lh_err dp_watch_keep(struct dp_up *up);   // curves and totals, for a later `up`
LH_MUST lh_err dp_watch_resume(struct dp_up *up); // reads the state that an earlier `up` stored
void dp_watch_free(struct dp_up *up);

#endif
