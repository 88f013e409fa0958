// Leases ahead: workers train on while the coordinator is down, and at the end of the run nobody
// waits for a slow region's leases. Three regions of speeds 8:4:2, on the virtual clock.
#include "tests/cores/rig.h"
#include "tests/sim/synthetic.h"
#include "worker/worker.h"

enum { TOKENS = 64, CORES = 3 };

static void start_coordinator(struct rig *r, int64_t ride_out_ns)
{
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = ride_out_ns;
    r->coordinator->conf.worker_timeout_ns = 15 * LH_SECOND;
}

struct core { // a worker of its own region; the first is the fastest
    struct rig_node node;
    struct wk_worker *worker;
    struct wk_trainer *trainer;
    uint64_t tokens;    // trained so far, when last looked at
    int64_t trained_ns; // when `tokens` last grew
};

struct regions {
    struct rig *rig;
    struct core core[CORES];
};

static void gone(void *arg)
{
    (void)arg;
}

static void stops(void *arg, lh_err err, const char *text)
{
    (void)arg;
    fail_msg("a core stopped: %d, %s", (int)err, text);
}

static void start_core(struct regions *g, uint32_t i)
{
    static const uint64_t step_ms[CORES] = {500, 1000, 2000}; // 8:4:2; a unit is four steps
    struct core *o = &g->core[i];
    struct rig_node *n = &o->node;
    n->self = setup_peer(LH_W, i, "cores");
    snprintf(n->dir, sizeof n->dir, "core-%u", i);
    n->env = lh_fake_node(g->rig->world, gone, NULL);
    lh_fake_boot(n->env);
    assert_int_equal(lh_transport_mem_create(g->rig->fabric, n->env, &n->self, true, &n->transport),
                     LH_OK);
    struct setup all = rig_common(g->rig, n);
    all.listen = "";
    all.fatal = stops;
    o->trainer = sim_trainer_new(n->env, g->rig->manifest.values, step_ms[i]);
    struct wk_conf conf = setup_worker(&all, o->trainer);
    conf.queue_units = 10; // two in work, eight more ahead
    conf.lease_ns = LH_SECOND;
    conf.retry_base_ns = 200 * LH_MS;
    conf.retry_max_ns = 30 * LH_SECOND;
    conf.reconnect_max_ns = LH_SECOND;
    conf.deadline_ns = 10 * LH_SECOND;
    assert_int_equal(wk_worker_start(&conf, &o->worker), LH_OK);
}

static struct regions *three_regions(uint32_t units, int64_t ride_out_ns)
{
    struct regions *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->rig = rig_new(1);
    lh_units_free(&g->rig->units);
    setup_units(&g->rig->units, units, TOKENS, CORES);
    start_coordinator(g->rig, ride_out_ns);
    g->rig->coordinator->conf.workers = CORES;
    assert_int_equal(rig_start_server(g->rig, false), LH_OK);
    for (uint32_t i = 0; i < CORES; i++) start_core(g, i);
    return g;
}

static void free_regions(struct regions *g)
{
    struct ps_coordinator *c = NULL;
    struct ps_server *s = NULL;
    for (uint32_t i = 0; i < CORES; i++) {
        struct core *o = &g->core[i];
        lh_fake_kill(o->node.env, false);
        lh_transport_mem_kill(o->node.transport, false);
        setup_stop(&c, &s, &o->worker, &o->trainer);
    }
    rig_free(g->rig);
    free(g);
}

static void look(struct regions *g)
{
    for (uint32_t i = 0; i < CORES; i++) {
        struct core *o = &g->core[i];
        if (o->worker->count.tokens == o->tokens) continue;
        o->tokens = o->worker->count.tokens;
        o->trained_ns = lh_fake_now(g->rig->world);
    }
}

static void run(struct regions *g, int64_t ns)
{
    for (; ns > 0; ns -= 100 * LH_MS) {
        rig_run(g->rig, 100 * LH_MS);
        look(g);
    }
}

// Runs to the end: all units are credited, and none was trained twice.
static void finish(struct regions *g, uint32_t units)
{
    struct ps_coordinator *c = g->rig->coordinator;
    uint64_t trained = 0;
    for (int i = 0; i < 3000 && c->plan.phase < LH_PHASE_DRAIN; i++) run(g, LH_SECOND);
    assert_true(c->plan.phase >= LH_PHASE_DRAIN);
    assert_int_equal(ps_co_credited_tokens(c), (uint64_t)units * TOKENS);
    for (uint32_t i = 0; i < CORES; i++) trained += g->core[i].tokens;
    assert_int_equal(trained, (uint64_t)units * TOKENS);
}

static void away_stops_nobody(int64_t away_ns)
{
    enum { UNITS = 1000 };
    struct regions *g = three_regions(UNITS, 300 * LH_SECOND);
    uint64_t before[CORES];
    run(g, 30 * LH_SECOND);
    for (uint32_t i = 0; i < CORES; i++) before[i] = g->core[i].tokens;
    rig_kill_coordinator(g->rig);
    for (int64_t ns = 0; ns < away_ns; ns += LH_SECOND) {
        run(g, LH_SECOND);
        for (uint32_t i = 0; i < CORES; i++) // each trains a step in 2 s and pushes it
            assert_true(lh_fake_now(g->rig->world) - g->core[i].trained_ns < 3 * LH_SECOND);
    }
    double seconds = (double)away_ns / LH_SECOND;
    for (uint32_t i = 0; i < CORES; i++)
        assert_true((double)(g->core[i].tokens - before[i]) > 0.9 * seconds * (32 >> i));
    start_coordinator(g->rig, 300 * LH_SECOND);
    g->rig->coordinator->conf.workers = CORES;
    finish(g, UNITS);
    free_regions(g);
}

TEST(a_coordinator_that_is_away_for_45_s_stops_nobody)
{
    away_stops_nobody(45 * LH_SECOND);
}

TEST(a_coordinator_that_is_away_for_290_s_stops_nobody)
{
    away_stops_nobody(290 * LH_SECOND);
}

// The time from when the first region runs dry to when the last one does.
static int64_t tail_ns(uint32_t units, int64_t ride_out_ns)
{
    struct regions *g = three_regions(units, ride_out_ns);
    finish(g, units);
    int64_t first = INT64_MAX, last = 0;
    for (uint32_t i = 0; i < CORES; i++) {
        if (g->core[i].trained_ns < first) first = g->core[i].trained_ns;
        if (g->core[i].trained_ns > last) last = g->core[i].trained_ns;
    }
    free_regions(g);
    return last - first;
}

TEST(at_the_end_of_the_run_nobody_waits_for_the_slowest)
{
    static const uint32_t runs[] = {30, 100, 101, 250, 400};
    const int64_t unit = 8 * LH_SECOND; // the slowest region's time for one
    for (size_t i = 0; i < LH_COUNT(runs); i++) {
        int64_t before = tail_ns(runs[i], 0), now = tail_ns(runs[i], 300 * LH_SECOND);
        print_message("%u units: the first is idle for %.1f s, without leases ahead for %.1f s\n",
                      runs[i], (double)now / LH_SECOND, (double)before / LH_SECOND);
        assert_true(now <= before);
        assert_true(now <= 2 * unit); // two are in work
    }
}
