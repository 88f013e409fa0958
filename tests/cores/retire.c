// Names of workers that are gone for good are freed (server/docs/0000-protocol.md#rule-35):
// messages of a retired name are refused, after restarts too, and a later worker under that name
// counts as another one.
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/plan.h"
#include "server/coordinator/watch/retired.h"
#include "tests/cores/rig.h"

static uint64_t id_of(const struct rig *r, uint32_t w)
{
    return lh_worker_id(&r->w[w].self);
}

static lh_err retire(struct rig *r, uint32_t w)
{
    bool changed;
    lh_err err = ps_co_retire(r->coordinator, id_of(r, w), &changed);
    ps_co_tick(r->coordinator);
    rig_settle(r);
    return err;
}

static const struct lh_ledger *ledger(const struct rig *r)
{
    return &r->server->shard[0]->replica.ledger;
}

static lh_err join(struct rig *r, uint32_t w, uint64_t incarnation, uint64_t attempt)
{
    Longhaul__V1__JoinRequest m;
    Longhaul__V1__Wire wire;
    rig_join_request(r, attempt, &wire, &m);
    m.incarnation = incarnation;
    m.fresh = !incarnation;
    return rig_say(r, r->to_c[w], LH_RPC_JOIN, &m.base);
}

// Both workers have greeted the shard, and are lost.
static struct rig *both_gone(void)
{
    struct rig *r = rig_new(3);
    rig_serve(r, 0);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) {
        assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
        rig_hello(r, w, UINT64_C(1) << 32, 0, 1);
    }
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(retire(r, 1), LH_ERR_INVALID); // it is live
    r->coordinator->conf.worker_timeout_ns = LH_SECOND;
    for (int i = 0; i < 600 && r->coordinator->worker[1].live; i++) rig_run(r, 100 * LH_MS);
    assert_false(r->coordinator->worker[1].live);
    return r;
}

TEST(nothing_of_a_retired_name_is_heard_again)
{
    struct rig *r = both_gone();
    assert_non_null(lh_ledger_row(ledger(r), id_of(r, 0)));
    assert_int_equal(retire(r, 0), LH_OK);
    assert_int_equal(join(r, 0, UINT64_C(1) << 32, 0), LH_ERR_BUSY); // not free yet
    for (int i = 0; i < 100 && r->coordinator->workers > 1; i++) rig_run(r, 100 * LH_MS);
    assert_int_equal(r->coordinator->workers, 1);
    assert_int_equal(r->coordinator->worker[0].id, id_of(r, 1));
    assert_null(lh_ledger_row(ledger(r), id_of(r, 0)));
    for (int restart = 0; restart < 2; restart++) {
        rig_run(r, 2 * LH_SECOND);
        assert_int_equal(r->coordinator->plan.retired_count, 0);
        assert_int_equal(r->coordinator->plan.retired_up_to, 1);
        assert_int_equal(join(r, 0, UINT64_C(1) << 32, 0), LH_ERR_FENCED); // its old directory
        assert_int_equal(rig_fence(r, 0, UINT64_C(1) << 32), LH_ERR_FENCED);
        assert_null(lh_ledger_row(ledger(r), id_of(r, 0)));
        assert_int_equal(r->coordinator->workers, 1);
        rig_kill_coordinator(r);
        rig_kill_server(r, false);
        rig_serve(r, 0);
    }
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(rig_join(r, 0, 12, 1).granted, 2); // another worker under that name
    assert_int_equal(rig_fence(r, 0, UINT64_C(2) << 32), LH_OK);
    assert_int_equal(rig_fence(r, 1, UINT64_C(1) << 32), LH_OK); // this one is not retired
    assert_int_equal(r->fatal_count, 0);
    rig_free(r);
}

// The last worker moves to the retired one's place in the list, and keeps its leases.
TEST(a_worker_that_takes_the_place_keeps_its_leases)
{
    struct rig *r = both_gone();
    struct ps_coordinator *c = r->coordinator;
    assert_int_equal(retire(r, 0), LH_OK);
    c->lease[0] = c->wanted_by[1] = 2; // the index is 1
    c->second[c->seconds++] = (struct ps_co_second_lease){2, 1, 5};
    for (int i = 0; i < 100 && c->workers > 1; i++) rig_run(r, 100 * LH_MS);
    assert_int_equal(c->worker[0].id, id_of(r, 1));
    assert_int_equal(c->lease[0], 1);
    assert_int_equal(c->wanted_by[1], 1);
    assert_int_equal(c->seconds, 1);
    assert_int_equal(c->second[0].worker, 0);
    rig_free(r);
}

TEST(a_restart_goes_on_with_what_was_begun)
{
    struct rig *r = both_gone();
    rig_kill_server(r, false); // no shard hears of it
    rig_run(r, LH_SECOND);
    assert_int_equal(retire(r, 0), LH_OK);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(r->coordinator->workers, 2);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_true(ps_co_is_retiring(r->coordinator, id_of(r, 0)));
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(r->coordinator->workers, 2);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (int i = 0; i < 100 && r->coordinator->workers > 1; i++) rig_run(r, 100 * LH_MS);
    assert_int_equal(r->coordinator->workers, 1);
    assert_null(lh_ledger_row(ledger(r), id_of(r, 0)));
    rig_free(r);
}

// Fills the list, as if so many workers had joined long ago.
static void take_all_names(struct rig *r)
{
    struct ps_coordinator *c = r->coordinator;
    for (uint64_t id = 1; c->workers < LH_WORKERS_MAX; id++)
        c->worker[c->workers++] =
            (struct ps_co_worker){.id = id, .granted = 1, .region = "far", .name = "gone"};
}

TEST(old_names_go_once_all_are_taken)
{
    struct rig *r = both_gone();
    assert_int_equal(retire(r, 1), LH_OK);
    for (int i = 0; i < 100 && r->coordinator->workers > 1; i++) rig_run(r, 100 * LH_MS);
    r->coordinator->conf.retire_ns = 0;
    take_all_names(r);
    assert_int_equal(join(r, 1, 0, 12), LH_ERR_TOO_LARGE);
    assert_non_null(strstr(lh_err_text(LH_ERR_TOO_LARGE), "longhaul retire REGION/NAME"));
    r->coordinator->conf.retire_ns = LH_SECOND;
    for (int i = 0; i < 100 && r->coordinator->workers == LH_WORKERS_MAX; i++)
        rig_run(r, 100 * LH_MS);
    assert_true(r->coordinator->workers < LH_WORKERS_MAX);
    assert_int_equal(join(r, 1, 0, 12), LH_OK);
    rig_run(r, 20 * LH_SECOND); // enough names are free: the others stay
    assert_true(r->coordinator->workers > LH_WORKERS_MAX / 2);
    assert_int_equal(r->fatal_count, 0);
    rig_free(r);
}
