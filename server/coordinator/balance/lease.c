// Leases: their rows in the store, and the rules for leasing a unit. level.c and assign.c choose
// the next unit.
//
// Store: lease/<first unit 10> = the leases of the 64 units from there on, as runs: place of the
// first u8, units u8, worker u64, wall time u32, number of the first one's grant u32. The units of
// a run are consecutive, and so are their grant numbers. second/<unit 10> = worker u64, grant
// number u32, of a unit that runs twice. A credited unit is in no run: the rest of its lease is in
// memory, for display only, and is dropped if a shard takes the credit back. Invariants: 1. A unit
// has one holder, and at most one second worker. 2. If the holder returns the unit or is given up,
// the second worker becomes the holder. 3. Recalls and begun units are in memory only: workers
// report them again.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"

// ---------------------------------------------------------------- what is stored

static void key_of(char out[32], const char *kind, uint64_t unit)
{
    snprintf(out, 32, "%s%010" PRIu64, kind, unit);
}

enum { RANGE = 64, RUN_BYTES = 18 };

static bool is_kept(const struct ps_coordinator *c, uint64_t unit)
{
    return unit < c->units && c->lease[unit] != CO_FREE && !ps_co_credited(c, unit);
}

// The unit continues the run of the previous one.
static bool follows(const struct ps_coordinator *c, uint64_t unit)
{
    return is_kept(c, unit) && c->lease[unit] == c->lease[unit - 1] &&
           c->leased_s[unit] == c->leased_s[unit - 1] && c->number[unit] == c->number[unit - 1] + 1;
}

// Stores this unit's range, as in memory.
static LH_MUST lh_err store_range(struct ps_coordinator *c, uint64_t unit)
{
    uint64_t first = unit - unit % RANGE, end = first + RANGE;
    char key[32];
    struct lh_buf b = lh_buf(RANGE * RUN_BYTES);
    for (uint64_t u = first; u < end; u++) {
        if (!is_kept(c, u)) continue;
        uint64_t run = u++;
        while (u < end && follows(c, u)) u++;
        lh_put_u8(&b, (uint8_t)(run - first));
        lh_put_u8(&b, (uint8_t)(u - run));
        lh_put_u64(&b, c->worker[c->lease[run] - 1].id);
        lh_put_u32(&b, c->leased_s[run]);
        lh_put_u32(&b, c->number[run]);
        u--;
    }
    key_of(key, "lease/", first);
    return b.len || b.err ? ps_co_put_buf(c, key, &b) : ps_co_remove(c, key);
}

static uint32_t second_at(const struct ps_coordinator *c, uint64_t unit)
{
    uint32_t i = 0;
    while (i < c->seconds && c->second[i].unit != unit) i++;
    return i;
}

LH_STATIC_ASSERT(LH_WORKERS_MAX < UINT16_MAX, "a unit has its holder in two bytes");

static lh_err hold(struct ps_coordinator *c, uint64_t unit, uint32_t worker, uint32_t number)
{
    ps_co_stock_out(c, unit);
    c->lease[unit] = (uint16_t)(worker + 1);
    if (unit >= c->leased_end) c->leased_end = unit + 1;
    c->leased_s[unit] = (uint32_t)c->conf.env->ops->wall_s(c->conf.env);
    c->begun[unit] = CO_WAITS;
    c->wanted_by[unit] = 0;
    c->number[unit] = number;
    ps_co_stock_in(c, unit);
    return store_range(c, unit);
}

lh_err ps_co_lease_set(struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    c->worker[worker].lease_tokens += ps_co_unit(c, unit)->tokens;
    return hold(c, unit, worker, ++c->last_grant);
}

uint32_t ps_co_lease_number(const struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    if (c->lease[unit] == worker + 1) return c->number[unit];
    uint32_t i = second_at(c, unit);
    return i < c->seconds && c->second[i].worker == worker ? c->second[i].number : 0;
}

static void set_free(struct ps_coordinator *c, uint64_t unit)
{
    ps_co_stock_out(c, unit);
    c->lease[unit] = CO_FREE;
    ps_co_stock_in(c, unit);
}

static lh_err end_lease(struct ps_coordinator *c, uint64_t unit)
{
    set_free(c, unit);
    return store_range(c, unit);
}

lh_err ps_co_lease_credited(struct ps_coordinator *c, uint64_t unit)
{
    return c->lease[unit] == CO_FREE ? LH_OK : store_range(c, unit);
}

void ps_co_lease_uncredited(struct ps_coordinator *c, uint64_t unit)
{
    c->lease[unit] = CO_FREE;
}

