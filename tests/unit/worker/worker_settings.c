// worker.yaml: a good file, and the rules between its rows.
#include <string.h>

#include "common/base/check.h"
#include "common/base/parallel.h"
#include "kernels/codec.h"
#include "tests/test.h"
#include "worker/settings.h"
#include "worker/worker.h"

static const char good[] =
    "tls: {ca: a, cert: b, key: c}\n"
    "coordinator: 10.0.0.1:7000\nseal.keys: k\nmodel.manifest: m.json\ndir: d\n"
    "data: {units: u.json, dir: tokens}\ncodec: {density: 0.075}\n";

static struct lh_config *load(const char *set)
{
    struct lh_config *c;
    assert_int_equal(lh_config_create(&wk_settings_table, &c), LH_OK);
    assert_int_equal(lh_config_text(c, "good", lh_span_str(good)), LH_OK);
    if (set) assert_int_equal(lh_config_set(c, set), LH_OK);
    return c;
}

TEST(a_good_file)
{
    struct lh_config *c = load(NULL);
    assert_int_equal(lh_config_finish(c), LH_OK);
    const struct wk_settings *s = lh_config_settings(c);
    assert_true(s->codec.density == 0.075);
    assert_string_equal(wk_codec_name(s), "topk-sign");
    assert_int_equal(s->trainer.batch, 4);
    assert_true(s->trainer.tokens_per_s == 0);
    assert_true(s->trainer.noise_threshold == 0);
    lh_config_destroy(c);
}

TEST(every_codec_word_is_its_name)
{
    size_t i = 0;
    for (const char *name; (name = lk_codec_word(i)) != NULL; i++) {
        struct lh_config *c = load("codec.density=1");
        char set[64] = "codec.name=";
        strncat(set, name, 20);
        assert_int_equal(lh_config_set(c, set), LH_OK);
        assert_int_equal(lh_config_finish(c), LH_OK);
        assert_string_equal(wk_codec_name(lh_config_settings(c)), name);
        assert_int_equal(wk_codec_is_dense(lh_config_settings(c)), !strncmp(name, "dense-", 6));
        lh_config_destroy(c);
    }
    assert_int_equal(i, 7);
    struct lh_config *c = load(NULL);
    assert_int_equal(lh_config_set(c, "codec.name=topk"), LH_ERR_CONFIG);
    assert_int_equal(lh_config_set(c, "codec.name=dense-f32"), LH_ERR_CONFIG);
    const char *text = lh_err_text(LH_ERR_CONFIG);
    assert_non_null(strstr(text, "did you mean dense-fp32?"));
    assert_non_null(strstr(text, "one of topk-sign, topk-q4, "));
    assert_non_null(strstr(text, ", dense-q4, dense-fp32")); // the text is complete
    lh_config_destroy(c);
}

