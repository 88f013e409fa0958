// Decide: every branch. An error that must not consume a step is not final, one that does becomes a
// record, and a norm above the gate is scaled down to it: a refused push would come back no
// smaller, for ever.
#include "common/base/check.h"
#include "tests/unit/server/push/decide_case.h"

// ---------------------------------------------------------------- before the push is unsealed

ON_SHARD(a_push_needs_a_hello_of_its_incarnation, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    assert_now(s, &f);
    f.incarnation = NEXT; // another incarnation has the session
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    f = push_of(OTHER, 1); // the log knows it, this process does not
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    f = push_of(303, 1);
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
}

ON_SHARD(the_row_says_which_incarnation_may_push, struct ps_shard *s)
{
    struct lh_frame f = push_of(303, 1);
    assert_int_equal(ps_shard_open_session(s, 303, FIRST), LH_OK); // has a session, but no row
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    f = push_of(ME, 1);
    f.incarnation = NEXT; // has a session, but the row is of the incarnation before
    assert_int_equal(ps_shard_open_session(s, ME, NEXT), LH_OK);
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    fence(s, ME, NEXT);
    assert_now(s, &f);
    f = push_of(ME, 1); // the old incarnation, even with a session
    assert_int_equal(ps_shard_open_session(s, ME, FIRST), LH_OK);
    assert_not_final(s, &f, LH_ERR_FENCED);
    f.incarnation = (struct lh_incarnation){NEXT.number, 5}; // the same number, issued twice
    assert_int_equal(ps_shard_open_session(s, ME, f.incarnation), LH_OK);
    assert_not_final(s, &f, LH_ERR_FENCED);
}

ON_SHARD(a_step_is_decided_once, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    admit(s, ME, 1);
    assert_int_equal(step_of(s, &f).verdict, PS_DECIDED_BEFORE);
    f.tokens++; // the same step with other bytes
    assert_not_final(s, &f, LH_ERR_PROTOCOL);
    f = push_of(ME, 3);
    assert_not_final(s, &f, LH_ERR_BEHIND);
    f = push_of(ME, 2);
    assert_now(s, &f);
    admit(s, ME, 2);
    f = push_of(ME, 1);
    assert_not_final(s, &f, LH_ERR_PROTOCOL);
}

ON_SHARD(a_new_incarnation_begins_at_step_one, struct ps_shard *s)
{
    admit(s, ME, 1);
    admit(s, ME, 2);
    fence(s, ME, NEXT);
    assert_int_equal(ps_shard_open_session(s, ME, NEXT), LH_OK);
    struct lh_frame f = push_of(ME, 3);
    f.incarnation = NEXT;
    assert_not_final(s, &f, LH_ERR_BEHIND);
    f.step = 1;
    assert_now(s, &f);
}

ON_SHARD(pushes_are_taken_while_the_run_goes_on, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    static const struct {
        uint8_t phase;
        bool taken;
    } phases[] = {{LH_PHASE_WAIT, false},
                  {LH_PHASE_RUN, true},
                  {LH_PHASE_DRAIN, true},
                  {LH_PHASE_CLOSE, false},
                  {LH_PHASE_END, false}};
    for (size_t i = 0; i < LH_COUNT(phases); i++) {
        given.plan.phase = phases[i].phase;
        if (phases[i].taken)
            assert_now(s, &f);
        else
            assert_not_final(s, &f, LH_ERR_BUSY);
    }
    admit(s, ME, 1); // a decision is repeated in any phase
    assert_int_equal(step_of(s, &f).verdict, PS_DECIDED_BEFORE);
}

ON_SHARD(nothing_is_decided_once_the_shard_has_moved, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    admit(s, ME, 1);
    given.move = (struct lh_move){2, 7};
    assert_true(ps_shard_frozen(s));
    assert_int_equal(step_of(s, &f).verdict, PS_DECIDED_BEFORE); // the decision is repeated
    f = push_of(ME, 2);
    assert_not_final(s, &f, LH_ERR_BUSY);
    given.move = (struct lh_move){0};
    assert_now(s, &f);
}

// ---------------------------------------------------------------- after the push is unsealed

ON_SHARD(an_undecodable_push_is_refused, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    static const lh_err why[] = {LH_ERR_MALFORMED, LH_ERR_NON_FINITE, LH_ERR_MANIFEST};
    for (size_t i = 0; i < LH_COUNT(why); i++) {
        struct ps_decision d = value_of(s, OPEN_GATE, &f, why[i], 1);
        assert_refused(&d, why[i]);
    }
    for (uint64_t k = 1; k <= 5; k++) admit(s, OTHER, k);
    struct ps_decision d = value_of(s, OPEN_GATE, &f, LH_ERR_NON_FINITE, 1);
    assert_refused(&d, LH_ERR_NON_FINITE);
    assert_int_equal(d.staleness, 4); // the staleness is set nevertheless
}

