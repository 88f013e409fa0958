// The outer optimizers: each rule against a second implementation, the guard, and saved state.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/state/incoming.h"
#include "tests/test.h"

enum { N = 600, PUSHES = 14 }; // N: values of the only shard
static const uint8_t JOB[LH_JOB_BYTES] = {1, 2, 3};
static const struct lk_codec EXACT = {
    .index = LK_INDEX_DENSE, .value = LK_VALUE_FP32, .density = 1};

struct fixture {
    struct lh_manifest manifest;
    struct lk_replica replica;
};

static int make(void **state)
{
    static const uint64_t shape[1][5] = {{N}};
    static const char *const name[1] = {"a.weight"};
    struct fixture *f = calloc(1, sizeof *f);
    if (!f || lh_manifest_build(&f->manifest, 1, name, shape, 1, NULL)) return -1;
    if (lk_replica_create(&f->replica, JOB, &f->manifest, 0, NULL)) return -1;
    for (int i = 0; i < N; i++) f->replica.theta[i] = 0.01f * (float)i;
    *state = f;
    return 0;
}

static int unmake(void **state)
{
    struct fixture *f = *state;
    lk_replica_free(&f->replica);
    lh_manifest_free(&f->manifest);
    free(f);
    return 0;
}

static struct lh_plan plan_of(uint64_t number, uint8_t optimizer, float momentum, uint32_t every)
{
    return (struct lh_plan){.number = number,
                            .phase = LH_PHASE_RUN,
                            .eta = 1,
                            .live = 2,
                            .worker = {3, 4},
                            .optimizer = optimizer,
                            .momentum = momentum,
                            .outer_every = every};
}

static lh_err put_plan(struct lk_replica *r, const struct lh_plan *plan)
{
    struct lh_buf b = lh_buf(1 << 16);
    lh_plan_write(plan, &b);
    struct lh_record record = {.kind = LH_PLAN, .body = lh_buf_span(&b)};
    lh_ledger_next(&r->ledger, &record);
    lh_err err = lk_replica_apply(r, &record);
    lh_buf_free(&b);
    return err;
}

// Value i of push k: mostly a direction common to all pushes, plus a part of its own.
static float value(int k, int i)
{
    return 0.5f + 0.25f * (float)((k * 7 + i * 3) % 11 - 5);
}

static void push_values(struct lk_replica *r, const float *q, float scale)
{
    float e[N];
    struct lh_buf b = lh_buf(1 << 20);
    struct lk_payload_info info;
    memcpy(e, q, sizeof e);
    assert_int_equal(lk_encode(&EXACT, r->layout, e, &b, &info), LH_OK);
    assert_int_equal(lk_outer_fold(&r->outer, &r->ledger.plan, &EXACT, r->layout, lh_buf_span(&b),
                                   scale, r->theta),
                     LH_OK);
    lh_buf_free(&b);
}

static void push(struct lk_replica *r, int k)
{
    float q[N];
    for (int i = 0; i < N; i++) q[i] = value(k, i);
    push_values(r, q, 0.25f);
}

// ---------------------------------------------------------------- the rules

#define CASE(name, parameter) TEST_WITH(name, parameter, make, unmake)

CASE(sgd_is_the_plain_fold_and_keeps_nothing, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    float want[N];
    for (int i = 0; i < N; i++) {
        want[i] = r->theta[i];
        for (int k = 0; k < 3; k++) want[i] -= 0.25f * value(k, i);
    }
    for (int k = 0; k < 3; k++) push(r, k);
    assert_memory_equal(r->theta, want, sizeof want);
    struct lh_buf b = lh_buf(1 << 10);
    lk_outer_write(&r->outer, &b);
    assert_int_equal(b.len, 0);
    lh_buf_free(&b);
}

