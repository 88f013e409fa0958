// status.json of every role; absent fields; refusals; counts over several processes.
#include <string.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/ask/up_status.h"
#include "deploy/tool/files.h"
#include "tests/test.h"

static struct dp_status parse(const char *json)
{
    struct dp_status s;
    lh_err err = dp_status_parse(lh_span_str(json), &s);
    if (err) fail_msg("%s", lh_err_text(err));
    return s;
}

TEST(a_worker)
{
    struct dp_status s = parse(
        "{\"role\": \"worker\", \"region\": \"asia\", \"name\": \"asia-0\", \"pid\": 42, "
        "\"state\": "
        "\"training\", \"step\": 120, \"loss\": 2.5, \"tokens\": 61440, \"tokens_per_s\": 4800.5, "
        "\"h\": 8, \"rounds\": 15, \"behind\": [1, 0], \"payload_up_bytes\": 1000, "
        "\"plain_up_bytes\": 900, \"payload_down_bytes\": 2000, \"wire_up_bytes\": 1100, "
        "\"wire_down_bytes\": 2200, "
        "\"accepted\": 28, \"damped\": 3, \"returned\": 2, \"stall_s\": 0.25, \"lost_units\": 1, "
        "\"trainer\": {\"kind\": \"external\", \"lives\": 3, \"cuts\": 5, \"over\": true}, "
        "\"digests\": [{\"shard\": 0, \"version\": 50, \"digest\": \"ab\"}, {\"shard\": 1, "
        "\"version\": 100, \"digest\": \"cd\"}], \"later\": {}}");
    assert_true(s.seen);
    assert_string_equal(s.region, "asia");
    assert_string_equal(s.state, "training");
    assert_int_equal(s.pid, 42);
    assert_int_equal(s.h, 8);
    assert_int_equal(s.behind_count, 2);
    assert_int_equal(s.behind[0], 1);
    assert_int_equal(s.counts.steps, 120);
    assert_int_equal(s.counts.payload_down, 2000);
    assert_int_equal(s.counts.plain_up, 900);
    assert_int_equal(s.counts.returned, 2);
    assert_true(s.loss == 2.5 && s.counts.stall_s == 0.25);
    assert_true(s.trainer_lives == 3 && s.trainer_cuts == 5 && s.trainer_over);
    assert_int_equal(s.shards, 2);
    assert_int_equal(s.shard[1].version, 100);
    assert_string_equal(s.shard[1].digest, "cd");
    s = parse("{\"role\": \"worker\"}");
    assert_true(!s.trainer_lives && !s.trainer_over);
}

TEST(numbers_that_no_count_can_have)
{
    struct dp_status s = parse("{\"step\": 1e300, \"tokens\": -3, \"behind\": [1e20, -1]}");
    assert_true(s.counts.steps == UINT64_MAX && s.behind[0] == UINT64_MAX);
    assert_true(!s.counts.tokens && s.behind_count == 2 && !s.behind[1]);
}

TEST(a_server_and_a_coordinator)
{
    struct dp_status s = parse(
        "{\"role\": \"server\", \"name\": \"s0\", \"shards\": [{\"shard\": 3, \"version\": 9, "
        "\"epoch\": 1, \"digest\": \"ff\", \"parameters\": 215000, \"admitted\": 8, \"refused\": "
        "1, \"staleness\": {\"p50\": 1, \"p99\": 4, \"max\": 5, \"bound\": 12}}]}");
    assert_int_equal(s.shards, 1);
    assert_int_equal(s.shard[0].shard, 3);
    assert_int_equal(s.shard[0].parameters, 215000);
    assert_true(s.shard[0].staleness_p99 == 4 && s.shard[0].staleness_bound == 12);
    s = parse("{\"role\": \"coordinator\", \"phase\": \"end\", \"credited_tokens\": 3000000, "
              "\"budget_tokens\": 3000000, \"units\": 900, \"data_epoch\": 1, "
              "\"data_epochs\": 3, \"credited\": 700, \"hears\": true}");
    assert_true(s.hears);
    assert_true(s.data_epoch == 1);
    assert_string_equal(s.state, "end");
    assert_int_equal(s.credited_tokens, 3000000);
    assert_int_equal(s.credited, 700);
}

