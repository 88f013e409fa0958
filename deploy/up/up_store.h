// Data in an object store. See up_store.c.
#ifndef DP_UP_STORE_H
#define DP_UP_STORE_H

#include "deploy/up/up.h"

bool dp_data_is_stored(const struct dp_up *up);
// Refuses a topology whose regions can't all read their units from this store.
LH_MUST lh_err dp_store_check(const struct dp_topology *t, const char *file, const char *address);
// Checks that too, then gets manifest and held-out texts of a store into the run's folder.
LH_MUST lh_err dp_store_fetch_texts(struct dp_up *up);

#endif
