// Decide: every branch. What may not consume a step is not final, what does is a record, and a norm
// above the gate is scaled down to it: a refusal would come back no smaller, for ever.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/push/decide.h"
#include "tests/unit/common/format/frame_case.h"

enum { SHARD = 1, SHARDS = 4, ME = 101, OTHER = 102 };
static const uint8_t JOB[LH_JOB_BYTES] = {1, 2, 3};
static const struct lh_hash MANIFEST = {{9, 8, 7}};
static const struct lh_incarnation FIRST = {UINT64_C(1) << 32, 77};
static const struct lh_incarnation NEXT = {(UINT64_C(1) << 32) + 1, 78};
static const struct ps_gate OPEN_GATE = {0, 0, 100, 0};
static const struct ps_gate GATE = {10, 0, 100, 0};

// ---------------------------------------------------------------- a shard whose head is given

static struct lh_ledger given;

static void apply(struct ps_shard *s, struct lh_record r)
{
    lh_ledger_next(s->head, &r);
    assert_int_equal(lh_ledger_apply(&given, &r), LH_OK);
}

static void fence(struct ps_shard *s, uint64_t worker, struct lh_incarnation i)
{
    struct lh_buf b = lh_buf(64);
    lh_fence_write(worker, i, &b);
    apply(s, (struct lh_record){.kind = LH_FENCE, .body = lh_buf_span(&b)});
    lh_buf_free(&b);
}

static struct lh_frame push_of(uint64_t worker, uint64_t step)
{
    struct lh_frame f = case_frame();
    f.shard = SHARD;
    f.worker = worker;
    f.incarnation = FIRST;
    f.step = step;
    f.base_version = f.base_others = 0;
    f.base_epoch = 1;
    f.claims = 0;
    f.steps = 1;
    f.allowance = 0;
    f.charged = 0;
    return f;
}

static void admit(struct ps_shard *s, uint64_t worker, uint64_t step)
{
    struct lh_frame f = push_of(worker, step);
    struct lh_buf b = case_bytes(&f);
    apply(s, (struct lh_record){.kind = LH_ADMIT,
                                .scale = 0.5f,
                                .reason = lh_record_norm_bits(&(struct lh_norm){1, false, false}),
                                .body = lh_buf_span(&b)});
    lh_buf_free(&b);
}

static struct lh_digest digest_of(const struct lh_frame *f)
{
    struct lh_buf b = case_bytes(f);
    struct lh_digest d = lh_frame_digest(lh_buf_span(&b), f);
    lh_buf_free(&b);
    return d;
}

// ME and OTHER were fenced in, ME has a session; eta 1, two are live, damping 0.5, bound 4 of each.
static int make_shard(void **state)
{
    struct ps_shard *s = calloc(1, sizeof *s);
    if (!s || lh_ledger_create(&given, JOB, &MANIFEST, SHARD, SHARDS)) return -1;
    s->id = SHARD;
    s->head = &given;
    given.plan = (struct lh_plan){.phase = LH_PHASE_RUN,
                                  .eta = 1,
                                  .damping = 0.5f,
                                  .staleness_per_live = 4,
                                  .live = 2,
                                  .worker = {ME, OTHER}};
    fence(s, ME, FIRST);
    fence(s, OTHER, FIRST);
    *state = s;
    return ps_shard_open_session(s, ME, FIRST) == LH_OK ? 0 : -1;
}

static int free_shard(void **state)
{
    struct ps_shard *s = *state;
    lh_ledger_free(&given);
    free(s);
    return 0;
}

// ---------------------------------------------------------------- before the seal is opened

static struct ps_decision step_of(const struct ps_shard *s, const struct lh_frame *f)
{
    struct ps_decision d;
    struct lh_digest digest = digest_of(f);
    ps_decide_step(s, f, &digest, &d);
    return d;
}

