// A sharded optimizer without a communicator: places of one process, whose slices are put together
// by hand, come to one optimizer's bits; a step that was cut off is taken, or taken back, as the
// cut says; an update that is aborted ends before its next bucket.
#include "worker/ranks/zero.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

enum { RANKS = 3, TENSORS = 4, VALUES = 9 * 1024 + 700, STEPS = 4 };

// Tensors that end within blocks, within slices, and one that is larger than a bucket.
static struct wk_param tensors[TENSORS] = {
    {.name = "a", .role = WK_MATRIX, .offset = 0, .len = 1500},
    {.name = "b", .role = WK_BIAS, .offset = 1500, .len = 7},
    {.name = "c", .role = WK_MATRIX, .offset = 1507, .len = 7000},
    {.name = "d", .role = WK_NORM, .offset = 8507, .len = VALUES - 8507},
};
static const struct wk_params params = {.at = tensors, .count = TENSORS, .values = VALUES};

static atomic_bool goes_on; // What an update looks at: false.

struct place {
    float value[VALUES], gradient[VALUES + WK_FIGURES], m[VALUES], v[VALUES];
    uint64_t steps;
    struct wk_zero *zero;
};

static float noise(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return (float)(x * 0xbf58476d1ce4e5b9u >> 40) / (float)(1 << 24) - 0.5f;
}

static void make_gradient(float *g, uint64_t step)
{
    for (uint64_t i = 0; i < VALUES; i++) g[i] = noise(step * VALUES + i);
}

static struct wk_update update_of(uint64_t step)
{
    return (struct wk_update){.rate = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .clip = 1,
                              .step = step};
}

static struct place *open_places(uint64_t bucket)
{
    struct place *p = calloc(RANKS, sizeof *p);
    assert_non_null(p);
    for (uint32_t k = 0; k < RANKS; k++) {
        for (uint64_t i = 0; i < VALUES; i++) p[k].value[i] = noise(i * 7);
        const struct wk_reduce_state s = {.value = p[k].value,
                                          .m = k ? NULL : p[k].m,
                                          .v = k ? NULL : p[k].v,
                                          .gradient = p[k].gradient,
                                          .values = VALUES,
                                          .steps = &p[k].steps,
                                          .params = &params};
        assert_int_equal(wk_zero_create(&s, k, bucket, &p[k].zero), LH_OK);
        const struct wk_region_cut cut = {.members = (1 << RANKS) - 1};
        wk_zero_cut(p[k].zero, &cut);
        assert_int_equal(wk_zero_deal(p[k].zero), LH_OK);
        p[k].zero->held[0].step = 0;
    }
    return p;
}

static void close_places(struct place *p)
{
    for (uint32_t k = 0; k < RANKS; k++) wk_zero_destroy(p[k].zero);
    free(p);
}

// Up to the point where each place has made its own slices' values.
static void make_step(struct place *p, uint64_t step)
{
    const struct wk_update u = update_of(step);
    for (uint32_t k = 0; k < RANKS; k++) {
        struct wk_zero *z = p[k].zero;
        make_gradient(p[k].gradient, step);
        for (uint64_t i = 0; i < wk_zero_buckets(z); i++) // another's slices are worth nothing
            for (uint32_t o = 0; o < RANKS; o++) {
                struct wk_zero_bucket b = wk_zero_bucket(z, i, RANKS);
                uint64_t from, n = wk_zero_slice(&b, o, &from);
                for (uint64_t v = 0; o != k && v < n; v++) p[k].gradient[from + v] = NAN;
            }
        wk_zero_prepare(z, &u, k == 0);
        assert_int_equal(wk_zero_squares(z), LH_OK);
    }
    for (uint32_t k = 0; k < RANKS; k++)
        for (uint32_t o = 0; o < RANKS; o++) {
            size_t each = p[0].zero->packed_each;
            memcpy(p[k].zero->packed + o * each, p[o].zero->packed + o * each,
                   each * sizeof(double));
        }
    for (uint32_t k = 0; k < RANKS; k++)
        assert_int_equal(wk_zero_update(p[k].zero, &goes_on), LH_OK);
}

