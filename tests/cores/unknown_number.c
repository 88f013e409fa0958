// A coordinator that lost its store grants numbers anew, but the servers' rows have higher ones
// (server/docs/0000-protocol.md#rule-8).
#include "tests/cores/life.h"

#include "worker/member.h"

static unsigned ended;

static void on_fatal(void *arg, lh_err err, const char *text)
{
    (void)arg, (void)text;
    assert_int_equal(err, LH_ERR_FENCED);
    ended++;
}

static struct wk_conf life(struct rig *r, struct rig_life *l)
{
    struct wk_conf conf = rig_life_conf(r, l, 50);
    conf.fatal = on_fatal;
    ended = 0;
    return conf;
}

static void start(struct rig *r)
{
    rig_serve(r, 2 * LH_SECOND);
}

static uint32_t granted(const struct rig *r)
{
    uint32_t i = ps_co_worker_index(r->coordinator, lh_worker_id(&r->w[1].self));
    assert_true(i < r->coordinator->workers);
    return r->coordinator->worker[i].granted;
}

static uint64_t row(const struct rig *r)
{
    const struct lh_row *of =
        lh_ledger_row(&r->server->shard[0]->replica.ledger, lh_worker_id(&r->w[1].self));
    assert_non_null(of);
    return of->incarnation.number;
}

RIG_TEST(it_goes_on_above_the_row, struct rig *r)
{
    struct rig_life l;
    start(r);
    rig_hello(r, 1, (uint64_t)5 << 32, 0, 1);
    struct wk_conf conf = life(r, &l);
    rig_life_start(&l, &conf);
    rig_run(r, 30 * LH_SECOND);
    assert_int_equal(ended, 0);
    assert_int_equal(l.worker->incarnation.number, ((uint64_t)5 << 32) + 1);
    assert_int_equal(row(r), l.worker->incarnation.number);
    assert_int_equal(granted(r), 5);                             // the coordinator knows it now
    assert_true(l.worker->shard[0].slot.committed->decided > 0); // its pushes are decided
    rig_life_end(r, &l, false);
}

RIG_TEST(it_stops_for_a_newer_process, struct rig *r)
{
    struct rig_life l;
    start(r);
    struct wk_conf conf = life(r, &l);
    rig_life_start(&l, &conf);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(rig_join(r, 1, 77, 1).granted, 2);
    rig_hello(r, 1, (uint64_t)2 << 32, 0, 1);
    rig_run(r, 30 * LH_SECOND);
    assert_int_equal(ended, 1);
    assert_int_equal(row(r), (uint64_t)2 << 32);
    assert_int_equal(granted(r), 2);
    rig_life_end(r, &l, false);
}

RIG_TEST(a_made_up_row_wears_no_numbers_out, struct rig *r)
{
    struct rig_life l;
    start(r);
    rig_hello(r, 1, (uint64_t)(UINT32_MAX - 1) << 32, 0, 1);
    struct wk_conf conf = life(r, &l);
    rig_life_start(&l, &conf);
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(ended, 0); // a server's claim ends no worker: it retries
    assert_int_equal(granted(r), 1);
    assert_int_equal(l.worker->incarnation.number >> 32, 1);
    rig_life_end(r, &l, false);
}

// The coordinator confirms the worker's number while a cut is under way. The number rises only
// after the cut, which owns the slots.
RIG_TEST(it_waits_for_a_cut, struct rig *r)
{
    struct rig_life l = {0};
    start(r);
    struct wk_conf conf = life(r, &l);
    rig_life_start(&l, &conf);
    const struct wk_shard *s = &l.worker->shard[0];
    for (int i = 0; i < 60000 && !(s->slot.committed && s->slot.committed->decided); i++)
        rig_run(r, LH_MS);
    lh_fake_hang(r->w[1].env, 60 * LH_SECOND);
    for (int i = 0; i < 10000 && !wk_cutting(l.worker); i++) rig_run(r, LH_MS);
    assert_true(wk_cutting(l.worker));
    wk_member_contest(l.worker, (uint64_t)5 << 32);
    rig_run(r, 200 * LH_MS);
    assert_true(wk_cutting(l.worker)); // the answer came meanwhile
    assert_int_equal(l.worker->incarnation.number, (uint64_t)1 << 32);
    lh_fake_hang(r->w[1].env, 0);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(ended, 0);
    assert_int_equal(l.worker->incarnation.number, ((uint64_t)5 << 32) + 1);
    rig_life_end(r, &l, false);
}
