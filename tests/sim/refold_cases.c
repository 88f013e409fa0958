// The judge's fold against hand-made logs: it rejects records that no server may write, and a valid
// log gives the state that the rules demand.
#include <stdlib.h>
#include <string.h>

#include "common/format/frame.h"
#include "common/format/ledger.h"
#include "common/format/plan.h"
#include "tests/sim/refold.h"
#include "tests/test.h"

enum { VALUES = 4, WORKER = 9, OTHER = 11 };

struct log { // a fold, and the next record's body
    struct sim_fold fold;
    float theta[VALUES], q[VALUES];
    struct lh_buf body;
};

static int set_up(void **state)
{
    static const uint8_t job[LH_JOB_BYTES];
    static const struct lh_hash manifest;
    struct log *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->body = lh_buf(1 << 16);
    sim_fold_begin(&l->fold, lh_span(job, LH_JOB_BYTES), &manifest, 0, 2, l->theta, VALUES);
    *state = l;
    return 0;
}

static int tear_down(void **state)
{
    struct log *l = *state;
    lh_buf_free(&l->body);
    sim_fold_end(&l->fold);
    free(l);
    return 0;
}

static struct sim_record next(struct log *l, uint16_t kind)
{
    struct sim_record r = {.version = l->fold.version + 1,
                           .epoch = l->fold.epoch,
                           .kind = kind,
                           .scale = 0.5f,
                           .body = lh_buf_span(&l->body)};
    r.chain = sim_chain(&l->fold.chain, &r);
    return r;
}

static const char *fold(struct log *l, uint16_t kind)
{
    struct sim_record r = next(l, kind);
    return sim_fold_next(&l->fold, &r, kind == LH_ADMIT ? l->q : NULL);
}

static const char *fence(struct log *l, uint64_t worker, uint64_t number)
{
    lh_buf_clear(&l->body);
    lh_fence_write(worker, (struct lh_incarnation){number, 1}, &l->body);
    return fold(l, LH_FENCE);
}

static const char *push(struct log *l, uint16_t kind, uint64_t number, uint64_t step, uint64_t unit)
{
    struct lh_frame f = {.cipher = 1,
                         .density = 1,
                         .worker = WORKER,
                         .incarnation = {number, 1},
                         .step = step,
                         .tokens = 3,
                         .claims = 1,
                         .claim = {unit}};
    lh_buf_clear(&l->body);
    lh_frame_write_head(&f, &l->body);
    lh_put_zeros(&l->body, LH_SEAL_TAG_BYTES); // without a payload a frame equals its stub
    for (int i = 0; i < VALUES; i++) l->q[i] = 2;
    return fold(l, kind);
}

static const char *plan(struct log *l, struct lh_plan p)
{
    lh_buf_clear(&l->body);
    lh_plan_write(&p, &l->body);
    return fold(l, LH_PLAN);
}

#define FOLD_TEST(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

FOLD_TEST(pushes_count_by_incarnation_and_step, struct log *l)
{
    assert_non_null(push(l, LH_ADMIT, 1, 1, 0)); // no such worker
    assert_null(fence(l, WORKER, 1));
    assert_non_null(push(l, LH_ADMIT, 1, 2, 0));
    assert_null(push(l, LH_ADMIT, 1, 1, 0));
    assert_non_null(push(l, LH_ADMIT, 1, 1, 0)); // twice
    assert_null(push(l, LH_REFUSE, 1, 2, 0));
    assert_null(fence(l, WORKER, 2));
    assert_non_null(push(l, LH_ADMIT, 1, 3, 0)); // this incarnation is over
    assert_null(push(l, LH_ADMIT, 2, 1, 0));
    assert_non_null(fence(l, WORKER, 2));
    const struct sim_row *row = sim_fold_row(&l->fold, WORKER);
    assert_int_equal(row->admitted, 2);
    assert_int_equal(row->refused, 1);
    assert_int_equal(row->tokens, 6);
    assert_int_equal(l->fold.admitted, 2);
}

static const char *fold_bytes(struct log *l, uint16_t kind, size_t bytes)
{
    lh_buf_clear(&l->body);
    lh_put_zeros(&l->body, bytes);
    return fold(l, kind);
}

static const char *push_with(struct log *l, uint16_t kind, struct lh_frame f, size_t sealed)
{
    f.cipher = 1;
    f.density = 1;
    f.worker = WORKER;
    f.incarnation = (struct lh_incarnation){1, 1};
    f.step = 1;
    lh_buf_clear(&l->body);
    lh_frame_write_head(&f, &l->body);
    lh_put_zeros(&l->body, sealed);
    return fold(l, kind);
}

