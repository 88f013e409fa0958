// Grants: the proofs that this worker's units were leased to it. See grants.c.
#ifndef WK_GRANTS_H
#define WK_GRANTS_H

#include <stdint.h>

#include "common/base/buf.h"
#include "common/format/grant.h"

struct wk_worker;
struct wk_granted; // one unit's grant

struct wk_grants {
    struct wk_granted *table; // NULL: no grant has arrived yet
    uint32_t used;            // slots of it
};

// Takes the grants of a lease answer. Ignores malformed ones.
void wk_grants_take(struct wk_worker *w, struct lh_span bytes);
// The grant of a unit. False: there is none, and the unit can't be claimed.
bool wk_grants_find(const struct wk_worker *w, uint64_t unit, struct lh_grant *out);

#endif
