// Leases: the coordinator still knows after a power cut which units it leased; a unit has one
// holder at a time; all workers hear of stable points (server/docs/0000-protocol.md#rule-13,
// #rule-19).
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/drain.h"
#include "server/coordinator/grant.h"
#include "server/coordinator/plan.h"
#include "tests/cores/life.h"
#include "worker/member.h"

enum { SEEDS = 6 }; // a power cut's losses are random

static Longhaul__V1__LeaseReply *say(struct rig *r, uint32_t w, uint32_t want,
                                     Longhaul__V1__Point *durable, bool drained)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, w);
    ProtobufCMessage *answer;
    m.want = want;
    m.n_durable = durable != NULL;
    m.durable = &durable;
    m.drained = drained;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    return (Longhaul__V1__LeaseReply *)answer;
}

static Longhaul__V1__LeaseReply *lease(struct rig *r, uint32_t w, uint32_t want,
                                       Longhaul__V1__Point *durable)
{
    return say(r, w, want, durable, false);
}

// Bit u is set if the coordinator has leased unit u to worker w.
static unsigned held_by(const struct rig *r, uint32_t w)
{
    const struct ps_coordinator *c = r->coordinator;
    unsigned out = 0;
    for (uint64_t u = 0; u < c->conf.units->count; u++)
        if (c->lease[u] != CO_FREE)
            out |= (unsigned)(c->worker[c->lease[u] - 1].id == lh_worker_id(&r->w[w].self)) << u;
    return out;
}

static unsigned units_of(Longhaul__V1__LeaseReply *m)
{
    unsigned out = 0;
    for (size_t i = 0; i < m->n_units; i++) out |= 1u << m->units[i];
    rig_free_message(m);
    return out;
}

// Begins a run with a coordinator, a server that has reported, and both workers.
static struct rig *begun(uint64_t seed)
{
    struct rig *r = rig_new(seed);
    rig_serve(r, 0);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
    rig_run(r, 5 * LH_SECOND);
    return r;
}

static void cut_its_power(struct rig *r)
{
    lh_fake_kill(r->c.env, true);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

TEST(leases_survive_a_power_cut)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig *r = begun(seed);
        for (uint32_t w = 0; w < RIG_WORKERS; w++) {
            unsigned told = units_of(lease(r, w, 2, NULL));
            assert_int_equal(__builtin_popcount(told), 2);
            cut_its_power(r);
            assert_int_equal(held_by(r, w), told);
            rig_run(r, 2 * LH_SECOND); // until the server reports again
        }
        rig_free(r);
    }
}

// After a power cut the coordinator still knows every plan that a server has in its log.
TEST(a_plan_that_servers_took_is_known_after_a_power_cut)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig *r = begun(seed);
        uint64_t number = r->server->shard[0]->replica.ledger.plan.number;
        assert_true(number > 0);
        cut_its_power(r);
        assert_true(r->coordinator->plan.number >= number);
        assert_int_equal(r->coordinator->plan.phase, LH_PHASE_RUN);
        rig_free(r);
    }
}

TEST(a_unit_has_one_holder)
{
    struct rig *r = begun(1);
    unsigned held = 0;
    for (uint32_t w = 0; w < RIG_WORKERS; w++) {
        unsigned told = units_of(lease(r, w, 3, NULL));
        assert_int_equal(__builtin_popcount(told), 3);
        assert_int_equal(units_of(lease(r, w, 3, NULL)), told); // it holds as many as it wants
        assert_int_equal(told & held, 0);
        held |= told;
    }
    rig_free(r);
}

TEST(the_budget_is_what_all_hold_together)
{
    struct rig *r = begun(1);
    r->coordinator->conf.budget_tokens = 3 * r->units.unit[0].tokens;
    assert_int_equal(__builtin_popcount(units_of(lease(r, 0, 2, NULL))), 2);
    assert_int_equal(__builtin_popcount(units_of(lease(r, 1, 3, NULL))), 1);
    rig_free(r);
}

TEST(a_worker_that_begins_anew_returns_its_units)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig *r = begun(seed);
        assert_int_equal(__builtin_popcount(units_of(lease(r, 0, 3, NULL))), 3);
        unsigned hers = units_of(lease(r, 1, 2, NULL));
        assert_int_equal(rig_join(r, 0, 22, 1).granted, 2); // its directory is lost
        assert_int_equal(held_by(r, 0), 0);
        cut_its_power(r);
        assert_int_equal(held_by(r, 0), 0);
        assert_int_equal(held_by(r, 1), hers);
        rig_free(r);
    }
}