static void assert_not_final(const struct ps_shard *s, const struct lh_frame *f, lh_err error)
{
    struct ps_decision d = step_of(s, f);
    assert_int_equal(d.verdict, PS_NOT_FINAL);
    assert_int_equal(d.error, error);
}

static void assert_now(const struct ps_shard *s, const struct lh_frame *f)
{
    struct ps_decision d = step_of(s, f);
    assert_int_equal(d.verdict, PS_DECIDED_NOW);
    assert_int_equal(d.error, LH_OK);
}

static void a_push_needs_a_hello_of_its_incarnation(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    assert_now(s, &f);
    f.incarnation = NEXT; // another one was greeted
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    f = push_of(OTHER, 1); // known to the log, not to this process
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    f = push_of(303, 1);
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
}

static void the_row_says_which_incarnation_may_push(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(303, 1);
    assert_int_equal(ps_shard_open_session(s, 303, FIRST), LH_OK); // greeted, no row
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    f = push_of(ME, 1);
    f.incarnation = NEXT; // greeted, the row is of the one before
    assert_int_equal(ps_shard_open_session(s, ME, NEXT), LH_OK);
    assert_not_final(s, &f, LH_ERR_NEED_HELLO);
    fence(s, ME, NEXT);
    assert_now(s, &f);
    f = push_of(ME, 1); // the old one, whatever session it had
    assert_int_equal(ps_shard_open_session(s, ME, FIRST), LH_OK);
    assert_not_final(s, &f, LH_ERR_FENCED);
    f.incarnation = (struct lh_incarnation){NEXT.number, 5}; // a number that was issued twice
    assert_int_equal(ps_shard_open_session(s, ME, f.incarnation), LH_OK);
    assert_not_final(s, &f, LH_ERR_FENCED);
}

static void a_step_is_decided_once(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    admit(s, ME, 1);
    assert_int_equal(step_of(s, &f).verdict, PS_DECIDED_BEFORE);
    f.tokens++; // the same step, other bytes
    assert_not_final(s, &f, LH_ERR_PROTOCOL);
    f = push_of(ME, 3);
    assert_not_final(s, &f, LH_ERR_BEHIND);
    f = push_of(ME, 2);
    assert_now(s, &f);
    admit(s, ME, 2);
    f = push_of(ME, 1);
    assert_not_final(s, &f, LH_ERR_PROTOCOL);
}

// They move the clock of every schedule, and the mean that pushes are weighed by. What a log has
// already is answered as it was decided.
static void a_new_incarnation_begins_at_step_one(void **state)
{
    struct ps_shard *s = *state;
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

static void pushes_are_taken_while_the_run_goes_on(void **state)
{
    struct ps_shard *s = *state;
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
    admit(s, ME, 1); // what was decided is told in any phase
    assert_int_equal(step_of(s, &f).verdict, PS_DECIDED_BEFORE);
}

static void nothing_is_decided_once_the_shard_has_moved(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    admit(s, ME, 1);
    given.move = (struct lh_move){2, 7};
    assert_true(ps_shard_frozen(s));
    assert_int_equal(step_of(s, &f).verdict, PS_DECIDED_BEFORE); // what was decided is told
    f = push_of(ME, 2);
    assert_not_final(s, &f, LH_ERR_BUSY);
    given.move = (struct lh_move){0};
    assert_now(s, &f);
}

// ---------------------------------------------------------------- after it is open

static struct ps_decision value_of(const struct ps_shard *s, struct ps_gate gate,
                                   const struct lh_frame *f, lh_err opened, double norm)
{
    struct ps_decision d = {.verdict = PS_DECIDED_NOW};
    struct lk_payload_info info = {.sum_squares = norm * norm};
    ps_decide_value(s, &gate, f, opened, &info, &d);
    assert_int_equal(d.verdict, PS_DECIDED_NOW);
    return d;
}

static void assert_scale(const struct ps_decision *d, double scale)
{
    assert_int_equal(d->kind, LH_ADMIT);
    assert_int_equal(d->error, LH_OK);
    assert_true(fabs((double)d->scale - scale) <= 1e-6 * scale);
}

static void assert_refused(const struct ps_decision *d, lh_err reason)
{
    assert_int_equal(d->kind, LH_REFUSE);
    assert_int_equal(d->error, reason);
    assert_true(d->scale == 0);
}

static void what_can_not_be_opened_is_refused(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    static const lh_err why[] = {LH_ERR_MALFORMED, LH_ERR_NON_FINITE, LH_ERR_MANIFEST};
    for (size_t i = 0; i < LH_COUNT(why); i++) {
        struct ps_decision d = value_of(s, OPEN_GATE, &f, why[i], 1);
        assert_refused(&d, why[i]);
    }
    for (uint64_t k = 1; k <= 5; k++) admit(s, OTHER, k);
    struct ps_decision d = value_of(s, OPEN_GATE, &f, LH_ERR_NON_FINITE, 1);
    assert_refused(&d, LH_ERR_NON_FINITE);
    assert_int_equal(d.staleness, 4); // told all the same
}

static void a_push_staler_than_the_bound_is_refused(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    // one turn of the one other live worker is not stale; the bound is 4 for each of two
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
    f.base_others = 0; // nobody is stale in rounds, and everybody weighs the same
    given.plan.mode = LH_MODE_BSP;
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1);
    assert_scale(&d, 0.5);
}

