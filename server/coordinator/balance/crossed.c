// Crossed: counts the unit bytes that links have carried, as workers report them. See crossed.h.
//
// Store: crossed/<worker, 16 hex>/<home, 2 decimals> = total bytes u64, bytes of the last process
// u64, that process u64. A worker counts arrivals since its process began; a new process counts
// from 0. So bytes survive a restart of either side and none counts twice; those that arrived in
// the last second before a kill may be missing.
//
// A cap is a hard limit for the balancer's leases. Units that may still come count as if they had:
// those leased over the link, recalled over it or kept, and not begun, and second runs there. A
// lease may end while its unit is on the way, because another worker was credited: then the unit
// counts until the worker's next request, which reports the bytes that arrived; the worker has
// cancelled the call by then. A region counts as if it had none of the home's files, whatever it
// reports: caps hold before the first unit is looked for.
#include "server/coordinator/balance/crossed.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"

static const char ROWS[] = "crossed/";

static const struct ps_terms *terms_of(const struct ps_coordinator *c)
{
    return c->conf.links.terms;
}

// ---------------------------------------------------------------- rows

// The worker's count for this home, created if new. NULL: no memory, or it has LH_AWAY_MAX.
static struct ps_co_crossing *crossing_of(struct ps_co_worker *w, uint32_t home)
{
    if (!w->crossing) w->crossing = calloc(LH_AWAY_MAX, sizeof *w->crossing);
    for (uint32_t i = 0; w->crossing && i < w->crossings; i++)
        if (w->crossing[i].home == home) return &w->crossing[i];
    if (!w->crossing || w->crossings == LH_AWAY_MAX) return NULL;
    w->crossing[w->crossings] = (struct ps_co_crossing){.home = home};
    return &w->crossing[w->crossings++];
}

static const char *read_row(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    char id[17] = "";
    uint64_t worker, home;
    if (strlen(name) < 18 || name[16] != '/') return "has another name than crossed/WORKER/HOME";
    memcpy(id, name, 16);
    if (!ps_co_row_number(id, 16, &worker) || !ps_co_row_number(name + 17, 10, &home))
        return "has another name than crossed/WORKER/HOME";
    struct ps_co_crossing is = {.home = (uint32_t)home};
    is.bytes = lh_get_u64(at);
    is.seen = lh_get_u64(at);
    is.process = lh_get_u64(at);
    if (at->failed) return NULL;
    uint32_t i = ps_co_worker_index(c, worker);
    if (i == c->workers) return "is of a worker that never joined";
    if (home >= c->stock.homes) return "is of a home that no unit has";
    struct ps_co_crossing *to = crossing_of(&c->worker[i], (uint32_t)home);
    if (to) *to = is;
    return to ? NULL : "found no memory";
}

lh_err ps_co_load_crossed(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) c->worker[i].crossings = 0;
    return LH_BUG("cap_forgets_crossed") ? LH_OK : ps_co_load_named(c, ROWS, read_row);
}

static lh_err put(struct ps_coordinator *c, const struct ps_co_worker *w,
                  const struct ps_co_crossing *x)
{
    char key[40];
    struct lh_buf row = lh_buf(32);
    snprintf(key, sizeof key, "%s%016" PRIx64 "/%02u", ROWS, w->id, x->home);
    lh_put_u64(&row, x->bytes);
    lh_put_u64(&row, x->seen);
    lh_put_u64(&row, x->process);
    return ps_co_put_buf(c, key, &row);
}

static lh_err take_one(struct ps_coordinator *c, struct ps_co_worker *w, const struct lh_away *a)
{
    uint32_t home = ps_co_stock_home(c, a->region);
    if (!a->arrived_bytes || home == c->stock.homes) return LH_OK;
    struct ps_co_crossing *x = crossing_of(w, home);
    if (!x && w->crossing) return LH_OK; // caps do not count then (view.h)
    if (!x) return lh_fail(LH_ERR_BUSY, "no memory for what crossed a link");
    uint64_t before = x->process == a->process ? x->seen : 0;
    if (a->arrived_bytes <= before) return LH_OK; // a late duplicate
    x->bytes += a->arrived_bytes - before;
    x->seen = a->arrived_bytes;
    x->process = a->process;
    return put(c, w, x);
}

lh_err ps_co_take_crossed(struct ps_coordinator *c, uint32_t worker,
                          const struct lh_lease_request *m)
{
    for (size_t i = 0; i < m->n_away; i++) LH_TRY(take_one(c, &c->worker[worker], &m->away[i]));
    return LH_OK;
}

// ---------------------------------------------------------------- units on the way

// Leaves each unit over a link with a cap once.
static size_t keep_capped(const struct ps_coordinator *c, uint32_t worker, uint64_t *list,
                          size_t count)
{
    size_t n = 0;
    uint32_t home = UINT32_MAX; // the previous unit's; neighbours often have the same one
    bool capped = false;
    ps_co_sort(list, count);
    for (size_t i = 0; i < count; i++) {
        if (list[i] >= c->units || (n && list[n - 1] == list[i])) continue;
        uint32_t its = ps_co_stock_home_of(c, list[i]);
        if (its != home) capped = ps_co_is_capped(c, its, worker);
        home = its;
        if (capped) list[n++] = list[i];
    }
    return n;
}

