// Steps at record level: one record changes a sum by a bounded amount, and everything after a
// release depends on the release only.
#include "tests/unit/worker/train/trainer_case.h"

#include <stdio.h>

#include "common/privacy/account.h"
#include "common/privacy/sampling.h"
#include "kernels/privacy/choice.h"
#include "kernels/privacy/grid.h"
#include "kernels/privacy/noise.h"
#include "worker/privacy/record_step.h"

enum { RECORDS = 8, LONGEST = 40, TOKENS = 24, SETS = 60 };

// ---- random numbers that a test can repeat ------------------------------------------------------

struct world {
    struct lh_env env; // first
    struct lh_env_ops ops;
    uint64_t random;
};

static void draw_random(struct lh_env *env, void *out, size_t n)
{
    struct world *w = (struct world *)env;
    for (size_t i = 0; i < n; i++) {
        w->random = w->random * 6364136223846793005u + 1442695040888963407u;
        ((uint8_t *)out)[i] = (uint8_t)(w->random >> 56);
    }
}

static struct world *world_of(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->ops.random = draw_random;
    w->env.ops = &w->ops;
    w->random = seed;
    return w;
}

// ---- a region's records -------------------------------------------------------------------------

struct region {
    struct lh_unit unit[RECORDS + 1]; // the last one belongs to another region
    struct lh_units units;
    struct world *world;
    struct wk_records_conf conf;
};

static struct lh_privacy terms(void)
{
    return (struct lh_privacy){.level = LH_PRIVACY_RECORD,
                               .sigma = 1,
                               .rate = 0.5,
                               .clip = 0.25,
                               .epsilon = 8,
                               .delta = 1e-6,
                               .steps = 100,
                               .ahead = 64,
                               .local_steps = 1,
                               .record_tokens = TOKENS};
}

static void region_open(struct region *r)
{
    memset(r, 0, sizeof *r);
    for (uint64_t i = 0; i <= RECORDS; i++) {
        r->unit[i].tokens = 2 + i * (LONGEST - 2) / RECORDS;
        snprintf(r->unit[i].home, sizeof r->unit[i].home, "%s", i < RECORDS ? "asia" : "europe");
    }
    r->units = (struct lh_units){.unit = r->unit, .count = RECORDS + 1, .vocabulary = 256};
    r->world = world_of(7);
    r->conf = (struct wk_records_conf){&r->world->env, &r->units, "asia", terms()};
}

struct step {
    struct region region;
    struct wk_transformer *transformer;
    struct wk_record_step *step;
    float *params, *gradient;
    int64_t *sum, *other;
    uint64_t values;
};

static void step_open(struct fixture *f, struct step *s)
{
    const struct wk_transformer_conf conf = {f->shape, SEQUENCE, SEQUENCE, true};
    memset(s, 0, sizeof *s);
    region_open(&s->region);
    s->values = f->manifest.values;
    assert_int_equal(wk_transformer_create(&conf, &s->transformer), LH_OK);
    const struct wk_record_step_conf of = {s->region.conf, &f->loader, s->transformer, s->values};
    assert_int_equal(wk_record_step_open(&of, &s->step), LH_OK);
    s->params = malloc(s->values * sizeof *s->params);
    s->gradient = malloc(s->values * sizeof *s->gradient);
    s->sum = malloc(s->values * sizeof *s->sum);
    s->other = malloc(s->values * sizeof *s->other);
    assert_true(s->params && s->gradient && s->sum && s->other);
    assert_int_equal(wk_model_init(&f->shape, 1, s->params), LH_OK);
}

static void step_close(struct step *s)
{
    wk_record_step_close(s->step);
    wk_transformer_destroy(s->transformer);
    free(s->params), free(s->gradient), free(s->sum), free(s->other);
    free(s->region.world);
}

static void sum_of(struct step *s, const uint32_t *drawn, int64_t *sum)
{
    double loss;
    lh_err err = wk_record_step_sum(s->step, s->params, drawn, s->gradient, sum, &loss);
    assert_int_equal(err, LH_OK);
}

// Norm of the difference of the two sums, in steps of the grid.
static double apart(const struct step *s)
{
    double norm = 0;
    for (uint64_t i = 0; i < s->values; i++) {
        double d = (double)(s->sum[i] - s->other[i]);
        norm += d * d;
    }
    return sqrt(norm);
}

// ---- tests --------------------------------------------------------------------------------------

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

