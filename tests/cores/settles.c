// A coordinator does not take a late message for silence, and changes no plan when the run is over.
#include <string.h>

#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/insync.h"
#include "tests/cores/rig.h"

enum { STANDBY = 5, SERVER = 100 }; // a directory, and a certificate

static struct ps_co_shard *shard(struct rig *r)
{
    return &r->coordinator->shard[0];
}

// The shard's own server only asks for its epochs, as when it settles its history.
static void ask_for_epochs(struct rig *r, struct lh_link *link)
{
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Wire wire = LONGHAUL__V1__WIRE__INIT;
    wire.min = wire.max = LH_WIRE_VERSION_MAX;
    m.wire = &wire;
    m.address = r->s.address;
    m.job = (ProtobufCBinaryData){LH_JOB_BYTES, r->coordinator->conf.job};
    m.manifest = (ProtobufCBinaryData){LH_HASH_BYTES, r->manifest.hash.b};
    assert_int_equal(rig_say(r, link, LH_RPC_EPOCH, &m.base), LH_OK);
}

static bool takes_over(struct rig *r)
{
    return rig_serves(r, STANDBY, SERVER, false);
}

// The request may be a late copy, from before the server served.
RIG_TEST(a_server_that_asked_for_its_epochs_is_not_silent, struct rig *r)
{
    struct lh_point begins = {.epoch = 1};
    struct lh_link *link;
    bool opened;
    rig_start_coordinator(r);
    rig_boot_server(r);
    r->coordinator->conf.take_over_ns = 10 * LH_SECOND;
    assert_int_equal(
        r->s.transport->ops->dial(r->s.transport, r->c.address, LH_C, LH_LINE_FIRST, &link), LH_OK);
    assert_int_equal(ps_co_open_epoch(r->coordinator, 0, 0, &begins, 1, 0, false, false, &opened),
                     LH_OK);
    shard(r)->standby = STANDBY;
    assert_int_equal(ps_co_heard_owner(r->coordinator, 0, 0, SERVER, 1, &begins), LH_OK);
    ask_for_epochs(r, link);
    assert_false(takes_over(r));
    rig_run(r, 10 * LH_SECOND);
    assert_true(takes_over(r));
    link->transport_ops->hangup(link);
}

// After the run's end nothing can be stored, so no changed plan may be announced either.
RIG_TEST(the_plan_of_a_run_that_is_over_keeps_its_workers, struct rig *r)
{
    rig_start_coordinator(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) (void)rig_join(r, w, 7 + w, 0);
    rig_run(r, LH_SECOND);
    struct lh_plan *plan = &r->coordinator->plan;
    assert_int_equal(plan->live, RIG_WORKERS);
    plan->phase = LH_PHASE_END;
    (void)rig_join(r, 1, 8, 0);
    rig_run(r, r->coordinator->conf.worker_timeout_ns - LH_SECOND / 2); // only worker 1 is heard
    (void)rig_join(r, 1, 8, 0);
    rig_run(r, 2 * LH_SECOND);
    assert_false(r->coordinator->worker[0].live);
    assert_true(r->coordinator->worker[1].live);
    assert_int_equal(plan->live, RIG_WORKERS);
}

// Workers end with the run: nobody need be told of a loss.
RIG_TEST(a_worker_that_is_gone_after_the_end_is_not_lost, struct rig *r)
{
    rig_start_coordinator(r);
    lh_fake_boot(r->t.env);
    struct lh_log *log = rig_log_lines(r);
    r->coordinator->conf.log = log;
    int64_t silent = r->coordinator->conf.worker_timeout_ns + 2 * LH_SECOND;
    (void)rig_join(r, 0, 7, 0);
    rig_run(r, silent);
    assert_int_equal(rig_said(r, "worker.lost"), 1);
    (void)rig_join(r, 0, 7, 0);
    rig_run(r, LH_SECOND);
    assert_true(r->coordinator->worker[0].live);
    r->coordinator->plan.phase = LH_PHASE_END;
    rig_run(r, silent);
    assert_false(r->coordinator->worker[0].live);
    assert_int_equal(rig_said(r, "worker.lost"), 1);
    r->coordinator->conf.log = NULL;
    lh_log_close(log);
}
