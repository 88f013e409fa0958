// Twice: units of stalled workers run a second time. See twice.h.
//
// 1. Only a worker with nothing else to do gets one, at any point of the run: units of its own
//    region first, then in the run's order; at most an equal share of them at once.
// 2. Both leases are in the store. The first claim credits the unit, whichever worker makes it
//    (server/docs/0000-protocol.md#rule-20).
//    A credited budget ends this: what a stalled worker holds is not needed any more.
// 3. Residency and link caps hold as for any unit. While an operator has frozen the balancer, only
//    units of the worker's own region.
#include "server/coordinator/balance/twice.h"

#include <stdlib.h>

#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/stock.h"

struct stalled_unit {
    uint64_t unit, turn;
    bool home;
};

// Does the cap allow this unit in addition to the request's earlier ones?
static bool fits_cap(const struct ps_co_asking *a, uint64_t unit)
{
    const struct ps_coordinator *c = a->c;
    uint32_t home = ps_co_stock_home_of(c, unit);
    if (ps_co_is_home(c, unit, a->w) || !ps_co_is_capped(c, home, a->w)) return true;
    double bytes = ps_co_stock_bytes(c, unit);
    return !a->out->units && bytes <= ps_co_carried(c, home, c->worker[a->w].region).left;
}

static bool may_have(const struct ps_co_asking *a, uint64_t unit)
{
    const struct ps_coordinator *c = a->c;
    return c->begun[unit] != CO_WAITS && ps_co_may_lease(c, unit) && !ps_co_second(c, unit) &&
           ps_co_may_train(c, unit, a->w) && (!c->frozen || ps_co_is_home(c, unit, a->w));
}

static int by_turn(const void *a, const void *b)
{
    const struct stalled_unit *x = a, *y = b;
    if (x->home != y->home) return x->home ? -1 : 1;
    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

// Lists the stalled units that the worker may have. Caller frees; NULL: none, or no memory.
static struct stalled_unit *list_stalled(const struct ps_co_asking *a, size_t *count)
{
    const struct ps_coordinator *c = a->c;
    size_t most = 0, n = 0;
    for (uint32_t v = 0; v < c->workers; v++)
        if (c->worker[v].stall.why && v != a->w) most += c->worker[v].held.units;
    struct stalled_unit *out = most ? malloc(most * sizeof *out) : NULL;
    for (uint32_t v = 0; out && v < c->workers; v++) {
        if (!c->worker[v].stall.why || v == a->w) continue;
        for (uint32_t at = c->worker[v].held.head; at; at = ps_co_stock_behind(c, at))
            if (may_have(a, at - 1))
                out[n++] = (struct stalled_unit){at - 1, ps_co_stock_turn(c, at - 1),
                                                 ps_co_is_home(c, at - 1, a->w)};
    }
    if (n) qsort(out, n, sizeof *out, by_turn);
    *count = n;
    return out;
}

static size_t share_of(const struct ps_co_asking *a, size_t count)
{
    size_t takers = 0;
    for (uint32_t i = 0; i < a->c->workers; i++) takers += ps_co_takes(a->c, i);
    size_t share = takers ? (count + takers - 1) / takers : count;
    return share < a->want ? share : a->want;
}

static LH_MUST lh_err take(struct ps_co_asking *a, uint64_t unit)
{
    struct ps_coordinator *c = a->c;
    uint32_t pool = ps_co_stock_pool(c, unit);
    struct ps_balance_choice choice = {
        .reason = PS_BALANCE_TWICE, .pool = pool, .from = c->stock.pool[pool].home};
    LH_TRY(ps_co_lease_second(c, unit, a->w));
    if (!ps_co_second(c, unit)) return LH_OK; // the maximum already runs twice
    a->tokens += ps_co_unit(c, unit)->tokens;
    a->out->unit[a->out->units++] = unit;
    ps_co_decide(c, a->w, c->lease[unit] - 1, unit, &choice);
    return LH_OK;
}

lh_err ps_co_take_stalled(struct ps_co_asking *a)
{
    size_t count = 0;
    if (a->out->units || ps_co_budget_is_credited(a->c)) return LH_OK;
    struct stalled_unit *list = list_stalled(a, &count);
    lh_err err = LH_OK;
    for (size_t i = 0, most = share_of(a, count); !err && i < count && a->out->units < most; i++)
        if (fits_cap(a, list[i].unit)) err = take(a, list[i].unit);
    free(list);
    return err;
}