TEST(missing_or_odd_fields_are_zero)
{
    struct dp_status s = parse("{\"step\": -5, \"loss\": \"x\", \"behind\": 3, \"digests\": [1], "
                               "\"name\": \"a\\u001b[2J\"}");
    assert_int_equal(s.counts.steps, 0);
    assert_int_equal(s.behind_count, 0);
    assert_true(s.loss == 0);
    assert_int_equal(s.shards, 1);
    assert_string_equal(s.name, "a?[2J");
}

// Names for the verdict, as many as fit.
TEST(a_coordinator_names_absent_workers)
{
    enum { MANY = DP_LEFT_OUT_MAX + 2, SHARDS = DP_SHARDS_MAX + 1 };
    struct dp_status s =
        parse("{\"role\": \"coordinator\", \"workers\": [{\"name\": \"a\", \"left_out\": {}, "
              "\"expelled\": false}, {\"name\": \"b\", \"expelled\": true}, {\"name\": \"c\", "
              "\"member_state\": \"stalled\", \"why\": \"no step\"}, {\"name\": \"d\", "
              "\"member_state\": \"live\"}], \"leads\": true, \"leader\": {\"number\": 4}, "
              "\"draining\": true, \"ending\": true, \"disk_full\": true, \"time_s\": 7}");
    assert_true(s.left_outs == 1 && s.expelleds == 1 && s.stalleds == 1);
    assert_string_equal(s.left_out[0], "a");
    assert_string_equal(s.expelled[0], "b");
    assert_string_equal(s.stalled[0].name, "c");
    assert_string_equal(s.stalled[0].why, "no step");
    assert_true(s.leads == 4 && s.draining && s.ending && s.disk_full && s.time_s == 7);
    assert_int_equal(parse("{\"leads\": false, \"leader\": {\"number\": 4}}").leads, 0);
    json_t *o = json_pack("{s:[] s:[] s:[]}", "workers", "shards", "behind");
    for (int i = 0; i < MANY; i++)
        json_array_append_new(json_object_get(o, "workers"),
                              json_pack("{s:s s:b s:b s:s}", "name", "w", "left_out", 1, "expelled",
                                        1, "member_state", "stalled"));
    for (int i = 0; i < SHARDS; i++) {
        json_array_append_new(json_object_get(o, "shards"), json_pack("{s:i}", "shard", i));
        json_array_append_new(json_object_get(o, "behind"), json_integer(i));
    }
    char *text = json_dumps(o, 0);
    s = parse(text);
    assert_true(s.left_outs == DP_LEFT_OUT_MAX && s.expelleds == DP_LEFT_OUT_MAX);
    assert_int_equal(s.stalleds, DP_LEFT_OUT_MAX);
    assert_true(s.shards == DP_SHARDS_MAX && s.behind_count == DP_SHARDS_MAX);
    assert_int_equal(s.shard[DP_SHARDS_MAX - 1].shard, DP_SHARDS_MAX - 1);
    free(text);
    json_decref(o);
}

static void write_status(const char *dir, const char *name, const char *text)
{
    char path[DP_PATH_BYTES];
    assert_int_equal(dp_path(path, "%s/%s", dir, name), LH_OK);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    assert_int_equal(dp_path(path, "%s/%s/status.json", dir, name), LH_OK);
    assert_int_equal(dp_file_write(path, lh_span_str(text), 0600), LH_OK);
}

