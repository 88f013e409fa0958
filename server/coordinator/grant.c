// Grant: the answer to a lease request (server/docs/0000-protocol.md#rule-19, #rule-20).
//
// A lease only avoids double work; the first claim in a shard's log credits a unit. Every answer
// lists all units that the worker holds, so a restarted worker continues with them. A lease ends
// with its unit's credit, with its holder's silence, or when the holder returns it.
//
// 1. conf.balance decides which further units a worker gets: first come, first served
//    (balance/level.c), or the balancer's policy (balance/assign.c).
// 2. Only units that are not begun are recalled. The holder checks again when asked, and its answer
//    counts. A returned unit is kept for its new worker, as long as that one is live, asks for
//    units and may train it. A worker that asks for none returns units that others need.
// 3. Recalls and begun units are in memory only. A restarted coordinator leases by its store and
//    asks again.
// 4. A worker that returns after its leases went to others gives those up; the units that are still
//    free are leased to it again.
// 5. A worker gets a unit of a later data epoch only if no unit of an earlier one is free for it in
//    its pool. No worker waits for the end of an epoch: a region continues with the next one when
//    all remaining units are leased to others or may not leave their region. So epochs overlap by
//    the leased units, and regions whose data stay at home may be epochs apart. A budget that ends
//    the run counts tokens.
//
// Memory: 17 bytes per unit of the run, plus balance/stock.c and order.c; 40 KiB per answer. A
// request looks only at its worker's units, not at every unit.
#include "server/coordinator/grant.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/assign.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/level.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/balance/twice.h"

// ---------------------------------------------------------------- the request

struct named { // units of one of the worker's lists, ascending
    uint64_t *unit;
    size_t count;
};

static lh_err name(struct named *n, const uint64_t *list, size_t count)
{
    n->unit = malloc((count + 1) * sizeof *n->unit);
    if (!n->unit) return lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    n->count = count;
    if (count) memcpy(n->unit, list, count * sizeof *list);
    ps_co_sort(n->unit, count);
    return LH_OK;
}

static bool has(const struct named *n, uint64_t unit)
{
    return ps_co_sorted_has(n->unit, n->count, unit);
}

// A late duplicate of this request may free a unit that was leased to the same worker again: it is
// then trained twice and credited once. That is not allowed if the worker has claimed the unit
// since: a claim never comes back, and may be credited by now.
static lh_err take_returned(struct ps_co_asking *a)
{
    struct ps_coordinator *c = a->c;
    for (size_t i = 0; i < a->m->n_returned; i++) {
        uint64_t u = a->m->returned[i];
        if (u >= c->units || ps_co_credited(c, u)) continue;
        if (c->lease[u] == a->w + 1 && c->begun[u] == CO_CLAIMED) continue;
        if (c->lease[u] == a->w + 1)
            LH_TRY(ps_co_lease_end(c, u));
        else if (ps_co_second(c, u) == a->w + 1)
            LH_TRY(ps_co_lease_end_second(c, u));
    }
    return LH_OK;
}

// The store keeps no lease of a credited unit. Until each shard has reported its credits, a
// restarted coordinator can't tell how much of the budget is left.
static bool knows_budget(const struct ps_co_asking *a)
{
    return !a->c->conf.budget_tokens || ps_co_all_known(a->c);
}

// Handles units that a worker holds without a lease: it lost them while it was silent.
static lh_err reconcile(struct ps_co_asking *a)
{
    struct ps_coordinator *c = a->c;
    uint64_t sum = 0, free_held = 0;
    for (size_t i = 0; i < a->m->n_holding; i++) {
        uint64_t u = a->m->holding[i];
        if (u >= c->units || c->lease[u] == a->w + 1 || ps_co_second(c, u) == a->w + 1) continue;
        bool gone = c->lease[u] != CO_FREE || ps_co_credited(c, u);
        if (!gone && (!ps_co_may_lease_anew(c, u) || !knows_budget(a))) continue; // not known yet
        if (!gone && !free_held++) sum = c->stock.committed_tokens;
        gone |= !a->open || sum >= a->budget || free_held > LH_LEASES_MAX ||
                !ps_co_may_train(c, u, a->w) || ps_co_wanted_elsewhere(c, u, a->w);
        if (gone) {
            ps_co_recall(a, u);
        } else {
            sum += ps_co_unit(c, u)->tokens;
            LH_TRY(ps_co_lease_set(c, u, a->w));
        }
    }
    return LH_OK;
}