// A step of many values runs in parts on several threads; each value is as if computed alone.
CASE(parts_of_a_step_leave_no_value_out, struct fixture *f)
{
    enum { MANY = (2 << 20) + 5 };
    const float mu = 0.9f;
    float e[N] = {0};
    struct lh_buf b = lh_buf(1 << 20);
    struct lk_payload_info info;
    assert_int_equal(lk_encode(&EXACT, f->replica.layout, e, &b, &info), LH_OK);
    float *u = malloc(MANY * sizeof *u), *m = malloc(MANY * sizeof *m);
    float *theta = malloc(MANY * sizeof *theta);
    assert_true(u && m && theta);
    const uint8_t kind = LH_OPT_DELAYED_NESTEROV;
    for (int i = 0; i < MANY; i++) {
        u[i] = value(1, i);
        m[i] = value(2, i);
        theta[i] = value(3, i);
    }
    const struct lk_outer_late late = {kind, kind, false, true, false, mu};
    const struct lk_outer arrays = {.kind = kind, .values = MANY, .u = u, .m = m};
    lk_outer_repeat(&late, &EXACT, f->replica.layout, lh_buf_span(&b), 1, MANY, &arrays, theta);
    uint64_t wrong = 0;
    for (int i = 0; i < MANY; i++) {
        float next = mu * value(2, i) + value(1, i);
        wrong += u[i] != 0 || m[i] != next || theta[i] != value(3, i) - mu * next;
    }
    assert_int_equal(wrong, 0);
    free(u);
    free(m);
    free(theta);
    lh_buf_free(&b);
}

// The rule of outer.h in fp64, one value at a time.
static double reference(float mu, uint32_t every, int pushes, int i)
{
    double theta = (double)(0.01f * (float)i), u = 0, m = 0;
    uint32_t held = 0;
    for (int k = 0; k < pushes; k++) {
        double g = 0.25 * (double)value(k, i);
        theta -= g;
        u += g;
        if (++held < every) continue;
        m = (double)mu * m + u;
        theta -= (double)mu * m;
        u = held = 0;
    }
    return theta;
}

CASE(the_rule_is_what_its_page_says, struct fixture *f)
{
    static const struct {
        float mu;
        // every: 0 takes one push of each live worker; means: pushes per step
        uint32_t every, means;
    } rules[] = {{0.5f, 0, 2}, {0.9f, 1, 1}, {0, 4, 4}, {0.75f, 3, 3}};
    for (size_t c = 0; c < LH_COUNT(rules); c++) {
        struct lk_replica r;
        assert_int_equal(lk_replica_create(&r, JOB, &f->manifest, 0, NULL), LH_OK);
        memcpy(r.theta, f->replica.theta, N * sizeof(float));
        struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, rules[c].mu, rules[c].every);
        assert_int_equal(put_plan(&r, &plan), LH_OK);
        for (int k = 0; k < PUSHES; k++) {
            push(&r, k);
            for (int i = 0; i < N; i += 97) {
                double want = reference(rules[c].mu, rules[c].means, k + 1, i);
                assert_true(fabs((double)r.theta[i] - want) < 1e-4);
            }
        }
        assert_int_equal(r.outer.steps, PUSHES / rules[c].means);
        lk_replica_free(&r);
    }
}

// Closing the run or changing the optimizer drops the pending sum that no step has taken: its
// pushes have moved the parameters already.
CASE(another_optimizer_begins_anew, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, 0.5f, 3);
    assert_int_equal(put_plan(r, &plan), LH_OK);
    float before = r->theta[5];
    for (int k = 0; k < 2; k++) push(r, k);
    assert_true(r->outer.u[5] != 0);
    plan.number = 2;
    plan.phase = LH_PHASE_CLOSE;
    assert_int_equal(put_plan(r, &plan), LH_OK);
    assert_true(r->outer.u[5] == 0 && r->outer.pending == 0);
    plan = plan_of(3, LH_OPT_SGD, 0, 0);
    assert_int_equal(put_plan(r, &plan), LH_OK);
    assert_true(r->theta[5] == before - 0.25f * value(0, 5) - 0.25f * value(1, 5));
    assert_null(r->outer.u);
    assert_null(r->outer.m);
    plan = plan_of(4, LH_OPT_DELAYED_NESTEROV, 0.5f, 1);
    assert_int_equal(put_plan(r, &plan), LH_OK);
    assert_int_equal(r->outer.steps, 0);
    assert_true(r->outer.m[5] == 0);
}

// ---------------------------------------------------------------- the guard

static void run_guarded(struct lk_replica *r, bool turning, float bound)
{
    struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, 0.9f, 1);
    plan.effective_step_max = bound;
    assert_int_equal(put_plan(r, &plan), LH_OK);
    for (int k = 0; k < 30; k++) {
        float q[N];
        for (int i = 0; i < N; i++) q[i] = turning && k % 2 ? -value(0, i) : value(0, i);
        push_values(r, q, 0.5f);
    }
}