ON_SHARD(a_push_staler_than_the_bound_is_refused, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    // one push by the only other live worker is not stale; the bound is 4 for each of the two
    for (uint64_t k = 1; k <= 9; k++) admit(s, OTHER, k);
    struct ps_decision d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_int_equal(d.staleness, 8);
    assert_scale(&d, 0.5 * pow(1 + 8, -0.5)); // eta / live * w
    admit(s, OTHER, 10);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_int_equal(d.staleness, 9);
    assert_refused(&d, LH_ERR_STALE);
    f.base_others = 1; // a fresher base
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_int_equal(d.kind, LH_ADMIT);
    f.base_others = 0; // BSP: no push is stale, and all weigh the same
    given.plan.mode = LH_MODE_BSP;
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_scale(&d, 0.5);
}

ON_SHARD(a_plan_without_live_workers_counts_one, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    given.plan.live = 0;
    struct ps_decision d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_scale(&d, 1);
    for (uint64_t k = 1; k <= 4; k++) admit(s, OTHER, k);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_scale(&d, pow(1 + 4, -0.5));
    admit(s, OTHER, 5);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_refused(&d, LH_ERR_STALE);
}

ON_SHARD(weights, struct ps_shard *s)
{
    struct ps_gate gate = {0, 1000, 100, 0};
    static const struct {
        uint64_t tokens;
        double weight;
    } by_tokens[] = {{1000, 1}, {500, 0.5}, {3000, 3}, {249, 0.25}, {0, 0.25}, {4001, 4}};
    for (size_t i = 0; i < LH_COUNT(by_tokens); i++) {
        struct lh_frame f = push_of(ME, 1);
        f.tokens = by_tokens[i].tokens;
        given.plan.weighting = LH_WEIGHT_EQUAL;
        struct ps_decision d = value_of(s, gate, &f, LH_OK, 1);
        assert_scale(&d, 0.5);
        given.plan.weighting = LH_WEIGHT_TOKENS;
        d = value_of(s, gate, &f, LH_OK, 1);
        assert_scale(&d, 0.5 * by_tokens[i].weight);
        d = value_of(s, OPEN_GATE, &f, LH_OK, 1); // nothing admitted yet: no mean to compare with
        assert_scale(&d, 0.5);
    }
    given.plan.mode = LH_MODE_BSP;
    struct lh_frame f = push_of(ME, 1);
    f.tokens = 4000;
    struct ps_decision d = value_of(s, gate, &f, LH_OK, 1);
    assert_scale(&d, 0.5);
}

ON_SHARD(an_expelled_worker_is_turned_away, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    given.plan.expelled_count = 1;
    given.plan.expelled[0] = ME;
    assert_not_final(s, &f, LH_ERR_EXPELLED);
    given.plan.expelled[0] = OTHER;
    assert_now(s, &f);
}

// ---------------------------------------------------------------- bounds of fields, and pace

ON_SHARD(a_push_says_no_more_than_it_may, struct ps_shard *s)
{
    given.epoch = 3;
    for (int i = 0; i < 5; i++) {
        struct lh_frame f = push_of(ME, 1);
        f.base_epoch = i == 0 ? 4 : i == 4 ? 2 : 3; // 2: its versions are not compared
        f.base_version = given.version + (i == 1 || i == 4);
        if (i == 2) f.tokens = (uint64_t)LH_PUSH_TOKENS_MAX + 1;
        struct ps_decision d = value_of(s, GATE, &f, LH_OK, 1);
        if (i < 3)
            assert_refused(&d, LH_ERR_BOUND);
        else
            assert_int_equal(d.kind, LH_ADMIT);
    }
}

ON_SHARD(a_push_from_before_the_end_is_refused_after_it, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    given.version = 20;
    given.plan.ends = SHARD + 1;
    given.plan.end[SHARD] = 7; // its END is version 8
    for (f.base_version = 7; f.base_version <= 9; f.base_version++) {
        struct ps_decision d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
        if (f.base_version <= 8)
            assert_refused(&d, LH_ERR_STALE);
        else
            assert_int_equal(d.kind, LH_ADMIT);
    }
    given.plan.ends = SHARD; // the plan has an end of another shard only
    f.base_version = 7;
    struct ps_decision d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_int_equal(d.kind, LH_ADMIT);
}

ON_SHARD(a_claim_waits_for_the_key_and_a_flood_for_its_turn, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    f.allowance = 1;
    assert_not_final(s, &f, LH_ERR_BUSY);
    f = push_of(ME, 1);
    s->pace.now_ns = 7;
    ps_pace_decided(s, ME);
    for (int i = 1; i < PS_PACE_BURST; i++) {
        assert_now(s, &f);
        ps_pace_decided(s, ME);
    }
    assert_not_final(s, &f, LH_ERR_BUSY);
    ps_pace_free(s);
}