static void a_plan_without_live_workers_counts_one(void **state)
{
    struct ps_shard *s = *state;
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

static void weights(void **state)
{
    struct ps_shard *s = *state;
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

// ---------------------------------------------------------------- the norm gate

// The server's way with a push of this norm: decided, and applied where it was admitted.
static struct ps_decision push_norm(struct ps_shard *s, uint64_t worker, uint32_t steps,
                                    double norm)
{
    const struct lh_row *row = lh_ledger_row(s->head, worker);
    struct lh_frame f = push_of(worker, row ? lh_row_step(row) + 1 : 1);
    f.base_others = lh_ledger_others(s->head, worker);
    f.steps = steps;
    struct ps_decision d = value_of(s, GATE, &f, LH_OK, norm);
    struct lh_buf b = case_bytes(&f), stub = lh_buf(1 << 10);
    lh_frame_write_stub(lh_buf_span(&b), &f, &stub);
    bool admitted = d.kind == LH_ADMIT;
    apply(s,
          (struct lh_record){.kind = d.kind,
                             .scale = d.scale,
                             .reason = admitted ? lh_record_norm_bits(&d.noted) : (uint32_t)d.error,
                             .body = lh_buf_span(admitted ? &b : &stub)});
    lh_buf_free(&b);
    lh_buf_free(&stub);
    return d;
}

static bool whole(const struct ps_decision *d)
{
    return d->kind == LH_ADMIT && !d->noted.clipped;
}

static void live(struct ps_shard *s, uint32_t workers)
{
    given.plan.live = workers;
    for (uint32_t i = 0; i < workers; i++) {
        given.plan.worker[i] = ME + i;
        if (!lh_ledger_row(s->head, ME + i)) fence(s, ME + i, FIRST);
    }
}

static void the_first_push_is_bounded_by_the_shards_own_size(void **state)
{
    struct ps_shard *s = *state;
    struct ps_decision d = push_norm(s, ME, 1, 1e30);
    assert_true(d.kind == LH_ADMIT && d.noted.clipped);
    assert_true((double)d.scale * 1e30 <= 0.5 * 100 * (1 + 1e-6));
    assert_true((double)d.noted.at_equal_h <= 4 * 100); // what it says of itself is bounded too
    d = push_norm(s, OTHER, 1, 100);
    assert_true(whole(&d));
}

// One push of 3e38: its scale would be no fp32 of full precision.
static void what_can_not_be_folded_is_refused(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    struct ps_decision d = value_of(s, GATE, &f, LH_OK, 3e42);
    assert_refused(&d, LH_ERR_TOO_LARGE);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e31); // the gate is off, the fold stays finite
    assert_refused(&d, LH_ERR_TOO_LARGE);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e30);
    assert_int_equal(d.kind, LH_ADMIT);
    given.plan.momentum = 0.9f;
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e30); // what lasts is multiplied
    assert_refused(&d, LH_ERR_TOO_LARGE);
    struct ps_gate far = {0, 0, 100, 1e37};
    d = value_of(s, far, &f, LH_OK, 1e29);
    assert_refused(&d, LH_ERR_TOO_LARGE);
}