// ---------------------------------------------------------------- held units

static void list_unit(struct ps_co_asking *a, uint64_t unit)
{
    a->tokens += ps_co_unit(a->c, unit)->tokens;
    if (a->out->units < (a->ahead ? LH_LEASES_MAX : PS_CO_WANT_MAX))
        a->out->unit[a->out->units++] = unit;
}

// Tokens that are credited or leased, without those that stalled workers hold, and without those
// that a worker without a loop has not begun: free units replace them in the budget. If a stalled
// worker recovers, the run may end above its budget by what it has begun.
static uint64_t taken(const struct ps_coordinator *c)
{
    uint64_t sum = c->stock.committed_tokens;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        for (int k = 0; k < CO_BEGUN_COUNT; k++)
            if (w->stall.why || (w->idle && k == CO_WAITS)) sum -= w->held.tokens[k];
    }
    return sum;
}

// Gives up units that are kept for this worker, as long as the sum without one still meets the
// budget.
static void keep_fewer(const struct ps_co_asking *a, uint32_t worker, uint64_t *sum)
{
    struct ps_coordinator *c = a->c;
    for (uint32_t at = c->worker[worker].wanted.head, next; at && *sum > a->budget; at = next) {
        uint64_t tokens = ps_co_unit(c, at - 1)->tokens;
        next = ps_co_stock_wanted_behind(c, at);
        if (c->lease[at - 1] != CO_FREE || *sum < a->budget + tokens) continue;
        ps_co_lease_want(c, at - 1, 0);
        *sum -= tokens;
    }
}

// No more units are kept than the budget leaves: it was lowered, or others' own data used it up.
// Else each worker would wait for those of the others. The asking worker loses its own last.
static void keep_within_budget(const struct ps_co_asking *a)
{
    const struct ps_coordinator *c = a->c;
    uint64_t sum = taken(c);
    for (uint32_t i = 0; i < c->workers; i++) sum += c->worker[i].wanted.kept_tokens;
    for (uint32_t i = 0; i < c->workers; i++)
        if (i != a->w) keep_fewer(a, i, &sum);
    keep_fewer(a, a->w, &sum);
}

// Like taken(), with the units that are kept for other workers.
static uint64_t committed(const struct ps_co_asking *a)
{
    uint64_t sum = taken(a->c);
    for (uint32_t i = 0; i < a->c->workers; i++)
        if (i != a->w && ps_co_takes(a->c, i)) sum += a->c->worker[i].wanted.kept_tokens;
    return sum;
}

// The leased units may exceed a budget that was lowered, or that others' own data used up. Then the
// worker's last units are recalled. Gives the place of the first of these.
static size_t within_budget(const struct ps_co_asking *a, const uint32_t *held, size_t n,
                            const struct named *claimed, const struct named *begun)
{
    uint64_t sum = taken(a->c), beyond = sum > a->budget ? sum - a->budget : 0;
    if (!knows_budget(a)) return n;
    for (; n; n--) {
        uint64_t u = held[n - 1], tokens = ps_co_unit(a->c, u)->tokens;
        if (beyond < tokens) break;
        if (ps_co_may_lease(a->c, u) && !has(claimed, u) && !has(begun, u)) beyond -= tokens;
    }
    return n;
}

