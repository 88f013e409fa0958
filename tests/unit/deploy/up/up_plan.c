// The cost of a run: figures of the example, compared with hand calculation and DESIGN.md#section-6
// to #section-7.
#include <math.h>
#include <string.h>
#include <jansson.h>

#include "common/base/check.h"
#include "deploy/up/up_plan.h"
#include "tests/test.h"

static struct dp_topology *parse(const char *rest)
{
    char text[2048];
    struct dp_topology *t;
    snprintf(text, sizeof text,
             "run: demo\ncoordinator: {region: asia}\n"
             "servers: [{name: s0, region: asia, shards: [0, 1, 2]}, "
             "{name: s1, region: asia, shards: [3]}]\n%s",
             rest);
    lh_err err = dp_topology_parse("t", lh_span_str(text), &t);
    if (err) fail_msg("%s", lh_err_text(err));
    return t;
}

static void near(double is, double expected, double relative)
{
    if (!(fabs(is - expected) <= relative * fabs(expected))) fail_msg("%g is not %g", is, expected);
}

TEST(the_example)
{
    struct dp_topology *t;
    struct dp_plan plan;
    assert_int_equal(dp_topology_load("deploy/examples/three-regions.yaml", &t), LH_OK);
    dp_plan_make(t, 430000, &plan);
    near(plan.rounds, 4e6 / ((8 + 4 + 2) * 512), 1e-12); // 558
    near(plan.density, 0.075, 1e-12);
    near(plan.density_rounds, 0.075 * plan.rounds, 1e-12);
    assert_null(plan.gap); // 558 rounds: not measured
    near(plan.region[0].tokens_per_s, t->run->tokens_per_s * 4 / 7, 1e-12);
    near(plan.region[2].up_bytes_round, plan.payload_bytes, 1e-12);
    near(plan.region[2].down_bytes_round, 2 * plan.payload_bytes, 1e-12);
    assert_true(plan.train_s > 60 && plan.train_s < 8 * 60); // the demo takes eight minutes
    dp_topology_free(t);
}

// DESIGN.md#section-7: 64 of 4096 with signs: entropy 0.132, at most 0.140 bit per parameter.
TEST(bits_of_64_in_4096)
{
    struct dp_topology *t = parse("budget_tokens: 1000\nregions: {asia: }\n"
                                  "worker: {codec: {density: 0.015625}}\n");
    struct dp_plan plan;
    dp_plan_make(t, 16000000, &plan);
    assert_true(plan.bits > 0.132 && plan.bits < 0.140);
    dp_topology_free(t);
}

static double bits_with(const char *codec)
{
    char text[128];
    snprintf(text, sizeof text,
             "budget_tokens: 1000\nregions: {asia: }\nworker: {codec: {name: %s, density: %s}}\n",
             codec, strncmp(codec, "dense", 5) ? "0.015625" : "1");
    struct dp_topology *t = parse(text);
    struct dp_plan plan;
    dp_plan_make(t, 16000000, &plan);
    dp_topology_free(t);
    return plan.bits;
}

static double eta_with(const char *density, const char *regions, const char *server)
{
    char text[256];
    snprintf(text, sizeof text,
             "budget_tokens: 1000\nregions: {asia: %s}\n%sworker: {codec: {density: %s}}\n",
             regions, server, density);
    struct dp_topology *t = parse(text);
    struct dp_plan plan;
    dp_plan_make(t, 16000000, &plan);
    dp_topology_free(t);
    return plan.eta;
}

// Returns the expected gap of a topology like bench/learning's, with `more` added to its server.
static const struct dp_gap *gap_trained(const char *trainer, const char *third, const char *worker,
                                        const char *more, uint64_t parameters, unsigned rounds)
{
    char text[512];
    struct dp_plan plan;
    snprintf(text, sizeof text,
             "budget_tokens: %u\nregions: {asia: , europe: , america: {%s}}\n"
             "server: {coordinator.h_base: \"8,europe=4,america=%.*s\"%s}\n"
             "worker: {trainer: {batch: 4%s}%s}\n",
             rounds * 14 * 512, third + strcspn(third, " "), (int)strcspn(third, " "), third, more,
             trainer, worker);
    struct dp_topology *t = parse(text);
    dp_plan_make(t, parameters, &plan);
    const struct dp_gap *gap = plan.gap;
    dp_topology_free(t);
    return gap;
}