// The leader of two coordinators says the state; if both lead, the one with the newer number does.
TEST(the_leader_says_the_runs_state)
{
    static const char FORM[] = "{\"phase\": \"%s\", \"leads\": %s, \"leader\": {\"number\": %d}}";
    static const struct {
        const char *first, *first_leads, *second, *second_leads, *is;
        int first_number, second_number;
    } row[] = {{"running", "true", "standby", "false", "running", 1, 0},
               {"standby", "false", "running", "true", "running", 0, 1},
               {"running", "true", "ended", "true", "ended", 1, 2},
               {"ended", "true", "running", "true", "ended", 2, 1},
               {"running", "true", "ended", "true", "running", 1, 1}};
    char dir[] = "/tmp/longhaul-status-XXXXXX", is[DP_STATE_BYTES], text[200], path[DP_PATH_BYTES];
    assert_non_null(mkdtemp(dir));
    dp_run_state(dir, is);
    assert_string_equal(is, ""); // nobody wrote one
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        snprintf(text, sizeof text, FORM, row[i].first, row[i].first_leads, row[i].first_number);
        write_status(dir, "coordinator", text);
        snprintf(text, sizeof text, FORM, row[i].second, row[i].second_leads, row[i].second_number);
        write_status(dir, DP_STANDBY_NAME, text);
        dp_run_state(dir, is);
        assert_string_equal(is, row[i].is);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/status.json", dir, i ? DP_STANDBY_NAME : "coordinator");
        assert_int_equal(unlink(path), 0);
        *strrchr(path, '/') = 0;
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

TEST(refusals_change_nothing)
{
    static const char *const bad[] = {"", "{", "[]", "3", "{\"a\": 1} x", "{\"a\": 1, \"a\": 2}"};
    struct dp_status s = {.pid = 7};
    for (size_t i = 0; i < LH_COUNT(bad); i++)
        assert_int_equal(dp_status_parse(lh_span_str(bad[i]), &s), LH_ERR_MALFORMED);
    assert_int_equal(s.pid, 7);
    assert_int_equal(dp_status_read("/nowhere", &s), LH_ERR_NOT_FOUND);
}

TEST(counts_over_lives)
{
    static const struct {
        int64_t pid;
        uint64_t up, steps, up_total, steps_total;
    } row[] = {
        {1, 100, 10, 100, 10}, {1, 250, 20, 250, 20},
        {2, 30, 25, 280, 45},  {2, 40, 30, 290, 50}, // above the last one's, but its own
        {3, 5, 31, 295, 81},
    };
    struct dp_lives lives = {0};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct dp_status s = {
            .pid = row[i].pid,
            .counts = {.payload_up = row[i].up, .steps = row[i].steps, .accepted = row[i].up}};
        struct dp_counts total;
        dp_lives_see(&lives, &s, &total);
        assert_int_equal(total.payload_up, row[i].up_total);
        assert_int_equal(total.steps, row[i].steps_total);
        assert_int_equal(total.accepted, row[i].up); // reported as the total over all processes
    }
}

// A process counts a trainer's life from the life's beginning. A restarted process also counts the
// part of the life before its own start, which must not be added again.
TEST(a_trainer_that_outlives_its_worker_counts_once)
{
    static const struct {
        int64_t pid;
        const char *life;
        uint64_t life_steps, steps, total;
    } row[] = {
        {1, "", 0, 0, 0},      {1, "aa", 40, 40, 40}, {1, "bb", 10, 50, 50}, {2, "", 0, 0, 50},
        {2, "bb", 25, 25, 65}, {2, "bb", 30, 30, 70}, {3, "", 0, 0, 70},     {4, "", 0, 0, 70},
        {4, "bb", 31, 31, 71}, {4, "cc", 5, 36, 76},  {5, "dd", 3, 3, 79},   {5, "dd", 4, 4, 80},
    };
    struct dp_lives lives = {0};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct dp_status s = {.pid = row[i].pid,
                              .life_steps = row[i].life_steps,
                              .life_tokens = 16 * row[i].life_steps,
                              .counts = {.steps = row[i].steps, .tokens = 16 * row[i].steps}};
        struct dp_counts total;
        snprintf(s.trainer_life, sizeof s.trainer_life, "%s", row[i].life);
        dp_lives_see(&lives, &s, &total);
        assert_int_equal(total.steps, row[i].total);
        assert_int_equal(total.tokens, 16 * row[i].total);
    }
}