static void a_norm_above_the_gate_is_scaled_down_to_it(void **state)
{
    struct ps_shard *s = *state;
    for (int i = 0; i < 8; i++) {
        push_norm(s, ME, 1, 20);
        push_norm(s, OTHER, 1, 22);
    }
    assert_true(given.norm_reference >= 20 && given.norm_reference <= 22);
    struct lh_frame f = push_of(ME, 9);
    f.base_others = 8;
    struct ps_decision d = value_of(s, GATE, &f, LH_OK, 190);
    assert_true(whole(&d) && d.norm == 190);
    assert_scale(&d, 0.5);
    d = value_of(s, GATE, &f, LH_OK, 800);
    assert_true(d.noted.clipped &&
                fabs((double)d.scale * 800 - 0.5 * 10 * given.norm_reference) < 1e-3);
    d = value_of(s, OPEN_GATE, &f, LH_OK, 1e6);
    assert_scale(&d, 0.5); // off
    f.base_others = 4;     // on top of the damping
    d = value_of(s, GATE, &f, LH_OK, 800);
    assert_true(fabs((double)d.scale * 800 - 0.5 * pow(1 + 3, -0.5) * 10 * given.norm_reference) <
                1e-3);
}

// Eight times the steps move eight times as far, or less. Who names more counts as eight times the
// others.
static void norms_are_compared_at_equal_steps(void **state)
{
    struct ps_shard *s = *state;
    for (int i = 0; i < 8; i++) {
        push_norm(s, ME, 1, 20);
        push_norm(s, OTHER, 4, 40);
    }
    assert_true(given.norm_reference == 20);
    struct lh_frame f = push_of(ME, 9);
    f.base_others = 8;
    f.steps = UINT32_MAX;
    double bound = ps_norm_bound(s, &GATE, &f);
    assert_true(fabs(bound - 200 * sqrt(8 * 4)) < 1e-9);
}

// One of three alone moves nothing: neither up nor down, and the others stay as they are.
static void one_of_three_does_not_move_the_reference(void **state)
{
    struct ps_shard *s = *state;
    live(s, 3);
    for (int i = 0; i < 8; i++)
        for (uint64_t w = ME; w < ME + 3; w++) push_norm(s, w, 1, 20);
    double x = 20;
    for (int i = 0; i < 200; i++) {
        struct ps_decision d = push_norm(s, ME + 2, 1, x);
        if (whole(&d)) x *= 1.5;
        d = push_norm(s, ME, 1, 20);
        assert_true(whole(&d));
        assert_true(given.norm_reference <= 20);
    }
    for (int i = 0; i < 200; i++) {
        struct ps_decision d = push_norm(s, ME + 1, 1, 1e-9);
        d = push_norm(s, ME, 1, 20);
        assert_true(whole(&d) || given.norm_reference > 0);
    }
}

// Whichever of two lies: the other's pushes go in as they are, and the liar's stay bounded.
static void one_of_two_does_not_move_the_reference(void **state)
{
    struct ps_shard *s = *state;
    double x = 1e30;
    push_norm(s, OTHER, 1, x); // the liar comes first
    for (int i = 0; i < 100; i++) {
        struct ps_decision d = push_norm(s, ME, 1, 20);
        assert_true(whole(&d));
        d = push_norm(s, OTHER, 1, x);
        assert_true(d.kind == LH_REFUSE || (double)d.scale * x <= 0.5 * 200 * (1 + 1e-6));
    }
    assert_true(given.norm_reference == 20);
}

