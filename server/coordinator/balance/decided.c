// Decisions: a ring of the last ones, and one event for units that move together. See decided.h.
//
// 1. Units that go to one worker in one request, from one holder and one home and for one reason,
//    are one decision: one row of the ring, and one event with their number and ranges. The figures
//    are the last unit's, which ends latest. So a request makes one event per holder and home,
//    however many units it moves.
// 2. Requests of the same worker within a second continue its rows.
// 3. An event lists RANGES_MAX ranges and the number of further units.
//
// Events: balance.planned (the plan gives a region another region's free units), balance.stolen
// (reserved units are recalled for a worker that ends them earlier, or a unit that its home refuses
// is leased), balance.twice (a unit begun elsewhere runs a second time), balance.budget (reserved
// units are returned because others end the run's budget earlier), balance.scored.
// Free units of the worker's own region appear in the ring only. Nothing is stored.
#include "server/coordinator/balance/decided.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"

enum {
    KEPT = 256,
    OPEN_MAX = 64, // decisions of one request
    UNITS_MAX = LH_LEASES_MAX + LH_RECALLS_MAX,
    LOOK_BACK = 16, // rows of the ring that a decision may continue
    RANGES_MAX = 16,
};

struct decision {
    int64_t at_s;
    enum ps_balance_reason reason;
    uint32_t worker, from, home;
    uint64_t unit, units;
    double here_s, cost_s, there_s;
};

struct ps_co_decisions {
    struct decision last[KEPT];
    uint64_t of[PS_BALANCE_TWICE + 1]; // number of decisions, by reason
    uint64_t count;                    // total; the newest is at (count - 1) % KEPT
    struct decision open[OPEN_MAX];    // decisions of the current request
    uint32_t opened;
    uint64_t unit[UNITS_MAX]; // their units
    uint32_t open_of[UNITS_MAX];
    size_t units;
};

