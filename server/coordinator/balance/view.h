// View: the balancer policy's input.
#ifndef PS_CO_VIEW_H
#define PS_CO_VIEW_H

#include "server/coordinator/balance/balance.h"
#include "server/coordinator/balance/measure.h"

struct ps_co_balancer {
    struct ps_balance b;
    struct ps_balance_plan plan; // divides all units not yet begun
    struct ps_balance_plan mine; // the same, less the asking worker's reservations from its part
    bool planned;
    int64_t planned_ns;
    uint64_t planned_live;              // hash of the live workers in that plan
    uint32_t region_of[LH_WORKERS_MAX]; // each worker's region
    const char *name[PS_BALANCE_REGIONS_MAX];
    bool spoken; // languages of pools and homes, and each pool's tokens per epoch, are known
    uint64_t languages[PS_BALANCE_POOLS_MAX], home_languages[PS_BALANCE_REGIONS_MAX];
    double epoch_tokens[PS_BALANCE_POOLS_MAX];
};

// Are there few enough regions and pools for the policy?
bool ps_co_view_fits(const struct ps_coordinator *c);
// Fills in the current state only: no plan.
void ps_co_look(const struct ps_coordinator *c, struct ps_co_balancer *x);
// Fills c->balancer with the current state, and plans anew if due: after PLAN_NS, or when workers
// came or went.
void ps_co_view(struct ps_coordinator *c);
// Adapts the view to this worker: units of `unit` that it has reserved count as held, and its part
// of the region's plan is in proportion to its speed.
void ps_co_view_of(struct ps_coordinator *c, uint32_t worker, const uint64_t *unit, size_t units);
// Tokens that the worker holds and has not trained, less recalled ones.
double ps_co_view_left(const struct ps_co_worker *w);

#endif
