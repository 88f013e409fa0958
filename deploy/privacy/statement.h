// The promise of a private run, for a data owner, and the same as JSON.
#ifndef DP_STATEMENT_H
#define DP_STATEMENT_H

#include <jansson.h>

#include "common/base/buf.h"
#include "deploy/privacy/claim.h"

// Write a claim that dp_claim_compute() filled in, as text and as JSON.
void dp_statement_put(struct lh_buf *out, const struct dp_claim *c);
// "longhaul.privacy.v1"; NULL: out of memory.
json_t *dp_statement_json(const struct dp_claim *c);

#endif