// Equal draws in two worlds; in one of them a record is emptied. Parameters vary by turns: usual
// ones, gradients far above C, gradients that are not finite.
IN_FIXTURE(one_record_moves_a_sum_by_c_at_most, struct fixture *f)
{
    struct step s;
    uint32_t drawn[RECORDS + 1];
    unsigned moved = 0, nothing = 0;
    step_open(f, &s);
    struct lk_grid grid;
    const uint32_t passes = RECORDS; // drawing all records is likely
    assert_int_equal(lk_grid_of(s.region.conf.terms.clip, s.values, &grid), LH_OK);
    assert_int_equal(wk_record_step_tokens(s.step), passes * (TOKENS - 1));
    for (int set = 0; set < SETS; set++) {
        (void)lk_choice_draw(&s.region.world->env, RECORDS, 0.5, passes, drawn);
        uint64_t at = lh_random_u64(&s.region.world->env) % s.values;
        float kept = s.params[at];
        if (set % 3 == 1) s.params[at] = 1e6f;
        if (set % 3 == 2) s.params[at] = INFINITY;
        sum_of(&s, drawn, s.sum);
        for (uint32_t i = 0; i < passes && drawn[i] != LK_CHOICE_NONE; i++) {
            uint32_t record = drawn[i];
            drawn[i] = LK_CHOICE_NONE;
            sum_of(&s, drawn, s.other);
            drawn[i] = record;
            double norm = apart(&s);
            assert_true(norm <= (double)grid.units);
            moved += norm > 0.9 * (double)grid.units;
            nothing += norm == 0;
            if (i) break;
        }
        s.params[at] = kept;
    }
    assert_true(moved > SETS / 4); // most gradients are clipped, so the bound is reached
    assert_true(nothing > 0);      // gradients that are not finite count as zero
    step_close(&s);
}

// A record's gradient depends on its own tokens only, not on the tokens behind it in the file nor
// on other drawn records; tokens beyond record_tokens are dropped.
IN_FIXTURE(a_record_is_its_own_tokens_alone, struct fixture *f)
{
    struct step s;
    step_open(f, &s);
    for (uint32_t record = 0; record < RECORDS; record++) {
        uint32_t drawn[RECORDS];
        for (int i = 0; i < RECORDS; i++) drawn[i] = LK_CHOICE_NONE;
        drawn[0] = record;
        sum_of(&s, drawn, s.sum);
        uint64_t tokens = s.region.unit[record].tokens;
        size_t inputs = (tokens < TOKENS ? (size_t)tokens : TOKENS) - 1;
        uint32_t ids[LONGEST];
        assert_int_equal(wk_loader_read(&f->loader, record, 0, inputs, ids), LH_OK);
        double nll;
        const struct wk_batch batch = {ids, 1, inputs, inputs + 1};
        memset(s.gradient, 0, s.values * sizeof *s.gradient);
        memset(s.other, 0, s.values * sizeof *s.other);
        assert_int_equal(wk_transformer_gradient(s.transformer, s.params, &batch,
                                                 1.0f / (float)inputs, s.gradient, NULL, &nll),
                         LH_OK);
        struct lk_grid grid;
        assert_int_equal(lk_grid_of(s.region.conf.terms.clip, s.values, &grid), LH_OK);
        lk_grid_add(&grid, s.gradient, s.other);
        // equal, except for the order of the sums
        assert_true(apart(&s) <= 1e-3 * (double)grid.units);
    }
    step_close(&s);
}

IN_FIXTURE(an_empty_draw_is_a_step_of_noise, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *t = trainer_of(f, &c);
    struct region r;
    region_open(&r);
    r.conf.terms.rate = 1e-9;
    assert_int_equal(t->ops->keep_private(t, &r.conf), LH_OK);
    float *before = copy_parameters(t, f->manifest.values);
    struct wk_step_out out;
    const struct wk_step_in in = {.learning_rate = 1e-3f};
    assert_int_equal(t->ops->step(t, &in, &out), LH_OK);
    assert_true(out.loss == 0 && out.grad_norm > 0);
    assert_false(has_parameters(t, before, f->manifest.values));
    free(before);
    free(r.world);
    t->ops->destroy(t);
}