static const struct dp_gap *gap_with(const char *third, const char *worker, const char *more,
                                     uint64_t parameters, unsigned rounds)
{
    return gap_trained(", learning_rate: 0.006, min_ratio: 0.02", third, worker, more, parameters,
                       rounds);
}

static const char ALIKE[] = "2", P64[] = ", codec: {density: 0.015625}";

// Returns the row of a results file; the caller releases `all`.
static const json_t *row_of(const char *path, const char *name, json_t **all)
{
    json_t *row;
    size_t i;
    *all = json_load_file(path, 0, NULL);
    json_array_foreach(json_object_get(*all, "rows"), i, row)
    {
        if (!strcmp(json_string_value(json_object_get(row, "name")), name)) return row;
    }
    return NULL;
}

// The table in up_plan.c agrees with bench/results to its last digit.
TEST(gaps_are_those_that_were_measured)
{
    static const struct {
        const char *worker, *more, *path, *row;
    } of[] = {{"", "", "bench/results/learning-fresh14.json", "learning.fresh14.n400"},
              {"", ", update: {eta: 2}", "bench/results/learning.json",
               "learning.gap_to_sync_dense_percent"},
              {", codec: {density: 0.03125}", "", "bench/results/learning.json",
               "learning.gap_to_sync_dense_percent.ours:p=0.03125"},
              {P64, "", "bench/results/learning-p64.json", "learning.p64.n400.ours-p64"}};
    for (size_t k = 0; k < LH_COUNT(of); k++) {
        json_t *all;
        const json_t *row = row_of(of[k].path, of[k].row, &all);
        const struct dp_gap *gap = gap_with(ALIKE, of[k].worker, of[k].more, 430000, 400);
        assert_non_null(row);
        assert_non_null(gap);
        double mean = json_number_value(json_object_get(row, "value"));
        double low = json_number_value(json_object_get(row, "min"));
        double high = json_number_value(json_object_get(row, "max"));
        assert_true(fabs(gap->low_percent - low) < 0.0051);
        assert_true(fabs(gap->high_percent - high) < 0.0051);
        assert_int_equal(gap->seeds, json_integer_value(json_object_get(row, "n")));
        near(gap->mean_nat, mean / 100 * 1.942, 0.05); // percent of the baseline's loss
        json_decref(all);
    }
}

TEST(nothing_is_expected_of_what_was_not_measured)
{
    assert_non_null(gap_with(ALIKE, "", "", 430000, 400));
    assert_null(gap_with(ALIKE, "", "", 1700000, 400)); // another size
    assert_null(gap_with(ALIKE, "", "", 430000, 4000)); // length, and so density
    assert_null(gap_with(ALIKE, ", codec: {density: 0.075}", "", 430000, 800)); // only the length
    assert_null(gap_with("16", "", "", 430000, 400));                           // cadence
    assert_null(gap_with("2 workers: 2", "", "", 430000, 400));
    assert_null(gap_with(ALIKE, ", codec: {density: 0.1}", "", 430000, 400));
    assert_null(gap_with(ALIKE, ", codec: {name: topk-q4}", "", 430000, 400));
    assert_null(gap_with(ALIKE, "", ", update: {eta: 1}", 430000, 400));
    assert_null(gap_with(ALIKE, "", ", update: {mode: bsp}", 430000, 400));
    static const char *const other[] = {"", ", min_ratio: 0.02", ", learning_rate: 0.006",
                                        ", learning_rate: 0.003, min_ratio: 0.02",
                                        ", learning_rate: 0.006, min_ratio: 0.02, decay: 0.2"};
    for (size_t i = 0; i < LH_COUNT(other); i++)
        assert_null(gap_trained(other[i], ALIKE, "", "", 430000, 400)); // schedule
    char text[200];
    assert_non_null(strstr(dp_gap_text(NULL, text), "not measured"));
    assert_non_null(
        strstr(dp_gap_text(gap_with(ALIKE, "", "", 430000, 400), text), "-1.3 to -0.6 %"));
}