lh_err ps_co_note_fetches(struct ps_coordinator *c, uint32_t worker,
                          const struct lh_lease_request *m, const struct ps_co_leased *answer)
{
    struct ps_co_worker *w = &c->worker[worker];
    size_t n = 0;
    if (!terms_of(c) || !terms_of(c)->terms) return LH_OK;
    size_t most = m->n_holding + answer->units;
    uint64_t *list = realloc(w->fetches, (most + m->n_begun + 1) * sizeof *list);
    if (!list) return lh_fail(LH_ERR_BUSY, "no memory for units on the way");
    uint64_t *begun = list + most;
    for (size_t i = 0; i < m->n_begun; i++) begun[i] = m->begun[i];
    ps_co_sort(begun, m->n_begun);
    for (size_t i = 0; i < m->n_holding; i++)
        if (!ps_co_sorted_has(begun, m->n_begun, m->holding[i])) list[n++] = m->holding[i];
    for (size_t i = 0; i < answer->units; i++) list[n++] = answer->unit[i];
    w->fetches = list;
    w->fetch_count = keep_capped(c, worker, list, n);
    return LH_OK;
}

// The unit is credited, or no lease of it is this worker's.
static bool is_stray(const struct ps_coordinator *c, const struct ps_co_worker *w, uint64_t unit)
{
    uint32_t holder = (uint32_t)(w - c->worker) + 1;
    bool leased = c->lease[unit] == holder && !ps_co_credited(c, unit);
    return !leased && ps_co_second(c, unit) != holder;
}

// ---------------------------------------------------------------- what a link carried

// Bytes of that home's units that are leased to the worker or on the way, and not begun. Nothing
// reports whether a second run has begun: it counts until it ends.
static double coming_to(const struct ps_coordinator *c, const struct ps_co_worker *w, uint32_t home)
{
    uint64_t tokens = 0;
    for (uint32_t at = w->held.head; at; at = ps_co_stock_behind(c, at))
        if (c->begun[at - 1] == CO_WAITS && ps_co_stock_home_of(c, at - 1) == home)
            tokens += ps_co_unit(c, at - 1)->tokens;
    for (uint32_t at = w->wanted.head; at; at = ps_co_stock_wanted_behind(c, at))
        if (ps_co_stock_home_of(c, at - 1) == home) tokens += ps_co_unit(c, at - 1)->tokens;
    for (uint32_t i = 0; i < c->seconds; i++) {
        const struct ps_co_second_lease *s = &c->second[i];
        if (&c->worker[s->worker] == w && ps_co_stock_home_of(c, s->unit) == home)
            tokens += ps_co_unit(c, s->unit)->tokens;
    }
    for (size_t i = 0; i < w->fetch_count; i++)
        if (ps_co_stock_home_of(c, w->fetches[i]) == home && is_stray(c, w, w->fetches[i]))
            tokens += ps_co_unit(c, w->fetches[i])->tokens;
    return (double)tokens * c->conf.units->token_bytes;
}

struct ps_co_carried ps_co_carried(const struct ps_coordinator *c, uint32_t home,
                                   const char *region)
{
    struct ps_co_carried out = {.term = ps_terms_of(terms_of(c), c->stock.home[home], region),
                                .left = -1};
    bool capped = out.term != NULL;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (strcmp(w->region, region) != 0) continue;
        for (uint32_t k = 0; k < w->crossings; k++)
            if (w->crossing[k].home == home) out.crossed += (double)w->crossing[k].bytes;
        if (capped && !LH_BUG("cap_forgets_coming")) out.coming += coming_to(c, w, home);
    }
    if (!capped) return out;
    out.left = out.term->cap_bytes - out.crossed - out.coming;
    if (out.left < 0) out.left = 0;
    return out;
}

bool ps_co_is_capped(const struct ps_coordinator *c, uint32_t home, uint32_t worker)
{
    return ps_terms_of(terms_of(c), c->stock.home[home], c->worker[worker].region) != NULL;
}

// ---------------------------------------------------------------- what is told of it

static bool is_first_of_region(const struct ps_coordinator *c, uint32_t worker)
{
    for (uint32_t i = 0; i < worker; i++)
        if (!strcmp(c->worker[i].region, c->worker[worker].region)) return false;
    return true;
}

// Bytes as JSON. Workers say how many crossed, so a sum may be larger than an integer holds.
static json_int_t whole(double bytes)
{
    return (json_int_t)fmin(bytes, 9007199254740992.0); // 2^53
}

static json_t *row_of(const struct ps_coordinator *c, uint32_t home, const char *region,
                      const struct ps_co_carried *is)
{
    bool capped = is->left >= 0;
    double unit = c->conf.units->count ? (double)c->conf.units->unit[0].tokens : 0;
    bool full = capped && is->left < unit * c->conf.units->token_bytes;
    return json_pack("{s:s s:s s:I s:I s:s s:o s:o}", "from", c->stock.home[home], "to", region,
                     "crossed_bytes", whole(is->crossed), "coming_bytes", whole(is->coming),
                     "state", full ? "full" : "open", "cap_bytes",
                     capped ? json_integer((json_int_t)is->term->cap_bytes) : json_null(),
                     "left_bytes", capped ? json_integer(whole(is->left)) : json_null());
}

json_t *ps_co_crossed(const struct ps_coordinator *c)
{
    json_t *rows = json_array();
    bool any = terms_of(c) && terms_of(c)->terms;
    for (uint32_t i = 0; i < c->workers; i++) any |= c->worker[i].crossings > 0;
    for (uint32_t i = 0; any && i < c->workers; i++) {
        const char *region = c->worker[i].region;
        for (uint32_t h = 0; h < c->stock.homes && is_first_of_region(c, i); h++) {
            struct ps_co_carried is = ps_co_carried(c, h, region);
            if (is.term || is.crossed > 0) json_array_append_new(rows, row_of(c, h, region, &is));
        }
    }
    return rows;
}
