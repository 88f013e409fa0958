// The synthetic trainer: its steps depend on the seed and the requested size only, and it resumes.
#include <math.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/worker/train/parameters.h"
#include "worker/train/trainer_synthetic.h"

enum { VALUES = 10007, TOKENS = 64 }; // several chunks, the last of them short

static struct wk_trainer *make(uint64_t seed)
{
    const struct wk_synthetic_conf conf = {VALUES, 16, 4, seed, 32};
    struct wk_trainer *t;
    assert_int_equal(wk_synthetic_create(&conf, &t), LH_OK);
    return t;
}

static void step(struct wk_trainer *t, float rate, struct wk_step_out *out)
{
    const struct wk_piece piece = {0, 0, TOKENS};
    const struct wk_step_in in = {.piece = &piece, .pieces = 1, .learning_rate = rate};
    assert_int_equal(t->ops->step(t, &in, out), LH_OK);
}

TEST(a_step_is_normal_noise_of_the_learning_rate)
{
    struct wk_trainer *t = make(1);
    struct wk_step_out out;
    assert_int_equal(t->ops->step_tokens(t), TOKENS);
    assert_int_equal(t->ops->sequence_tokens(t), 16);
    step(t, 0.5f, &out);
    float *v = copy_parameters(t, VALUES);
    double sum = 0, squares = 0;
    for (int i = 0; i < VALUES; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    assert_true(fabs(sum / VALUES) < 0.025); // five standard errors
    assert_true(fabs(sqrt(squares / VALUES) - 0.5) < 0.02);
    assert_true(out.least_ns == INT64_C(2000000000)); // 64 tokens at 32 tokens/s
    free(v);
    t->ops->destroy(t);
}

TEST(equal_seeds_are_equal_runs_and_others_are_not)
{
    struct wk_trainer *a = make(7), *b = make(7), *c = make(8);
    struct wk_step_out out;
    for (int i = 0; i < 3; i++) {
        step(a, 1, &out);
        step(b, 1, &out);
        step(c, 1, &out);
    }
    assert_true(equal_parameters(a, b, VALUES));
    assert_false(equal_parameters(a, c, VALUES));
    a->ops->destroy(a);
    b->ops->destroy(b);
    c->ops->destroy(c);
}

TEST(a_saved_state_goes_on_with_the_same_steps)
{
    struct wk_trainer *a = make(7), *b = make(7);
    struct wk_step_out out;
    struct lh_buf saved = lh_buf(64);
    step(a, 1, &out);
    assert_int_equal(a->ops->save(a, &saved), LH_OK);
    share_parameters(a, b, VALUES);
    assert_int_equal(b->ops->load(b, lh_buf_span(&saved)), LH_OK);
    step(a, 1, &out);
    step(b, 1, &out);
    assert_true(equal_parameters(a, b, VALUES));
    assert_int_equal(b->ops->load(b, lh_span("seven b", 7)), LH_ERR_MALFORMED);
    lh_buf_free(&saved);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

TEST(a_step_without_tokens_is_refused)
{
    struct wk_synthetic_conf conf = {VALUES, 0, 4, 1, 0};
    struct wk_trainer *t;
    assert_int_equal(wk_synthetic_create(&conf, &t), LH_ERR_CONFIG);
    conf = (struct wk_synthetic_conf){VALUES, 16, 0, 1, 0};
    assert_int_equal(wk_synthetic_create(&conf, &t), LH_ERR_CONFIG);
}
