// Travel: units whose files are not here come from a server of their home region. See travel.c.
#ifndef WK_TRAVEL_H
#define WK_TRAVEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct wk_worker;
struct Longhaul__V1__Giver;
struct Longhaul__V1__LeaseRequest;

// The place where units' tokens are kept (data/loader.h). Units here are those of the data.
struct wk_travel_conf {
    // On the status lane: are the unit's tokens here, in files, in the cache, or kept? *kept: they
    // are in memory from now on, until drop().
    bool (*find)(void *arg, uint64_t unit, bool *kept);
    // On the status lane: keeps the unit's tokens, which were checked, until drop().
    lh_err (*keep)(void *arg, uint64_t unit, const uint8_t *tokens, size_t n);
    void (*drop)(void *arg, uint64_t unit); // any unit, on the loop
    void *arg;
    // Units that are kept or on their way, or a single larger one. Where the cache has some, as
    // much again may be on its way.
    uint64_t bytes_max;
};

enum { WK_TRAVEL_CALLS_MAX = 16 }; // calls under way

LH_MUST lh_err wk_travel_start(struct wk_worker *w); // nothing travels without w->conf.travel
void wk_travel_close(struct wk_worker *w);           // no call is made any more
void wk_travel_free(struct wk_worker *w);
// Looks at the queue: units that are away are fetched, or given back where they can't come, and
// what left the queue is dropped. Cheap where nothing changed.
void wk_travel_look(struct wk_worker *w);
// Takes what can't come now out of the queue, and lists it for the lease request that is made next.
void wk_travel_give_back(struct wk_worker *w);
// A step found that a unit of the run, whose file is here, can't be read. True: it is damaged, is
// given back by its number and asked for again later. False: the error is another one, or three
// units in a row were damaged with nothing trained between them, or nothing travels.
bool wk_travel_unread(struct wk_worker *w, uint64_t unit, lh_err err);
// Was this unit of the data refused, or found damaged, and is not asked for again yet?
bool wk_travel_is_refused(const struct wk_worker *w, uint64_t unit);
// Tells in a lease request which homes are away; *m borrows that until the next call.
void wk_travel_tell(struct wk_worker *w, struct Longhaul__V1__LeaseRequest *m);
// The givers that its answer names.
void wk_travel_told(struct wk_worker *w, size_t count, struct Longhaul__V1__Giver **givers);
json_t *wk_travel_status(const struct wk_worker *w); // NULL: no unit was ever away

#endif