// Two regions with different texts and the same random numbers. At parameters that are not finite
// each gradient counts as zero, so the releases are equal. Then parameters, optimizer state, norms
// and rates must be equal, whatever was drawn.
IN_FIXTURE(equal_releases_are_followed_by_equal_bytes, struct fixture *f)
{
    struct wk_loader text[2] = {f->loader, f->loader};
    struct wk_trainer *t[2];
    struct region r[2];
    struct lh_buf saved[2] = {lh_buf(1 << 24), lh_buf(1 << 24)};
    text[1].text = "other words, of which nobody else may learn that they were here at all";
    for (int k = 0; k < 2; k++) {
        struct wk_builtin_conf c = conf_of(f);
        c.loader = &text[k];
        t[k] = trainer_of(f, &c);
        region_open(&r[k]);
        for (int i = 0; k && i < RECORDS; i++) r[k].unit[i].tokens = 3 + (uint64_t)i;
        assert_int_equal(t[k]->ops->keep_private(t[k], &r[k].conf), LH_OK);
        float *p = copy_parameters(t[k], f->manifest.values);
        p[0] = p[300] = INFINITY;
        for (uint64_t i = 0; i < f->manifest.values; i += 97) p[i] = NAN;
        set_parameters(t[k], p, f->manifest.values);
        free(p);
    }
    for (uint64_t step = 0; step < 4; step++) {
        struct wk_step_out out[2];
        const struct wk_step_in in = {.learning_rate = 1e-3f, .credited = step * 100};
        for (int k = 0; k < 2; k++) assert_int_equal(t[k]->ops->step(t[k], &in, &out[k]), LH_OK);
        assert_true(out[0].grad_norm == out[1].grad_norm && out[0].rate == out[1].rate);
        assert_true(out[0].least_ns == out[1].least_ns && out[0].noise == out[1].noise);
        assert_int_equal(t[0]->ops->step_tokens(t[0]), t[1]->ops->step_tokens(t[1]));
    }
    assert_true(equal_parameters(t[0], t[1], f->manifest.values));
    for (int k = 0; k < 2; k++) assert_int_equal(t[k]->ops->save(t[k], &saved[k]), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&saved[0]), lh_buf_span(&saved[1])));
    for (int k = 0; k < 2; k++) {
        lh_buf_free(&saved[k]);
        free(r[k].world);
        t[k]->ops->destroy(t[k]);
    }
}

static void refuse(struct fixture *f, const struct wk_builtin_conf *c,
                   const struct wk_records_conf *conf, const char *says)
{
    struct wk_trainer *t = trainer_of(f, c);
    assert_int_equal(t->ops->keep_private(t, conf), LH_ERR_CONFIG);
    if (!strstr(lh_err_text(LH_ERR_CONFIG), says)) fail_msg("%s", lh_err_text(LH_ERR_CONFIG));
    t->ops->destroy(t);
}

IN_FIXTURE(unsound_settings_are_refused, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f), noisy = c;
    struct region r;
    region_open(&r);
    struct wk_records_conf conf = r.conf;
    conf.region = "america";
    refuse(f, &c, &conf, "no unit of data.units belongs to america");
    conf = r.conf;
    conf.terms.delta = 0.2;
    refuse(f, &c, &conf, "below 0.125");
    conf = r.conf;
    conf.terms.record_tokens = SEQUENCE + 2;
    refuse(f, &c, &conf, "2 to 33");
    conf.terms.record_tokens = 1;
    refuse(f, &c, &conf, "2 to 33");
    noisy.warmup.threshold = 1;
    refuse(f, &noisy, &r.conf, "trainer.noise_threshold is set");
    free(r.world);
}

// Opens a step with these terms, whose sampler may use only its share of `delta`.
static lh_err open_with(struct fixture *f, const struct step *s, double delta)
{
    struct wk_record_step *step;
    struct wk_record_step_conf of = {s->region.conf, &f->loader, s->transformer, s->values};
    of.of.terms.delta = delta;
    lh_err err = wk_record_step_open(&of, &step);
    if (!err) wk_record_step_close(step);
    return err;
}

IN_FIXTURE(the_samplers_share_of_delta_may_be_used_up, struct fixture *f)
{
    struct step s;
    struct lk_grid grid;
    int64_t width;
    step_open(f, &s);
    const struct lh_privacy *p = &s.region.conf.terms;
    assert_int_equal(lk_grid_of(p->clip, s.values, &grid), LH_OK);
    assert_int_equal(lk_noise_width(lk_grid_deviation(&grid, p->sigma), &width), LH_OK);
    double drawn = (double)p->steps * (double)s.values;
    double adds = lh_sampling_slack(p->epsilon, drawn, lk_noise_distance(width));
    double least = nextafter(adds / LH_ACCOUNT_SLACK, 0);
    while (LH_ACCOUNT_SLACK * least < adds) least = nextafter(least, 1);
    assert_true(adds > 0 && LH_ACCOUNT_SLACK * least == adds);
    assert_int_equal(open_with(f, &s, least), LH_OK);
    while (LH_ACCOUNT_SLACK * least >= adds) least = nextafter(least, 0);
    assert_int_equal(open_with(f, &s, least), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "set fewer privacy.steps"));
    step_close(&s);
}