static void next_to_nothing_does_not_shut_the_other_out(void **state)
{
    struct ps_shard *s = *state;
    push_norm(s, OTHER, 1, 1e-12);
    for (int i = 0; i < 100; i++) {
        struct ps_decision d = push_norm(s, ME, 1, 3); // 3 % of the shard
        assert_true(whole(&d));
        d = push_norm(s, ME, 1, 30); // clipped, and never set aside
        assert_int_equal(d.kind, LH_ADMIT);
        assert_false(d.noted.outlier);
        push_norm(s, OTHER, 1, 1e-12);
    }
}

static void the_reference_grows_by_a_bounded_factor(void **state)
{
    struct ps_shard *s = *state;
    for (int i = 0; i < 8; i++) {
        push_norm(s, ME, 1, 1);
        push_norm(s, OTHER, 1, 1);
    }
    for (int i = 0; i < 4; i++) { // all at once, as in a warm-up: their medians are there
        double before = given.norm_reference;
        push_norm(s, ME, 1, 9);
        push_norm(s, OTHER, 1, 9);
        assert_true(given.norm_reference <= before * 1.25 * 1.25 * (1 + 1e-12));
    }
    for (int i = 0; i < 20; i++) {
        push_norm(s, ME, 1, 9);
        push_norm(s, OTHER, 1, 9);
    }
    assert_true(given.norm_reference == 9);
}

// All grow together and are clipped for a while: nobody is an outlier.
static void who_grows_with_the_others_is_not_set_aside(void **state)
{
    struct ps_shard *s = *state;
    live(s, 3);
    double x = 1;
    for (int i = 0; i < 60; i++, x *= 1.6)
        for (uint64_t w = ME; w < ME + 3; w++) {
            struct ps_decision d = push_norm(s, w, 1, x);
            assert_int_equal(d.kind, LH_ADMIT);
            assert_false(d.noted.outlier);
        }
}

static void after_ten_outliers_a_worker_is_set_aside_until_it_is_let_back(void **state)
{
    struct ps_shard *s = *state;
    live(s, 3);
    for (int i = 0; i < 8; i++)
        for (uint64_t w = ME; w < ME + 3; w++) push_norm(s, w, 1, 1);
    struct ps_decision d = {0};
    for (int i = 0; i < LH_OUTLIERS_MAX - 1; i++) push_norm(s, ME, 1, 1e6);
    d = push_norm(s, ME, 1, 1); // one that is in order: the count begins anew
    assert_true(whole(&d));
    for (int i = 0; i < LH_OUTLIERS_MAX; i++) {
        d = push_norm(s, ME, 1, 1e6);
        assert_true(d.kind == LH_ADMIT && d.noted.outlier);
    }
    d = push_norm(s, ME, 1, 1);
    assert_refused(&d, LH_ERR_SET_ASIDE);
    d = push_norm(s, OTHER, 1, 1);
    assert_true(whole(&d));
    struct lh_plan *plan = malloc(sizeof *plan);
    *plan = given.plan;
    plan->number++;
    plan->lets_back = 1;
    plan->let_back[0] = (struct lh_let_back){ME, 1};
    for (int i = 0; i < 2; i++, plan->number++) { // the same word twice lets it back once
        struct lh_buf b = lh_buf(LH_SMALL_BYTES);
        lh_plan_write(plan, &b);
        apply(s, (struct lh_record){.kind = LH_PLAN, .body = lh_buf_span(&b)});
        lh_buf_free(&b);
        d = push_norm(s, ME, 1, 1);
        assert_true(i == 0 ? whole(&d) : d.error == LH_ERR_SET_ASIDE);
        for (int k = 0; k < LH_OUTLIERS_MAX; k++) push_norm(s, ME, 1, 1e6);
    }
    free(plan);
}

