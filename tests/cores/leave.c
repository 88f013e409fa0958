// A worker whose process was asked to end (worker/leave.c): it returns the units that it has not
// begun before it ends, so that the coordinator need not wait for a timeout, and it pushes what it
// trained. It does not wait for a peer that is down.
#include <string.h>

#include "server/coordinator/balance/stock.h"
#include "tests/cores/rig.h"
#include "worker/leave.h"

enum { STEP_MS = 50, STEPS = 5, MOMENTS = 100 };

static struct wk_worker *train(struct rig *r, struct rig_life *l, uint32_t shards)
{
    if (shards > 1) rig_two_shards(r);
    rig_start_coordinator(r);
    r->coordinator->conf.worker_timeout_ns = 100000 * LH_SECOND; // no unit returns by timeout
    r->coordinator->conf.ride_out_ns = 60 * LH_SECOND;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    struct wk_conf conf = rig_life_conf(r, l, STEP_MS);
    rig_life_start(l, &conf);
    for (int i = 0; i < 60000 && (l->worker->count.steps < STEPS || l->worker->queued < 3); i++)
        rig_run(r, LH_MS);
    assert_true(l->worker->count.steps >= STEPS && l->worker->queued >= 3);
    return l->worker;
}

static void leave(struct rig *r, struct wk_worker *w)
{
    wk_leave(w);
    for (int i = 0; i < 10000 && !wk_left(w); i++) rig_run(r, LH_MS);
    assert_true(wk_left(w));
}

// Units leased to worker 1 and not credited in the server's ledger, which may be ahead of the
// coordinator; *waits counts those that are not begun.
static uint32_t leased(const struct rig *r, uint32_t *waits)
{
    const struct ps_coordinator *c = r->coordinator;
    uint32_t holder = ps_co_worker_index(c, lh_worker_id(&r->w[1].self)), all = 0;
    *waits = 0;
    for (uint64_t u = 0; u < c->units; u++) {
        const struct ps_server *s = r->server;
        uint32_t shard = (uint32_t)(u % c->conf.manifest->shards);
        bool credited = s && lh_ledger_credited(&s->shard[shard]->replica.ledger, u);
        if (c->lease[u] != holder + 1 || credited) continue;
        all++;
        *waits += c->begun[u] == CO_WAITS;
    }
    return all;
}

static void check_pushed(const struct rig *r, const struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct ps_shard *s = r->server->shard[i];
        const struct lh_row *row = lh_ledger_row(&s->replica.ledger, w->id);
        assert_non_null(row);
        assert_int_equal(row->tokens, w->count.tokens);
        assert_null(wk_outbox_undecided(&w->shard[i].outbox));
    }
}

TEST(units_come_back_and_training_is_pushed)
{
    for (uint32_t i = 0; i < MOMENTS; i++) {
        struct rig *r = rig_new(i);
        struct rig_life l = {0};
        struct wk_worker *w = train(r, &l, 1 + i % RIG_SHARDS);
        rig_run(r, 7 * (int64_t)i * LH_MS);
        uint32_t waits, held = leased(r, &waits);
        assert_true(held > 0);
        uint64_t steps = w->count.steps;
        leave(r, w);
        uint32_t left = leased(r, &waits);
        assert_int_equal(waits, 0);
        assert_true(left <= held);
        assert_true(w->count.steps <= steps + 1); // the step under way
        check_pushed(r, w);
        rig_run(r, 10 * LH_SECOND); // it does not ask for more either
        assert_int_equal(leased(r, &waits), left);
        rig_life_end(r, &l, false);
        rig_free(r);
    }
}

// A lease request is under way: the worker does not take the units of its answer.
RIG_TEST(units_of_an_answer_under_way_come_back, struct rig *r)
{
    struct rig_life l = {0};
    struct wk_worker *w = train(r, &l, 1);
    uint32_t waits;
    w->want_lease = false;
    for (int i = 0; i < 60000 && !w->lease; i++) rig_run(r, LH_MS / 10);
    assert_non_null(w->lease);
    leave(r, w);
    (void)leased(r, &waits);
    assert_int_equal(waits, 0);
    check_pushed(r, w);
    rig_life_end(r, &l, false);
}

// The worker's next life trains on what it had begun, and each token counts once.
RIG_TEST(a_later_life_goes_on, struct rig *r)
{
    struct rig_life l = {0};
    struct wk_worker *w = train(r, &l, 1);
    leave(r, w);
    uint64_t before = w->count.tokens;
    rig_life_end(r, &l, false);
    rig_boot_worker(r, 1);
    struct wk_conf conf = rig_life_conf(r, &l, STEP_MS);
    rig_life_start(&l, &conf);
    for (int i = 0; i < 60000 && l.worker->count.steps < STEPS; i++) rig_run(r, LH_MS);
    leave(r, l.worker);
    const struct lh_row *row = lh_ledger_row(&r->server->shard[0]->replica.ledger, l.worker->id);
    assert_int_equal(row->tokens, before + l.worker->count.tokens);
    rig_life_end(r, &l, false);
}

TEST(a_leaving_worker_waits_for_no_absent_node)
{
    for (int away = 1; away < 4; away++) {
        struct rig *r = rig_new(1);
        struct rig_life l = {0};
        struct wk_worker *w = train(r, &l, 1);
        uint32_t waits;
        if (away & 1) rig_kill_coordinator(r);
        if (away & 2) rig_kill_server(r, false);
        leave(r, w);
        if (!(away & 1)) (void)leased(r, &waits);
        if (!(away & 1)) assert_int_equal(waits, 0);
        if (!(away & 2)) check_pushed(r, w);
        rig_life_end(r, &l, false);
        rig_free(r);
    }
}
