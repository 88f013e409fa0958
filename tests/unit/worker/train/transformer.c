// The transformer against PyTorch's results (tests/fixtures/trainer, made by tests/oracle) and
// against finite differences of its own loss.
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/oracle/case.h"
#include "tests/test.h"

static const char *const fixtures[] = {
    "tests/fixtures/trainer/mha-untied.case",
    "tests/fixtures/trainer/gqa-bias-untied.case",
    "tests/fixtures/trainer/mqa-bias-tied.case",
};
static const double bound = 1e-5; // relative, norm-wise per tensor

TEST(agrees_with_torch)
{
    for (size_t f = 0; f < LH_COUNT(fixtures); f++) {
        struct case_file c;
        struct case_answer ours;
        assert_int_equal(case_load(fixtures[f], &c), LH_OK);
        assert_true(c.answered);
        assert_int_equal(case_solve(&c, &ours), LH_OK);

        size_t logits = c.sequences * c.length * c.shape.vocab;
        assert_true(case_distance(ours.logits, c.answer.logits, logits) < bound);
        assert_true(fabs(ours.nll_sum / c.answer.nll_sum - 1.0) < bound);
        for (uint32_t i = 0; i < c.params.count; i++) {
            const struct wk_param *p = &c.params.at[i];
            double d =
                case_distance(ours.gradient + p->offset, c.answer.gradient + p->offset, p->len);
            if (!(d < bound)) fail_msg("%s: %s differs by %.2e", fixtures[f], p->name, d);
        }
        case_answer_free(&ours);
        case_free(&c);
    }
}

// Loss at value + h * direction, over the whole batch.
static double loss_at(struct wk_transformer *t, const struct case_file *c, float *moved,
                      const float *direction, const struct wk_param *p, double h)
{
    memcpy(moved, c->value, c->params.values * sizeof *moved);
    for (uint64_t i = p->offset; i < p->offset + p->len; i++)
        moved[i] = (float)((double)moved[i] + h * (double)direction[i]);
    double nll = 0.0;
    struct wk_batch b = case_batch(c);
    assert_int_equal(wk_transformer_loss(t, moved, &b, &nll), LH_OK);
    return nll / (double)(c->sequences * c->length);
}

// Along each tensor's gradient, (L(+h) - L(-h)) / 2h must be |g|^2. The loss has fp32 noise of
// about 1e-7, so h changes it by about 1e-2; the remaining error is the third derivative's.
TEST(agrees_with_finite_differences)
{
    for (size_t f = 0; f < LH_COUNT(fixtures); f++) {
        struct case_file c;
        struct case_answer ours;
        struct wk_transformer *t;
        assert_int_equal(case_load(fixtures[f], &c), LH_OK);
        assert_int_equal(case_solve(&c, &ours), LH_OK);
        struct wk_transformer_conf conf = {c.shape, c.length, c.sequences * c.length, false};
        assert_int_equal(wk_transformer_create(&conf, &t), LH_OK);
        float *moved = calloc(c.params.values, sizeof *moved);
        assert_non_null(moved);

        for (uint32_t i = 0; i < c.params.count; i++) {
            const struct wk_param *p = &c.params.at[i];
            double square = 0.0;
            for (uint64_t j = p->offset; j < p->offset + p->len; j++)
                square += (double)ours.gradient[j] * (double)ours.gradient[j];
            double h = 0.01 / square;
            if (h * sqrt(square) > 0.02) h = 0.02 / sqrt(square);
            double slope = (loss_at(t, &c, moved, ours.gradient, p, h) -
                            loss_at(t, &c, moved, ours.gradient, p, -h)) /
                           (2.0 * h);
            if (!(fabs(slope / square - 1.0) < 0.01))
                fail_msg("%s: %s: slope %.6g, gradient %.6g", fixtures[f], p->name, slope, square);
        }
        free(moved);
        wk_transformer_destroy(t);
        case_answer_free(&ours);
        case_free(&c);
    }
}

