// server/coordinator/store: two coordinators on one etcd, over seeds. Each takes the lead when the
// key is free, reads the store, takes a number and leases units to workers. Requests and answers
// are lost, leases expire while their holder stands still, etcd is unreachable, and a former
// leader's commits arrive late. The test knows which answers were sent: no unit has two holders, no
// number is used twice or falls, and each new leader finds every answered lease.
#include "tests/unit/server/coordinator/store/rig.h"

enum { SEEDS = 300, STEPS = 120, UNITS = 24, PAIR = 2 };

struct leader {
    struct ps_store *store; // NULL: stands by
    bool sure;              // its lease holds by its own clock
    uint64_t number;
};

struct game {
    struct rig *r;
    struct leader is[PAIR];
    int holder[UNITS]; // the worker that was answered that it has the unit; 0: none
    uint64_t number;   // highest number taken
    uint64_t x;        // state of the seed's random stream
    unsigned leased, fenced, away, late, led;
};

static uint64_t draw(struct game *g, uint64_t below)
{
    g->x = g->x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (g->x >> 33) % below;
}

static void stand_by(struct leader *l)
{
    ps_store_close(l->store);
    *l = (struct leader){0};
}

static void key_of(int unit, char out[16])
{
    snprintf(out, 16, "unit/%02d", unit);
}

// The current leader's store holds every lease that was answered.
static void assert_has_all(const struct game *g, const struct leader *l)
{
    for (int u = 0; u < UNITS; u++) {
        char key[16];
        struct lh_span value;
        key_of(u, key);
        bool has = ps_store_get(l->store, key, &value);
        if (!g->holder[u]) continue;
        assert_true(has && value.len == 1);
        assert_int_equal(value.data[0], g->holder[u]);
    }
}

// Half of the time, one or two of the next requests or their answers are lost.
static void draw_fault(struct game *g)
{
    struct fake_etcd *f = &g->r->fake;
    f->fault = draw(g, 2) ? FAKE_BEFORE : FAKE_AFTER;
    f->fault_at = f->requests + 1 + draw(g, 4);
    f->fault_count = draw(g, 2) ? 1 + draw(g, 2) : 0;
}

static bool key_is_free(const struct game *g)
{
    size_t n = strlen(LEADER), i = fake_find(&g->r->fake, LEADER, n);
    return i == g->r->fake.count || strcmp(g->r->fake.at[i].key, LEADER) != 0;
}

static void take_lead(struct game *g, struct leader *l)
{
    if (l->store || !key_is_free(g) || g->r->fake.away) return;
    g->r->fake.fault_count = 0;
    (void)lead(g->r, l == g->is ? "one" : "other");
    draw_fault(g);
    const struct ps_etcd_log_conf conf = {
        .etcd = client(g->r), .base = BASE, .created = g->r->created};
    if (ps_store_open_etcd(&conf, &l->store)) {
        l->store = NULL;
        return;
    }
    if (ps_store_number(g->r->env, l->store, &l->number)) {
        stand_by(l);
        return;
    }
    assert_true(l->number > g->number);
    g->number = l->number;
    l->sure = true;
    g->led++;
    assert_has_all(g, l);
}

// A leader leases a unit that it takes for free, and answers once the lease is durable, if it still
// may.
static void lease(struct game *g, struct leader *l)
{
    char key[16];
    struct lh_span value;
    int unit = (int)draw(g, UNITS);
    uint8_t worker = (uint8_t)(1 + draw(g, 200));
    key_of(unit, key);
    if (!l->store || ps_store_get(l->store, key, &value)) return;
    draw_fault(g);
    assert_int_equal(ps_store_put(l->store, key, lh_span(&worker, 1)), LH_OK);
    lh_err err = ps_store_commit(l->store);
    if (err) {
        g->fenced += err == LH_ERR_CONFLICT;
        g->away += err == LH_ERR_UNAVAILABLE;
        stand_by(l); // the process restarts
        return;
    }
    g->leased++;
    if (!l->sure) return;
    assert_int_equal(l->number, g->number);
    assert_int_equal(g->holder[unit], 0);
    g->holder[unit] = worker;
}

// The lease expires in etcd, but only after its holder, by its own clock, no longer answers. The
// holder may not have noticed yet, and commit once more.
static void end_lease(struct game *g)
{
    if (key_is_free(g)) return;
    for (int i = 0; i < PAIR; i++) {
        g->is[i].sure = false;
        g->late += g->is[i].store != NULL;
    }
    fake_remove(&g->r->fake, fake_find(&g->r->fake, LEADER, strlen(LEADER)));
}

static void step(struct game *g)
{
    struct leader *l = &g->is[draw(g, PAIR)];
    switch (draw(g, 12)) {
    case 0: end_lease(g); break;
    case 1: stand_by(l); break; // kill -9
    case 2: g->r->fake.away = !draw(g, 3); break;
    case 3:
    case 4: take_lead(g, l); break;
    default: lease(g, l);
    }
}

static void play(uint64_t seed, struct game *sum)
{
    struct game g = {.r = start(ON_FAKE), .x = seed * 7919 + 1};
    g.r->patience_ns = 0; // one attempt only, so that each loss is seen
    ps_store_close(g.r->store);
    g.r->store = NULL;
    end_lease(&g);
    for (int i = 0; i < STEPS; i++) step(&g);
    g.r->fake.away = false;
    for (int i = 0; i < PAIR; i++) stand_by(&g.is[i]);
    g.r->fake.fault_count = 0;
    end_lease(&g);
    while (!g.is[0].store) { // a fault may hit the first requests
        take_lead(&g, &g.is[0]);
        if (!g.is[0].store) end_lease(&g);
    }
    sum->leased += g.leased;
    sum->fenced += g.fenced;
    sum->away += g.away;
    sum->late += g.late;
    sum->led += g.led;
    stand_by(&g.is[0]);
    g.r->fake.fault_count = 0;
    finish(g.r);
}

TEST(no_unit_has_two_holders)
{
    struct game sum = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) play(seed, &sum);
    print_message("%u leads, %u leases, %u fenced off, %u unknown, %u stood still\n", sum.led,
                  sum.leased, sum.fenced, sum.away, sum.late);
    assert_true(sum.led > SEEDS && sum.leased > SEEDS);
    assert_true(sum.fenced > SEEDS / 4 && sum.away > SEEDS / 4 && sum.late > SEEDS / 4);
}
