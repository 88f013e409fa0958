// Coordinator and servers refuse an expelled worker, over a power cut too, until it is let back.
// Nobody waits for a worker that the shards have set aside, but one server alone does not set it
// aside (server/docs/0000-protocol.md#rule-30, #rule-31).
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/balance/measure.h"
#include "tests/cores/rig.h"
#include "tests/cores/words.h"

static lh_err expel(struct rig *r, const char *region, const char *name, bool server, bool admit)
{
    struct lh_expel_request m = {.name = "", .region = ""};
    struct ps_co_expelled who;
    bool changed;
    m.region = region;
    m.name = name;
    m.server = server;
    m.admit = admit;
    lh_err err = ps_co_expel(r->coordinator, &r->c.self, &m, &who, &changed);
    rig_settle(r); // the answer waits for this
    return err;
}

static uint64_t id_of(const struct rig *r, uint32_t w)
{
    return lh_worker_id(&r->w[w].self);
}

static struct rig *begun(void)
{
    struct rig *r = rig_new(3);
    rig_serve(r, 0);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) {
        assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
        rig_hello(r, w, UINT64_C(1) << 32, 0, 1);
    }
    rig_run(r, 2 * LH_SECOND);
    return r;
}

static lh_err join(struct rig *r, uint32_t w)
{
    Longhaul__V1__Wire wire;
    Longhaul__V1__JoinRequest m;
    rig_join_request(r, 12, &wire, &m);
    return rig_say(r, r->to_c[w], LH_RPC_JOIN, &m.base);
}

static lh_err lease(struct rig *r, uint32_t w)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    m.worker = id_of(r, w);
    m.incarnation = UINT64_C(1) << 32;
    m.want = 4;
    return rig_say(r, r->to_c[w], LH_RPC_LEASE, &m.base);
}

static const struct lh_plan *plan_of_log(const struct rig *r)
{
    return &r->server->shard[0]->replica.ledger.plan;
}

