// Compares a region's trainer with a trainer of one process, step by step, each step from the same
// state; and the other ranks, which are processes.
#ifndef TEST_COMPARE_STEP_H
#define TEST_COMPARE_STEP_H

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "common/env/env.h"
#include "tests/unit/worker/train/trainer_case.h"
#include "worker/ranks/rank.h"

enum { ACCUMULATE = 2 };

// Norm of the difference, relative to the norm.
static double apart(size_t n, const float *a, const float *b)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

// Relative difference of the first moments (sums of gradients), which follow 96 bytes of header in
// a saved optimizer state.
static double moments_apart(const struct lh_buf *a, const struct lh_buf *b, size_t values)
{
    return apart(values, (const float *)(const void *)(a->data + 96),
                 (const float *)(const void *)(b->data + 96));
}

// Takes one step with both from the same state and compares the results.
static void compare_a_step(struct wk_trainer *ranks, struct wk_trainer *one, uint64_t number,
                           size_t values)
{
    struct lh_buf a = lh_buf(1 << 24), b = lh_buf(1 << 24);
    assert_int_equal(ranks->ops->save(ranks, &a), LH_OK);
    assert_int_equal(one->ops->load(one, lh_buf_span(&a)), LH_OK);
    share_parameters(ranks, one, values);
    struct wk_step_out x = take_step(ranks, number), y = take_step(one, number);
    assert_true(fabs(x.loss / y.loss - 1) < 1e-6);
    assert_true(fabs(x.grad_norm / y.grad_norm - 1) < 1e-6);
    float *many_have = copy_parameters(ranks, values), *one_has = copy_parameters(one, values);
    assert_true(apart(values, many_have, one_has) < 1e-6);
    free(many_have);
    free(one_has);
    lh_buf_clear(&a);
    assert_int_equal(ranks->ops->save(ranks, &a), LH_OK);
    assert_int_equal(one->ops->save(one, &b), LH_OK);
    assert_true(moments_apart(&a, &b, values) < 1e-6);
    lh_buf_free(&a);
    lh_buf_free(&b);
}

static struct wk_builtin_conf conf_with(struct fixture *f, struct wk_reduce *reduce)
{
    struct wk_builtin_conf c = conf_of(f);
    c.accumulate = ACCUMULATE;
    c.clip = 0;
    c.reduce = reduce;
    return c;
}

// ---------------------------------------------------------------- the process of a rank

static inline void ended(void *arg, lh_err err, const char *text)
{
    if (err) fprintf(stderr, "rank: %s\n", text);
    *(int *)arg = err ? 3 : 0;
}

struct checked {
    struct lh_env *env;
    int result; // -1: still running
};

static inline void look(void *arg)
{
    struct checked *c = arg;
    if (c->result >= 0)
        lh_env_real_stop(c->env);
    else
        (void)lh_after(c->env, 20 * LH_MS, look, c);
}

static inline _Noreturn void run_until(struct checked *c)
{
    look(c);
    lh_env_real_run(c->env);
    _exit(c->result);
}

static inline _Noreturn void be_rank(struct fixture *f, const struct wk_shm_conf *shm,
                                     uint32_t number)
{
    struct checked c = {.result = -1};
    struct wk_rank *rank;
    if (lh_env_real_create(&c.env)) _exit(4);
    struct wk_rank_conf conf = {.env = c.env,
                                .shm = *shm,
                                .rank = number,
                                .shape = f->shape,
                                .batch = BATCH,
                                .ended = ended,
                                .arg = &c.result};
    if (wk_rank_start(&conf, &rank)) _exit(5);
    run_until(&c);
}

#endif
