// Override: freeze, pin and move by hand. See override.h.
//
// Store: balance/frozen, an empty row while the balancer is frozen; pin/<unit 10> = region. A
// restarted coordinator holds to both. A unit that is moved is recalled as any other: that is in
// memory alone, and its holder keeps it where it has begun it.
#include "server/coordinator/balance/override.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/commit.h"

static const char FROZEN[] = "balance/frozen";

static uint32_t pin_at(const struct ps_coordinator *c, uint64_t unit)
{
    uint32_t i = 0;
    while (i < c->pins && c->pin[i].unit != unit) i++;
    return i;
}

bool ps_co_is_override(const Longhaul__V1__MoveRequest *m)
{
    return m->balancer[0] != 0;
}

// ---------------------------------------------------------------- what is stored

static const char *read_pin(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    struct ps_co_pin p = {0};
    const char *why = ps_co_row_unit(c, name, &p.unit);
    lh_get_str(at, p.region, sizeof p.region);
    if (why || at->failed) return why;
    if (c->pins == PS_CO_PINS_MAX) return "is of one unit more than may be pinned";
    c->pin[c->pins++] = p;
    return NULL;
}

lh_err ps_co_load_overrides(struct ps_coordinator *c)
{
    struct lh_span row;
    c->pins = 0;
    c->frozen = ps_store_get(c->store, FROZEN, &row);
    return ps_co_load_named(c, "pin/", read_pin);
}

static lh_err freeze(struct ps_coordinator *c, bool frozen)
{
    if (c->frozen == frozen) return LH_OK;
    c->frozen = frozen;
    ps_co_say(c, LH_INFO, frozen ? "balance.frozen" : "balance.thawed",
              frozen ? "an operator: each region gets free units of its own alone"
                     : "an operator: units go to other regions again");
    return frozen ? ps_co_put(c, FROZEN, lh_span(NULL, 0)) : ps_co_remove(c, FROZEN);
}

static lh_err put_pin(struct ps_coordinator *c, const struct ps_co_pin *p)
{
    char key[32];
    struct lh_buf b = lh_buf(2 * LH_NAME_BYTES);
    snprintf(key, sizeof key, "pin/%010" PRIu64, p->unit);
    lh_put_str(&b, p->region);
    lh_err err = lh_buf_err(&b);
    if (!err) err = ps_co_put(c, key, lh_buf_span(&b));
    lh_buf_free(&b);
    return err;
}

// ---------------------------------------------------------------- pins and moves

static lh_err check_unit(const struct ps_coordinator *c, uint64_t unit)
{
    if (unit >= c->units)
        return lh_fail(LH_ERR_NOT_FOUND, "unit %" PRIu64 ": the run has units 0 to %" PRIu64, unit,
                       c->units - 1);
    if (ps_co_credited(c, unit))
        return lh_fail(LH_ERR_INVALID, "unit %" PRIu64 " is credited", unit);
    return LH_OK;
}

static bool is_region(const struct ps_coordinator *c, const char *name)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (!strcmp(c->worker[i].region, name)) return true;
    return false;
}

static lh_err check_residency(const struct ps_coordinator *c, uint64_t unit, const char *region)
{
    const struct lh_unit *u = ps_co_unit(c, unit);
    if (!is_region(c, region))
        return lh_fail(LH_ERR_NOT_FOUND, "no worker of region %.60s has joined", region);
    if (u->may_leave || !strcmp(u->home, region)) return LH_OK;
    return lh_fail(LH_ERR_INVALID, "unit %" PRIu64 " may not leave %s", unit, u->home);
}

static lh_err unpin(struct ps_coordinator *c, uint64_t unit)
{
    char key[32];
    uint32_t i = pin_at(c, unit);
    if (i == c->pins) return lh_fail(LH_ERR_NOT_FOUND, "unit %" PRIu64 " is not pinned", unit);
    c->pin[i] = c->pin[--c->pins];
    snprintf(key, sizeof key, "pin/%010" PRIu64, unit);
    ps_co_say(c, LH_INFO, "balance.unpinned", "an operator: unit %" PRIu64, unit);
    return ps_co_remove(c, key);
}