CASE(a_lasting_direction_lowers_the_momentum, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    run_guarded(r, false, 1.5f);
    assert_true(r->outer.rho > 0.99);
    assert_true(fabs((double)r->outer.momentum - 1.0 / 3) < 0.01);
    assert_true(1 / (1 - (double)r->outer.momentum * r->outer.rho) < 1.5 + 1e-6);
}

CASE(a_turning_one_leaves_it, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    run_guarded(r, true, 1.5f);
    assert_true(r->outer.rho < 0);
    assert_true(r->outer.momentum == 0.9f);
}

CASE(no_bound_no_guard, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    run_guarded(r, false, 0);
    assert_true(r->outer.momentum == 0.9f);
}

CASE(a_rate_above_the_bound_leaves_no_momentum, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, 0.9f, 1);
    plan.effective_step_max = 0.5f;
    assert_int_equal(put_plan(r, &plan), LH_OK);
    for (int k = 0; k < 3; k++) push(r, 0);
    assert_true(r->outer.momentum == 0);
}

// ---------------------------------------------------------------- state

CASE(state_goes_on_bit_for_bit_from_a_saved_copy, struct fixture *f)
{
    struct lk_replica *r = &f->replica, other;
    struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, 0.5f, 3);
    plan.effective_step_max = 1.5f;
    assert_int_equal(put_plan(r, &plan), LH_OK);
    for (int k = 0; k < 8; k++) push(r, k); // 8 pushes end between two steps
    struct lh_buf b = lh_buf(1 << 20);
    assert_int_equal(lk_replica_save(r, &b), LH_OK);
    assert_true(b.len <= lk_replica_bytes_max(r->layout));
    assert_int_equal(lk_replica_create(&other, JOB, &f->manifest, 0, NULL), LH_OK);
    for (size_t cut = 1; cut < 4 * N * sizeof(float) && cut < b.len; cut += 61)
        assert_int_equal(lk_replica_load(&other, lh_span(b.data, b.len - cut)), LH_ERR_MALFORMED);
    assert_int_equal(other.outer.kind, LH_OPT_SGD);
    assert_int_equal(lk_replica_load(&other, lh_buf_span(&b)), LH_OK);
    for (int k = 8; k < PUSHES; k++) {
        push(r, k);
        push(&other, k);
        struct lh_hash mine = lk_replica_digest(r), theirs = lk_replica_digest(&other);
        assert_true(lh_hash_equal(&mine, &theirs));
    }
    lk_replica_free(&other);
    lh_buf_free(&b);
}

// Delivers `each` bytes at a time: in order until the parameters' place is known, then from the end
// backwards.
static lh_err arrive_backwards(struct lk_replica *r, struct lh_span state, size_t each)
{
    struct lk_incoming in = {0};
    size_t first = 0;
    lh_err err = lk_incoming_begin(&in, r, state.len);
    assert_int_equal(lk_incoming_put(&in, r, 8, lh_span(state.data + 8, 8)), LH_ERR_MALFORMED);
    for (; !err && !in.theta; first += each)
        err = lk_incoming_put(&in, r, first, lh_span(state.data + first, each));
    for (size_t at = state.len; !err && at > first;) {
        size_t n = at - first < each ? at - first : each;
        at -= n;
        err = lk_incoming_put(&in, r, at, lh_span(state.data + at, n));
        assert_int_equal(in.have, first + state.len - at);
    }
    assert_int_equal(lk_incoming_put(&in, r, state.len, lh_span(state.data, 1)), LH_ERR_MALFORMED);
    if (!err) err = lk_incoming_take(&in, r);
    lk_incoming_free(&in);
    return err;
}

// Delivers all but the last `cut` bytes, in pieces of `piece` bytes.
static lh_err arrive(struct lk_replica *r, struct lh_span state, size_t cut, size_t piece)
{
    struct lk_incoming in = {0};
    lh_err err = LH_OK;
    err = lk_incoming_begin(&in, r, state.len);
    state.len -= cut;
    for (size_t at = 0; at < state.len && !err; at += piece) {
        size_t n = state.len - at < piece ? state.len - at : piece;
        err = lk_incoming_put(&in, r, at, lh_span(state.data + at, n));
    }
    if (!err) err = lk_incoming_take(&in, r);
    lk_incoming_free(&in);
    return err;
}

