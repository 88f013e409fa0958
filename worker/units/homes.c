// Homes: tracks homes and single units that can't be fetched now, and gives their units back
// (deploy/docs/balancer.md#when-units-do-not-come).
//
// 1. A home is closed if no giver provides its units. A unit is refused if it alone is damaged or
//    unavailable; several refusals in a row close the home too.
// 2. Either is retried after CLOSED_NS, doubled each time up to CLOSED_MAX_NS; an arrival resets
//    the pause. A new giver opens a home at once (givers.c).
// 3. Unavailable units are given back with the next lease request. It names them and their closed
//    homes: the coordinator leases them to other workers. This is the usual recall protocol: if the
//    coordinator misses the return, it lists the unit again and the next request gives it back
//    again.
// 4. A begun unit is given back if it is refused, or if its home was closed GIVE_UP times in a row.
//    Its position is kept: if it is leased again, training continues from there. Another worker
//    trains it from its start; the first claim in its shard's log credits it, once.
// 5. A unit whose local file is damaged is refused like a unit that did not arrive, even one of the
//    worker's own region. Several in a row, with no training between them, mean a bad folder and
//    end the worker.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worker/units/travel_state.h"
#include "worker/units/units.h"

enum {
    REFUSALS = 3, // new refusals in a row that close the home
    UNREADS = 3,  // newly damaged units in a row that end the worker
    GIVE_UP = 3,  // closings in a row after which begun units are given back
    DOUBLINGS = 5,
};
static const int64_t CLOSED_NS = 10 * LH_SECOND, CLOSED_MAX_NS = 300 * LH_SECOND;

static int64_t pause_ns(uint32_t times_before)
{
    int64_t ns = CLOSED_NS << (times_before < DOUBLINGS ? times_before : DOUBLINGS);
    return ns < CLOSED_MAX_NS ? ns : CLOSED_MAX_NS;
}

// ---------------------------------------------------------------- giving back

static struct wk_travel_home *home_of(const struct wk_worker *w, uint64_t unit)
{
    struct wk_travel *t = w->travel;
    const char *region = lh_units_at(w->conf.units, unit)->home;
    for (uint32_t i = 0; i < t->homes; i++)
        if (!strcmp(t->home[i].region, region)) return &t->home[i];
    return NULL; // none of its units was looked up yet
}

static bool must_go(const struct wk_worker *w, const struct wk_queued *q)
{
    if (wk_travel_is_refused(w, q->unit % w->conf.units->count)) return true;
    const struct wk_travel_home *h = q->here ? NULL : home_of(w, q->unit);
    if (!h) return false;
    return h->closed && (h->closings >= GIVE_UP || !wk_units_begun(w, q));
}

bool wk_travel_store_away(const struct wk_worker *w, uint64_t unit)
{
    const struct wk_travel_home *h = w->travel ? home_of(w, unit) : NULL;
    return h && h->store_away;
}

static void leave(struct wk_worker *w, const struct wk_queued *q)
{
    struct wk_travel_home *h = home_of(w, q->unit);
    wk_units_withdraw(w, q);
    if (q->done) {
        w->travel->count.given_up++;
        lh_log_peer(w->conf.log, LH_WARN, "unit.given_up",
                    "unit %" PRIu64 " of region %s is trained up to token %" PRIu64 " of %" PRIu64
                    ", and the rest of it does not come: it is given back, and others may train it "
                    "from its start",
                    q->unit, lh_units_at(w->conf.units, q->unit)->home, q->done, q->tokens);
        wk_units_keep_position(w, q->unit, q->done);
        if (LH_BUG("given_up_claimed")) wk_units_finished(w, q->unit, 0);
    }
    w->returned[w->returned_count++] = q->unit;
    w->travel->count.returned++;
    if (h) h->returned++;
}

// Moves unavailable units from the queue to the list for the next request.
static void hand_back(struct wk_worker *w)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->queued; i++) {
        struct wk_queued q = w->queue[i];
        if (w->returned_count < LH_RECALLS_MAX && must_go(w, &q))
            leave(w, &q);
        else
            w->queue[kept++] = q;
    }
    if (kept == w->queued) return;
    w->queued = kept;
    wk_changed(w); // sends the request soon
}

