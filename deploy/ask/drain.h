// Progress of `longhaul drain`, from a coordinator's status.
#ifndef DP_DRAIN_H
#define DP_DRAIN_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/security/identity.h"

// The drained part of a run: all of it ("" and ""), a region, a worker (of a region, or of any).
struct dp_scope {
    char region[LH_NAME_BYTES], worker[LH_NAME_BYTES];
};

// Reads "run", "region NAME" or "worker [REGION/]NAME" from `words`. LH_ERR_INVALID.
LH_MUST lh_err dp_scope_parse(const char *const *words, unsigned count, struct dp_scope *out);

struct dp_drained {
    unsigned workers; // affected live workers
    unsigned drained; // drained ones among them
    unsigned silent;  // affected but silent: not waited for
    unsigned asked;   // live ones that drain, or are to drain
    bool complete;    // all live ones have drained; at `end`: the run has ended, and all reported
                      // that
};

// The affected workers as rows, a new reference, and their progress.
json_t *dp_drain_rows(const json_t *status, const struct dp_scope *scope, bool end,
                      struct dp_drained *out);

// Writes, as one line without its end, which servers and workers a drain waits for; "": none.
void dp_drain_waits(const json_t *status, const struct dp_scope *scope, bool end,
                    struct lh_buf *out);

#endif