CASE(state_arrives_in_pieces_cut_anywhere, struct fixture *f)
{
    struct lk_replica *r = &f->replica, other;
    struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, 0.5f, 3);
    struct lh_hash is, before, whole;
    for (int k = 0; k < 2; k++) { // first a state without optimizer arrays, then one with them
        if (k) assert_int_equal(put_plan(r, &plan), LH_OK);
        for (int i = 0; i < 8; i++) push(r, i);
        struct lh_buf b = lh_buf(1 << 20);
        assert_int_equal(lk_replica_save(r, &b), LH_OK);
        whole = lk_replica_digest(r);
        for (size_t piece = 1; piece < b.len + 300; piece += 1 + piece / 2) {
            assert_int_equal(lk_replica_create(&other, JOB, &f->manifest, 0, NULL), LH_OK);
            before = lk_replica_digest(&other);
            for (size_t cut = 1; cut < b.len; cut += 997)
                assert_int_equal(arrive(&other, lh_buf_span(&b), cut, piece), LH_ERR_MALFORMED);
            is = lk_replica_digest(&other);
            assert_true(lh_hash_equal(&is, &before)); // a truncated state changed nothing
            assert_int_equal(arrive(&other, lh_buf_span(&b), 0, piece), LH_OK);
            is = lk_replica_digest(&other);
            assert_true(lh_hash_equal(&is, &whole));
            if (piece <= b.len / 4)
                assert_int_equal(arrive_backwards(&other, lh_buf_span(&b), piece), LH_OK);
            is = lk_replica_digest(&other);
            assert_true(lh_hash_equal(&is, &whole));
            lk_replica_free(&other);
        }
        lh_put_u8(&b, 0);
        assert_int_equal(arrive(r, lh_buf_span(&b), 0, 64), LH_ERR_MALFORMED);
        lh_buf_free(&b);
    }
}

CASE(an_incoming_state_of_noise_is_refused, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    struct lk_incoming in = {0};
    static uint8_t noise[1 << 16];
    memset(noise, 0xa5, sizeof noise);
    lh_err err = LH_OK;
    size_t put = 0, most = lk_replica_bytes_max(r->layout);
    assert_int_equal(lk_incoming_begin(&in, r, most + 1), LH_ERR_TOO_LARGE);
    assert_int_equal(lk_incoming_begin(&in, r, most), LH_OK);
    for (; !err && put < most; put += sizeof noise) {
        size_t n = most - put < sizeof noise ? most - put : sizeof noise;
        err = lk_incoming_put(&in, r, put, lh_span(noise, n));
    }
    assert_int_equal(err, LH_ERR_MALFORMED);
    assert_null(in.theta);
    lk_incoming_free(&in);
}

CASE(the_digest_sees_every_part_of_it, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, 0.5f, 3);
    assert_int_equal(put_plan(r, &plan), LH_OK);
    for (int k = 0; k < 4; k++) push(r, k);
    struct lh_hash was = lk_replica_digest(r), is;
    float *const part[] = {&r->outer.u[N - 1], &r->outer.m[0], &r->outer.momentum};
    for (size_t i = 0; i < LH_COUNT(part); i++) {
        float old = *part[i];
        *part[i] = old + 1;
        is = lk_replica_digest(r);
        assert_false(lh_hash_equal(&was, &is));
        *part[i] = old;
    }
    r->outer.pending++;
    is = lk_replica_digest(r);
    assert_false(lh_hash_equal(&was, &is));
}

CASE(bytes_that_are_no_state_are_refused, struct fixture *f)
{
    struct lk_replica *r = &f->replica;
    struct lh_plan plan = plan_of(1, LH_OPT_DELAYED_NESTEROV, 0.5f, 3);
    assert_int_equal(put_plan(r, &plan), LH_OK);
    push(r, 0);
    struct lh_buf b = lh_buf(1 << 20);
    assert_int_equal(lk_replica_save(r, &b), LH_OK);
    size_t at = b.len - 2 * N * sizeof(float) - 33; // the byte of the optimizer's kind
    assert_int_equal(b.data[at], LH_OPT_DELAYED_NESTEROV);
    b.data[at] = LH_OPT_DELAYED_NESTEROV + 1;
    assert_int_equal(lk_replica_load(r, lh_buf_span(&b)), LH_ERR_MALFORMED);
    assert_int_equal(r->outer.pending, 1); // unchanged
    b.data[at] = LH_OPT_DELAYED_NESTEROV;
    memset(b.data + at + 21, 255, 8); // rho = NaN
    assert_int_equal(lk_replica_load(r, lh_buf_span(&b)), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}
