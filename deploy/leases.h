// The leases of single data units, as the coordinator knows them.
#ifndef DP_LEASES_H
#define DP_LEASES_H

#include "deploy/admin.h"

struct dp_lease_filter { // NULL: any
    const char *state, *home, *language, *worker;
};

// Appends a row for each unit that matches: {"unit", "language", "home", "tokens", "state",
// "holder", "holder_region", "token", "age_s", "expires_s", "credited_tokens"}
// (server/coordinator/leases.c). LH_ERR_UNSUPPORTED: an older coordinator.
LH_MUST lh_err dp_leases_ask(struct dp_admin *a, const struct dp_lease_filter *filter,
                             json_t *rows);

#endif
