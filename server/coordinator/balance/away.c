// Away: tracks which homes' units must travel, and which can't reach a worker. See away.h.
//
// 1. Nothing here is stored: servers and workers repeat it about once a second. A server that falls
//    silent stays on the list: a worker that can't reach it reports the home as closed.
// 2. Units of a home that is closed to a worker, and units refused to it, are not leased to it,
//    recalled for it or kept for it (lease.c). The worker opens a home again by itself.
#include "server/coordinator/balance/away.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/measure.h"
#include "server/coordinator/balance/stock.h"

static const int64_t SILENT_NS = 30 * LH_SECOND;

// ---------------------------------------------------------------- givers

static struct ps_co_giver *giver_of(struct ps_coordinator *c, uint64_t server)
{
    for (uint32_t i = 0; i < c->givers; i++)
        if (c->giver[i].server == server) return &c->giver[i];
    return NULL;
}

// Returns a slot for one more server; replaces the longest silent one if full.
static struct ps_co_giver *new_giver(struct ps_coordinator *c)
{
    if (c->givers < LH_GIVERS_MAX) return &c->giver[c->givers++];
    struct ps_co_giver *oldest = c->giver;
    for (uint32_t i = 1; i < c->givers; i++)
        if (c->giver[i].heard_ns < oldest->heard_ns) oldest = &c->giver[i];
    return oldest;
}

void ps_co_heard_giver(struct ps_coordinator *c, const struct lh_peer *peer,
                       const struct lh_report_request *m)
{
    uint64_t server = lh_worker_id(peer);
    struct ps_co_giver *g = giver_of(c, server);
    if (!m->gives) {
        if (g) *g = c->giver[--c->givers];
        return;
    }
    if (!g) g = new_giver(c);
    *g = (struct ps_co_giver){.server = server, .heard_ns = ps_co_now(c)};
    memcpy(g->region, peer->region, sizeof g->region);
    memcpy(g->address, m->address, strlen(m->address) + 1);
}

static bool asks_for(const struct lh_lease_request *m, const char *region)
{
    for (size_t i = 0; i < m->n_away; i++)
        if (!strcmp(m->away[i].region, region)) return true;
    return false;
}

// Appends the recently heard servers, or the silent ones; returns the new length.
static size_t name_givers(const struct ps_coordinator *c, const struct lh_lease_request *m,
                          bool fresh, size_t n, struct lh_giver *out)
{
    for (uint32_t i = 0; i < c->givers; i++) {
        const struct ps_co_giver *g = &c->giver[i];
        bool is_fresh = c->listener.ns - g->heard_ns < SILENT_NS;
        if (fresh != is_fresh || !asks_for(m, g->region)) continue;
        out[n++] = (struct lh_giver){g->region, g->address};
    }
    return n;
}

// Recently heard servers come first: a worker tries them in this order.
size_t ps_co_givers(const struct ps_coordinator *c, const struct lh_lease_request *m,
                    struct lh_giver *out)
{
    size_t n = name_givers(c, m, true, 0, out);
    return name_givers(c, m, false, n, out);
}

// ---------------------------------------------------------------- what a worker says

static void take_refused(const struct ps_coordinator *c, struct ps_co_worker *w,
                         const struct lh_lease_request *m)
{
    w->refused_count = 0;
    if (m->n_refused && !w->refused) w->refused = calloc(LH_REFUSED_MAX, sizeof *w->refused);
    for (size_t i = 0; w->refused && i < m->n_refused; i++)
        if (m->refused[i] < c->conf.units->count) w->refused[w->refused_count++] = m->refused[i];
}

void ps_co_take_away(struct ps_coordinator *c, uint32_t worker, const struct lh_lease_request *m)
{
    struct ps_co_worker *w = &c->worker[worker];
    take_refused(c, w, m);
    w->aways = 0;
    if (m->n_away && !w->away) w->away = calloc(LH_AWAY_MAX, sizeof *w->away);
    for (size_t i = 0; w->away && i < m->n_away; i++) {
        const struct lh_away *a = &m->away[i];
        uint32_t home = ps_co_stock_home(c, a->region);
        if (home == c->stock.homes || ps_co_away_of(w, home)) continue;
        w->away[w->aways++] = (struct ps_co_away){
            .home = home,
            .closed = a->closed,
            .bytes_per_s = {ps_co_said_number(a->bytes_per_s.mean),
                            ps_co_said_number(a->bytes_per_s.spread)},
            .trip = a->trip,
        };
    }
}

const struct ps_co_away *ps_co_away_of(const struct ps_co_worker *w, uint32_t home)
{
    for (uint32_t i = 0; i < w->aways; i++)
        if (w->away[i].home == home) return &w->away[i];
    return NULL;
}

bool ps_co_is_closed(const struct ps_coordinator *c, uint32_t home, uint32_t worker)
{
    const struct ps_co_away *a = ps_co_away_of(&c->worker[worker], home);
    return a && a->closed;
}

bool ps_co_is_refused(const struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    const struct ps_co_worker *w = &c->worker[worker];
    for (uint32_t i = 0; i < w->refused_count; i++)
        if (w->refused[i] == unit % c->conf.units->count) return true;
    return false;
}

double ps_co_arrival_s(const struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    const struct ps_co_away *a = ps_co_away_of(&c->worker[worker], ps_co_stock_home_of(c, unit));
    double bytes = ps_co_stock_bytes(c, unit);
    if (!a) return 0;
    return (double)a->trip.mean_ns / LH_SECOND +
           (a->bytes_per_s.mean > 0 ? bytes / a->bytes_per_s.mean : 0);
}

void ps_co_tell_away(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row)
{
    json_t *rows = w->aways ? json_array() : NULL;
    json_t *refused = w->refused_count ? json_array() : NULL;
    for (uint32_t i = 0; i < w->aways; i++) {
        const struct ps_co_away *a = &w->away[i];
        double speed = a->bytes_per_s.mean, trip_ns = (double)a->trip.mean_ns;
        json_array_append_new(rows, json_pack("{s:s s:b s:o* s:o*}", "home", c->stock.home[a->home],
                                              "closed", a->closed, "mbit_s",
                                              speed > 0 ? json_real(speed * 8e-6) : NULL, "rtt_ms",
                                              trip_ns > 0 ? json_real(trip_ns / LH_MS) : NULL));
    }
    for (uint32_t i = 0; i < w->refused_count; i++)
        json_array_append_new(refused, json_integer((json_int_t)w->refused[i]));
    json_object_set_new(row, "away", rows); // NULL: left out
    json_object_set_new(row, "refused", refused);
}
