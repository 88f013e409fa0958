// The verdict on a run that ended, and the report. See up_report.c and up_verdict.c.
#ifndef DP_UP_REPORT_H
#define DP_UP_REPORT_H

#include "deploy/up/up.h"

struct dp_verdict {
    bool replicas_equal; // every holder of a shard has the server's version and digest
    unsigned compared;   // holders of the shard with the fewest
    bool credited_once;  // the logs' credits equal the coordinator's count
    bool learned;        // the loss fell in every language
    bool below_bigram;   // every language's loss is under its own bigram entropy
    bool commands;       // no command ended with an error; true where there are none
    bool drill;          // every planned fault happened and healed
};
void dp_verdict_of(const struct dp_up *up, struct dp_verdict *out);
static inline bool dp_verdict_ok(const struct dp_verdict *v)
{
    return v->replicas_equal && v->compared >= 2 && v->credited_once && v->learned && v->commands &&
           v->drill;
}
// True once every worker's final replica equals its server's.
bool dp_replicas_equal(const struct dp_up *up, unsigned *compared);
// True once coordinator and logs report the same credited units, each counted once.
bool dp_credited_once(const struct dp_up *up);
// Evaluates, prints, writes summary.json and loss.svg.
LH_MUST lh_err dp_report(struct dp_up *up, struct dp_verdict *out);

#endif