// The reasons are in bench/learning/README.md.
TEST(eta_by_density_and_workers)
{
    near(eta_with("0.05", "", ""), 1, 1e-12); // a single worker's push is the whole update
    near(eta_with("0.05", "{workers: 2}", ""), 1.4, 1e-12);
    near(eta_with("0.05", "{workers: 3}", ""), 2, 1e-12);
    near(eta_with("0.05", "{workers: 9}", ""), 2, 1e-12);
    near(eta_with("0.075", "{workers: 9}", ""), 1.4, 1e-12);
    near(eta_with("0.1", "{workers: 3}", ""), 1, 1e-12);
    near(eta_with("0.015625", "{workers: 2}", ""), 2, 1e-12);
    near(eta_with("0.015625", "{workers: 9}", ""), 3, 1e-12);
    near(eta_with("0.03", "{workers: 9}", ""), 2, 1e-12);
    near(eta_with("0.05", "{workers: 3}", "server: {update: {eta: 1.2}}\n"), 1.2, 1e-12);
    near(eta_with("0.05", "{workers: 3}", "server: {update: {optimizer: delayed-nesterov}}\n"), 1.4,
         1e-12); // not above the bound of the effective step
}

// An index gap costs the same in every value code.
TEST(bits_of_every_codec)
{
    double p = 1.0 / 64, half = 16.0 / 4096, gap = bits_with("topk-fp32") - 32 * p;
    near(bits_with("topk-sign"), gap + p + half, 1e-12);
    near(bits_with("topk-q4"), gap + 4 * p + half, 1e-12);
    near(bits_with("topk-fp16"), gap + 16 * p, 1e-12);
    near(bits_with("dense-q4"), 4 + half, 1e-12);
    near(bits_with("dense-fp32"), 32, 1e-12);
}

static void print_to(const struct dp_topology *t, const struct dp_plan *plan, char text[8192])
{
    FILE *file = tmpfile();
    assert_non_null(file);
    dp_plan_print(t, plan, file);
    rewind(file);
    text[fread(text, 1, 8191, file)] = 0;
    fclose(file);
}

TEST(h_by_speed_and_dense_codecs)
{
    struct dp_topology *t =
        parse("budget_tokens: 10000000\nregions: {asia: {speed: 8, workers: 2}, eu: {speed: 4}, "
              "us: {speed: 0.1}, au: {speed: 8}}\n"
              "server: {coordinator.h_base: \"20,au=3\", checkpoint: {every_versions: 10}}\n"
              "worker: {codec.name: dense-sign, trainer: {batch: 2, accumulate: 3}}\n");
    struct dp_plan plan;
    dp_plan_make(t, 1000000, &plan);
    assert_int_equal(plan.region[0].h, 20);
    assert_int_equal(plan.region[1].h, 10);
    assert_int_equal(plan.region[2].h, 1);
    assert_int_equal(plan.region[3].h, 3);
    assert_int_equal(plan.region[0].step_tokens, 2 * 3 * 128);
    near(plan.rounds, 1e7 / ((40 + 10 + 1 + 3) * 768.0), 1e-12);
    assert_true(plan.density == 1 && !plan.gap && plan.train_s == 0);
    near(plan.bits, 1 + 16.0 / 4096, 1e-12);
    near(plan.region[0].up_bytes_round, 2 * plan.payload_bytes, 1e-12);
    near(plan.region[0].down_bytes_round, 2 * 4 * plan.payload_bytes, 1e-12);
    // three quarters of the model: two checkpoints and 20 versions of log; a shard's next
    // checkpoint; two segments
    near(plan.server_disk_bytes,
         0.75 * (2 * 4e6 + 20 * plan.payload_bytes) + 0.25 * 4e6 + 2 * 67108864.0, 1e-9);
    dp_topology_free(t);
}

