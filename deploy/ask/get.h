// Tables of `longhaul get`, from a coordinator's answer.
#ifndef DP_GET_H
#define DP_GET_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// Appends one part of a coordinator's status ("members", "machines" with more about the members,
// "workers", "shards", "regions", "links", "plan"), as a table or as JSON. LH_ERR_INVALID: no such
// part.
LH_MUST lh_err dp_get_show(const char *part, const json_t *status, bool json, struct lh_buf *out);
// Appends a line where the status says that the run is paused, by whom and why, and one for each
// alarm.
void dp_put_paused(const json_t *status, struct lh_buf *out);
// Appends the balancer's rule, operators' commands to it, and its last decisions with reasons and
// figures.
void dp_get_decisions(const json_t *status, struct lh_buf *out);
// A row for each region of a coordinator's status: sums over its workers. A new reference.
json_t *dp_get_regions(const json_t *status);
// A row for each server, standby and worker: role, state, time of silence and its limit, round
// trip. A new reference.
json_t *dp_get_members(const json_t *status);
// Appends the totals of the units, and with `rows` (may be NULL) a line for each. JSON: {"totals":
// {}, "leases": []}.
LH_MUST lh_err dp_get_leases(const json_t *status, const json_t *rows, bool json,
                             struct lh_buf *out);

#endif