// Gradients accumulate: two halves of a batch, in any order, add up to the gradient of the whole.
TEST(gradients_accumulate)
{
    struct case_file c;
    assert_int_equal(case_load(fixtures[0], &c), LH_OK);
    assert_int_equal(c.sequences, 2);
    struct wk_transformer_conf conf = {c.shape, c.length, c.length, true};
    struct wk_transformer *t;
    assert_int_equal(wk_transformer_create(&conf, &t), LH_OK);
    float *g = calloc(c.params.values, sizeof *g);
    assert_non_null(g);
    double total = 0.0;
    for (size_t s = 2; s-- > 0;) {
        double nll;
        struct wk_batch b = {c.ids + s * (c.length + 1), 1, c.length, c.length + 1};
        assert_int_equal(
            wk_transformer_gradient(t, c.value, &b, 0.5f / (float)c.length, g, NULL, &nll), LH_OK);
        total += nll;
    }
    assert_true(fabs(total / c.answer.nll_sum - 1.0) < bound);
    assert_true(case_distance(g, c.answer.gradient, c.params.values) < bound);
    free(g);
    wk_transformer_destroy(t);
    case_free(&c);
}

struct watched {
    float *gradient, *seen; // seen: values when they were reported final
    uint64_t from;          // start of the last report
    uint32_t told;
};

// Copies the final values, then overwrites them, so that a later addition would show.
static void take_final(void *arg, uint64_t from)
{
    struct watched *w = arg;
    assert_true(from < w->from);
    for (uint64_t i = from; i < w->from; i++) {
        w->seen[i] = w->gradient[i];
        w->gradient[i] = 1e9f;
    }
    w->from = from;
    w->told++;
}

// Values reported final are those of the gradient, layer by layer from the end, and the backward
// pass does not touch them again; with a separate head and with a tied one.
TEST(final_gradients_stay)
{
    enum { LENGTH = 8, LAYERS = 3 };
    for (int tied = 0; tied < 2; tied++) {
        struct wk_shape shape = {50, 16, LAYERS, 2, 1, 24, LENGTH, 1e4, 1e-6, true, tied};
        struct wk_params p;
        struct wk_transformer *t;
        struct wk_transformer_conf conf = {shape, LENGTH, LENGTH, true};
        assert_int_equal(wk_transformer_create(&conf, &t), LH_OK);
        assert_int_equal(wk_params_list(&shape, &p), LH_OK);
        float *value = calloc(p.values, sizeof *value), *g = calloc(p.values, sizeof *g);
        float *whole = calloc(p.values, sizeof *whole), *seen = calloc(p.values, sizeof *seen);
        assert_true(value && g && whole && seen);
        assert_int_equal(wk_model_init(&shape, 3, value), LH_OK);
        uint32_t ids[LENGTH + 1];
        for (uint32_t i = 0; i <= LENGTH; i++) ids[i] = i * 7919 % 50;
        const struct wk_batch batch = {ids, 1, LENGTH, LENGTH + 1};
        struct watched w = {g, seen, p.values, 0};
        const struct wk_final final = {take_final, &w};
        double nll;
        assert_int_equal(wk_transformer_gradient(t, value, &batch, 1, whole, NULL, &nll), LH_OK);
        assert_int_equal(wk_transformer_gradient(t, value, &batch, 1, g, &final, &nll), LH_OK);
        assert_int_equal(w.told, LAYERS + (tied ? 2 : 3));
        assert_true(w.from == 0);
        assert_memory_equal(seen, whole, p.values * sizeof *seen);
        for (uint64_t i = 0; i < p.values; i++) assert_true(g[i] == 1e9f);
        free(value);
        free(g);
        free(whole);
        free(seen);
        wk_params_free(&p);
        wk_transformer_destroy(t);
    }
}