FOLD_TEST(records_of_the_wrong_form_are_none, struct log *l)
{
    assert_string_equal(fold_bytes(l, LH_FENCE, 23), "a fence of the wrong length");
    assert_string_equal(fold_bytes(l, LH_DIGEST_RECORD, 31), "a digest of the wrong length");
    assert_string_equal(fold_bytes(l, LH_MERGE, 0), "a record of an unknown kind");
    assert_non_null(fold_bytes(l, LH_PLAN, 28));
    assert_non_null(fold_bytes(l, LH_EPOCH, 15));
    assert_non_null(fold_bytes(l, LH_MOVE, 15));
    assert_non_null(fold_bytes(l, LH_ADMIT, 300));
    assert_null(fence(l, WORKER, 1));
    assert_string_equal(push_with(l, LH_REFUSE, (struct lh_frame){0}, LH_SEAL_TAG_BYTES + 1),
                        "a refusal that is not a stub");
    assert_string_equal(push_with(l, LH_ADMIT, (struct lh_frame){.shard = 1}, LH_SEAL_TAG_BYTES),
                        "a push of another shard");
    struct lh_frame claims = {.claims = 1, .claim = {SIM_FOLD_UNITS}};
    assert_string_equal(push_with(l, LH_ADMIT, claims, LH_SEAL_TAG_BYTES),
                        "a claim of a unit that is none");
}

FOLD_TEST(there_is_an_end_of_workers, struct log *l)
{
    for (uint64_t w = 1; w <= SIM_FOLD_ROWS; w++) assert_null(fence(l, w, 1));
    assert_string_equal(fence(l, SIM_FOLD_ROWS + 1, 1), "more workers than there are");
}

FOLD_TEST(a_unit_is_credited_in_one_log_by_what_was_admitted, struct log *l)
{
    assert_null(fence(l, WORKER, 1));
    assert_null(push(l, LH_REFUSE, 1, 1, 4));
    assert_false(l->fold.credited[4]);
    assert_null(push(l, LH_ADMIT, 1, 2, 4));
    assert_true(l->fold.credited[4]);
    assert_null(push(l, LH_ADMIT, 1, 3, 5)); // the other shard's
    assert_false(l->fold.credited[5]);
}

FOLD_TEST(a_log_has_one_order_and_one_history, struct log *l)
{
    assert_null(fence(l, WORKER, 1));
    struct sim_record r = next(l, LH_FENCE);
    r.version++;
    assert_string_equal(sim_fold_next(&l->fold, &r, NULL), "a version is missing");
    r = next(l, LH_FENCE);
    r.chain.b[3] ^= 1;
    assert_string_equal(sim_fold_next(&l->fold, &r, NULL), "a record of another history");
    r = next(l, LH_FENCE);
    r.epoch = 2;
    assert_string_equal(sim_fold_next(&l->fold, &r, NULL), "a record of another epoch");
}

FOLD_TEST(an_epoch_and_a_move_follow, struct log *l)
{
    assert_null(fence(l, WORKER, 1));
    lh_buf_clear(&l->body);
    lh_move_write(&(struct lh_move){5, 70}, &l->body);
    assert_null(fold(l, LH_MOVE));
    assert_string_equal(fence(l, WORKER, 2), "a record after the shard was moved");
    for (uint64_t epoch = 4; epoch < 6; epoch++) {
        lh_buf_clear(&l->body);
        lh_put_u64(&l->body, epoch);
        lh_put_u64(&l->body, 2);
        struct sim_record r = next(l, LH_EPOCH);
        r.epoch = epoch;
        r.chain = sim_chain(&l->fold.chain, &r);
        if (epoch == 4)
            assert_non_null(sim_fold_next(&l->fold, &r, NULL)); // below the reserved epoch
        else
            assert_null(sim_fold_next(&l->fold, &r, NULL));
    }
    assert_int_equal(l->fold.epoch, 5);
    assert_null(fence(l, WORKER, 2));
}

FOLD_TEST(a_plan_replaces_an_older_one, struct log *l)
{
    assert_null(plan(l, (struct lh_plan){.number = 2, .live = 2, .worker = {WORKER, OTHER}}));
    assert_non_null(plan(l, (struct lh_plan){.number = 2}));
    assert_int_equal(l->fold.plan.live, 2);
    assert_int_equal(l->fold.plan.worker[1], OTHER);
}

FOLD_TEST(sgd_moves_parameters_at_once, struct log *l)
{
    assert_null(fence(l, WORKER, 1));
    assert_null(push(l, LH_ADMIT, 1, 1, 0));
    for (int i = 0; i < VALUES; i++) assert_true(l->theta[i] == -1); // 0.5 * 2
}

// Delayed Nesterov: each push moves the parameters at once, and an outer step moves them by mu * m.
FOLD_TEST(a_delayed_nesterov_adds_momentum_at_its_steps, struct log *l)
{
    assert_null(plan(l, (struct lh_plan){.number = 1,
                                         .eta = 1,
                                         .optimizer = LH_OPT_DELAYED_NESTEROV,
                                         .momentum = 0.5f,
                                         .outer_every = 2}));
    assert_null(fence(l, WORKER, 1));
    assert_null(push(l, LH_ADMIT, 1, 1, 0));
    assert_true(l->theta[0] == -1);
    assert_null(push(l, LH_ADMIT, 1, 2, 0));
    assert_true(l->theta[0] == -3);
}
