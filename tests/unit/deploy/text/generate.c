// Sampling: the effects of temperature, top-k and seed, and that a text continues by the model's
// own predictions.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/text/generate.h"
#include "deploy/tool/cli.h"
#include "tests/test.h"
#include "worker/train/transformer.h"

enum { VOCAB = 16, CONTEXT = 8, COUNT = 40, DRAWS = 20000 };
static const struct wk_shape shape = {.vocab = VOCAB,
                                      .dim = 8,
                                      .layers = 1,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .ffn = 16,
                                      .context = CONTEXT,
                                      .rope_theta = 10000,
                                      .rms_eps = 1e-6,
                                      .tied = true};

static uint32_t sample(double temperature, uint32_t top_k, uint64_t seed, uint64_t step)
{
    static const float logits[4] = {0, 2, 1, 2}; // probabilities 0.052, 0.387, 0.142, 0.387
    const struct dp_sampling how = {temperature, top_k, seed};
    struct dp_candidate order[4];
    return dp_sample(&how, logits, 4, step, order);
}

TEST(frequencies_are_the_predicted_ones)
{
    unsigned seen[4] = {0}, narrow[4] = {0}, sharp[4] = {0};
    for (unsigned i = 0; i < DRAWS; i++) {
        seen[sample(1, 0, 7, i)]++;
        narrow[sample(1, 2, 7, i)]++;
        sharp[sample(0.5, 3, 7, i)]++;
    }
    const double e[4] = {1, exp(2), exp(1), exp(2)};
    double sum = e[0] + e[1] + e[2] + e[3];
    for (int i = 0; i < 4; i++) { // five standard deviations
        double p = e[i] / sum, expected = DRAWS * p, room = 5 * sqrt(expected * (1 - p));
        assert_true(fabs(seen[i] - expected) < room);
    }
    assert_int_equal(narrow[0] + narrow[2], 0);
    assert_true(narrow[1] > DRAWS / 3 && narrow[3] > DRAWS / 3);
    assert_int_equal(sharp[0], 0);
    double p = exp(2) / (exp(2) + 2 * exp(4));
    assert_true(fabs(sharp[2] - DRAWS * p) < 5 * sqrt(DRAWS * p));
}

TEST(the_likeliest_and_of_equals_the_first)
{
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(sample(0, 0, i, i), 1);
        assert_int_equal(sample(1, 1, i, i), 1);
    }
}

static float *parameters(uint64_t seed)
{
    struct wk_params list;
    assert_int_equal(wk_params_list(&shape, &list), LH_OK);
    float *p = malloc(list.values * sizeof *p);
    assert_non_null(p);
    assert_int_equal(wk_model_init(&shape, seed, p), LH_OK);
    for (uint64_t i = 0; i < list.values; i++) p[i] *= 20; // larger weights: predictions differ
    wk_params_free(&list);
    return p;
}

TEST(a_seed_is_a_text)
{
    float *p = parameters(3);
    uint32_t a[COUNT] = {1, 2, 3}, b[COUNT] = {1, 2, 3}, c[COUNT] = {1, 2, 3};
    const struct dp_sampling one = {1, 0, 1}, two = {1, 0, 2};
    assert_int_equal(dp_generate(&shape, p, &one, a, 3, COUNT), LH_OK);
    assert_int_equal(dp_generate(&shape, p, &one, b, 3, COUNT), LH_OK);
    assert_int_equal(dp_generate(&shape, p, &two, c, 3, COUNT), LH_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    for (int i = 0; i < COUNT; i++) assert_true(a[i] < VOCAB);
    // continuing a part of the text gives the rest of it
    memset(b + 20, 0, (COUNT - 20) * sizeof *b);
    assert_int_equal(dp_generate(&shape, p, &one, b, 20, COUNT), LH_OK);
    assert_memory_equal(a, b, sizeof a);
    free(p);
}

TEST(the_likeliest_token_is_the_models)
{
    float *p = parameters(4), logits[CONTEXT * VOCAB];
    uint32_t ids[COUNT] = {5};
    const struct dp_sampling greedy = {0, 0, 1};
    struct wk_transformer *t;
    const struct wk_transformer_conf conf = {
        .shape = shape, .length_max = CONTEXT, .rows_max = CONTEXT};
    assert_int_equal(dp_generate(&shape, p, &greedy, ids, 1, COUNT), LH_OK);
    assert_int_equal(wk_transformer_create(&conf, &t), LH_OK);
    for (size_t at = 1; at < COUNT; at++) {
        size_t n = at < CONTEXT ? at : CONTEXT, best = 0;
        const struct wk_batch window = {ids + at - n, 1, n, n};
        assert_int_equal(wk_transformer_logits(t, p, &window, logits), LH_OK);
        const float *last = logits + (n - 1) * VOCAB;
        for (size_t i = 1; i < VOCAB; i++)
            if (last[i] > last[best]) best = i;
        assert_int_equal(ids[at], best);
    }
    wk_transformer_destroy(t);
    free(p);
}

TEST(nonsense_is_refused)
{
    float *p = parameters(5);
    uint32_t ids[4] = {VOCAB};
    const struct dp_sampling how = {1, 0, 1};
    assert_int_equal(dp_generate(&shape, p, &how, ids, 1, 4), LH_ERR_INVALID);
    assert_int_equal(dp_generate(&shape, p, &how, ids, 0, 4), LH_ERR_INVALID);
    ids[0] = 1;
    p[VOCAB] = NAN; // a value of the embedding, which is also the head
    assert_int_equal(dp_generate(&shape, p, &how, ids, 1, 4), LH_ERR_NON_FINITE);
    free(p);
}

static int generate(const char *a, const char *b)
{
    const char *argv[] = {"generate", a, b};
    return dp_command(b ? 3 : a ? 2 : 1, (char **)argv);
}

TEST(wrong_lines)
{
    assert_int_equal(generate(NULL, NULL), DP_USAGE);
    assert_int_equal(generate("--dir=/nonexistent", "--temperature=hot"), DP_USAGE);
    assert_int_equal(generate("--dir=/nonexistent", "--temperature=-1"), DP_USAGE);
    assert_int_equal(generate("--dir=/nonexistent", "--tokens=0"), DP_USAGE);
    assert_int_equal(generate("--dir=/nonexistent", "-o=table"), DP_USAGE);
    assert_int_equal(generate("--dir=/nonexistent", NULL), DP_MISSING);
}
