// Workers measure their training and their paths to servers; these tests check the coordinator's
// use of these figures (worker/push/path.c, server/coordinator/balance/measure.c).
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "server/coordinator/balance/measure.h"
#include "tests/cores/rig.h"
#include "worker/worker.h"

static bool delay(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                  struct lh_fate *fate)
{
    const struct rig *r = arg;
    (void)rpc;
    bool its = !strcmp(from, r->w[1].self.name) && !strcmp(to, r->s.self.name);
    if (its) fate->delay_ns = 100 * LH_MS;
    return true;
}

static double of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

RIG_TEST(a_worker_tells_how_far_its_server_is_and_how_fast_it_trains, struct rig *r)
{
    struct rig_life l;
    rig_serve(r, 0);
    lh_fabric_fates(r->fabric, delay, r);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    rig_life_start(&l, &conf);
    rig_run(r, 20 * LH_SECOND);
    const struct ps_co_worker *w = &r->coordinator->worker[0];
    assert_true(w->measured.batch_s.mean > 0.04 && w->measured.batch_s.mean < 0.08);
    assert_true(w->measured.utilisation > 0 && w->measured.utilisation <= 1);
    json_t *rows = ps_co_links(r->coordinator), *told = json_object();
    assert_int_equal(json_array_size(rows), 1); // one server
    const json_t *row = json_array_get(rows, 0);
    assert_string_equal(json_string_value(json_object_get(row, "worker")), r->w[1].self.name);
    assert_string_equal(json_string_value(json_object_get(row, "server")), r->s.self.name);
    assert_true(fabs(of(row, "rtt_ms") - 200) < 1);
    assert_true(of(row, "push_ms") >= 200 && of(row, "push_ms") < 500);
    assert_null(json_object_get(row, "up_mbit_s")); // its pushes are too small to measure a rate
    assert_true(ps_co_exchange_s(w) >= 0.2 && ps_co_exchange_s(w) < 0.5);
    const struct lh_row *admitted =
        lh_ledger_row(&r->server->shard[0]->replica.ledger, lh_worker_id(&r->w[1].self));
    assert_true(w->admitted && w->admitted[0].pushes && w->admitted_ns);
    assert_in_range(w->admitted[0].pushes, 1, admitted->admitted); // as of the last report
    assert_in_range(ps_co_admitted_tokens(r->coordinator, w), 1, admitted->tokens);
    ps_co_tell_measured(w, told);
    assert_true(fabs(of(told, "batch_ms") - 1e3 * w->measured.batch_s.mean) < 1e-6);
    json_decref(told);
    json_decref(rows);
    lh_fabric_fates(r->fabric, NULL, NULL);
    rig_life_end(r, &l, false);
}

// A peer sends NaN or infinite figures; a worker sends none.
RIG_TEST(non_finite_figures_count_as_unknown, struct rig *r)
{
    rig_serve(r, 0);
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    struct ps_co_worker *w = &r->coordinator->worker[0];
    const struct lh_estimate bad = {NAN, -INFINITY};
    struct lh_path path[LH_PATHS_MAX] = {{.push_s = bad}};
    for (size_t i = 1; i < LH_PATHS_MAX; i++) path[i].push_s.mean = 2;
    path[1].shard = 7; // there is one shard
    struct lh_lease_request m = {
        .batch_s = bad, .speed = bad, .utilisation = 1e300, .n_paths = LH_PATHS_MAX, .paths = path};
    ps_co_measured(r->coordinator, w, &m);
    assert_true(w->measured.batch_s.mean <= 0 && w->measured.tokens_spread <= 0);
    assert_true(w->measured.utilisation <= 1);
    assert_int_equal(w->measured.paths, LH_PATHS_MAX - 1);
    assert_true(w->measured.path[0].push_s.mean <= 0);
    assert_true(fabs(ps_co_exchange_s(w) - 2) < 1e-9);
    m.n_paths = 0;
    ps_co_measured(r->coordinator, w, &m);
    json_t *rows = ps_co_links(r->coordinator);
    assert_int_equal(json_array_size(rows), 0);
    assert_true(ps_co_exchange_s(w) <= 0);
    json_decref(rows);
}

// A report's list is bounded: if a shard has more rows, the next report goes on with them.
RIG_TEST(the_rows_of_many_workers_are_told_in_turns, struct rig *r)
{
    rig_serve(r, 0);
    assert_int_equal(rig_join(r, 1, 11, 0).granted, 1);
    rig_run(r, 3 * LH_SECOND);
    rig_hello(r, 1, 1, 0, 1);
    struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    struct lh_row its = l->row[0], *row = realloc(l->row, LH_WORKERS_MAX * sizeof *row);
    assert_non_null(row);
    its.worker = lh_worker_id(&r->w[1].self);
    its.admitted = 7;
    its.tokens = 700;
    for (uint32_t k = 0; k + 1 < LH_WORKERS_MAX; k++) row[k] = (struct lh_row){.worker = k + 1};
    row[LH_WORKERS_MAX - 1] = its;
    l->row = row;
    l->rows = LH_WORKERS_MAX;
    rig_run(r, 5 * LH_SECOND);
    const struct ps_co_worker *w = &r->coordinator->worker[0];
    assert_non_null(w->admitted);
    assert_int_equal(w->admitted[0].pushes, 7);
    assert_int_equal(ps_co_admitted_tokens(r->coordinator, w), 700);
}
