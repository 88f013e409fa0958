// View: what the balancer's policy is told of the run.
#ifndef PS_CO_VIEW_H
#define PS_CO_VIEW_H

#include "server/coordinator/balance/balance.h"
#include "server/coordinator/balance/measure.h"

struct ps_co_balancer {
    struct ps_balance b;
    struct ps_balance_plan plan; // shares out all that nobody has begun
    struct ps_balance_plan
        mine; // the same, less what the worker that asks has reserved of its part
    bool planned;
    int64_t planned_ns;
    uint64_t planned_live;              // the live workers of that plan, as a mark
    uint32_t region_of[LH_WORKERS_MAX]; // each worker's region
    const char *name[PS_BALANCE_REGIONS_MAX];
    bool spoken; // the languages of pools and homes are known, and an epoch's tokens of each pool
    uint64_t languages[PS_BALANCE_POOLS_MAX], home_languages[PS_BALANCE_REGIONS_MAX];
    double epoch_tokens[PS_BALANCE_POOLS_MAX];
};

// Does the run have no more regions and pools than the policy takes?
bool ps_co_view_fits(const struct ps_coordinator *c);
// Fills in what is true now, and nothing else: no plan.
void ps_co_look(const struct ps_coordinator *c, struct ps_co_balancer *x);
// Fills in c->balancer what is true now, and plans anew where that is due: after PLAN_NS, and where
// workers came or went.
void ps_co_view(struct ps_coordinator *c);
// Makes it the view of this worker: what it has reserved of these units counts as held, and of its
// region's part of the plan it has a share by its speed.
void ps_co_view_of(struct ps_coordinator *c, uint32_t worker, const uint64_t *unit, size_t units);
// Tokens that the worker holds and has not trained, less what is recalled from it.
double ps_co_view_left(const struct ps_co_worker *w);

#endif
