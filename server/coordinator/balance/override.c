// Override: freezing, and moving units by hand. See override.h.
//
// Store: balance/frozen, an empty row while the balancer is frozen; a restarted coordinator stays
// frozen. Moving a unit recalls it like any other: the recall is in memory only, and the holder
// keeps the unit if it has begun it.
#include "server/coordinator/balance/override.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/commit.h"

static const char FROZEN[] = "balance/frozen";

bool ps_co_is_override(const struct lh_move_request *m)
{
    return m->balancer[0] != 0;
}

// ---------------------------------------------------------------- what is stored

lh_err ps_co_load_overrides(struct ps_coordinator *c)
{
    struct lh_span row;
    c->frozen = ps_store_get(c->store, FROZEN, &row);
    return LH_OK;
}

static lh_err freeze(struct ps_coordinator *c, bool frozen)
{
    if (c->frozen == frozen) return LH_OK;
    c->frozen = frozen;
    ps_co_say(c, LH_INFO, frozen ? "balance.frozen" : "balance.thawed",
              frozen ? "an operator: each region gets only free units of its own"
                     : "an operator: units go to other regions again");
    return frozen ? ps_co_put(c, FROZEN, lh_span(NULL, 0)) : ps_co_remove(c, FROZEN);
}

// ---------------------------------------------------------------- moves

static lh_err check_unit(const struct ps_coordinator *c, uint64_t unit)
{
    if (unit >= c->units)
        return lh_fail(LH_ERR_NOT_FOUND, "unit %" PRIu64 ": the run has units 0 to %" PRIu64, unit,
                       c->units - 1);
    if (ps_co_credited(c, unit))
        return lh_fail(LH_ERR_INVALID, "unit %" PRIu64 " is credited", unit);
    return LH_OK;
}

static lh_err check_residency(const struct ps_coordinator *c, uint64_t unit, const char *region)
{
    const struct lh_unit *u = ps_co_unit(c, unit);
    if (u->may_leave || !strcmp(u->home, region)) return LH_OK;
    return lh_fail(LH_ERR_INVALID, "unit %" PRIu64 " may not leave %s", unit, u->home);
}

// The worker of this name; c->workers: none.
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
        return lh_fail(
            LH_ERR_INVALID,
            "worker %s can't take it: it is away, drains, or has no loop that wants units", name);
    LH_TRY(check_residency(c, unit, c->worker[w].region));
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

lh_err ps_co_override(struct ps_coordinator *c, const struct lh_move_request *m, uint32_t *units)
{
    *units = 1;
    if (!strcmp(m->balancer, "move")) return move(c, m->unit, m->to);
    *units = 0;
    if (!strcmp(m->balancer, "freeze")) return freeze(c, true);
    if (!strcmp(m->balancer, "thaw")) return freeze(c, false);
    return lh_fail(LH_ERR_INVALID, "balancer %.40s: expected freeze, thaw or move", m->balancer);
}