static void gather(struct place *p)
{
    const struct wk_zero *z = p[0].zero;
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++)
        for (uint32_t o = 0; o < RANKS; o++) {
            struct wk_zero_bucket b = wk_zero_bucket(z, i, RANKS);
            uint64_t from, n = wk_zero_slice(&b, o, &from);
            for (uint32_t k = 0; k < RANKS; k++)
                memcpy(p[k].gradient + from, p[o].gradient + from, n * sizeof(float));
        }
}

// One optimizer.
static struct place *open_one(void)
{
    struct place *one = calloc(1, sizeof *one);
    assert_non_null(one);
    for (uint64_t i = 0; i < VALUES; i++) one->value[i] = noise(i * 7);
    return one;
}

static double step_one(struct place *one, uint64_t step)
{
    const struct wk_update u = update_of(step);
    const struct wk_update_arrays a = {one->gradient, one->m, one->v, one->value, NULL};
    double norm;
    make_gradient(one->gradient, step);
    assert_int_equal(wk_update_norm(&params, one->gradient, step, NULL, &norm), LH_OK);
    wk_update_apply(&u, &params, norm, &a, NULL);
    return norm;
}

static void check_moments(const struct place *p, const struct place *one, uint32_t k)
{
    const struct wk_zero *z = p[k].zero;
    uint64_t at = 0;
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, RANKS);
        uint64_t from, n = wk_zero_slice(&b, k, &from);
        assert_memory_equal(z->held[z->now].m + at, one->m + from, n * sizeof(float));
        assert_memory_equal(z->held[z->now].v + at, one->v + from, n * sizeof(float));
        at += n;
    }
}

static void places_together_are_one_optimizer(void **state)
{
    // Below a block, one and a half blocks, buckets that leave places without a slice, and one.
    static const uint64_t buckets[] = {77, 1500, 4096, 6144, VALUES, 1 << 20};
    static float before[VALUES];
    (void)state;
    for (size_t i = 0; i < LH_COUNT(buckets); i++) {
        struct place *p = open_places(buckets[i]), *one = open_one();
        for (uint64_t step = 1; step <= STEPS; step++) {
            memcpy(before, one->value, sizeof before);
            double norm = step_one(one, step);
            assert_true(norm > 1.1); // it is clipped, so the norm's bits count
            make_step(p, step);
            gather(p);
            for (uint32_t k = 0; k < RANKS; k++) {
                assert_memory_equal(&p[k].zero->norm, &norm, sizeof norm);
                assert_int_equal(wk_zero_commit(p[k].zero), LH_OK);
                assert_memory_equal(p[k].value, one->value, sizeof one->value);
                // Place 0 keeps what was there before.
                if (!k) assert_memory_equal(p[k].gradient, before, sizeof before);
                check_moments(p, one, k);
            }
        }
        close_places(p);
        free(one);
    }
}

static void every_value_has_one_owner(void **state)
{
    (void)state;
    struct place *p = open_places(4096);
    for (uint32_t ranks = 1; ranks <= WK_RANKS_MAX; ranks++) {
        uint64_t next = 0;
        for (uint64_t i = 0; i < wk_zero_buckets(p->zero); i++) {
            struct wk_zero_bucket b = wk_zero_bucket(p->zero, i, ranks);
            assert_true(ranks * b.each * sizeof(float) <= wk_zero_room(p->zero));
            for (uint32_t k = 0; k < ranks; k++) {
                uint64_t from, n = wk_zero_slice(&b, k, &from);
                assert_true(from == next && (from % WK_UPDATE_BLOCK == 0 || n == 0));
                next = from + n;
            }
        }
        assert_true(next == VALUES);
    }
    close_places(p);
}

