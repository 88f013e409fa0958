// worker/train/evaluation.c: when it evaluates, its results, and the files that it refuses. The
// fake env's clock advances by TICK at each read.
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/tokens.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"
#include "worker/train/evaluation.h"

enum { TEXTS = 2, COUNT = 70, SEQUENCE = 16, EVERY = 1000 };
static const int64_t TICK = LH_SECOND;

static int64_t now_ns; // the test clock's time

static int64_t ticking(struct lh_env *env)
{
    (void)env;
    return now_ns += TICK;
}

struct fixture {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct lh_env_ops ops;
    struct lh_heldout heldout[TEXTS];
    struct lh_units units;
    struct wk_shape shape;
    struct wk_transformer *t;
    float *params;
    uint32_t ids[TEXTS][COUNT];
};

static void put_text(struct fixture *f, uint32_t i)
{
    struct lh_heldout *h = &f->heldout[i];
    struct lh_buf b = lh_buf(1 << 16);
    *h = (struct lh_heldout){.tokens = COUNT, .bytes = COUNT};
    memcpy(h->language, i ? "ja" : "de", 3);
    memcpy(h->file, i ? "ja.bin" : "de.bin", 7);
    lh_tokens_put_header(&b, 2, COUNT);
    for (uint32_t k = 0; k < COUNT; k++) {
        f->ids[i][k] = (i * 31 + k * k) % 40;
        lh_tokens_put(&b, 2, f->ids[i][k]);
    }
    assert_int_equal(EVP_Digest(b.data + LH_TOKENS_HEADER_BYTES, b.len - LH_TOKENS_HEADER_BYTES,
                                h->sha256, NULL, EVP_sha256(), NULL),
                     1);
    assert_int_equal(lh_file_replace(f->env, i ? "data/ja.bin" : "data/de.bin", lh_buf_span(&b)),
                     LH_OK);
    lh_buf_free(&b);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!f) return -1;
    f->world = lh_fake_world_create(1);
    f->env = lh_fake_node(f->world, NULL, NULL);
    lh_fake_boot(f->env);
    f->ops = *f->env->ops;
    f->ops.now_ns = ticking;
    f->env->ops = &f->ops;
    now_ns = 0;
    f->units = (struct lh_units){
        .heldout = f->heldout, .heldout_count = TEXTS, .vocabulary = 40, .token_bytes = 2};
    for (uint32_t i = 0; i < TEXTS; i++) put_text(f, i);
    f->shape = (struct wk_shape){40, 16, 1, 2, 2, 32, SEQUENCE, 1e4, 1e-6, false, true};
    struct wk_transformer_conf conf = {f->shape, SEQUENCE, 2 * SEQUENCE, true};
    struct wk_params params;
    if (wk_transformer_create(&conf, &f->t) || wk_params_list(&f->shape, &params)) return -1;
    f->params = calloc(params.values, sizeof *f->params);
    wk_params_free(&params);
    return f->params && wk_model_init(&f->shape, 3, f->params) == LH_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    wk_transformer_destroy(f->t);
    lh_fake_world_destroy(f->world);
    free(f->params);
    free(f);
    return 0;
}

static struct wk_evaluation_conf conf_of(struct fixture *f)
{
    return (struct wk_evaluation_conf){
        .env = f->env, .units = &f->units, .dir = "data", .every_tokens = EVERY, .share = 0.01};
}

static const struct wk_evaluated *train(struct fixture *f, struct wk_evaluation *e, uint64_t tokens)
{
    const struct wk_evaluated *out;
    const struct wk_passes passes = {.transformer = f->t};
    assert_int_equal(wk_evaluation_step(e, &passes, f->params, tokens, &out), LH_OK);
    return out;
}

static double loss_of(struct fixture *f, uint32_t text, size_t count)
{
    double nll;
    uint64_t tokens;
    assert_int_equal(wk_eval(&f->shape, f->params, f->ids[text], count, SEQUENCE, &nll, &tokens),
                     LH_OK);
    return nll / (double)tokens;
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(it_says_what_an_evaluation_afterwards_would, struct fixture *f)
{
    for (int limited = 0; limited < 2; limited++) {
        struct wk_evaluation_conf c = conf_of(f);
        struct wk_evaluation *e;
        c.tokens = limited ? 40 : 0;
        assert_int_equal(wk_evaluation_open(&c, &e), LH_OK);
        assert_null(train(f, e, EVERY - 1));
        const struct wk_evaluated *r = train(f, e, 1);
        assert_non_null(r);
        assert_int_equal(r->tokens, EVERY);
        assert_int_equal(r->languages, TEXTS);
        assert_string_equal(r->by[0].language, "de");
        assert_string_equal(r->by[1].language, "ja");
        double a = loss_of(f, 0, limited ? 41 : COUNT), b = loss_of(f, 1, limited ? 41 : COUNT);
        assert_true(fabs(r->by[0].loss - a) < 1e-6 && fabs(r->by[1].loss - b) < 1e-6);
        assert_true(fabs(r->loss - (a + b) / 2) < 1e-6);
        wk_evaluation_close(e);
    }
}

// An evaluation takes a tick; at a share of 1 % the second may start after 200 ticks.
IN_FIXTURE(its_share_of_the_time_is_kept, struct fixture *f)
{
    struct wk_evaluation_conf c = conf_of(f);
    struct wk_evaluation *e;
    uint64_t made = 0;
    assert_int_equal(wk_evaluation_open(&c, &e), LH_OK);
    int64_t from = now_ns;
    for (int step = 0; step < 3000; step++) {
        const struct wk_evaluated *r = train(f, e, EVERY); // due at every step
        made += r != NULL;
        if (r) assert_int_equal(r->took_ns, TICK);
        double share = (double)made * (double)TICK / (double)(now_ns - from);
        assert_true(made == 1 || share <= c.share);
    }
    assert_true(made >= 29 && made <= 31); // the share is used up
    wk_evaluation_close(e);
}

IN_FIXTURE(files_that_are_not_the_data_are_refused, struct fixture *f)
{
    struct wk_evaluation_conf c = conf_of(f);
    struct wk_evaluation *e;
    assert_int_equal(lh_fake_flip(f->env, "data/ja.bin", LH_TOKENS_HEADER_BYTES + 5, 1), LH_OK);
    assert_int_equal(wk_evaluation_open(&c, &e), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "ja.bin: sha256"));
    put_text(f, 1);
    f->heldout[1].tokens--;
    assert_int_equal(wk_evaluation_open(&c, &e), LH_ERR_TOO_LARGE); // the file has more tokens
    f->heldout[1].tokens += 2;
    assert_int_equal(wk_evaluation_open(&c, &e), LH_ERR_CORRUPT);
    f->heldout[1].tokens--;
    f->units.vocabulary = 30;
    assert_int_equal(wk_evaluation_open(&c, &e), LH_ERR_CORRUPT);
    f->units.vocabulary = 40;
    c.dir = "elsewhere";
    assert_int_equal(wk_evaluation_open(&c, &e), LH_ERR_NOT_FOUND);
    c.dir = "data";
    f->units.heldout_count = 0;
    assert_int_equal(wk_evaluation_open(&c, &e), LH_ERR_CONFIG);
}
