// Audits the built-in trainer at record level, in process: a unit's tokens, the transformer's
// passes, the draw, the clip, the noise, and the gradient that the optimizer gets.
//
// `trainer honest` must stay below the claim. `trainer planted` must show more than the claim for
// each compiled-in mistake; one is in force at a time. The worlds differ in the first record, which
// is empty in one of them. A run's statistic is the gradient's component along that record's own.
#include <string.h>

#include "common/base/check.h"
#include "common/privacy/account.h"
#include "kernels/privacy/choice.h"
#include "tests/privacy/auditor.h"
#include "tests/privacy/world.h"
#include "worker/privacy/record_step.h"

#ifdef LH_PLANTED_BUGS
enum { LH_PLANTED = 1 };
#else
enum { LH_PLANTED = 0 };
#endif
enum { RECORDS = 2, VALUES_MAX = 64, TOKENS = 2 };
static const double DELTA = 1e-5;
static const struct wk_shape SHAPE = {2, 2, 1, 1, 1, 1, TOKENS, 1e4, 1e-6, false, true};

// Stands in for worker/data/loader.c: a record's tokens follow from its number.
lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                      uint32_t *ids)
{
    (void)l;
    for (uint64_t i = 0; i <= tokens; i++) ids[i] = (uint32_t)((unit + offset + i) % SHAPE.vocab);
    return LH_OK;
}

struct region {
    struct lh_env env;
    struct lh_unit unit[RECORDS];
    struct lh_units units;
    struct lh_privacy terms;
    struct wk_transformer *transformer;
    struct wk_record_step *step;
    uint64_t values;
    float params[VALUES_MAX], gradient[VALUES_MAX];
    double along[VALUES_MAX]; // the first record's gradient, of length 1
};

static void find_direction(struct region *r)
{
    int64_t sum[VALUES_MAX];
    uint32_t drawn[RECORDS] = {0, LK_CHOICE_NONE};
    double loss, squares = 0;
    lh_err err = wk_record_step_sum(r->step, r->params, drawn, r->gradient, sum, &loss);
    LH_ASSERT(!err);
    for (uint64_t i = 0; i < r->values; i++) squares += (double)sum[i] * (double)sum[i];
    LH_ASSERT(squares > 0);
    for (uint64_t i = 0; i < r->values; i++) r->along[i] = (double)sum[i] / sqrt(squares);
}

static void open_region(struct region *r, double sigma, double rate)
{
    *r = (struct region){.env = {&WORLD_OPS}};
    for (int i = 0; i < RECORDS; i++) {
        r->unit[i].tokens = TOKENS;
        snprintf(r->unit[i].home, sizeof r->unit[i].home, "asia");
    }
    r->units = (struct lh_units){.unit = r->unit, .count = RECORDS, .vocabulary = SHAPE.vocab};
    r->terms = (struct lh_privacy){.level = LH_PRIVACY_RECORD,
                                   .sigma = sigma,
                                   .rate = rate,
                                   .clip = 0.01, // each gradient is far above it
                                   .epsilon = 10,
                                   .delta = DELTA,
                                   .steps = 1,
                                   .ahead = 1,
                                   .local_steps = 1,
                                   .record_tokens = TOKENS};
    struct lh_manifest manifest;
    lh_err err = wk_model_manifest(&SHAPE, 1, &manifest);
    LH_ASSERT(!err && manifest.values <= VALUES_MAX);
    r->values = manifest.values;
    lh_manifest_free(&manifest);
    const struct wk_transformer_conf conf = {SHAPE, TOKENS - 1, TOKENS - 1, true};
    err = wk_model_init(&SHAPE, 1, r->params);
    if (!err) err = wk_transformer_create(&conf, &r->transformer);
    const struct wk_record_step_conf of = {
        {&r->env, &r->units, "asia", r->terms}, NULL, r->transformer, r->values};
    if (!err) err = wk_record_step_open(&of, &r->step);
    LH_ASSERT(!err);
    find_direction(r);
}

static void close_region(struct region *r)
{
    wk_record_step_close(r->step);
    wk_transformer_destroy(r->transformer);
}

static double release(void *arg, int world)
{
    struct region *r = arg;
    double loss, at = 0;
    r->unit[0].tokens = world ? TOKENS : 1; // A record of one token has no target: it is empty.
    lh_err err = wk_record_step_run(r->step, r->params, r->gradient, &loss);
    LH_ASSERT(!err);
    for (uint64_t i = 0; i < r->values; i++) at += r->along[i] * (double)r->gradient[i];
    return at;
}

// Audits steps with this noise and rate and one of the mistakes; NULL: no mistake.
static double audit_step(const char *bug, double sigma, double rate, size_t n)
{
    static struct region r;
#ifdef LH_PLANTED_BUGS
    lh_bug_plant(bug);
#endif
    LH_ASSERT(LH_PLANTED || !bug);
    open_region(&r, sigma, rate);
    double shown = audit(release, &r, n, DELTA);
    close_region(&r);
    return shown;
}

static double claim(double sigma, double rate)
{
    const struct lh_account_terms t = {sigma, rate, 1, DELTA};
    double epsilon;
    lh_err err = lh_account_claim(&t, &epsilon);
    LH_ASSERT(!err);
    return epsilon;
}

struct row {
    double sigma, rate, least; // the least bound that a working audit shows
};

static void honest(size_t n)
{
    static const struct row row[] = {{0.6, 1, 3.6}, {1, 1, 2}, {2, 1, 0.9}, {1, 0.25, 0.7}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        char what[64];
        double most = claim(row[i].sigma, row[i].rate);
        double b = audit_step(NULL, row[i].sigma, row[i].rate, n);
        snprintf(what, sizeof what, "sigma %g, rate %g, claim %.3f", row[i].sigma, row[i].rate,
                 most);
        world_must(b < most && b > row[i].least, what, b);
    }
}

static void planted(const char *bug, double sigma, double rate, size_t n)
{
    double b = audit_step(bug, sigma, rate, n);
    world_must(b > claim(sigma, rate), bug, b);
}

int main(int argc, char **argv)
{
    if (sodium_init() < 0 || argc < 2) return 2;
    if (strcmp(argv[1], "honest") == 0) {
        honest(argc > 2 ? world_runs(argc, argv) : 50000);
        return 0;
    }
    planted("noise_none", 2, 1, 20000);
    planted("noise_untied", 2, 1, 20000);
    planted("noise_key_same", 2, 1, 20000);
    planted("clip_none", 2, 1, 20000);
    planted("noise_half", 2, 1, 100000);
    planted("record_twice", 2, 1, 100000);
    planted("draw_all", 2, 0.1, 100000);
    return 0;
}