// Waits for the next due request, so a coordinator that keeps leasing these units is asked once a
// second.
void wk_travel_give_back(struct wk_worker *w)
{
    const struct wk_travel *t = w->travel;
    bool any = t && t->refused_count;
    for (uint32_t i = 0; t && i < t->homes; i++) any |= t->home[i].closed;
    if (any) hand_back(w);
}

// ---------------------------------------------------------------- homes

void wk_travel_close_home(struct wk_worker *w, struct wk_travel_home *h, const char *why)
{
    if (h->closed) return;
    int64_t wait = pause_ns(h->closings++);
    h->closed = true;
    h->returned = 0;
    h->refusals = 0;
    h->open_ns = lh_now(w->conf.env) + wait;
    for (struct wk_travel_unit *a = w->travel->arrival; a < w->travel->arrival + WK_ARRIVALS_MAX;
         a++) {
        if (a->state == WK_TRAVEL_FREE || &w->travel->home[a->home] != h) continue;
        a->tries = 0;
        a->its_own = false;
    }
    hand_back(w);
    lh_logf(w->conf.log, LH_WARN, "units.closed",
            "units of region %s do not reach this worker: %s; %" PRIu64
            " are given back, the next try is in %" PRId64 " s",
            h->region, why, h->returned, wait / LH_SECOND);
}

// Units of the worker's own region need no look-up: their files are in the store.
static void ask_store_again(struct wk_worker *w, struct wk_travel_home *h)
{
    bool own = !strcmp(h->region, w->conf.self.region);
    h->store_away = false;
    h->away = h->was_away;
    if (own) w->own_away = false;
    for (uint32_t i = 0; own && i < w->queued; i++)
        if (home_of(w, w->queue[i].unit) == h) w->queue[i].here = true;
    wk_units_announce(w);
    wk_changed(w);
}

static bool open_home(struct wk_worker *w, struct wk_travel_home *h)
{
    if (lh_now(w->conf.env) < h->open_ns) return false;
    h->closed = false;
    h->without = 0;
    if (h->store_away) ask_store_again(w, h);
    lh_logf(w->conf.log, LH_INFO, "units.open", "units of region %s are asked for again",
            h->region);
    return true;
}

bool wk_travel_open(struct wk_worker *w)
{
    struct wk_travel *t = w->travel;
    bool waits = false;
    for (uint32_t i = 0; i < t->homes; i++)
        waits |= t->home[i].closed && !open_home(w, &t->home[i]);
    for (uint32_t i = 0; i < t->refused_count; i++) {
        struct wk_travel_refused *r = &t->refused[i];
        r->open |= lh_now(w->conf.env) >= r->open_ns;
        waits |= !r->open;
    }
    return waits;
}

// ---------------------------------------------------------------- single units

static struct wk_travel_refused *find(struct wk_travel *t, uint64_t unit)
{
    for (uint32_t i = 0; i < t->refused_count; i++)
        if (t->refused[i].unit == unit) return &t->refused[i];
    return NULL;
}

// The unit's row, added if new; NULL: all rows belong to units that still wait.
static struct wk_travel_refused *row_of(struct wk_travel *t, uint64_t unit)
{
    struct wk_travel_refused *r = find(t, unit);
    if (r) return r;
    for (uint32_t i = 0; !r && t->refused_count == LH_REFUSED_MAX && i < t->refused_count; i++)
        if (t->refused[i].open) r = &t->refused[i]; // another worker may have trained it since
    if (!r && t->refused_count < LH_REFUSED_MAX) r = &t->refused[t->refused_count++];
    if (r) *r = (struct wk_travel_refused){.unit = unit};
    return r;
}

bool wk_travel_is_refused(const struct wk_worker *w, uint64_t unit)
{
    const struct wk_travel_refused *r = w->travel ? find(w->travel, unit) : NULL;
    return r && !r->open;
}

