// Travel: fetches units without local files from a server of their home region. See travel.c.
#ifndef WK_TRAVEL_H
#define WK_TRAVEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct wk_worker;
struct lh_giver;
struct lh_lease_request;

// The store of units' tokens (data/loader.h). Unit numbers here are those of the data.
struct wk_travel_conf {
    // On the status lane: true if the unit's tokens are available in files, the cache or memory.
    // *kept: they stay in memory until drop().
    bool (*find)(void *arg, uint64_t unit, bool *kept);
    // On the status lane: keeps the unit's checked tokens until drop().
    lh_err (*keep)(void *arg, uint64_t unit, const uint8_t *tokens, size_t n);
    void (*drop)(void *arg, uint64_t unit); // any unit, on the loop
    void *arg;
    // Bytes of units kept or in flight, or of one larger unit. If the cache holds some of them, as
    // much again may be in flight.
    uint64_t bytes_max;
};

enum { WK_TRAVEL_CALLS_MAX = 16 }; // calls under way

LH_MUST lh_err wk_travel_start(struct wk_worker *w); // without w->conf.travel nothing is fetched
void wk_travel_close(struct wk_worker *w);           // makes no call afterwards
void wk_travel_free(struct wk_worker *w);
// Looks at the queue: fetches absent units or gives back unavailable ones, and drops units that
// left the queue. Cheap if nothing changed.
void wk_travel_look(struct wk_worker *w);
// Moves unavailable units from the queue to the list for the next lease request.
void wk_travel_give_back(struct wk_worker *w);
// A step could not read a unit of the run. True: the unit is damaged, and is given back by its
// number and requested again later; or its store is away, and all units of its home are. False: the
// error is another one, three units in a row were damaged with no training between them, or there
// is no travel state.
bool wk_travel_unread(struct wk_worker *w, uint64_t unit, lh_err err);
// True: this unit of the data was refused or found damaged, and its pause is not over.
bool wk_travel_is_refused(const struct wk_worker *w, uint64_t unit);
// Reports absent homes in a lease request; *m borrows them until the next call.
void wk_travel_tell(struct wk_worker *w, struct lh_lease_request *m);
// Takes the givers that the lease answer names.
void wk_travel_told(struct wk_worker *w, size_t count, const struct lh_giver *givers);
json_t *wk_travel_status(const struct wk_worker *w); // NULL: every unit so far was local

#endif