TEST(an_expelled_worker_is_refused_until_it_is_let_back)
{
    struct rig *r = begun();
    struct rig_call follow;
    rig_call_open(r, 0, LH_RPC_FOLLOW, &rig_call_ops, &follow);
    rig_run(r, LH_SECOND);
    assert_false(follow.over);
    assert_int_equal(expel(r, "", r->w[0].self.name, false, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_true(lh_plan_expelled(plan_of_log(r), id_of(r, 0))); // the shard's log has it
    assert_true(follow.over);                                   // its open call has ended
    for (int life = 0; life < 2; life++) {
        assert_false(lh_plan_has(&r->coordinator->plan, id_of(r, 0)));
        assert_int_equal(join(r, 0), LH_ERR_EXPELLED);
        assert_int_equal(lease(r, 0), LH_ERR_EXPELLED);
        assert_int_equal(rig_fence(r, 0, UINT64_C(2) << 32), LH_ERR_EXPELLED);
        assert_int_equal(rig_fence(r, 1, (UINT64_C(1) << 32) + 1 + (uint64_t)life), LH_OK);
        lh_fake_kill(r->c.env, true); // it holds over a power cut
        rig_kill_coordinator(r);
        rig_start_coordinator(r);
        rig_run(r, 2 * LH_SECOND);
    }
    assert_int_equal(expel(r, r->w[0].self.region, r->w[0].self.name, false, true), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(join(r, 0), LH_OK);
    assert_int_equal(rig_fence(r, 0, UINT64_C(3) << 32), LH_OK);
    rig_free(r);
}

// Nobody waited for a worker that held rounds too often. Others wait for it again.
TEST(a_worker_that_is_let_back_is_waited_for)
{
    struct rig *r = begun();
    struct ps_co_stall *s =
        &r->coordinator->worker[ps_co_worker_index(r->coordinator, id_of(r, 0))].stall;
    s->held = 5;
    s->holds_ns = 7;
    s->out_until_ns = INT64_MAX;
    s->hold = calloc(1, sizeof *s->hold);
    assert_int_equal(expel(r, "", r->w[0].self.name, false, true), LH_OK);
    assert_true(!s->held && !s->holds_ns && !s->out_until_ns && !s->hold);
    rig_free(r);
}

// Checks that the coordinator's status shows the server, in this state.
static void assert_told_of_server(struct rig *r, const char *state)
{
    struct lh_buf out = lh_buf(1 << 20);
    assert_int_equal(ps_coordinator_status(r->coordinator, &out), LH_OK);
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    json_t *server = json_array_get(json_object_get(all, "servers"), 0);
    assert_string_equal(json_string_value(json_object_get(server, "name")), r->s.self.name);
    assert_string_equal(json_string_value(json_object_get(server, "state")), state);
    json_decref(all);
    lh_buf_free(&out);
}

TEST(servers_and_absent_workers_are_expelled_by_name)
{
    struct rig *r = begun();
    const struct lh_peer *s = &r->s.self;
    assert_int_equal(expel(r, "", "nobody", false, false), LH_ERR_NOT_FOUND);
    assert_int_equal(expel(r, "far", "nobody", false, false), LH_OK);
    assert_int_equal(expel(r, "", "", false, false), LH_ERR_INVALID);
    assert_int_equal(expel(r, "", "NO NAME", false, false), LH_ERR_NOT_FOUND);
    assert_int_equal(expel(r, "a/b", "x", false, false), LH_ERR_INVALID);
    assert_int_equal(expel(r, "", s->name, true, false), LH_OK);
    assert_true(ps_co_is_expelled(r->coordinator, lh_worker_id(s)));
    assert_told_of_server(r, "expelled");
    int64_t heard = r->coordinator->shard[0].heard_ns;
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(r->coordinator->shard[0].heard_ns, heard); // its reports are ignored
    assert_int_equal(expel(r, "", s->name, true, true), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->coordinator->shard[0].heard_ns > heard);
    assert_told_of_server(r, "live");
    rig_free(r);
}

TEST(the_number_of_expelled_names_is_limited)
{
    struct rig *r = begun();
    char name[16];
    lh_err err = LH_OK;
    for (int i = 0; i <= LH_EXPELLED_MAX && !err; i++) {
        snprintf(name, sizeof name, "n%d", i);
        err = expel(r, "far", name, false, false);
    }
    assert_int_equal(err, LH_ERR_TOO_LARGE);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(plan_of_log(r)->expelled_count, LH_EXPELLED_MAX);
    assert_int_equal(r->fatal_count, 0);
    assert_int_equal(expel(r, "far", "n0", false, true), LH_OK);
    assert_int_equal(expel(r, "far", "m", false, false), LH_OK);
    rig_free(r);
}

// Makes the shard's ledger set worker w aside.
static void set_aside(struct rig *r, uint32_t w)
{
    struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    const struct lh_row *row = lh_ledger_row(l, id_of(r, w));
    assert_non_null(row);
    l->row[row - l->row].norms.outliers = LH_OUTLIERS_MAX;
}

TEST(nobody_waits_for_a_worker_that_is_set_aside)
{
    struct rig *r = begun();
    assert_int_equal(lease(r, 0), LH_OK);
    rig_run(r, LH_SECOND);
    assert_true(lh_plan_has(&r->coordinator->plan, id_of(r, 0)));
    set_aside(r, 0);
    rig_run(r, 2 * LH_SECOND);
    const struct ps_co_worker *w = &r->coordinator->worker[0];
    assert_true(w->id == id_of(r, 0) && ps_co_set_aside(r->coordinator, w));
    assert_false(lh_plan_has(&r->coordinator->plan, id_of(r, 0)));
    assert_int_equal(r->coordinator->worker[0].held.units, 0); // its units are free
    assert_int_equal(expel(r, "", r->w[0].self.name, false, true), LH_OK);
    assert_int_equal(r->coordinator->lets_back, 1);
    lh_fake_kill(r->c.env, true);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(r->coordinator->lets_back, 1);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(plan_of_log(r)->lets_back, 1);
    const struct lh_row *row = lh_ledger_row(&r->server->shard[0]->replica.ledger, id_of(r, 0));
    assert_int_equal(row->norms.let_back, 1);
    assert_false(lh_norms_set_aside(&row->norms));
    rig_free(r);
}

// Reports worker 0 as set aside, as the shard's server does.
static void report_aside(struct rig *r, uint32_t shard, uint32_t let_back)
{
    const struct lh_admitted row = {.worker = id_of(r, 0), .set_aside = true, .let_back = let_back};
    const struct lh_shard_report m = {
        .has_head = true, .head = {.shard = shard}, .n_admitted = 1, .admitted = &row};
    ps_co_take_admitted(r->coordinator, &m);
}

// Otherwise a server that lies could set all workers aside.
TEST(one_of_two_servers_sets_nobody_aside)
{
    struct rig *r = begun_shards(64, 300 * LH_SECOND);
    const struct ps_coordinator *c = r->coordinator;
    const struct ps_co_worker *w = &c->worker[ps_co_worker_index(c, id_of(r, 0))];
    report_aside(r, 1, 0);
    assert_int_equal(ps_co_aside(c, w), 1);
    assert_false(ps_co_set_aside(c, w) || ps_co_barred(c, w));
    assert_int_equal(expel(r, "", r->w[0].self.name, false, true), LH_OK); // the shard lets it back
    assert_int_equal(c->lets_back, 1);
    assert_int_equal(ps_co_aside(c, w), 0);
    for (uint32_t shard = 0; shard < RIG_SHARDS; shard++) report_aside(r, shard, 1);
    assert_true(ps_co_set_aside(c, w) && ps_co_barred(c, w));
    rig_free(r);
}

static void is_shown(struct rig *r, const char *state, const char *why)
{
    struct lh_buf out = lh_buf(1 << 20);
    assert_int_equal(ps_coordinator_status(r->coordinator, &out), LH_OK);
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    const json_t *row = json_array_get(json_object_get(all, "workers"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "name")), r->w[0].self.name);
    assert_string_equal(json_string_value(json_object_get(row, "member_state")), state);
    assert_int_equal(json_is_true(json_object_get(row, "set_aside")), why != NULL);
    const char *is = json_string_value(json_object_get(row, "why"));
    if (why) assert_non_null(is);
    if (why) assert_string_equal(is, why);
    if (!why) assert_null(is);
    json_decref(all);
    lh_buf_free(&out);
}

TEST(operators_are_told_which_shards_refuse_a_worker_s_pushes_and_why)
{
    struct rig *r = begun_shards(64, 300 * LH_SECOND);
    char text[400];
    lh_fake_boot(r->t.env);
    struct lh_log *log = r->coordinator->conf.log = rig_log_lines(r);
    is_shown(r, "live", NULL);
    for (int i = 0; i < 2; i++) report_aside(r, 1, 0); // every report repeats it
    rig_settle(r);
    snprintf(text, sizeof text,
             "WARN rig worker.set_aside %s of %s: shard 1 refuses its pushes, because ten in a row "
             "were far larger than other workers'. If the worker is sound, let it back: longhaul "
             "admit %s\n",
             r->w[0].self.name, r->w[0].self.region, r->w[0].self.name);
    assert_int_equal(rig_said(r, text), 1);
    assert_int_equal(rig_said(r, "worker.set_aside"), 1);
    is_shown(r, "live", "shard 1 refuses its pushes: far larger than others'");
    report_aside(r, 0, 0);
    rig_settle(r);
    assert_int_equal(rig_said(r, "worker.set_aside"), 2);
    is_shown(r, "set_aside", "2 of 2 shards refuse its pushes: far larger than others'");
    assert_int_equal(expel(r, "", r->w[0].self.name, false, true), LH_OK);
    is_shown(r, "live", NULL);
    r->coordinator->conf.log = NULL;
    lh_log_close(log);
    rig_free(r);
}