// 200 rows of 1,000 logits pass the head in four chunks, the last one short, and 50 rows in one;
// the sums are equal.
TEST(chunks_of_the_head_add_up)
{
    enum { LENGTH = 50, SEQUENCES = 4, IDS = SEQUENCES * LENGTH + 1 };
    struct wk_shape shape = {1000, 16, 1, 2, 1, 24, LENGTH, 1e4, 1e-6, true, false};
    struct wk_params p;
    struct wk_transformer *t;
    struct wk_transformer_conf conf = {shape, LENGTH, SEQUENCES * LENGTH, true};
    assert_int_equal(wk_transformer_create(&conf, &t), LH_OK);
    assert_int_equal(wk_params_list(&shape, &p), LH_OK);
    float *value = calloc(p.values, sizeof *value), *whole = calloc(p.values, sizeof *whole);
    float *parts = calloc(p.values, sizeof *parts);
    assert_true(value != NULL && whole != NULL && parts != NULL);
    assert_int_equal(wk_model_init(&shape, 3, value), LH_OK);
    for (uint32_t i = 0; i < p.count; i++) // makes attention and softmax far from uniform
        for (uint64_t j = 0; wk_param_decays(&p.at[i]) && j < p.at[i].len; j++)
            value[p.at[i].offset + j] *= 10.0f;
    uint32_t ids[IDS];
    for (uint32_t i = 0; i < IDS; i++) ids[i] = i * 7919 % 1000;

    double whole_nll, loss_nll, sum = 0.0;
    struct wk_batch batch = {ids, SEQUENCES, LENGTH, LENGTH};
    assert_int_equal(wk_transformer_gradient(t, value, &batch, 0.01f, whole, NULL, &whole_nll),
                     LH_OK);
    assert_int_equal(wk_transformer_loss(t, value, &batch, &loss_nll), LH_OK);
    for (size_t s = 0; s < SEQUENCES; s++) {
        double nll;
        struct wk_batch one = {ids + s * LENGTH, 1, LENGTH, LENGTH};
        assert_int_equal(wk_transformer_gradient(t, value, &one, 0.01f, parts, NULL, &nll), LH_OK);
        sum += nll;
    }
    assert_true(fabs(whole_nll / sum - 1.0) < 1e-6 && fabs(loss_nll / sum - 1.0) < 1e-6);
    for (uint32_t i = 0; i < p.count; i++) {
        const struct wk_param *q = &p.at[i];
        double d = case_distance(whole + q->offset, parts + q->offset, q->len);
        if (!(d < bound)) fail_msg("%s differs by %.2e", q->name, d);
    }
    free(value);
    free(whole);
    free(parts);
    wk_params_free(&p);
    wk_transformer_destroy(t);
}

// Changing a token does not change the logits of earlier rows.
TEST(logits_are_causal)
{
    struct case_file c;
    struct case_answer before, after;
    assert_int_equal(case_load(fixtures[2], &c), LH_OK);
    assert_int_equal(case_solve(&c, &before), LH_OK);
    size_t at = 140;
    c.ids[at] = (c.ids[at] + 1) % c.shape.vocab;
    assert_int_equal(case_solve(&c, &after), LH_OK);
    size_t head = at * c.shape.vocab * sizeof(float);
    assert_memory_equal(before.logits, after.logits, head);
    assert_memory_not_equal((char *)before.logits + head, (char *)after.logits + head,
                            c.shape.vocab * sizeof(float));
    case_answer_free(&before);
    case_answer_free(&after);
    case_free(&c);
}

