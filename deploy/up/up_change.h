// Compares the topology of a run's folder with the present one of `up`, and decides whether the run
// can continue with it.
#ifndef DP_UP_CHANGE_H
#define DP_UP_CHANGE_H

#include "common/base/buf.h"
#include "deploy/up/topology.h"

struct dp_changes {
    struct lh_buf taken;   // a line for each accepted difference
    struct lh_buf refused; // a line for each refused difference, with the reason
    unsigned refusals;
    int64_t old_budget; // previous budget_tokens; 0: unchanged
};

// Compares by meaning, not by comments, order or spelling.
LH_MUST lh_err dp_changes_find(const struct dp_topology *was, const struct dp_topology *is,
                               struct dp_changes *out);
void dp_changes_free(struct dp_changes *c);

#endif
