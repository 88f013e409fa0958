// The leases of single data units, from the coordinator.
#ifndef DP_LEASES_H
#define DP_LEASES_H

#include "deploy/ask/admin.h"

struct dp_lease_filter { // NULL: any
    const char *state, *home, *language, *worker;
};

// Appends a row for each unit of the run that matches: {"unit", "data_epoch", "language", "home",
// "tokens", "state", "lease", "holder", "holder_region", "token", "age_s", "expires_s",
// "credited_tokens"}
// (server/coordinator/status.c). LH_ERR_MALFORMED: an answer without rows.
LH_MUST lh_err dp_leases_ask(struct dp_admin *a, const struct dp_lease_filter *filter,
                             json_t *rows);
// LH_ERR_NOT_FOUND, with the existing names, if the filter names a worker, home or language that
// this run lacks. `workers` as in the coordinator's status, `all` every unit's lease.
LH_MUST lh_err dp_leases_known(const struct dp_lease_filter *filter, const json_t *workers,
                               const json_t *all);

#endif
