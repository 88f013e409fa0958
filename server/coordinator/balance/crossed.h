// Crossed: unit bytes that went over each link, against the link's cap. See crossed.c.
#ifndef PS_CO_CROSSED_H
#define PS_CO_CROSSED_H

#include <jansson.h>

#include "common/net/wire_member.h"
#include "server/coordinator/balance/asking.h"
#include "server/coordinator/balance/terms.h"
#include "server/coordinator/core.h"

// Bytes that a link has carried, and may still carry.
struct ps_co_carried {
    const struct ps_term *term; // NULL: no cap
    double crossed;             // bytes that arrived, as workers reported
    double coming;              // bytes of units that may still come over it
    double left;                // < 0: no cap
};

LH_MUST lh_err ps_co_load_crossed(struct ps_coordinator *c); // after the workers
// Takes the arrivals that a lease request reports. Rows of the store.
LH_MUST lh_err ps_co_take_crossed(struct ps_coordinator *c, uint32_t worker,
                                  const struct lh_lease_request *m);
// Notes the units over links with a cap that the worker may be fetching until its next request:
// those that it held and has not begun, and those of the answer.
LH_MUST lh_err ps_co_note_fetches(struct ps_coordinator *c, uint32_t worker,
                                  const struct lh_lease_request *m,
                                  const struct ps_co_leased *answer);
// From a home (index in c->stock.home) to a region.
struct ps_co_carried ps_co_carried(const struct ps_coordinator *c, uint32_t home,
                                   const char *region);
// Is there a cap between that home and the worker's region?
bool ps_co_is_capped(const struct ps_coordinator *c, uint32_t home, uint32_t worker);
// Gives a row for each link with a cap or with traveled units: [{"from", "to", "cap_bytes",
// "crossed_bytes", "coming_bytes", "left_bytes", "state": "open" or "full"}]. Without a cap
// cap_bytes and left_bytes are null.
json_t *ps_co_crossed(const struct ps_coordinator *c);

#endif
