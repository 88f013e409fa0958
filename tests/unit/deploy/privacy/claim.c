// Privacy claims and their texts: numbers, units, the receipt, the command.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/privacy/claim.h"
#include "deploy/privacy/statement.h"
#include "deploy/tool/cli.h"
#include "tests/test.h"

static struct dp_claim region(void)
{
    return (struct dp_claim){
        .terms = {.level = LH_PRIVACY_REGION, .rate = 1, .clip = 2, .delta = 1e-6, .steps = 200},
        .values = 26562,
        .shards = 4};
}

static struct dp_claim record(void)
{
    return (struct dp_claim){.terms = {.level = LH_PRIVACY_RECORD,
                                       .sigma = 1.5,
                                       .rate = 0.04,
                                       .clip = 1,
                                       .delta = 1e-5,
                                       .steps = 2250,
                                       .record_tokens = 1024},
                             .values = 100000,
                             .shards = 1,
                             .records = 20000,
                             .charged = 100,
                             .earlier = 50,
                             .run = "main",
                             .region = "eu"};
}

static void text_of(const struct dp_claim *c, char *text, size_t size)
{
    struct lh_buf out = lh_buf(1 << 16);
    dp_statement_put(&out, c);
    assert_int_equal(lh_buf_err(&out), LH_OK);
    assert_true(out.len < size);
    memcpy(text, out.data, out.len);
    text[out.len] = 0;
    lh_buf_free(&out);
}

// At region level data is replaced, not emptied, so the noise over C must be twice as large.
TEST(region_level_has_twice_the_sensitivity)
{
    struct dp_claim c = region();
    char text[8192];
    assert_int_equal(dp_claim_calibrate(&c, 8), LH_OK);
    assert_int_equal(dp_claim_compute(&c), LH_OK);
    assert_true(fabs(c.terms.sigma - 2 * 9.234) < 0.02); // twice the notes' sigma of 200 steps
    assert_true(c.sigma == c.terms.sigma / 2);
    assert_true(c.price.claimed <= 8 && c.price.claimed > 7.99);
    assert_true(c.delta_sampler > 0 && c.delta_sampler < 1e-9 && c.delta_truncated == 0);
    assert_true(fabs(c.noise_norm / (c.terms.sigma * sqrt(26562)) - 1) < 1e-12);
    text_of(&c, text, sizeof text);
    assert_non_null(strstr(text, "sensitivity 2C"));
    assert_non_null(strstr(text, "more noise than delta"));
    assert_non_null(strstr(text, "(8.000, 1e-06)-differential privacy for all data"));
    c.terms.rate = 0.5;
    assert_int_equal(dp_claim_compute(&c), LH_ERR_CONFIG);
}

TEST(record_level_counts_draws)
{
    struct dp_claim c = record();
    char text[8192];
    assert_int_equal(dp_claim_compute(&c), LH_OK);
    assert_true(c.price.claimed > 6.7687 && c.price.claimed < 6.772);
    assert_true(c.so_far > 0 && c.so_far < c.price.claimed);
    assert_true(c.cap > 800 && c.cap < 1100); // expected: 800
    assert_true(c.delta_truncated > 0 && c.delta_truncated <= 1e-8);
    text_of(&c, text, sizeof text);
    assert_non_null(strstr(text, "sensitivity C\n"));
    assert_non_null(strstr(text, "in secret; the sum is divided by the expected batch"));
    assert_non_null(strstr(text, "100 steps of this run and 50 of earlier ones"));
    assert_non_null(strstr(text, "one document emptied"));
    // The text rounds up: never below the computed epsilon.
    double said = strtod(strchr(text, '(') + 1, NULL);
    assert_true(said >= c.price.claimed && said < c.price.claimed + 0.001);
}

// The statement attributes what the trainer reported to the trainer.
TEST(a_reported_level_promises_nothing_of_its_own)
{
    struct dp_claim c = record();
    char text[8192];
    c.terms.level = LH_PRIVACY_REPORTED;
    assert_int_equal(dp_claim_compute(&c), LH_OK);
    text_of(&c, text, sizeof text);
    assert_non_null(strstr(text, "as the trainer reported"));
    assert_null(strstr(text, "enforced by the"));
}

TEST(the_receipt_says_the_same)
{
    static const char *const keys[] = {"schema",
                                       "level",
                                       "unit",
                                       "neighbours",
                                       "epsilon",
                                       "delta",
                                       "accountant",
                                       "epsilon_by",
                                       "delta_accounted",
                                       "delta_sampler",
                                       "delta_truncated",
                                       "noise_over_clip",
                                       "noise_over_sensitivity",
                                       "clip",
                                       "rate",
                                       "steps",
                                       "record_tokens",
                                       "passes",
                                       "steps_charged",
                                       "steps_earlier",
                                       "epsilon_so_far",
                                       "leaves",
                                       "protects_from",
                                       "not_covered",
                                       "run",
                                       "region"};
    struct dp_claim c = record();
    assert_int_equal(dp_claim_compute(&c), LH_OK);
    json_t *o = dp_statement_json(&c);
    assert_non_null(o);
    for (size_t i = 0; i < LH_COUNT(keys); i++) assert_non_null(json_object_get(o, keys[i]));
    assert_true(json_real_value(json_object_get(o, "epsilon")) == c.price.claimed);
    const json_t *by = json_object_get(o, "epsilon_by");
    assert_true(json_object_size(by) == 2); // the analytic accountant does not support sampling
    json_decref(o);
}

static int run(const char *line)
{
    char text[512], *argv[32] = {0}, *rest = text;
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word; argc < 31 && (word = strtok_r(rest, " ", &rest));) argv[argc++] = word;
    fflush(stdout);
    int out = dup(1), err = dup(2);
    FILE *file = tmpfile();
    assert_non_null(file);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    int code = dp_command(argc, argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    fclose(file);
    return code;
}

TEST(the_command_refuses_what_is_not_sound)
{
    static const char *const bad[] = {
        "privacy plan",
        "privacy plan --delta 1e-5 --steps 10",
        "privacy plan --delta 1e-5 --steps 10 --epsilon 1 --sigma 1",
        "privacy plan --delta 1e-10 --steps 10 --sigma 1",
        "privacy plan --delta 1e-5 --steps 0 --sigma 1",
        "privacy plan --delta 1e-5 --steps 10 --sigma nan",
        "privacy plan --delta 1e-5 --steps 10 --sigma 1 --level none",
        "privacy plan --delta 1e-5 --steps 10 --sigma 1 --rate 0",
        "privacy plan --delta 1e-5 --steps 10 --sigma 10 --rate 0.1 --level region",
        "privacy plan --delta 1e-5 --steps 10 --sigma 1 -o xml",
        "privacy plan --delta 1e-9 --steps 1000000000 --epsilon 0.00001",
        "privacy audits",
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) assert_int_not_equal(run(bad[i]), 0);
    assert_int_equal(run("privacy plan --delta 1e-5 --steps 10 --epsilon 4"), 0);
    assert_int_equal(run("privacy plan --delta 1e-5 --steps 10 --sigma 9 --level region -o json"),
                     0);
    assert_int_equal(run("privacy plan --help"), 0);
}