TEST(refused_together)
{
    static const struct {
        const char *set, *says;
    } row[] = {
        {"codec.name=dense-q4", "codec.density is 0.075, but dense-q4 sends every value"},
        {"coordinator=", "coordinator is missing: a worker needs it"},
        {"seal.keys=", "seal.keys is missing: a worker needs it"},
        {"data.units=", "data.units is missing"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c = load(row[i].set);
        assert_int_equal(lh_config_finish(c), LH_ERR_CONFIG);
        if (!strstr(lh_err_text(LH_ERR_CONFIG), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CONFIG), row[i].says);
        lh_config_destroy(c);
    }
}

TEST(settings_that_would_do_nothing)
{
    static const struct {
        const char *set[5], *says;
    } row[] = {
        {{"trainer.noise_threshold=2", "trainer.kind=synthetic"}, "trainer.noise_threshold is set"},
        {{"trainer.backend=cuda"}, NULL},
        {{"trainer.backend=cuda", "ranks.count=2"}, "for ranks on GPUs use tcp or nccl"},
        {{"trainer.backend=cuda", "ranks.count=2", "ranks.reduce=tcp"}, NULL},
        {{"trainer.backend=cuda", "ranks.count=2", "ranks.reduce=nccl"}, NULL},
        {{"trainer.backend=auto", "ranks.count=2"}, NULL},
        {{"trainer.backend=cuda", "trainer.kind=synthetic"}, "only trainer.kind builtin trains"},
        {{"trainer.backend=auto", "trainer.precision=bf16", "ranks.count=2"}, NULL},
        {{"gpu.state=device", "trainer.backend=auto"}, NULL},
        {{"gpu.state=device", "trainer.backend=auto", "ranks.count=2"},
         "ranks of ranks.reduce shm"},
        {{"gpu.state=device", "trainer.backend=cuda", "ranks.count=2", "ranks.reduce=tcp"}, NULL},
        {{"gpu.state=device", "trainer.backend=cuda", "ranks.count=2", "ranks.reduce=nccl"}, NULL},
        {{"gpu.state=device", "trainer.kind=external"}, "gpu.state is device, but only trainer."},
        {{"gpu.state=device"}, "gpu.state is device, but trainer.backend is cpu"},
        {{"gpu.state=auto", "ranks.count=2"}, NULL},
        {{"trainer.precision=bf16"}, "trainer.precision is bf16, but trainer.backend is cpu"},
        {{"eval.every_tokens=4096", "trainer.kind=synthetic"}, "eval.every_tokens is set"},
        {{"trainer.norms_every_rounds=1", "trainer.kind=synthetic"}, "but trainer.kind synthetic"},
        {{"eval.every_tokens=4096", "trainer.kind=external"}, "but trainer.kind external"},
        {{"ranks.count=2", "trainer.kind=synthetic"}, "trainer.kind is synthetic, which has no"},
        {{"ranks.count=2", "trainer.kind=external"}, NULL},
        {{"ranks.count=2", "ranks.rank=1", "trainer.kind=external"}, "starts its ranks itself"},
        {{"data.dir="}, "data.dir is missing: trainer.kind builtin needs it"},
        {{"data.dir=", "trainer.kind=external"}, NULL},
        {{"data.dir=s3://bucket/units", "trainer.kind=external"}, "fetch them for the loop with"},
        {{"data.dir=s3://bucket/units", "data.cache_bytes=20GiB"}, NULL},
        {{"data.dir=s3://bucket/units/"}, "data.dir: s3://bucket/units/: want s3://BUCKET/PREFIX"},
        {{"data.dir=s3://bucket/units", "privacy.budget=b"}, "records stay in a folder of its own"},
        {{"data.units=s3://bucket/units/units.json", "privacy.budget=b"}, "data.units is in a"},
        {{"data.units=s3://bucket/units/units.json"}, NULL},
        {{"data.dir=s3://bucket/units", "eval.every_tokens=4096"}, "read from a folder"},
        {{"trainer.noise_threshold=2", "trainer.batch=1"}, "a step has one sequence"},
        {{"trainer.noise_threshold=2", "trainer.batch=1", "trainer.accumulate=2"}, NULL},
        {{"trainer.noise_threshold=2", "trainer.batch=2"}, NULL},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c = load(NULL);
        for (size_t k = 0; k < 5 && row[i].set[k]; k++)
            assert_int_equal(lh_config_set(c, row[i].set[k]), LH_OK);
        assert_int_equal(lh_config_finish(c), row[i].says ? LH_ERR_CONFIG : LH_OK);
        if (row[i].says && !strstr(lh_err_text(LH_ERR_CONFIG), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CONFIG), row[i].says);
        lh_config_destroy(c);
    }
}

TEST(ranks_fit_together)
{
    static const struct {
        const char *set[6], *says;
    } row[] = {
        {{"reduce=tcp", "leader=0.0.0.0:4600", "address=10.0.0.2"}, NULL},
        {{"reduce=tcp", "rank=1", "leader=asia:4600", "address=fd00::7"}, NULL},
        {{"reduce=nccl", "leader=127.0.0.2:4600"}, NULL},
        {{"leader=10.0.0.2:4600"}, "ranks.reduce shm is memory of one host"},
        {{"leader=10.0.0.2:4600", "rank=1"}, "ranks.leader is set, but ranks.reduce shm"},
        {{"count=1", "reduce=tcp", "leader=10.0.0.2:4600"}, "ranks.count is 1"},
        {{"reduce=tcp", "address=10.0.0.2"}, "but ranks.leader is not"},
        {{"reduce=tcp", "leader=10.0.0.2:4600"}, "ranks.address is missing: ranks.leader"},
        {{"reduce=tcp", "leader=10.0.0.2", "address=10.0.0.2"}, "ranks.leader: \"10.0.0.2\""},
        {{"reduce=tcp", "leader=a:0", "address=10.0.0.2"}, "ranks.leader: \"a:0\""},
        {{"reduce=tcp", "leader=a:1", "address=asia"}, "ranks.address: \"asia\": no address in"},
        {{"reduce=nccl", "leader=127.0.0.2:1", "address=127.0.0.2"}, "$NCCL_SOCKET_IFNAME"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c = load("ranks.count=2");
        for (size_t k = 0; k < 6 && row[i].set[k]; k++) {
            char set[80] = "ranks.";
            strncat(set, row[i].set[k], sizeof set - 7);
            assert_int_equal(lh_config_set(c, set), LH_OK);
        }
        lh_err err = lh_config_finish(c);
        if (err != (row[i].says ? LH_ERR_CONFIG : LH_OK))
            fail_msg("row %zu: %d: %s", i, (int)err, lh_err_text(err));
        if (row[i].says && !strstr(lh_err_text(LH_ERR_CONFIG), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CONFIG), row[i].says);
        lh_config_destroy(c);
    }
}

static struct wk_codec_plan plan_of(const char *a, const char *b)
{
    struct lh_config *c = load(a);
    if (b) assert_int_equal(lh_config_set(c, b), LH_OK);
    assert_int_equal(lh_config_finish(c), LH_OK);
    struct wk_codec_plan plan = wk_codec_plan(lh_config_settings(c));
    lh_config_destroy(c);
    return plan;
}

static void assert_plan(struct wk_codec_plan p, double density, double beta, double kappa)
{
    assert_true(p.density == (float)density && p.beta == (float)beta && p.kappa == (float)kappa);
}

// beta is 1 from a density of 6 % on, else 0.95; kappa is 0.25 (worker/README.md gives the reason);
// dense codecs have no residual.
TEST(auto_chooses_density_beta_and_kappa)
{
    assert_plan(plan_of(NULL, NULL), 0.075, 1, 0.25);
    assert_plan(plan_of("codec.density=0.06", NULL), 0.06, 1, 0.25);
    assert_plan(plan_of("codec.density=0.02", NULL), 0.02, 0.95, 0.25);
    assert_plan(plan_of("codec.density=auto", "codec.name=dense-q4"), 1, 1, 0);
    // auto follows the number of rounds, which the coordinator knows.
    assert_true(plan_of("codec.density=auto", NULL).follows);
    assert_plan(plan_of("codec.density=auto", NULL), 0.075, 1, 0.25);
    assert_false(plan_of("codec.density=0.075", NULL).follows);
    assert_false(plan_of("codec.density=auto", "codec.name=dense-q4").follows);
}

static uint32_t threads_of(const char *a, const char *b)
{
    struct lh_config *c = load(a);
    if (b) assert_int_equal(lh_config_set(c, b), LH_OK);
    assert_int_equal(lh_config_finish(c), LH_OK);
    uint32_t threads = wk_codec_threads(lh_config_settings(c));
    lh_config_destroy(c);
    return threads;
}

// One thread for each rank, at most one a processor; a value that is set is used.
TEST(a_push_is_encoded_by_as_many_threads_as_ranks)
{
    assert_int_equal(threads_of(NULL, NULL), 1);
    size_t two = lh_processors() < 2 ? 1 : 2;
    assert_int_equal(threads_of("ranks.count=2", NULL), two);
    assert_int_equal(threads_of("ranks.count=64", NULL),
                     lh_processors() < 64 ? lh_processors() : 64);
}

// A private worker that could not keep its privacy claim does not start.
TEST(a_private_worker_without_noise_does_not_start)
{
    static const struct {
        const char *set[5], *says;
    } bad[] = {
        {{"trainer.kind=synthetic"}, "set trainer.kind: builtin"},
        {{"ranks.count=2"}, "set ranks.count: 1"},
        {{"trainer.backend=cuda"}, "set trainer.backend: cpu"},
        {{"trainer.noise_threshold=1"}, "set trainer.noise_threshold: off"},
        {{"eval.every_tokens=1000000"}, "set eval.every_tokens: off"},
        {{"trainer.kind=external"}, "set codec.name: dense-fp32"},
        {{"trainer.kind=external", "codec.name=dense-fp32", "codec.density=auto",
          "http.listen=127.0.0.1:9100"},
         "set http.listen"},
        {{"privacy.reported=on"}, "set privacy.reported: off"},
        {{"privacy.reported=on", "privacy.budget="}, "privacy.budget names no file"},
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct lh_config *c = load("privacy.budget=records.budget");
        for (size_t k = 0; k < LH_COUNT(bad[i].set) && bad[i].set[k]; k++)
            assert_int_equal(lh_config_set(c, bad[i].set[k]), LH_OK);
        lh_err err = lh_config_finish(c);
        if (err != LH_ERR_CONFIG || !strstr(lh_err_text(err), bad[i].says))
            fail_msg("%zu: %s", i, lh_err_text(err));
        lh_config_destroy(c);
    }
    struct lh_config *c = load("privacy.budget=records.budget");
    assert_int_equal(lh_config_set(c, "trainer.kind=external"), LH_OK);
    assert_int_equal(lh_config_set(c, "codec.name=dense-fp32"), LH_OK);
    assert_int_equal(lh_config_set(c, "codec.density=auto"), LH_OK);
    assert_int_equal(lh_config_finish(c), LH_OK);
    const struct wk_settings *s = lh_config_settings(c);
    assert_int_equal(s->privacy.telemetry, WK_TELEMETRY_NONE);
    assert_true(wk_settings_releases(s));
    lh_config_destroy(c);
    // A training loop that reports its own noise: the worker adds none.
    c = load("privacy.budget=records.budget");
    assert_int_equal(lh_config_set(c, "trainer.kind=external"), LH_OK);
    assert_int_equal(lh_config_set(c, "privacy.reported=on"), LH_OK);
    lh_err err = lh_config_finish(c);
    if (err) fail_msg("%s", lh_err_text(err));
    assert_false(wk_settings_releases(lh_config_settings(c)));
    lh_config_destroy(c);
    // The built-in trainer's steps contain noise already, so any codec may be used.
    c = load("privacy.budget=records.budget");
    assert_int_equal(lh_config_finish(c), LH_OK);
    assert_false(wk_settings_releases(lh_config_settings(c)));
    lh_config_destroy(c);
}