lh_err ps_co_decided_make(struct ps_coordinator *c)
{
    c->decided = calloc(1, sizeof *c->decided);
    return c->decided ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err ps_co_load_decided(struct ps_coordinator *c)
{
    memset(c->decided, 0, sizeof *c->decided);
    return LH_OK;
}

// ---------------------------------------------------------------- events

// The units of one decision, ascending; `list` must be large enough for all. Returns their number.
static size_t units_of(const struct ps_co_decisions *all, uint32_t open, uint64_t *list)
{
    size_t n = 0;
    for (size_t i = 0; i < all->units; i++)
        if (all->open_of[i] == open) list[n++] = all->unit[i];
    ps_co_sort(list, n);
    return n;
}

// Writes "unit 7 of asia", or "12 units of asia (3-9, 12, 14-17)".
static void name_units(const uint64_t *list, size_t n, const char *home, char *out, size_t size)
{
    if (n == 1) {
        snprintf(out, size, "unit %" PRIu64 " of %s", list[0], home);
        return;
    }
    size_t len = (size_t)snprintf(out, size, "%zu units of %s (", n, home), i = 0;
    for (int ranges = 0; i < n && ranges < RANGES_MAX; ranges++) {
        size_t first = i++;
        while (i < n && list[i] == list[i - 1] + 1) i++;
        len +=
            (size_t)snprintf(out + len, size - len, "%s%" PRIu64, ranges ? ", " : "", list[first]);
        if (i - first > 1) len += (size_t)snprintf(out + len, size - len, "-%" PRIu64, list[i - 1]);
    }
    if (i < n) len += (size_t)snprintf(out + len, size - len, " and %zu more", n - i);
    snprintf(out + len, size - len, ")");
}

static void say_back(struct ps_coordinator *c, const struct decision *d, const char *units)
{
    const struct ps_co_worker *w = &c->worker[d->worker];
    ps_co_say(
        c, LH_INFO, "balance.budget",
        "%s %s back from %s of %s, which would end all that it has in %.1f s: the budget ends "
        "in %.1f s",
        units, d->units > 1 ? "come" : "comes", w->name, w->region, d->here_s, d->there_s);
}

static void say(struct ps_coordinator *c, const struct decision *d, const char *units)
{
    static const char *const events[] = {
        [PS_BALANCE_PLANNED] = "balance.planned",
        [PS_BALANCE_STOLEN] = "balance.stolen",
        [PS_BALANCE_SCORED] = "balance.scored",
        [PS_BALANCE_TWICE] = "balance.twice",
    };
    const struct ps_co_worker *w = &c->worker[d->worker];
    char from[2 * LH_NAME_BYTES + 32] = "", there[96] = "", cost[64] = "";
    if (d->from != PS_CO_NOBODY)
        snprintf(from, sizeof from, ", which %s of %s holds,", c->worker[d->from].name,
                 c->worker[d->from].region);
    if (d->there_s > 0 && d->there_s < 1e9)
        snprintf(there, sizeof there, ", the others would end all that is left to them in %.1f s",
                 d->there_s);
    if (d->cost_s > 0) snprintf(cost, sizeof cost, ", its language counts as %.1f s", d->cost_s);
    ps_co_say(c, LH_INFO, events[d->reason],
              "%s%s %s to %s of %s: %s would end there in %.1f s%s%s", units, from,
              d->units > 1 ? "go" : "goes", w->name, w->region,
              d->units > 1 ? "the last one" : "it", d->here_s, cost, there);
}

// ---------------------------------------------------------------- rows

static bool is_same(const struct decision *a, const struct decision *b)
{
    return a->worker == b->worker && a->from == b->from && a->reason == b->reason &&
           a->home == b->home;
}

static void keep(struct ps_co_decisions *all, const struct decision *d)
{
    for (uint64_t i = 0; i < LOOK_BACK && i < all->count; i++) {
        struct decision *last = &all->last[(all->count - 1 - i) % KEPT];
        if (!is_same(last, d) || d->at_s - last->at_s > 1) continue;
        last->units += d->units;
        last->here_s = d->here_s;
        last->cost_s = d->cost_s;
        last->there_s = d->there_s;
        return;
    }
    all->last[all->count++ % KEPT] = *d;
}

void ps_co_decided_say(struct ps_coordinator *c)
{
    static const size_t bytes = LH_NAME_BYTES + 64 + RANGES_MAX * 44;
    struct ps_co_decisions *all = c->decided;
    uint64_t *list = all->opened ? malloc((all->units + 1) * sizeof *list) : NULL;
    char *units = all->opened ? malloc(bytes) : NULL;
    for (uint32_t i = 0; i < all->opened; i++) {
        const struct decision *d = &all->open[i];
        keep(all, d);
        if (!list || !units || d->reason == PS_BALANCE_HOME) continue; // without memory: no event
        name_units(list, units_of(all, i, list), c->stock.home[d->home], units, bytes);
        (d->reason == PS_BALANCE_BUDGET ? say_back : say)(c, d, units);
    }
    free(list);
    free(units);
    all->opened = 0;
    all->units = 0;
}

void ps_co_decide(struct ps_coordinator *c, uint32_t worker, uint32_t from, uint64_t unit,
                  const struct ps_balance_choice *choice)
{
    struct ps_co_decisions *all = c->decided;
    struct decision d = {
        .at_s = c->conf.env->ops->wall_s(c->conf.env),
        .reason = choice->reason,
        .worker = worker,
        .from = from,
        .home = ps_co_stock_home_of(c, unit),
        .unit = unit,
        .units = 1,
        .here_s = choice->here_s,
        .cost_s = choice->cost_s,
        .there_s = choice->there_s,
    };
    all->of[choice->reason]++;
    if (choice->reason == PS_BALANCE_NOTHING) return;
    uint32_t i = 0;
    while (i < all->opened && !is_same(&all->open[i], &d)) i++;
    if (all->units == UNITS_MAX || i == OPEN_MAX) {
        ps_co_decided_say(c);
        i = 0;
    }
    if (i == all->opened) {
        all->open[all->opened++] = d;
    } else {
        d.unit = all->open[i].unit;
        d.units = all->open[i].units + 1;
        all->open[i] = d;
    }
    all->unit[all->units] = unit;
    all->open_of[all->units++] = i;
}

// ---------------------------------------------------------------- what is told of them

uint64_t ps_co_decided_count(const struct ps_coordinator *c, enum ps_balance_reason reason)
{
    return c->decided->of[reason];
}

json_t *ps_co_decisions(const struct ps_coordinator *c)
{
    const struct ps_co_decisions *all = c->decided;
    json_t *rows = json_array();
    for (uint64_t i = all->count; i > 0 && all->count - i < KEPT; i--) {
        const struct decision *d = &all->last[(i - 1) % KEPT];
        if (d->worker >= c->workers || (d->from != PS_CO_NOBODY && d->from >= c->workers)) continue;
        const struct ps_co_worker *w = &c->worker[d->worker];
        json_t *row = json_pack(
            "{s:I s:s s:s s:s s:I s:I s:s s:s? s:f s:o* s:o*}", "at", (json_int_t)d->at_s, "worker",
            w->name, "region", w->region, "reason", ps_balance_reason_name(d->reason), "unit",
            (json_int_t)d->unit, "units", (json_int_t)d->units, "home", c->stock.home[d->home],
            "from", d->from == PS_CO_NOBODY ? NULL : c->worker[d->from].name, "here_s", d->here_s,
            "cost_s", d->cost_s > 0 ? json_real(d->cost_s) : NULL, "there_s",
            d->there_s > 0 && d->there_s < 1e9 ? json_real(d->there_s) : NULL);
        json_array_append_new(rows, row);
    }
    return rows;
}
