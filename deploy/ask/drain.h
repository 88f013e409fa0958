// The state that `longhaul drain` waits for, read out of a coordinator's status.
#ifndef DP_DRAIN_H
#define DP_DRAIN_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/err.h"
#include "common/security/identity.h"

// The part of a run that is drained: all of it ("" and ""), a region, a worker (of a region, or of
// any).
struct dp_scope {
    char region[LH_NAME_BYTES], worker[LH_NAME_BYTES];
};

// Reads "run", "region NAME" or "worker [REGION/]NAME" from `words`. LH_ERR_INVALID.
LH_MUST lh_err dp_scope_parse(const char *const *words, unsigned count, struct dp_scope *out);

struct dp_drained {
    unsigned workers; // live ones that it concerns
    unsigned drained; // how many of these are drained
    unsigned silent;  // concerned, but not heard of lately: nobody waits for them
    bool complete;    // all that can drain have; at `end`: the run has ended, and all told so
};

// The concerned workers as rows, a new reference, and how far they are.
json_t *dp_drain_rows(const json_t *status, const struct dp_scope *scope, bool end,
                      struct dp_drained *out);

#endif