// Worker 1 has drained: it leaves the plan at once, and its units are free a little later, when
// servers have reported the claims of its last pushes.
TEST(a_drained_worker_leaves_the_plan_and_then_its_units)
{
    struct rig *r = begun(1);
    struct ps_co_worker *named;
    struct lh_drain_request m = {.region = "", .worker = ""};
    assert_int_equal(__builtin_popcount(units_of(lease(r, 1, 2, NULL))), 2);
    m.worker = r->w[1].self.name;
    assert_int_equal(ps_co_drain(r->coordinator, &m, &named), LH_OK);
    rig_free_message(say(r, 1, 2, NULL, true));
    rig_run(r, LH_SECOND);
    assert_true(named->left);
    ps_co_tick(r->coordinator);
    assert_int_equal(__builtin_popcount(held_by(r, 1)), 2);
    assert_false(lh_plan_has(&r->coordinator->plan, lh_worker_id(&r->w[1].self)));
    assert_true(lh_plan_has(&r->coordinator->plan, lh_worker_id(&r->w[0].self)));
    rig_run(r, 4 * LH_SECOND);
    assert_int_equal(held_by(r, 1), 0);
    rig_free(r);
}

static bool count_leases(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                         struct lh_fate *fate)
{
    unsigned *leases = arg;
    (void)from;
    (void)to;
    fate->delay_ns = LH_MS;
    *leases += rpc == LH_RPC_LEASE;
    return true;
}

// The server's report is late, so the coordinator offers units that the worker knows to be
// credited. The worker then waits as long as when there are no units at all, instead of asking
// again at once.
TEST(units_that_are_known_to_be_credited_are_not_asked_for_in_a_row)
{
    enum { SECONDS = 20 };
    unsigned leases = 0;
    struct life *l = life_begin(41, 1);
    struct ps_co_shard *known = &l->rig->coordinator->shard[0];
    lh_fabric_fates(l->rig->fabric, count_leases, &leases);
    l->rig->server->conf.report_ns = 3600 * LH_SECOND;
    for (int i = 0; i < 60000 && (l->worker->queued || l->worker->stepping); i++)
        life_run(l, LH_MS);
    assert_true(!l->worker->queued && known->reported);
    leases = 0;
    life_run(l, SECONDS * LH_SECOND);
    assert_int_equal(l->worker->queued, 0);
    assert_true(leases >= SECONDS);
    assert_true(leases < 4 * SECONDS); // one each half second, and some with other news
    lh_fabric_fates(l->rig->fabric, NULL, NULL);
    life_end(l);
}

// ---------------------------------------------------------------- how often a worker asks

struct asked {
    bool unheard; // drops the server's reports
    unsigned leases;
};

static bool count(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                  struct lh_fate *fate)
{
    struct asked *a = arg;
    (void)from;
    (void)to;
    // Without a delay a peer that asks again at once would loop forever at one virtual time.
    fate->delay_ns = LH_MS;
    a->leases += rpc == LH_RPC_LEASE;
    return !a->unheard || rpc != LH_RPC_REPORT;
}

// The coordinator does not hear of credits, so it offers only units that the worker knows to be
// credited. The worker has nothing to train, but does not ask again at once.
TEST(a_worker_whose_server_is_not_heard_asks_at_the_usual_pace)
{
    for (uint32_t shards = 1; shards <= RIG_SHARDS; shards++) {
        struct life *l = life_begin(1, shards);
        struct asked a = {.unheard = true};
        lh_fabric_fates(l->rig->fabric, count, &a);
        life_run(l, 5 * LH_SECOND);
        const int64_t most = l->worker->conf.lease_ns;
        for (int i = 0; i < 20; i++) {
            a.leases = 0;
            life_run(l, LH_SECOND);
            assert_in_range(a.leases, 1, LH_SECOND / most + 1);
        }
        a.unheard = false;
        life_cut(l, 3); // training goes on once the coordinator hears the server
        lh_fabric_fates(l->rig->fabric, NULL, NULL);
        life_end(l);
    }
}

static bool done(const struct life *l)
{
    const struct ps_coordinator *c = l->rig->coordinator;
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].id == l->worker->id) return c->worker[i].done;
    return false;
}

// A worker is done with the run when every one of its shards has ended.
TEST(the_end_of_one_shard_of_two_is_not_the_run_s)
{
    struct life *l = life_begin(21, RIG_SHARDS);
    rig_kill_server(l->rig, false); // the test plays the logs
    l->rig->coordinator->plan.phase = LH_PHASE_END;
    l->worker->shard[0].ended = true;
    wk_lease_soon(l->worker);
    life_run(l, 2 * LH_SECOND);
    assert_false(done(l));
    l->worker->shard[1].ended = true;
    wk_lease_soon(l->worker);
    life_run(l, 2 * LH_SECOND);
    assert_true(done(l));
    life_end(l);
}

