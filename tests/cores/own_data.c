// The coordinator's settings say whose data a worker trains (server/docs/0004-authority.md#modes):
// these tests check which workers are refused, and that a run can end beside such a worker.
#include <string.h>

#include "tests/cores/words.h"

enum { UNITS = 40 };

// Worker w asks for so many units; `own` says that its loop has data of its own.
static lh_err ask(struct rig *r, uint32_t w, uint32_t want, bool own)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, w);
    m.want = want;
    m.own_data = own;
    return rig_say(r, r->to_c[w], LH_RPC_LEASE, &m.base);
}

static void refuses(lh_err err, const char *why)
{
    assert_int_equal(err, LH_ERR_CONFIG);
    if (!strstr(lh_err_text(err), why)) fail_msg("%s", lh_err_text(err));
}

// A worker that contradicts the settings is refused; the others are not.
TEST(the_settings_decide)
{
    struct rig *r = begun_run(UNITS, 0);
    refuses(ask(r, 1, 0, true), "the coordinator leases units there");
    assert_int_equal(ask(r, 0, 2, false), LH_OK);
    refuses(ask(r, 1, 0, true), "coordinator.data");
    assert_int_equal(ask(r, 1, 2, false), LH_OK);
    rig_free(r);
    r = begun_run(UNITS, 0);
    r->coordinator->conf.data = LH_DATA_OWN;
    assert_int_equal(ask(r, 0, 0, true), LH_OK);
    refuses(ask(r, 1, 2, false), "workers there have data of their own");
    assert_int_equal(ask(r, 1, 0, false), LH_OK); // it asks for nothing
    assert_int_equal(ask(r, 0, 0, true), LH_OK);
    rig_free(r);
}

static bool one_region(void *arg, const char *region, enum lh_data *out)
{
    *out = LH_DATA_OWN;
    return !strcmp(region, arg);
}

// Regions of both kinds train one model. The plan says whose data each worker trains.
TEST(regions_may_differ)
{
    struct rig *r = begun_run(UNITS, 0);
    struct ps_co_conf *conf = &r->coordinator->conf;
    conf->region_data = one_region;
    conf->region_data_arg = r->w[1].self.region;
    assert_string_not_equal(r->w[0].self.region, r->w[1].self.region);
    assert_int_equal(ask(r, 1, 0, true), LH_OK);
    assert_int_equal(ask(r, 0, 2, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    const struct lh_plan *plan = &r->server->shard[0]->replica.ledger.plan;
    assert_int_equal(lh_plan_data(plan, lh_worker_id(&r->w[1].self)), LH_DATA_OWN);
    assert_int_equal(lh_plan_data(plan, lh_worker_id(&r->w[0].self)), LH_DATA_LEASED);
    rig_free(r);
}

// Each life of a refused worker joins anew, so the coordinator never counts it as lost. While the
// run ends it has to be heard when it says that it drained, or the run would wait forever.
TEST(while_the_run_ends_nobody_is_refused)
{
    for (int own = 0; own < 2; own++) {
        struct rig *r = begun_run(UNITS, 0);
        if (own) r->coordinator->conf.data = LH_DATA_OWN;
        assert_int_equal(ask(r, 0, own ? 0 : 2, own), LH_OK);
        refuses(ask(r, 1, own ? 2 : 0, !own), "coordinator.data");
        r->coordinator->ending = true;
        rig_run(r, 3 * LH_SECOND);
        assert_int_equal(r->coordinator->plan.phase, LH_PHASE_DRAIN);
        assert_int_equal(ask(r, 0, own ? 0 : 2, own), LH_OK);
        assert_int_equal(ask(r, 1, own ? 2 : 0, !own), LH_OK);
        rig_free(r);
    }
}

// A loop with data of its own left, so its worker says that it can give units back (`ahead`).
TEST(a_worker_that_wants_no_units_gets_none)
{
    struct rig *r = begun_run(UNITS, 0);
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    r->coordinator->conf.data = LH_DATA_OWN;
    for (uint32_t w = 0; w < 2; w++) {
        Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
        m.worker = lh_worker_id(&r->w[w].self);
        m.incarnation = UINT64_C(1) << 32;
        m.own_data = w == 0;
        m.ahead = 1;
        m.tokens_per_s = 1000;
        assert_int_equal(rig_say(r, r->to_c[w], LH_RPC_LEASE, &m.base), LH_OK);
        assert_int_equal(r->coordinator->stock.leased_units, 0);
    }
    assert_int_equal(ask(r, 0, 0, true), LH_OK);
    rig_free(r);
}
