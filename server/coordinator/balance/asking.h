// Asking: a lease request while it is being answered. grant.c creates it; level.c and assign.c fill
// the answer by their rules.
#ifndef PS_CO_ASKING_H
#define PS_CO_ASKING_H

#include "common/net/wire_member.h"
#include "server/coordinator/balance/lease.h"

enum {
    // Upper bound on `want`.
    PS_CO_WANT_MAX = LH_WINDOW_MAX + LH_READ_AHEAD_MAX,
    // Leases of one worker: units it holds, plus twice its possible claims (WK_CLAIMS_HELD_MAX).
    PS_CO_HELD_MAX = LH_LEASES_MAX + 2 * 4096,
};

struct ps_co_leased { // the answer to a worker
    uint64_t unit[LH_LEASES_MAX], recalled[LH_RECALLS_MAX];
    size_t units, recalls;
    uint32_t window; // units in work and read ahead; 0: as many as requested
};

struct ps_co_asking {
    struct ps_coordinator *c;
    uint32_t w; // the worker's index in c->worker
    const struct lh_lease_request *m;
    struct ps_co_leased *out;
    bool open;            // this worker may get units now
    bool ahead;           // leases beyond its request, which can be recalled
    size_t want;          // units that it requests, up to what one answer gives
    size_t held;          // units leased to it, claimed ones included
    uint64_t tokens;      // tokens of those units that it has not claimed
    uint64_t sum, budget; // committed tokens of the run, and their limit
    double need;          // tokens that it trains in the ride-out time
    uint64_t left;        // level.c: tokens left for it; 0: not counted yet
};

static inline bool ps_co_is_free(const struct ps_co_asking *a, uint64_t unit)
{
    return ps_co_may_lease_anew(a->c, unit) && !ps_co_wanted_elsewhere(a->c, unit, a->w);
}

static inline void ps_co_recall(struct ps_co_asking *a, uint64_t unit)
{
    if (a->out->recalls < LH_RECALLS_MAX) a->out->recalled[a->out->recalls++] = unit;
}

// May the worker take a unit that is kept for it? For all other workers the budget counts kept
// units as leased. Two workers with more kept units than the budget allows would wait for each
// other, so the first to ask takes whatever the leased units leave of the budget.
static inline bool ps_co_may_take_kept(const struct ps_co_asking *a, uint64_t unit)
{
    return a->c->stock.committed_tokens < a->budget && ps_co_is_free(a, unit) &&
           ps_co_may_train(a->c, unit, a->w);
}

static inline LH_MUST lh_err ps_co_take(struct ps_co_asking *a, uint64_t unit)
{
    uint64_t tokens = ps_co_unit(a->c, unit)->tokens;
    LH_TRY(ps_co_lease_set(a->c, unit, a->w));
    a->sum += tokens;
    a->tokens += tokens;
    a->held++;
    a->out->unit[a->out->units++] = unit;
    return LH_OK;
}

#endif