TEST(density_is_clamped)
{
    static const struct {
        const char *rest;
        double density;
    } row[] = {
        {"budget_tokens: 4096\nregions: {asia: }\nserver: {coordinator.h_base: 1}\n",
         1.0 / 6}, // 8 rounds
        {"budget_tokens: 512000000\nregions: {asia: }\nserver: {coordinator.h_base: 1}\n",
         0.075}, // a million rounds
        {"budget_tokens: 153600\nregions: {asia: }\nserver: {coordinator.h_base: 1}\n", 0.1}, // 300
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct dp_topology *t = parse(row[i].rest);
        struct dp_plan plan;
        dp_plan_make(t, 1000, &plan);
        near(plan.density, row[i].density, 1e-9);
        dp_topology_free(t);
    }
}

// u and m of the outer optimizer take memory on the largest server (3 of 4 shards) and on every
// worker.
TEST(an_outer_optimizer_takes_memory)
{
    struct dp_plan plain, outer;
    struct dp_topology *t = parse("budget_tokens: 1000\nregions: {asia: }\n");
    dp_plan_make(t, 1000000, &plain);
    dp_topology_free(t);
    t = parse("budget_tokens: 1000\nregions: {asia: }\n"
              "server: {update: {optimizer: delayed-nesterov}}\n");
    dp_plan_make(t, 1000000, &outer);
    dp_topology_free(t);
    // Replica, checkpoint, and snapshot for a joining worker.
    near(plain.server_memory_bytes, 3 * 0.75 * 4e6 + (48 << 20), 1e-12);
    near(plain.server_held_bytes, 0.75 * 4e6 + (48 << 20), 1e-12);
    // The checkpoint and the durable copy contain the optimizer's state as well.
    near(outer.server_memory_bytes, 3 * 0.75 * 12e6 + (48 << 20), 1e-12);
    near(outer.server_disk_bytes - plain.server_disk_bytes, (2 * 0.75 + 0.25) * 8e6, 1e-9);
    near(outer.worker_held_bytes - plain.worker_held_bytes, 8e6, 1e-12);
    near(outer.worker_memory_bytes - plain.worker_memory_bytes, 16e6, 1e-12);
}

// Bytes per parameter from worker/README.md#memory, for each kind of trainer.
TEST(memory_depends_on_the_trainer)
{
    static const struct {
        const char *run;
        double held, passing, disk;
    } row[] = {{"regions: {asia: }", 32, 12, 44},
               {"regions: {asia: }\nworker: {trainer.kind: synthetic}", 20, 4, 28},
               {"regions: {asia: {command: loop}}", 22, 4, 28},
               {"regions: {asia: {command: loop}, europe: }", 32, 12, 44}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        char text[128];
        struct dp_plan plan;
        snprintf(text, sizeof text, "budget_tokens: 1000\n%s\n", row[i].run);
        struct dp_topology *t = parse(text);
        dp_plan_make(t, 1000000, &plan);
        dp_topology_free(t);
        double pushes = plan.payload_bytes;
        near(plan.worker_held_bytes, row[i].held * 1e6 + 2 * pushes + (48 << 20), 1e-12);
        near(plan.worker_memory_bytes - plan.worker_held_bytes, row[i].passing * 1e6, 1e-9);
        near(plan.worker_disk_bytes, row[i].disk * 1e6 + pushes, 1e-12);
    }
}