static void an_expelled_worker_is_turned_away(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    given.plan.expelled_count = 1;
    given.plan.expelled[0] = ME;
    assert_not_final(s, &f, LH_ERR_EXPELLED);
    given.plan.expelled[0] = OTHER;
    assert_now(s, &f);
}

// Empty pushes of those that have nothing to train make no outlier of one that trains.
static void who_trains_nothing_says_nothing_of_norms(void **state)
{
    struct ps_shard *s = *state;
    live(s, 3);
    for (int i = 0; i < 8; i++)
        for (uint64_t w = ME; w < ME + 3; w++) push_norm(s, w, 1, 1);
    for (int i = 0; i < 30; i++) {
        push_norm(s, ME, 0, 1e-3);
        push_norm(s, OTHER, 1, 0);
        struct ps_decision d = push_norm(s, ME + 2, 1, 1);
        assert_true(whole(&d));
    }
}

// One that was always far too large is set aside by one other voice; one whose data make larger
// pushes is not, whatever its H.
static void one_of_two_that_was_always_too_large_is_set_aside(void **state)
{
    struct ps_shard *s = *state;
    struct ps_decision d = {0};
    for (int i = 0; i < 3 * LH_OUTLIERS_MAX; i++) {
        d = push_norm(s, OTHER, 1, 2e3);
        struct ps_decision honest = push_norm(s, ME, 1, 1);
        assert_true(whole(&honest));
    }
    assert_refused(&d, LH_ERR_SET_ASIDE);
}

static void one_of_two_with_other_data_is_not_set_aside(void **state)
{
    struct ps_shard *s = *state;
    for (int i = 0; i < 3 * LH_OUTLIERS_MAX; i++) {
        struct ps_decision d = push_norm(s, OTHER, i % 2 ? 1 : 64, 40);
        assert_int_equal(d.kind, LH_ADMIT);
        assert_false(d.noted.outlier);
        d = push_norm(s, ME, 1, 1);
        assert_true(whole(&d));
    }
}

// One that says that its pushes stand for no step is no voice. It does not keep the first bound, which
// is the shard's size.
static void no_steps_do_not_keep_the_first_bound(void **state)
{
    struct ps_shard *s = *state;
    for (int i = 0; i < 60; i++) {
        struct ps_decision d = push_norm(s, OTHER, 0, 90);
        double moved = (double)d.scale * 90;
        assert_true(moved <= (i < LH_NORMS ? 0.5 * 90 : 0.5 * 10) * (1 + 1e-6));
        d = push_norm(s, ME, 1, 1);
        assert_true(whole(&d));
    }
    assert_true(given.norm_reference == 1);
}

// The one voice beside it moves the reference alone, and then the shard's size bounds it still.
static void one_voice_beside_silence_is_bounded_by_the_shards_size(void **state)
{
    struct ps_shard *s = *state;
    double x = 1;
    for (int i = 0; i < LH_NORMS; i++) push_norm(s, OTHER, 0, 0);
    for (int i = 0; i < 200; i++) {
        struct ps_decision d = push_norm(s, ME, 1, x);
        assert_true((double)d.scale * x <= 0.5 * 100 * (1 + 1e-6));
        if (whole(&d)) x *= 1.5;
    }
    assert_true(given.norm_reference > 10);
}

static void a_worker_without_a_row_is_compared_too(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME + 7, 1);
    struct ps_decision d;
    for (int i = 0; i < LH_NORMS; i++) { // the first pushes of a worker are small
        push_norm(s, OTHER, 1, 1);
        d = value_of(s, GATE, &f, LH_OK, 1e4);
        assert_int_equal(d.noted.outlier, i == LH_NORMS - 1);
    }
    d = value_of(s, GATE, &f, LH_OK, 500); // large, and within what the shard's own size explains
    assert_true(d.noted.clipped && !d.noted.outlier);
    push_norm(s, ME, 1, 1e4);
    f = push_of(ME, 2);
    d = value_of(s, GATE, &f, LH_OK, 2e3); // as its own last push, which says nothing for it
    assert_true(d.noted.outlier);
    struct ps_gate huge = {10, 0, 1e40, 0};
    given.norm_reference = 1e39;
    d = value_of(s, huge, &f, LH_OK, 1e39);
    assert_true(d.noted.at_equal_h >= FLT_MAX);
}

