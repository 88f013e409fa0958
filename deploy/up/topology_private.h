// Private regions of a topology (server/docs/0004-authority.md#private-regions).
#ifndef DP_TOPOLOGY_PRIVATE_H
#define DP_TOPOLOGY_PRIVATE_H

#include "deploy/up/topology.h"

// Refuses private regions that the run can't have, and terms that the coordinator would refuse.
// `in`: the topology's name.
LH_MUST lh_err dp_private_check(const struct dp_topology *t, const char *in);
// Sets on the coordinator's settings what follows from the regions: whose data are private, and the
// level. Nothing where no region is private.
LH_MUST lh_err dp_private_coordinator(const struct dp_topology *t, struct lh_config *c);
// The terms of the run; level 0: no region is private.
LH_MUST lh_err dp_private_terms(const struct dp_topology *t, struct lh_privacy *out);

#endif