// Memory of ranks in fp32 copies of the model: a gradient for each rank in shared memory, or all
// that a separate process holds.
TEST(ranks_take_memory)
{
    static const struct {
        const char *asia;
        double copies;
        const char *says;
    } row[] = {
        {"{ranks: 3}", 2, "asia         3 ranks a worker, shm\n"},
        {"{ranks: 3}}\nworker: {ranks.wire: bf16", 3,
         "asia         3 ranks a worker, shm in bf16\n"},
        {"{ranks: 3}}\nworker: {ranks.reduce: tcp", 8, "asia         3 ranks a worker, tcp\n"},
        {"{ranks: 3, hosts: 2}", 8, "asia         3 ranks a worker on 2 hosts, tcp\n"},
        {"{gpus: 8}", 28, "asia         8 ranks a worker, nccl, a GPU each\n"}};
    struct dp_plan alone, plan;
    struct dp_topology *t = parse("budget_tokens: 1000\nregions: {asia: }\n");
    dp_plan_make(t, 1000000, &alone);
    dp_topology_free(t);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        char rest[128], said[8192];
        FILE *file = tmpfile();
        assert_non_null(file);
        snprintf(rest, sizeof rest, "budget_tokens: 1000\nregions: {asia: %s}\n", row[i].asia);
        t = parse(rest);
        dp_plan_make(t, 1000000, &plan);
        dp_plan_print(t, &plan, file);
        rewind(file);
        said[fread(said, 1, sizeof said - 1, file)] = 0;
        near(plan.worker_memory_bytes - alone.worker_memory_bytes, row[i].copies * 4e6, 1e-12);
        if (!strstr(said, row[i].says)) fail_msg("\"%s\" is not in:\n%s", row[i].says, said);
        fclose(file);
        dp_topology_free(t);
    }
}

TEST(a_printed_plan_shows_its_figures)
{
    struct dp_topology *t;
    struct dp_plan plan;
    char text[8192];
    assert_int_equal(dp_topology_load("deploy/examples/three-regions.yaml", &t), LH_OK);
    dp_plan_make(t, 430000, &plan);
    print_to(t, &plan, text);
    static const char *const says[] = {"rounds            558",
                                       "about 41.9 times",
                                       "update            eta 1.4\n",
                                       "asia - europe",
                                       "200 ms",
                                       "100 Mbit/s",
                                       "loss gap          not measured for such a run",
                                       "up a day"};
    for (size_t i = 0; i < LH_COUNT(says); i++)
        if (!strstr(text, says[i])) fail_msg("\"%s\" is not in:\n%s", says[i], text);
    assert_null(strstr(text, "learning rate"));
    plan.rounds = 800;
    plan.eta = 1.55;
    print_to(t, &plan, text);
    assert_non_null(strstr(text, "learning rate     in long runs 0.6 of dense training's peak"));
    plan.eta = 1.4; // two workers: a lower rate was not measured
    print_to(t, &plan, text);
    assert_null(strstr(text, "learning rate"));
    plan.eta = 1.7, plan.density = 0.15;
    print_to(t, &plan, text);
    assert_null(strstr(text, "learning rate"));
    dp_topology_free(t);
}

// Computed by hand: three workers' pushes of 0.5 MB, at 1440 rounds of a minute a day; then at 4 s
// a round.
TEST(bytes_a_day_are_told_by_region_and_in_all)
{
    static const char ROW[] = "%-12s %8d %6s %12s %14s %14s\n";
    struct dp_topology *t = parse("budget_tokens: 1000000\nregions: {asia: {workers: 2}, eu: }\n"
                                  "worker: {codec.name: dense-q4}\n");
    struct dp_plan plan;
    char text[8192], total[128];
    dp_plan_make(t, 1000000, &plan);
    near(plan.payload_bytes, 5e5, 0.001);
    assert_true(plan.train_s == 0); // the speed of the loops is unknown
    print_to(t, &plan, text);
    snprintf(total, sizeof total, ROW, "total", 3, "", "", "1.5 MB", "3.0 MB");
    if (!strstr(text, total)) fail_msg("\"%s\" is not in:\n%s", total, text);
    assert_non_null(strstr(text, "up a round"));
    assert_non_null(strstr(text, "bytes a day       2.2 GB up, 4.3 GB down in all if a round"));
    plan.rounds = 100;
    plan.train_s = 400;
    print_to(t, &plan, text);
    snprintf(total, sizeof total, ROW, "total", 3, "", "", "32 GB", "65 GB");
    if (!strstr(text, total)) fail_msg("\"%s\" is not in:\n%s", total, text);
    assert_non_null(strstr(text, "up a day"));
    assert_null(strstr(text, "bytes a day"));
    dp_topology_free(t);
}
