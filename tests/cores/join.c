// Joins of several lives of one worker: the coordinator grants each incarnation's number once, and
// a message from an earlier life does not change the current one
// (server/docs/0000-protocol.md#rule-8).
#include "common/env/log.h"
#include "server/coordinator/drain.h"
#include "tests/cores/rig.h"

static void granted(struct rig *r, uint64_t attempt, uint32_t over, uint32_t number)
{
    Longhaul__V1__JoinReply m = rig_join(r, 0, attempt, over);
    assert_false(m.taken);
    assert_int_equal(m.granted, number);
}

static void taken(struct rig *r, uint64_t attempt, uint32_t over, uint32_t number)
{
    Longhaul__V1__JoinReply m = rig_join(r, 0, attempt, over);
    assert_true(m.taken);
    assert_int_equal(m.granted, number);
}

// Returns whether the coordinator accepts this number as the worker's incarnation.
static bool in_force(struct rig *r, uint32_t number)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    ProtobufCMessage *answer;
    m.worker = lh_worker_id(&r->w[0].self);
    m.incarnation = (uint64_t)number << 32;
    assert_int_equal(rig_ask(r, r->to_c[0], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    bool known = !((Longhaul__V1__LeaseReply *)answer)->unknown;
    rig_free_message(answer);
    return known;
}

RIG_TEST(a_late_join_of_an_earlier_life_fences_nobody, struct rig *r)
{
    rig_start_coordinator(r);
    granted(r, 11, 0, 1);
    taken(r, 22, 0, 1); // its directory is lost: it learns which number it replaces
    granted(r, 22, 1, 2);
    taken(r, 33, 0, 2); // an unanswered join of a life between those two arrives late
    taken(r, 33, 1, 2);
    assert_true(in_force(r, 2));
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    taken(r, 33, 1, 2);
    assert_true(in_force(r, 2));
}

RIG_TEST(a_late_join_that_comes_first_is_replaced, struct rig *r)
{
    rig_start_coordinator(r);
    granted(r, 11, 0, 1);
    taken(r, 33, 0, 1);
    granted(r, 22, 1, 2); // a late join: nobody hears its answer
    taken(r, 33, 1, 2);
    granted(r, 33, 2, 3);
    assert_true(in_force(r, 3));
}

RIG_TEST(a_repeated_join_gets_the_same_number, struct rig *r)
{
    rig_start_coordinator(r);
    granted(r, 11, 0, 1);
    granted(r, 11, 0, 1);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    granted(r, 11, 0, 1);
}

// Two processes run at the same time: the first one never heard its number.
RIG_TEST(a_repeated_join_does_not_hear_the_number_that_replaced_its_own, struct rig *r)
{
    rig_start_coordinator(r);
    granted(r, 11, 0, 1);
    granted(r, 22, 1, 2);
    taken(r, 11, 0, 2);
    granted(r, 22, 1, 2);
}

TEST(a_number_that_was_granted_is_known_after_a_power_cut)
{
    for (uint64_t seed = 1; seed <= 6; seed++) { // a power cut's losses are random
        struct rig *r = rig_new(seed);
        rig_start_coordinator(r);
        for (uint32_t number = 1; number <= 3; number++) {
            granted(r, 11 * number, number - 1, number);
            granted(r, 11 * number, number - 1, number); // its answer was lost
            lh_fake_kill(r->c.env, true);
            rig_kill_coordinator(r);
            rig_start_coordinator(r);
            assert_true(in_force(r, number));
            granted(r, 11 * number, number - 1, number);
        }
        rig_free(r);
    }
}

// A worker that only learned which number it replaces holds nothing yet, but an operator may drain
// it. The store must have its row, or a restarted coordinator could not tell which worker is
// drained.
RIG_TEST(one_that_was_granted_nothing_is_known_and_leases_nothing, struct rig *r)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *named;
    rig_start_coordinator(r);
    taken(r, 11, 4, 0);
    assert_false(in_force(r, 0));
    m.worker = r->w[0].self.name;
    assert_int_equal(ps_co_drain(r->coordinator, &m, &named), LH_OK);
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(r->coordinator->workers, 1);
    assert_true(ps_co_leaving(r->coordinator, &r->coordinator->worker[0]));
    granted(r, 22, 0, 1);
    assert_true(in_force(r, 1));
}

// Numbers only rise, so a worker that claimed the highest one would leave none for later joins
// (server/docs/0000-protocol.md#rule-35).
RIG_TEST(nobody_s_word_takes_the_last_number, struct rig *r)
{
    Longhaul__V1__JoinRequest m;
    Longhaul__V1__Wire wire;
    rig_start_coordinator(r);
    granted(r, 11, 0, 1);
    rig_join_request(r, 0, &wire, &m);
    m.fresh = false;
    m.incarnation = (uint64_t)UINT32_MAX << 32;
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_JOIN, &m.base), LH_ERR_FENCED);
    assert_int_equal(r->coordinator->worker[0].granted, 1);
    m.incarnation = UINT64_C(7) << 32; // as after the coordinator lost its store
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_JOIN, &m.base), LH_OK);
    m.incarnation = UINT64_C(1) << 63; // the highest number that is accepted
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_JOIN, &m.base), LH_OK);
    m.incarnation += UINT64_C(1) << 32;
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_JOIN, &m.base), LH_ERR_FENCED);
    assert_int_equal(r->coordinator->worker[0].granted, UINT32_C(1) << 31);
    r->coordinator->worker[0].granted = UINT32_MAX;
    rig_join_request(r, 22, &wire, &m);
    m.over = UINT32_MAX;
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_JOIN, &m.base), LH_ERR_FENCED);
    assert_int_equal(r->coordinator->worker[0].granted, UINT32_MAX);
}

// Otherwise each such join would make the worker live and then lost again, with two log lines.
RIG_TEST(a_join_that_was_granted_nothing_brings_nobody_back, struct rig *r)
{
    rig_start_coordinator(r);
    granted(r, 11, 0, 1);
    r->coordinator->conf.worker_timeout_ns = LH_SECOND;
    for (int i = 0; i < 600 && r->coordinator->worker[0].live; i++) rig_run(r, 100 * LH_MS);
    assert_false(r->coordinator->worker[0].live);
    rig_boot_standby(r);
    struct lh_log *log = r->coordinator->conf.log = rig_log_lines(r);
    taken(r, 22, 0, 1);
    assert_int_equal(rig_said(r, "join.taken"), 1);
    assert_int_equal(rig_said(r, "worker.lost"), 0);
    assert_false(r->coordinator->worker[0].live);
    for (uint64_t i = 0; i < 60; i++) taken(r, 100 + i, 0, 1);
    assert_in_range(rig_said(r, "join.taken"), 1, 30);
    granted(r, 22, 1, 2);
    assert_true(r->coordinator->worker[0].live);
    r->coordinator->conf.log = NULL;
    lh_log_close(log);
}