void ps_co_lease_mark(struct ps_coordinator *c, uint64_t unit, enum ps_co_begun begun)
{
    if (c->begun[unit] == begun) return;
    ps_co_stock_out(c, unit);
    c->begun[unit] = (uint8_t)begun;
    ps_co_stock_in(c, unit);
}

void ps_co_lease_want(struct ps_coordinator *c, uint64_t unit, uint32_t by)
{
    if (c->wanted_by[unit] == by) return;
    ps_co_stock_out(c, unit);
    c->wanted_by[unit] = (uint16_t)by;
    ps_co_stock_in(c, unit);
}

// ---------------------------------------------------------------- second leases

uint32_t ps_co_second(const struct ps_coordinator *c, uint64_t unit)
{
    uint32_t i = second_at(c, unit);
    return i < c->seconds ? c->second[i].worker + 1 : 0;
}

lh_err ps_co_lease_second(struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    char key[32];
    if (c->seconds == PS_CO_SECONDS_MAX) return LH_OK; // others must end first
    key_of(key, "second/", unit);
    uint32_t number = ++c->last_grant;
    c->worker[worker].lease_tokens += ps_co_unit(c, unit)->tokens;
    c->second[c->seconds++] = (struct ps_co_second_lease){unit, worker, number};
    struct lh_buf b = lh_buf(16);
    lh_put_u64(&b, c->worker[worker].id);
    lh_put_u32(&b, number);
    return ps_co_put_buf(c, key, &b);
}

lh_err ps_co_lease_end_second(struct ps_coordinator *c, uint64_t unit)
{
    char key[32];
    uint32_t i = second_at(c, unit);
    if (i == c->seconds) return LH_OK;
    c->second[i] = c->second[--c->seconds];
    key_of(key, "second/", unit);
    return ps_co_remove(c, key);
}

lh_err ps_co_lease_end(struct ps_coordinator *c, uint64_t unit)
{
    uint32_t other = ps_co_second(c, unit);
    if (!other) return end_lease(c, unit);
    uint32_t number = ps_co_lease_number(c, unit, other - 1);
    LH_TRY(ps_co_lease_end_second(c, unit));
    return hold(c, unit, other - 1, number); // its next request tells whether it began
}

lh_err ps_co_lease_settle(struct ps_coordinator *c)
{
    for (uint32_t i = c->seconds; i-- > 0;)
        if (ps_co_credited(c, c->second[i].unit))
            LH_TRY(ps_co_lease_end_second(c, c->second[i].unit));
    return LH_OK;
}

// ---------------------------------------------------------------- all of them

static const char NEVER_JOINED[] = "is of a worker that never joined";

static const char *read_run(struct ps_coordinator *c, uint64_t first, struct lh_cursor *at)
{
    uint32_t place = lh_get_u8(at), units = lh_get_u8(at);
    uint32_t w = ps_co_worker_index(c, lh_get_u64(at)), since = lh_get_u32(at);
    uint32_t number = lh_get_u32(at);
    if (at->failed) return NULL; // ps_co_load_named() reports that
    if (!units || place + units > RANGE) return "has units that are not of its range";
    if (first + place + units > c->units) return ps_co_no_unit();
    if (w == c->workers) return NEVER_JOINED;
    for (uint64_t u = first + place; u < first + place + units; u++) {
        c->lease[u] = (uint16_t)(w + 1);
        c->leased_s[u] = since;
        c->number[u] = number++;
    }
    if (number && number - 1 > c->last_grant) c->last_grant = number - 1;
    if (first + place + units > c->leased_end) c->leased_end = first + place + units;
    return NULL;
}

static const char *read_range(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    uint64_t first;
    const char *why = ps_co_row_unit(c, name, &first);
    if (!why && first % RANGE) why = "is of no range of units";
    while (!why && !at->failed && lh_left(at)) why = read_run(c, first, at);
    return why;
}

static const char *read_second(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    uint64_t unit;
    uint32_t w;
    const char *why = ps_co_row_unit(c, name, &unit);
    w = ps_co_worker_index(c, lh_get_u64(at));
    uint32_t number = lh_get_u32(at);
    if (!why && w == c->workers) why = NEVER_JOINED;
    if (why || at->failed) return why;
    if (number > c->last_grant) c->last_grant = number;
    if (c->seconds == PS_CO_SECONDS_MAX) return "is of one unit more than may run twice";
    c->second[c->seconds++] = (struct ps_co_second_lease){unit, w, number};
    return NULL;
}