TEST(eval_takes_every_token_once)
{
    struct case_file c;
    assert_int_equal(case_load(fixtures[2], &c), LH_OK);
    size_t count = c.length + 1;
    double nll;
    uint64_t tokens;
    // One window is the whole case.
    assert_int_equal(wk_eval(&c.shape, c.value, c.ids, count, c.length, &nll, &tokens), LH_OK);
    assert_int_equal(tokens, c.length);
    assert_true(fabs(nll / c.answer.nll_sum - 1.0) < bound);

    // Windows of 64, 64 and 22 inputs give the sum of three separate runs.
    double parts = 0.0, part;
    for (size_t at = 0; at < c.length; at += 64) {
        size_t n = c.length - at < 64 ? c.length - at : 64;
        uint64_t ignored;
        assert_int_equal(wk_eval(&c.shape, c.value, c.ids + at, n + 1, n, &part, &ignored), LH_OK);
        parts += part;
    }
    assert_int_equal(wk_eval(&c.shape, c.value, c.ids, count, 64, &nll, &tokens), LH_OK);
    assert_int_equal(tokens, c.length);
    assert_true(fabs(nll / parts - 1.0) < 1e-6);

    assert_int_equal(wk_eval(&c.shape, c.value, c.ids, 1, 64, &nll, &tokens), LH_ERR_INVALID);
    assert_int_equal(wk_eval(&c.shape, c.value, c.ids, count, 0, &nll, &tokens), LH_ERR_CONFIG);
    assert_int_equal(wk_eval(&c.shape, c.value, c.ids, count, c.shape.context + 1, &nll, &tokens),
                     LH_ERR_CONFIG);
    case_free(&c);
}

struct lane {
    const struct case_file *c;
    struct case_answer answer;
    lh_err err;
};

static void *solve_again(void *arg)
{
    struct lane *lane = arg;
    for (int i = 0; i < 5; i++) {
        case_answer_free(&lane->answer);
        lane->err = case_solve(lane->c, &lane->answer);
        if (lane->err != LH_OK) break;
    }
    return NULL;
}

// The bits must not depend on other threads or on where malloc put the parameters: a resumed worker
// continues exactly the same run.
TEST(bits_depend_on_nothing_else)
{
    struct case_file c;
    assert_int_equal(case_load(fixtures[1], &c), LH_OK);
    size_t values = c.params.values, logits = c.sequences * c.length * c.shape.vocab;
    struct lane lane[2] = {{.c = &c}, {.c = &c}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, solve_again, &lane[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(lane[0].err, LH_OK);
    assert_int_equal(lane[1].err, LH_OK);
    assert_memory_equal(lane[0].answer.logits, lane[1].answer.logits, logits * sizeof(float));
    assert_memory_equal(lane[0].answer.gradient, lane[1].answer.gradient, values * sizeof(float));

    float *aligned = c.value, *moved = calloc(values + 3, sizeof *moved);
    assert_non_null(moved);
    memcpy(moved + 3, aligned, values * sizeof *moved);
    c.value = moved + 3;
    struct case_answer shifted;
    assert_int_equal(case_solve(&c, &shifted), LH_OK);
    assert_memory_equal(lane[0].answer.gradient, shifted.gradient, values * sizeof(float));
    c.value = aligned;
    free(moved);
    case_answer_free(&shifted);
    for (int i = 0; i < 2; i++) case_answer_free(&lane[i].answer);
    case_free(&c);
}

TEST(refuses_bad_batches)
{
    struct case_file c;
    assert_int_equal(case_load(fixtures[0], &c), LH_OK);
    struct wk_transformer_conf conf = {c.shape, c.length, c.length, false};
    struct wk_transformer *t;
    assert_int_equal(wk_transformer_create(&conf, &t), LH_OK);
    double nll;
    struct wk_batch b = case_batch(&c);
    assert_int_equal(wk_transformer_loss(t, c.value, &b, &nll), LH_ERR_INVALID); // two sequences
    b.sequences = 0;
    assert_int_equal(wk_transformer_loss(t, c.value, &b, &nll), LH_ERR_INVALID);
    b.sequences = 1;
    assert_int_equal(wk_transformer_loss(t, c.value, &b, &nll), LH_OK);
    c.ids[c.length] = c.shape.vocab; // an id outside the vocabulary as the last target
    assert_int_equal(wk_transformer_loss(t, c.value, &b, &nll), LH_ERR_INVALID);
    b.length = c.length + 1;
    assert_int_equal(wk_transformer_loss(t, c.value, &b, &nll), LH_ERR_INVALID);
    wk_transformer_destroy(t);

    conf.length_max = c.shape.context + 1;
    assert_int_equal(wk_transformer_create(&conf, &t), LH_ERR_CONFIG);
    case_free(&c);
}