// Starts a pause, after which the unit is requested again.
static void note(struct wk_worker *w, struct wk_travel_refused *r, const char *what,
                 const char *why)
{
    int64_t wait = pause_ns(r->times++);
    r->open = false;
    r->open_ns = lh_now(w->conf.env) + wait;
    lh_log_peer(w->conf.log, LH_WARN, "unit.away",
                "unit %" PRIu64 " of region %s %s: %s; it is given back, and asked for again in "
                "%" PRId64 " s",
                r->unit, w->conf.units->unit[r->unit].home, what, why, wait / LH_SECOND);
}

void wk_travel_refuse(struct wk_worker *w, struct wk_travel_home *h, uint64_t unit, const char *why)
{
    struct wk_travel_refused *r = row_of(w->travel, unit);
    w->travel->count.refusals++;
    if (!r || !r->times) h->refusals++;
    if (r) note(w, r, "does not reach this worker", why);
    if (!r || h->refusals >= REFUSALS)
        wk_travel_close_home(w, h, why);
    else
        hand_back(w);
}

static bool too_many(struct wk_worker *w, bool first)
{
    struct wk_travel *t = w->travel;
    if (t->unread_steps != w->count.steps) t->unread = 0;
    t->unread_steps = w->count.steps;
    t->unread += first;
    return t->unread >= UNREADS;
}

// The store of the units' files is away. Nothing of that home is trained until the pause is over;
// units that are not begun are given back at once.
static bool close_store(struct wk_worker *w, uint64_t unit, const char *why)
{
    struct wk_travel *t = w->travel;
    uint32_t home = wk_travel_home(t, lh_units_at(w->conf.units, unit)->home);
    if (home == LH_AWAY_MAX) return false;
    struct wk_travel_home *h = &t->home[home];
    if (!h->closed && lh_now(w->conf.env) - h->open_ns > CLOSED_MAX_NS) h->closings = 0;
    for (uint32_t i = 0; i < w->queued; i++) {
        struct wk_queued *q = &w->queue[i];
        if (!q->here || home_of(w, q->unit) != h || !wk_travel_release(w, q)) continue;
        wk_units_withdraw(w, q);
        q->here = q->announced = false;
    }
    if (!h->store_away) h->was_away = h->away;
    h->store_away = h->away = true;
    w->own_away |= !strcmp(h->region, w->conf.self.region);
    if (h->closed)
        hand_back(w);
    else
        wk_travel_close_home(w, h, why);
    wk_travel_look(w); // starts the timer that ends the pause
    return true;
}

bool wk_travel_unread(struct wk_worker *w, uint64_t unit, lh_err err)
{
    struct wk_travel *t = w->travel;
    char why[WK_TRAVEL_TEXT_BYTES];
    if (t && err == LH_ERR_CANCELLED) return true; // the worker ends
    if (t && err == LH_ERR_UNAVAILABLE) {
        snprintf(why, sizeof why, "%s", lh_err_text(err));
        return close_store(w, unit, why);
    }
    if (!t || (err != LH_ERR_CORRUPT && err != LH_ERR_IO)) return false;
    snprintf(why, sizeof why, "%s", lh_err_text(err));
    struct wk_travel_refused *r = row_of(t, unit % w->conf.units->count);
    if (!r || too_many(w, !r->times)) {
        (void)lh_fail(err, "%s; it is not the only one: is data.dir the run's?", why);
        return false;
    }
    t->count.refusals++;
    note(w, r, "can't be read here", why);
    hand_back(w);
    wk_travel_look(w); // starts the timer that ends the pause
    return true;
}

void wk_travel_arrived(struct wk_worker *w, struct wk_travel_home *h, uint64_t unit)
{
    struct wk_travel *t = w->travel;
    struct wk_travel_refused *r = find(t, unit);
    if (r) *r = t->refused[--t->refused_count];
    h->closings = h->refusals = 0;
    h->slow = false;
    h->arrived_ns = lh_now(w->conf.env);
}