// ---------------------------------------------------------------- what it says, and how often

static void a_push_says_no_more_than_it_may(void **state)
{
    struct ps_shard *s = *state;
    given.epoch = 3;
    for (int i = 0; i < 5; i++) {
        struct lh_frame f = push_of(ME, 1);
        f.base_epoch = i == 0 ? 4 : i == 4 ? 2 : 3; // 2: no version of it is compared
        f.base_version = given.version + (i == 1 || i == 4);
        if (i == 2) f.tokens = (uint64_t)LH_PUSH_TOKENS_MAX + 1;
        struct ps_decision d = value_of(s, GATE, &f, LH_OK, 1);
        if (i < 3)
            assert_refused(&d, LH_ERR_BOUND);
        else
            assert_int_equal(d.kind, LH_ADMIT);
    }
}

static void a_claim_waits_for_the_key_and_a_flood_for_its_turn(void **state)
{
    struct ps_shard *s = *state;
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

// A worker whose push was too large sends it again with what it made meanwhile: it must get in.
static void no_norm_is_refused(void **state)
{
    struct ps_shard *s = *state;
    struct lh_frame f = push_of(ME, 1);
    for (int i = 0; i < 2; i++) {
        for (double n = 1; n < 1e12; n *= 3) {
            struct ps_decision d = value_of(s, GATE, &f, LH_OK, n);
            assert_int_equal(d.kind, LH_ADMIT);
            assert_true((double)d.scale * n <= 0.5 * 100 * (1 + 1e-6));
        }
        push_norm(s, OTHER, 1, 1);
        f.base_others = 1;
    }
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_shard, free_shard)
    const struct CMUnitTest tests[] = {
        TEST(a_push_needs_a_hello_of_its_incarnation),
        TEST(the_row_says_which_incarnation_may_push),
        TEST(a_step_is_decided_once),
        TEST(a_new_incarnation_begins_at_step_one),
        TEST(pushes_are_taken_while_the_run_goes_on),
        TEST(nothing_is_decided_once_the_shard_has_moved),
        TEST(what_can_not_be_opened_is_refused),
        TEST(a_push_staler_than_the_bound_is_refused),
        TEST(a_plan_without_live_workers_counts_one),
        TEST(weights),
        TEST(the_first_push_is_bounded_by_the_shards_own_size),
        TEST(what_can_not_be_folded_is_refused),
        TEST(a_norm_above_the_gate_is_scaled_down_to_it),
        TEST(norms_are_compared_at_equal_steps),
        TEST(one_of_three_does_not_move_the_reference),
        TEST(one_of_two_does_not_move_the_reference),
        TEST(next_to_nothing_does_not_shut_the_other_out),
        TEST(the_reference_grows_by_a_bounded_factor),
        TEST(who_grows_with_the_others_is_not_set_aside),
        TEST(after_ten_outliers_a_worker_is_set_aside_until_it_is_let_back),
        TEST(an_expelled_worker_is_turned_away),
        TEST(who_trains_nothing_says_nothing_of_norms),
        TEST(one_of_two_that_was_always_too_large_is_set_aside),
        TEST(one_of_two_with_other_data_is_not_set_aside),
        TEST(no_steps_do_not_keep_the_first_bound),
        TEST(one_voice_beside_silence_is_bounded_by_the_shards_size),
        TEST(a_worker_without_a_row_is_compared_too),
        TEST(a_push_says_no_more_than_it_may),
        TEST(a_claim_waits_for_the_key_and_a_flood_for_its_turn),
        TEST(no_norm_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