lh_err ps_co_load_leases(struct ps_coordinator *c)
{
    uint64_t n = c->units;
    memset(c->lease, 0, n * sizeof *c->lease);
    memset(c->number, 0, n * sizeof *c->number);
    memset(c->leased_s, 0, n * sizeof *c->leased_s);
    memset(c->begun, 0, n * sizeof *c->begun);
    memset(c->wanted_by, 0, n * sizeof *c->wanted_by);
    c->seconds = 0;
    c->last_grant = 0;
    c->leased_end = 0;
    LH_TRY(ps_co_load_named(c, "lease/", read_range));
    LH_TRY(ps_co_load_named(c, "second/", read_second));
    ps_co_stock_fill(c);
    return LH_OK;
}

lh_err ps_co_lease_end_seconds(struct ps_coordinator *c, uint32_t worker)
{
    for (uint32_t i = c->seconds; i-- > 0;)
        if (c->second[i].worker == worker) LH_TRY(ps_co_lease_end_second(c, c->second[i].unit));
    return LH_OK;
}

lh_err ps_co_lease_end_waiting(struct ps_coordinator *c, uint32_t worker)
{
    for (uint32_t at = c->worker[worker].held.head, next; at; at = next) {
        next = ps_co_stock_behind(c, at);
        if (c->begun[at - 1] == CO_WAITS) LH_TRY(ps_co_lease_end(c, at - 1));
    }
    return LH_OK;
}

lh_err ps_co_free_leases(struct ps_coordinator *c, uint32_t worker)
{
    LH_TRY(ps_co_lease_end_seconds(c, worker));
    for (uint32_t at = c->worker[worker].held.head, next; at; at = next) {
        next = ps_co_stock_behind(c, at);
        if (ps_co_second(c, at - 1))
            LH_TRY(ps_co_lease_end(c, at - 1));
        else
            set_free(c, at - 1);
        bool goes_on = next && (next - 1) / RANGE == (at - 1) / RANGE; // each range is stored once
        if (!goes_on) LH_TRY(store_range(c, at - 1));
    }
    return LH_OK;
}

void ps_co_lease_drop_wanted(struct ps_coordinator *c, uint32_t worker)
{
    for (uint32_t at = c->worker[worker].wanted.head, next; at; at = next) {
        next = ps_co_stock_wanted_behind(c, at);
        ps_co_lease_want(c, at - 1, 0);
    }
}

void ps_co_lease_drop_closed(struct ps_coordinator *c, uint32_t worker)
{
    size_t n = 0;
    bool closed = c->worker[worker].refused_count > 0;
    for (uint32_t i = 0; i < c->worker[worker].aways; i++)
        closed |= c->worker[worker].away[i].closed;
    uint32_t *list = closed ? ps_co_stock_wanted(c, worker, &n) : NULL;
    for (size_t i = 0; list && i < n; i++)
        if (ps_co_is_closed(c, ps_co_stock_home_of(c, list[i]), worker) ||
            ps_co_is_refused(c, list[i], worker))
            ps_co_lease_want(c, list[i], 0);
    free(list); // without memory the worker gets them and returns them
}

// ---------------------------------------------------------------- what may be leased

bool ps_co_may_lease(const struct ps_coordinator *c, uint64_t unit)
{
    bool known = c->shard[unit % c->conf.manifest->shards].reported;
    return known && !ps_co_credited(c, unit);
}

static bool is_old(const struct ps_coordinator *c, const struct ps_co_shard *s)
{
    return lh_listener_rests(&c->listener) && s->heard_after != c->listener.pauses;
}

bool ps_co_may_lease_anew(const struct ps_coordinator *c, uint64_t unit)
{
    const struct ps_co_shard *s = &c->shard[unit % c->conf.manifest->shards];
    return !is_old(c, s) && c->lease[unit] == CO_FREE && ps_co_may_lease(c, unit);
}

bool ps_co_all_known(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (is_old(c, &c->shard[i]) || !c->shard[i].reported) return false;
    return true;
}

bool ps_co_takes(const struct ps_coordinator *c, uint32_t worker)
{
    const struct ps_co_worker *w = &c->worker[worker];
    return w->live && !w->idle && !w->stall.why && !ps_co_draining(c, w);
}

bool ps_co_wanted_elsewhere(const struct ps_coordinator *c, uint64_t unit, uint32_t but)
{
    uint32_t by = c->wanted_by[unit];
    if (!by || by == but + 1 || by > c->workers) return false;
    return ps_co_takes(c, by - 1);
}

bool ps_co_is_home(const struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    return strcmp(ps_co_unit(c, unit)->home, c->worker[worker].region) == 0;
}

bool ps_co_may_train(const struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    if (ps_co_is_closed(c, ps_co_stock_home_of(c, unit), worker)) return false;
    if (ps_co_is_refused(c, unit, worker)) return false;
    return ps_co_unit(c, unit)->may_leave || ps_co_is_home(c, unit, worker);
}
