// Away: home regions whose units must travel to a worker, and the servers that send them.
#ifndef PS_CO_AWAY_H
#define PS_CO_AWAY_H

#include <jansson.h>

#include "common/net/wire_member.h"
#include "server/coordinator/core.h"

// A server reported whether it sends units of its region.
void ps_co_heard_giver(struct ps_coordinator *c, const struct lh_peer *peer,
                       const struct lh_report_request *m);
// Lists the servers of the homes that `m` asks for. Borrows from `c`; LH_GIVERS_MAX at most.
size_t ps_co_givers(const struct ps_coordinator *c, const struct lh_lease_request *m,
                    struct lh_giver *out);
// Takes a lease request's fields on homes that are away.
void ps_co_take_away(struct ps_coordinator *c, uint32_t worker, const struct lh_lease_request *m);
// The home's units can't reach this worker now.
bool ps_co_is_closed(const struct ps_coordinator *c, uint32_t home, uint32_t worker);
// This unit of the run can't, even if others of its home can.
bool ps_co_is_refused(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// The known path from that home; NULL: the worker has the home's files.
const struct ps_co_away *ps_co_away_of(const struct ps_co_worker *w, uint32_t home);
// Seconds that a unit needs to reach this worker, by its measured path; 0: it is there already, or
// nothing is known.
double ps_co_arrival_s(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// Adds "away" to a worker's row of the status: [{"home", "closed", "mbit_s", "rtt_ms"}], and
// "refused": [unit of the data].
void ps_co_tell_away(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row);

#endif
