// Balance, no fault: the coordinator leases by the balancer's policy, some units may not leave
// their regions, and an operator freezes the balancer and moves units.
//
// A worker that trains a unit which may not come to it is a violation (watch.c). In every run the
// coordinator's sums are compared with its units.
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/override.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"
#include "tests/sim/cluster.h"

static uint64_t draw(struct sim *s, uint64_t n)
{
    return sim_draw(s, SIM_FAULT_balance, n);
}

void sim_choose_balance(struct sim *s)
{
    static const enum ps_balance_kind kinds[] = {PS_BALANCE_FINISH, PS_BALANCE_FINISH,
                                                 PS_BALANCE_FINISH, PS_BALANCE_WEIGHTED};
    if (!s->conf.faults.balance) return;
    s->balance = (struct ps_co_balance_conf){true, kinds[draw(s, LH_COUNT(kinds))]};
    s->ride_out_ns = (draw(s, 3) ? 300 : 1) * LH_SECOND;
    uint64_t every = draw(s, 3) * 3; // 0: all units may leave
    for (uint64_t u = 0; every && u < s->units.count; u += every)
        s->units.unit[u].may_leave = false;
    sim_happened(s, balance);
}

// Gives an operator's order. An order that can't become durable is taken back as any other change,
// because the judge reads the coordinator's disk.
static void order(struct sim *s, const char *what, uint64_t unit, const char *to)
{
    struct ps_coordinator *c = sim_asked(s);
    struct lh_move_request m = {.server = ""};
    uint32_t units;
    if (!c) return;
    m.balancer = what;
    m.unit = unit;
    m.to = to;
    lh_err err = ps_co_override(c, &m, &units); // refused if not allowed, or if the run is over
    if (!err) sim_trace(s, "operator: %s unit %llu %s", what, (unsigned long long)unit, to);
    if (err && lh_err_class(err) == LH_CLASS_STOP) ps_co_fatal(c, err);
}

// Gives a move order. Caps don't bind moves, so none is ordered where caps are judged (links.c).
static void by_hand(struct sim *s, const char *what, uint64_t unit, const char *to)
{
    if (!s->conf.faults.links) order(s, what, unit, to);
}

// Thaws the balancer, again and again: the coordinator may be down, or take an order back later
// because its disk is full.
static void let_go(void *arg)
{
    struct sim *s = arg;
    const struct ps_coordinator *c = sim_coordinator(s);
    if (c && c->frozen) order(s, "thaw", 0, "");
    lh_fake_at(s->world, LH_SECOND, let_go, s);
}

static void some_order(void *arg)
{
    struct sim *s = arg;
    uint64_t unit = draw(s, s->units.count);
    const struct lh_peer *w = &s->node[1 + SIM_SERVERS + draw(s, SIM_WORKERS)].self;
    if (!s->faulty) {
        let_go(s);
        return;
    }
    switch (draw(s, 6)) {
    case 0: order(s, "freeze", 0, ""); break;
    case 1:
    case 2: by_hand(s, "move", unit, w->name); break;
    default: order(s, "thaw", 0, ""); break;
    }
    lh_fake_at(s->world, (int64_t)(50 + draw(s, 900)) * LH_MS, some_order, s);
}

void sim_balance_start(struct sim *s)
{
    if (!s->conf.faults.balance) return;
    bool orders = draw(s, 2);
    lh_fake_at(s->world, LH_SECOND, orders ? some_order : let_go, s);
}

void sim_balance_count(const struct sim_node *n)
{
    const struct ps_coordinator *c = n->coordinator;
    if (!c || !c->decided) return;
    struct sim_tally *met = &n->sim->met;
    met->planned += ps_co_decided_count(c, PS_BALANCE_PLANNED);
    met->stolen += ps_co_decided_count(c, PS_BALANCE_STOLEN);
    met->run_twice += ps_co_decided_count(c, PS_BALANCE_TWICE);
}

// ---------------------------------------------------------------- the judge

// The counts of the coordinator's stock, recomputed from all units.
struct counted {
    uint64_t free_units, leased_units, credited_units, credited_tokens, committed_tokens;
    uint64_t held[LH_WORKERS_MAX];
};

static void count_units(const struct ps_coordinator *c, struct counted *n)
{
    for (uint64_t u = 0; u < c->units; u++) {
        uint64_t tokens = ps_co_unit(c, u)->tokens;
        bool credited = ps_co_credited(c, u), leased = c->lease[u] != CO_FREE;
        n->credited_units += credited;
        n->leased_units += !credited && leased;
        n->free_units += !credited && !leased;
        if (credited) n->credited_tokens += tokens;
        if (credited || leased) n->committed_tokens += tokens;
        if (leased && !credited) n->held[c->lease[u] - 1]++;
    }
}

static bool free_one_is_found(const struct ps_coordinator *c, uint64_t unit)
{
    uint64_t slot = c->stock.slot[unit];
    bool found = ps_co_stock_next(c, ps_co_stock_pool(c, unit), slot) == slot;
    return found == (c->lease[unit] == CO_FREE && !ps_co_credited(c, unit));
}

void sim_judge_stock(struct sim *s)
{
    const struct ps_coordinator *c = sim_coordinator(s);
    struct counted n = {0};
    if (!c || c->stopped) return;
    count_units(c, &n);
    const struct ps_co_stock *k = &c->stock;
    bool same = n.free_units == k->free_units && n.leased_units == k->leased_units &&
                n.credited_units == k->credited_units && n.credited_tokens == k->credited_tokens &&
                n.committed_tokens == k->committed_tokens;
    for (uint32_t i = 0; i < c->workers; i++) same &= n.held[i] == c->worker[i].held.units;
    if (!same) sim_fail(s, "the coordinator's sums are not those of its units");
    for (uint64_t u = 0; u < c->units; u++)
        if (!free_one_is_found(c, u))
            sim_fail(s, "unit %llu is free and not found, or found and not free",
                     (unsigned long long)u);
}
