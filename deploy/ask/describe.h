// One object of a run, with all its known fields.
#ifndef DP_DESCRIBE_H
#define DP_DESCRIBE_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// Finds the object that `words` name in a look (look.h): "run", "region NAME", "shard N", "worker
// [REGION/]NAME". A new reference. LH_ERR_INVALID: other words, or an ambiguous name;
// LH_ERR_NOT_FOUND: none, with a list of the existing ones.
LH_MUST lh_err dp_describe_find(const json_t *look, const char *const *words, unsigned count,
                                json_t **out);
// Adds the leases of its units to a worker or a region, from rows as in leases.h: the count in each
// state, and the first ids of those leased now.
void dp_describe_leases(json_t *thing, const json_t *rows);
// One line per field, with objects and lists indented below.
void dp_describe_put(const json_t *thing, struct lh_buf *out);

#endif
