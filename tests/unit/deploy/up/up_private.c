// The private regions of a run: their folders, what a plan prints of them, and their nodes'
// settings.
#include <sys/stat.h>

#include "common/base/check.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_net.h"
#include "deploy/up/up_private.h"
#include "tests/unit/deploy/up/up_rig.h"

enum { RECORDS = 300 };

static void put_units(const char *folder, const char *home, uint32_t vocabulary)
{
    char path[DP_PATH_BYTES];
    static struct lh_unit unit[RECORDS];
    struct lh_units u = {
        .unit = unit, .count = RECORDS, .vocabulary = vocabulary, .token_bytes = 2};
    struct lh_buf json = lh_buf(1 << 20);
    for (uint64_t i = 0; i < RECORDS; i++) {
        unit[i] = (struct lh_unit){.id = i, .from = 9 * i, .tokens = 9, .may_leave = false};
        snprintf(unit[i].file, sizeof unit[i].file, "a.bin");
        snprintf(unit[i].language, sizeof unit[i].language, "en");
        snprintf(unit[i].home, sizeof unit[i].home, "%s", home);
    }
    assert_int_equal(lh_units_write(&u, &json), LH_OK);
    assert_int_equal(dp_path(path, "%s/%s", root, folder), LH_OK);
    assert_int_equal(dp_make_dirs(path), LH_OK);
    assert_int_equal(dp_path(path, "%s/%s/units.json", root, folder), LH_OK);
    assert_int_equal(dp_file_write(path, lh_buf_span(&json), 0600), LH_OK);
    lh_buf_free(&json);
}

static struct dp_up *open_with(const char *folder, const char *delta)
{
    char text[2048];
    snprintf(text, sizeof text,
             "run: tiny\nbudget_tokens: 100000\ncoordinator: {region: eu}\n"
             "model: {vocabulary: 32, dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: "
             "16}\n"
             "servers: [{name: s0, region: eu, shards: [0]}]\n"
             "regions: {eu: , us: {data: %s/%s, privacy: {level: record}}}\n"
             "server: {coordinator: {cadence: fixed, step_tokens: 64}, privacy: {sigma: 2, rate: "
             "0.05, clip: 1, epsilon: 8, delta: %s, steps: 50, record_tokens: 17}}\n",
             root, folder, delta);
    return open_up(text);
}

static void refused(const char *folder, const char *delta, const char *says)
{
    struct dp_up *up = open_with(folder, delta);
    lh_err err = dp_private_data(up, false);
    assert_int_not_equal(err, LH_OK);
    if (!strstr(lh_err_text(err), says)) fail_msg("%s", lh_err_text(err));
    close_up(up);
}

TEST(a_folder_of_records)
{
    put_units("good", "us", 32);
    put_units("mixed", "eu", 32);
    put_units("wide", "us", 64);
    struct dp_up *up = open_with("good", "1e-5");
    assert_int_equal(dp_private_data(up, false), LH_OK);
    assert_int_equal(up->records[1], RECORDS);
    assert_int_equal(up->records[0], 0);
    // The file that all regions see has records of us.
    struct lh_unit unit = {.home = "us"};
    up->units = (struct lh_units){.unit = &unit, .count = 1};
    assert_int_equal(dp_private_data(up, false), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "all regions see this file"));
    up->units = (struct lh_units){0};
    close_up(up);
    refused("mixed", "1e-5", "unit 0 belongs to eu");
    refused("wide", "1e-5", "a vocabulary of 64, but model.vocabulary is 32");
    refused("good", "0.01", "use one below 0.00333");
    refused("absent", "1e-5", "units.json");
    up = open_with("absent", "1e-5");
    assert_int_equal(dp_private_data(up, true), LH_OK); // a plan reports it
    assert_int_equal(up->records[1], 0);
    close_up(up);
}

static void says(struct dp_up *up, const char *const *words)
{
    char text[1 << 14];
    FILE *out = tmpfile();
    assert_non_null(out);
    assert_int_equal(dp_private_print(up, out), LH_OK);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    for (; *words; words++)
        if (!strstr(text, *words)) fail_msg("no \"%s\" in\n%s", *words, text);
    fclose(out);
}

TEST(a_plan_says_what_privacy_costs)
{
    static const char *const known[] = {
        "record level: sigma 2, C 1, rate 0.05, 50 steps cost epsilon",
        "300 records; epsilon 8 at delta ",
        "the sampler adds",
        "truncated draws",
        "(each at most 1e-08)",
        "15 records are drawn;",
        "passes of 16 tokens",
        "more noise than gradient",
        NULL};
    static const char *const unknown[] = {"records not counted", "the sampler adds", NULL};
    put_units("good", "us", 32);
    struct dp_up *up = open_with("good", "1e-5");
    assert_int_equal(up->plan.region[1].step_tokens, 64); // the tokens that its pushes report
    assert_int_equal(dp_private_data(up, true), LH_OK);
    says(up, known);
    close_up(up);
    up = open_with("absent", "1e-5");
    assert_int_equal(dp_private_data(up, true), LH_OK);
    says(up, unknown);
    close_up(up);
}

static const struct dp_node *node_of(const struct dp_up *up, const char *name)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (!strcmp(up->node[i].name, name)) return &up->node[i];
    fail_msg("no node %s", name);
    return NULL;
}

static void holds(const struct dp_up *up, const char *node, const char *line, bool does)
{
    char text[1 << 14];
    struct lh_buf yaml = lh_buf(sizeof text - 1);
    assert_int_equal(dp_file_read(node_of(up, node)->config, &yaml), LH_OK);
    snprintf(text, sizeof text, "%.*s", (int)yaml.len, (const char *)yaml.data);
    if ((strstr(text, line) != NULL) != does) fail_msg("%s of %s:\n%s", line, node, text);
    lh_buf_free(&yaml);
}

TEST(only_the_private_regions_worker_has_its_records)
{
    put_units("good", "us", 32);
    struct dp_up *up = open_with("good", "1e-5");
    assert_int_equal(dp_private_data(up, false), LH_OK);
    assert_int_equal(dp_dir_open(up), LH_OK);
    assert_int_equal(dp_dir_prepare(up), LH_OK);
    assert_int_equal(dp_net_up(up), LH_OK);
    lh_err err = dp_dir_settings(up);
    if (err) fail_msg("%s", lh_err_text(err));
    static const char *const others[] = {"coordinator", "s0", "eu-0"};
    holds(up, "us-0", "/good", true);
    holds(up, "us-0", "us-0.budget", true);
    holds(up, "coordinator", "us=private,leased", true);
    for (size_t i = 0; i < LH_COUNT(others); i++) {
        holds(up, others[i], "/good", false);
        holds(up, others[i], "us-0.budget", false);
    }
    close_up(up);
}

int main(void)
{
    return test_run(setup, teardown);
}
