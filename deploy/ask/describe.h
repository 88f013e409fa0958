// One thing of a run, with all that is known of it.
#ifndef DP_DESCRIBE_H
#define DP_DESCRIBE_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// The object that `words` name in a look (look.h): "run", "region NAME", "shard N", "worker
// [REGION/]NAME". A new reference. LH_ERR_INVALID: other words, or a name that several have;
// LH_ERR_NOT_FOUND: there is none, with what there is.
LH_MUST lh_err dp_describe_find(const json_t *look, const char *const *words, unsigned count,
                                json_t **out);
// Adds to a worker or a region the leases of its units, rows as leases.h has them: how many in
// each state and, of those leased now, the first ids.
void dp_describe_leases(json_t *thing, const json_t *rows);
// A line for each field, objects and lists indented below theirs.
void dp_describe_put(const json_t *thing, struct lh_buf *out);

#endif
