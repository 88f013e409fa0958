// Compares the topology that a run's folder goes by with the one that `up` is given now, and says
// whether the run can go on with it.
#ifndef DP_UP_CHANGE_H
#define DP_UP_CHANGE_H

#include "common/base/buf.h"
#include "deploy/up/topology.h"

struct dp_changes {
    struct lh_buf taken;   // a line for each difference that the run goes on with
    struct lh_buf refused; // a line for each that it can't go on with, and why
    unsigned refusals;
    int64_t old_budget; // budget_tokens before; 0: it is the same
};

// Compares by meaning: comments, order and spelling of the files are none of it.
LH_MUST lh_err dp_changes_find(const struct dp_topology *was, const struct dp_topology *is,
                               struct dp_changes *out);
void dp_changes_free(struct dp_changes *c);

#endif