// Lists the worker's units except claimed and recalled ones.
static void list_held(struct ps_co_asking *a, const uint32_t *held, size_t n,
                      const struct named *claimed, const struct named *begun)
{
    struct ps_coordinator *c = a->c;
    bool leaves = ps_co_leaving(c, &c->worker[a->w]);
    bool stalled = c->worker[a->w].stall.why != PS_CO_GOES_ON;
    size_t within = within_budget(a, held, n, claimed, begun);
    for (size_t i = 0; i < n; i++) {
        uint64_t u = held[i];
        if (!ps_co_may_lease(c, u)) continue;
        a->held++;
        bool is_claimed = has(claimed, u);
        ps_co_lease_mark(c, u, is_claimed ? CO_CLAIMED : has(begun, u) ? CO_BEGUN : CO_WAITS);
        if (c->begun[u] != CO_WAITS) ps_co_lease_want(c, u, 0);
        if (is_claimed) continue;
        bool goes = leaves || stalled || i >= within || ps_co_wanted_elsewhere(c, u, a->w);
        if (a->ahead && !c->begun[u] && goes)
            ps_co_recall(a, u);
        else if (!stalled || c->begun[u])
            list_unit(a, u);
    }
    for (uint32_t i = 0; i < c->seconds; i++) {
        uint64_t u = c->second[i].unit;
        if (c->second[i].worker == a->w && ps_co_may_lease(c, u) && !has(claimed, u))
            list_unit(a, u);
    }
}

static lh_err look_at_held(struct ps_co_asking *a)
{
    struct named claimed = {0}, begun = {0};
    size_t n = 0;
    uint32_t *held = ps_co_stock_held(a->c, a->w, &n);
    lh_err err = held ? LH_OK : lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    if (!err) err = name(&claimed, a->m->claimed, a->m->n_claimed);
    if (!err) err = name(&begun, a->m->begun, a->m->n_begun);
    if (!err) list_held(a, held, n, &claimed, &begun);
    free(held);
    free(claimed.unit);
    free(begun.unit);
    return err;
}

// ---------------------------------------------------------------- the answer

static lh_err grant(struct ps_co_asking *a)
{
    LH_TRY(ps_co_lease_settle(a->c));
    LH_TRY(take_returned(a)); // units that do not reach the worker return even without leases ahead
    if (a->ahead) LH_TRY(reconcile(a));
    LH_TRY(look_at_held(a));
    if (a->c->worker[a->w].stall.why) LH_TRY(ps_co_lease_end_waiting(a->c, a->w));
    if (!a->open || !a->m->want || !knows_budget(a)) return LH_OK;
    keep_within_budget(a);
    a->sum = committed(a);
    if (ps_co_assigns(a)) {
        LH_TRY(ps_co_assign(a));
    } else {
        ps_co_assign_few(a);
        LH_TRY(ps_co_level(a));
    }
    return ps_co_take_stalled(a);
}

lh_err ps_co_grant(struct ps_coordinator *c, uint32_t worker, const struct lh_lease_request *m,
                   struct ps_co_leased *out)
{
    const struct ps_co_worker *w = &c->worker[worker];
    struct ps_co_asking a = {.c = c, .w = worker, .m = m, .out = out};
    bool runs = c->plan.phase == LH_PHASE_RUN && !c->pause.is;
    a.open = runs && w->live && !w->stall.why && !ps_co_draining(c, w);
    a.ahead = w->gives && c->conf.ride_out_ns;
    a.want = m->want < PS_CO_WANT_MAX ? m->want : PS_CO_WANT_MAX;
    uint64_t own = ps_co_own_tokens(c), budget = c->conf.budget_tokens;
    a.budget = !budget ? UINT64_MAX : budget > own ? budget - own : 0;
    a.need = w->tokens_per_s * ((double)c->conf.ride_out_ns / LH_SECOND);
    lh_err err = grant(&a);
    ps_co_decided_say(c);
    return err;
}