// Places 0 and 1 made the second step's moments, 0 alone heard that it is whole. The leader counts
// it or does not: all believe the same moments then.
static void a_step_that_was_cut_off_is_taken_or_taken_back(void **state)
{
    (void)state;
    for (uint64_t counted = 1; counted <= 2; counted++) {
        struct place *p = open_places(4096), *one = open_one();
        make_step(p, 1);
        gather(p);
        for (uint32_t k = 0; k < RANKS; k++) assert_int_equal(wk_zero_commit(p[k].zero), LH_OK);
        step_one(one, 1);
        make_step(p, 2);
        gather(p);
        assert_int_equal(wk_zero_commit(p[2].zero), LH_OK); // a member, ahead of the leader
        if (counted == 2) step_one(one, 2);
        for (uint32_t k = 0; k < RANKS; k++) {
            uint64_t held[2];
            const struct wk_region_cut cut = {counted, 7, 7, 7};
            wk_zero_steps(p[k].zero, held);
            assert_true(held[0] == (k == 2 ? 2 : 1) && held[1] == (k == 2 ? 1 : 2));
            wk_zero_cut(p[k].zero, &cut);
            assert_false(p[k].zero->unlike);
            check_moments(p, one, k);
        }
        // A rank says when the leader believes moments that it never had.
        const struct wk_region_cut never = {7, 7, 7, 7}, another = {counted, 3, 3, 7};
        wk_zero_cut(p[0].zero, &never);
        assert_true(p[0].zero->unlike);
        wk_zero_cut(p[0].zero, &another);
        assert_true(p[0].zero->unlike);
        close_places(p);
        free(one);
    }
}

// A leader that is alone has its own moments at their place among the mirror's.
static void a_leader_alone_takes_its_own_over(void **state)
{
    (void)state;
    struct place *p = open_places(4096), *one = open_one();
    make_step(p, 1);
    gather(p);
    assert_int_equal(wk_zero_commit(p[0].zero), LH_OK);
    assert_false(p[0].zero->whole);
    step_one(one, 1);
    const struct wk_region_cut cut = {.step = 1, .was = 7, .holders = 1, .members = 1};
    wk_zero_cut(p[0].zero, &cut);
    assert_true(p[0].zero->whole && p[0].zero->ranks == 0);
    for (uint64_t i = 0; i < wk_zero_buckets(p->zero); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(p->zero, i, RANKS);
        for (uint32_t k = 0; k < RANKS; k++) {
            uint64_t from, n = wk_zero_slice(&b, k, &from);
            for (uint64_t v = from; v < from + n; v++)
                assert_true(p[0].m[v] == (k ? 0 : one->m[v]));
        }
    }
    close_places(p);
    free(one);
}

static void a_gradient_that_is_not_finite_is_nobodys_step(void **state)
{
    (void)state;
    struct place *p = open_places(4096), *one = open_one();
    make_step(p, 1);
    for (uint32_t k = 0; k < RANKS; k++) {
        p[k].zero->packed[3] = INFINITY;
        assert_int_equal(wk_zero_update(p[k].zero, &goes_on), LH_OK);
        assert_int_equal(wk_zero_commit(p[k].zero), LH_ERR_NON_FINITE);
        assert_memory_equal(p[k].value, one->value, sizeof one->value);
        assert_true(p[k].zero->held[p[k].zero->now].step == 0);
    }
    close_places(p);
    free(one);
}

// Its communicator is aborted: the update leaves at once, and what it has made counts for nothing.
static void an_update_that_is_aborted_is_nobodys_step(void **state)
{
    static float before[VALUES + WK_FIGURES];
    static atomic_bool stop = true;
    uint64_t held[2];
    (void)state;
    struct place *p = open_places(1024);
    make_step(p, 1);
    gather(p);
    for (uint32_t k = 0; k < RANKS; k++) assert_int_equal(wk_zero_commit(p[k].zero), LH_OK);
    make_step(p, 2);
    memcpy(before, p->gradient, sizeof before);
    assert_int_equal(wk_zero_update(p->zero, &stop), LH_ERR_CANCELLED);
    assert_memory_equal(p->gradient, before, sizeof before);
    wk_zero_steps(p->zero, held);
    assert_true(held[0] == 1 && held[1] == WK_REGION_NO_STEP);
    close_places(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_has_one_owner),
        cmocka_unit_test(places_together_are_one_optimizer),
        cmocka_unit_test(a_step_that_was_cut_off_is_taken_or_taken_back),
        cmocka_unit_test(a_leader_alone_takes_its_own_over),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_nobodys_step),
        cmocka_unit_test(an_update_that_is_aborted_is_nobodys_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