TEST(status_names_all_workers)
{
    struct rig *r = begun(3);
    struct lh_buf b = lh_buf(1 << 20);
    assert_int_equal(ps_coordinator_status(r->coordinator, &b), LH_OK);
    lh_put_u8(&b, 0);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) {
        char name[128];
        snprintf(name, sizeof name, "\"name\":\"%s\"", r->w[w].self.name);
        if (!strstr((const char *)b.data, name)) fail_msg("%s is not in %s", name, b.data);
    }
    lh_buf_free(&b);
    rig_free(r);
}

static bool again_later(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                        struct lh_fate *fate)
{
    (void)arg;
    (void)from;
    (void)to;
    fate->delay_ns = LH_MS;
    if (rpc == LH_RPC_REPORT) fate->again_ns = 1500 * LH_MS;
    return true;
}

// Delivers each report twice; the late copy, of the same epoch, changes nothing.
TEST(a_report_that_arrives_again_takes_nothing_back)
{
    struct life *l = life_begin(9, 1);
    const struct ps_co_shard *s = &l->rig->coordinator->shard[0];
    uint64_t version = s->head.version, tokens = s->tokens, first = version;
    lh_fabric_fates(l->rig->fabric, again_later, NULL);
    for (int i = 0; i < 20000; i++) {
        life_run(l, LH_MS);
        assert_true(s->head.version >= version && s->tokens >= tokens);
        version = s->head.version;
        tokens = s->tokens;
    }
    assert_true(version > first + 10);
    lh_fabric_fates(l->rig->fabric, NULL, NULL);
    life_end(l);
}

static bool some_ms(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                    struct lh_fate *fate)
{
    (void)arg;
    (void)from;
    (void)to;
    (void)rpc;
    fate->delay_ns = 5 * LH_MS;
    return true;
}

// A worker with a full queue gets no units, though some are left: this must not slow down its next
// request.
TEST(an_answer_to_a_full_queue_is_not_taken_for_the_last)
{
    struct life *l = life_begin(7, 1);
    struct wk_worker *w = l->worker;
    unsigned answered = 0;
    bool asked = false;
    lh_fabric_fates(l->rig->fabric, some_ms, NULL);
    w->conf.lease_ns = 20 * LH_MS; // less than a step
    for (int i = 0; i < 20000; i++) {
        bool full = w->queued >= w->conf.queue_units;
        life_run(l, LH_MS);
        bool now = full && asked && !w->lease && w->queued >= w->conf.queue_units;
        asked = w->lease != NULL;
        if (now) assert_false(w->leased_out);
        answered += now;
    }
    assert_true(answered > 3);
    life_end(l);
}

static unsigned withdrawn; // announcements that were taken back

static void announce(struct wk_trainer *t, uint64_t unit, bool coming)
{
    (void)t;
    (void)unit;
    withdrawn += !coming;
}

static bool is_queued(const struct wk_worker *w, uint64_t unit)
{
    for (uint32_t i = 0; i < w->queued; i++)
        if (w->queue[i].unit == unit) return true;
    return false;
}

static void note_credited(struct lh_ledger *l, uint64_t unit)
{
    size_t bytes = (size_t)(unit / 8) + 1;
    if (bytes > l->credit_bytes) {
        uint8_t *more = calloc(bytes, 1);
        assert_non_null(more);
        if (l->credit_bytes) memcpy(more, l->credit, l->credit_bytes);
        free(l->credit);
        l->credit = more;
        l->credit_bytes = bytes;
    }
    l->credit[unit / 8] |= (uint8_t)(1u << unit % 8);
}

// The replica's ledger says that another worker trained these units.
TEST(units_that_another_had_credited_leave_the_queue)
{
    struct life *l = life_begin(7, 2);
    struct wk_worker *w = l->worker;
    struct wk_trainer_ops ops = *w->conf.trainer->ops;
    const struct wk_trainer_ops *own = w->conf.trainer->ops;
    ops.announce = announce;
    w->conf.trainer->ops = &ops;
    w->conf.queue_units = 12;
    for (int i = 0; i < 60000 && !(w->stepping && w->queued > 8); i++) life_run(l, LH_MS);
    assert_true(w->stepping && w->queued > 8);
    uint64_t over[3], last = w->queue[w->queued - 2].unit;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t at = i < 2 ? 4 + i : w->queued - 1;
        over[i] = w->queue[at].unit;
        w->queue[at].announced = true;
        note_credited(&w->shard[over[i] % 2].replica.ledger, over[i]);
    }
    withdrawn = 0;
    uint64_t steps = w->count.steps;
    for (int i = 0; i < 1000 && w->count.steps < steps + 2; i++) life_run(l, LH_MS);
    for (uint32_t i = 0; i < 3; i++) assert_false(is_queued(w, over[i]));
    assert_true(is_queued(w, last));
    assert_int_equal(withdrawn, 3);
    w->conf.trainer->ops = own;
    life_end(l);
}