// A unit that is recalled for another region, or kept for it, is not any more: it could never have
// it. One that another region has reserved is recalled for one of the region that it is for.
static void call_home(struct ps_coordinator *c, uint64_t unit, const char *region)
{
    uint32_t by = c->wanted_by[unit];
    if (by && by <= c->workers && strcmp(c->worker[by - 1].region, region) != 0)
        ps_co_lease_want(c, unit, 0);
    if (c->lease[unit] == CO_FREE || c->begun[unit] != CO_WAITS) return;
    if (!strcmp(c->worker[c->lease[unit] - 1].region, region)) return;
    for (uint32_t i = 0; i < c->workers; i++)
        if (ps_co_takes(c, i) && !strcmp(c->worker[i].region, region)) {
            ps_co_lease_want(c, unit, i + 1);
            return;
        }
}

static lh_err pin(struct ps_coordinator *c, uint64_t unit, const char *region)
{
    uint32_t i = pin_at(c, unit);
    LH_TRY(check_unit(c, unit));
    LH_TRY(check_residency(c, unit, region));
    if (i == PS_CO_PINS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%d units are pinned already", PS_CO_PINS_MAX);
    c->pin[i].unit = unit;
    snprintf(c->pin[i].region, sizeof c->pin[i].region, "%s", region);
    if (i == c->pins) c->pins++;
    ps_co_say(c, LH_INFO, "balance.pinned", "an operator: unit %" PRIu64 " is for %s alone", unit,
              region);
    call_home(c, unit, region);
    return put_pin(c, &c->pin[i]);
}

// The worker of this name; c->workers: there is none.
static uint32_t worker_of(const struct ps_coordinator *c, const char *name)
{
    uint32_t i = 0;
    while (i < c->workers && strcmp(c->worker[i].name, name) != 0) i++;
    return i;
}

static lh_err move(struct ps_coordinator *c, uint64_t unit, const char *name)
{
    uint32_t w = worker_of(c, name);
    LH_TRY(check_unit(c, unit));
    if (w == c->workers) return lh_fail(LH_ERR_NOT_FOUND, "no worker %.60s has joined", name);
    if (!ps_co_takes(c, w))
        return lh_fail(LH_ERR_INVALID,
                       "worker %s is not there to take it, drains, or has no loop that wants units",
                       name);
    LH_TRY(check_residency(c, unit, c->worker[w].region));
    const char *pinned = ps_co_pinned(c, unit);
    if (pinned && strcmp(pinned, c->worker[w].region) != 0)
        return lh_fail(LH_ERR_INVALID, "unit %" PRIu64 " is pinned to %s", unit, pinned);
    if (!ps_co_may_train(c, unit, w))
        return lh_fail(LH_ERR_INVALID,
                       "unit %" PRIu64 " does not reach worker %s now (`away` and `refused` of its "
                       "row in the coordinator's status.json); its log says why",
                       unit, name);
    if (c->lease[unit] == w + 1)
        return lh_fail(LH_ERR_INVALID, "unit %" PRIu64 " is leased to %s already", unit, name);
    if (c->lease[unit] != CO_FREE && c->begun[unit] != CO_WAITS)
        return lh_fail(LH_ERR_INVALID, "%s has begun unit %" PRIu64 ": it stays there",
                       c->worker[c->lease[unit] - 1].name, unit);
    ps_co_lease_want(c, unit, w + 1);
    ps_co_say(c, LH_INFO, "balance.moved", "an operator: unit %" PRIu64 " goes to %s of %s", unit,
              name, c->worker[w].region);
    return LH_OK;
}

lh_err ps_co_override(struct ps_coordinator *c, const Longhaul__V1__MoveRequest *m, uint32_t *units)
{
    *units = 1;
    if (!strcmp(m->balancer, "pin")) return pin(c, m->unit, m->to);
    if (!strcmp(m->balancer, "unpin")) return unpin(c, m->unit);
    if (!strcmp(m->balancer, "move")) return move(c, m->unit, m->to);
    *units = 0;
    if (!strcmp(m->balancer, "freeze")) return freeze(c, true);
    if (!strcmp(m->balancer, "thaw")) return freeze(c, false);
    return lh_fail(LH_ERR_INVALID, "balancer %.40s: want freeze, thaw, pin, unpin or move",
                   m->balancer);
}
