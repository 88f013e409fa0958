// `longhaul get`: the tables it shows of a status, and its errors when nothing answers.
#include <jansson.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/ask/admin.h"
#include "deploy/ask/get.h"
#include "deploy/ask/leases.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/table.h"
#include "tests/test.h"

static const char STATUS[] =
    "{\"role\":\"coordinator\",\"units\":10,\"credited\":4,\"leased\":3,\"begun\":2,"
    "\"recalled\":1,\"credited_tokens\":400,"
    "\"budget_tokens\":1000,\"workers\":["
    "{\"name\":\"eu-0\",\"region\":\"eu\",\"live\":true,\"tokens\":7,\"tokens_per_s\":2.5},"
    "{\"name\":\"us-0\",\"region\":\"us\",\"live\":true,\"tokens\":1,\"tokens_per_s\":1.0},"
    "{\"name\":\"eu-1\\u001b\",\"region\":\"eu\",\"live\":false,\"tokens\":5,\"tokens_per_s\":9.0}"
    "],\"forecast\":[{\"region\":\"eu\",\"ends_s\":null},{\"region\":\"us\",\"ends_s\":61.5,"
    "\"trains_tokens\":60}],\"links\":[{\"worker\":\"eu-0\",\"region\":\"eu\",\"server\":\"s0\","
    "\"server_region\":\"us\",\"shard\":0,\"rtt_ms\":90.5,\"push_ms\":210.2}],\"shards\":[{"
    "\"shard\":0,\"address\":\"a:1\",\"version\":12}]}";

static json_t *status(void)
{
    json_t *all;
    assert_int_equal(dp_admin_parse(STATUS, &all), LH_OK);
    return all;
}

static json_t *part(const char *name)
{
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = status();
    assert_int_equal(dp_get_show(name, all, true, &out), LH_OK);
    json_decref(all);
    json_t *rows = json_loadb((const char *)out.data, out.len, 0, NULL);
    assert_true(json_is_array(rows));
    lh_buf_free(&out);
    return rows;
}

static long long number(const json_t *rows, size_t row, const char *key)
{
    return json_integer_value(json_object_get(json_array_get(rows, row), key));
}

TEST(the_plan_says_when_each_region_ends)
{
    json_t *rows = part("plan");
    assert_int_equal(json_array_size(rows), 2);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "ends_s")));
    assert_int_equal(number(rows, 1, "trains_tokens"), 60);
    json_decref(rows);
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = status();
    assert_int_equal(dp_get_show("plan", all, false, &out), LH_OK);
    lh_put_u8(&out, 0);
    assert_non_null(strstr((char *)out.data, "ENDS S"));
    assert_non_null(strstr((char *)out.data, "61.5"));
    json_decref(all);
    lh_buf_free(&out);
}

// A worker that is set aside is not reported as stalled.
TEST(absent_workers_are_named_with_the_reason)
{
    for (int aside = 0; aside <= 1; aside++) {
        struct lh_buf out = lh_buf(1 << 16);
        json_t *all = status(), *row = json_array_get(json_object_get(all, "workers"), 1);
        json_object_set_new(row, "why", json_string("as it is"));
        json_object_set_new(row, "set_aside", json_boolean(aside));
        json_object_set_new(row, "member_state", json_string(aside ? "set_aside" : "stalled"));
        assert_int_equal(dp_get_show("plan", all, false, &out), LH_OK);
        lh_put_u8(&out, 0);
        assert_non_null(strstr((char *)out.data, aside ? "us-0 of us is set aside: as it is\n"
                                                       : "us-0 of us is stalled: as it is\n"));
        json_decref(all);
        lh_buf_free(&out);
    }
}

// A link's cap with its figures, and the reason why nothing more crosses it.
TEST(the_plan_says_what_links_carried)
{
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = json_loads(
        "{\"balancer\": {\"rule\": \"finish\", \"decisions\": [{\"reason\": \"planned\", "
        "\"cost_s\": "
        "12.5}], \"links\": [{\"from\": \"asia\", \"to\": \"africa\", "
        "\"cap_bytes\": 640, \"crossed_bytes\": 620, \"coming_bytes\": 0, \"left_bytes\": 20, "
        "\"state\": \"full\"}, {\"from\": \"asia\", \"to\": \"europe\", \"cap_bytes\": null}]}}",
        0, NULL);
    assert_non_null(all);
    dp_get_decisions(all, &out);
    lh_put_u8(&out, 0);
    const char *text = (char *)out.data, *row = strstr(text, "\nasia ");
    assert_non_null(row);
    assert_non_null(strstr(row, "           640          620            0             20 full"));
    assert_non_null(strstr(text, "COST S"));
    assert_non_null(strstr(text, " 12.5 "));
    json_decref(all);
    lh_buf_free(&out);
}

TEST(the_plan_says_how_many_workers_are_wanted)
{
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = json_loads("{\"balancer\": {\"rule\": \"level\", \"decisions\": []}, \"scale\": ["
                             "{\"region\": \"\", \"at\": \"22:00\", \"wanted\": 64, "
                             "\"present\": 12, \"says\": \"the command ended with 0\"}, "
                             "{\"region\": \"asia\", \"at\": \"06:00\", \"wanted\": 8, "
                             "\"present\": 9, \"says\": \"\"}, {\"region\": \"odd\"}]}",
                             0, NULL);
    dp_get_decisions(all, &out);
    lh_put_u8(&out, 0);
    const char *text = (const char *)out.data;
    assert_non_null(strstr(text, "\n64 workers are wanted since 22:00, 12 are here; last call: the "
                                 "command ended with 0\n"));
    assert_non_null(strstr(text, "\nasia: 8 workers are wanted since 06:00, 9 are here\n"));
    assert_null(strstr(text, "odd"));
    json_decref(all);
    lh_buf_free(&out);
}

TEST(members_say_what_they_run_on)
{
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = json_loads("{\"workers\": [{\"name\": \"eu-0\", \"region\": \"eu\", \"live\": "
                             "true, \"version\": \"0.1.0\", \"processors\": 16, \"memory_gib\": "
                             "62.8, \"codec\": \"topk-sign\"}]}",
                             0, NULL);
    assert_int_equal(dp_get_show("machines", all, false, &out), LH_OK);
    lh_put_u8(&out, 0);
    const char *line = strstr((const char *)out.data, "eu-0");
    assert_non_null(line);
    assert_non_null(strstr(line, "0.1.0"));
    assert_non_null(strstr(line, "62.8"));
    assert_non_null(strstr(line, "topk-sign"));
    json_decref(all);
    lh_buf_free(&out);
}

// A value that was not measured is shown as a dash.
TEST(links_are_what_workers_measured)
{
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = status();
    assert_int_equal(dp_get_show("links", all, false, &out), LH_OK);
    lh_put_u8(&out, 0);
    const char *line = strstr((const char *)out.data, "\neu-0");
    assert_non_null(line);
    assert_non_null(strstr(line, "90.5       -    210.2       -         -"));
    json_decref(all);
    lh_buf_free(&out);
}

TEST(regions_are_sums)
{
    json_t *rows = part("regions");
    assert_int_equal(json_array_size(rows), 2);
    assert_int_equal(number(rows, 0, "workers"), 2);
    assert_int_equal(number(rows, 0, "live"), 1);
    assert_int_equal(number(rows, 0, "tokens"), 12);
    json_t *speed = json_object_get(json_array_get(rows, 0), "tokens_per_s");
    assert_true(json_real_value(speed) == 2.5); // the speed of live workers
    assert_int_equal(number(rows, 1, "workers"), 1);
    json_decref(rows);
}

static const char MEMBERS[] =
    "{\"role\":\"coordinator\",\"servers\":[{\"name\":\"s0\",\"region\":\"eu\",\"role\":\"server\","
    "\"state\":\"live\",\"shards\":[0],\"silent_s\":0.2,\"bound_s\":1.5,\"trip_ms\":12.0},"
    "{\"name\":\"s1\",\"region\":\"us\",\"role\":\"standby\",\"state\":\"suspect\",\"shards\":[0],"
    "\"silent_s\":11.0,\"bound_s\":10.0}],\"workers\":["
    "{\"name\":\"a\",\"region\":\"eu\",\"live\":true,\"member_state\":\"live\","
    "\"silent_s\":15.1,\"bound_s\":24.6,\"trip_ms\":1200.0,\"spread_ms\":50.0},"
    "{\"name\":\"b\",\"region\":\"eu\",\"member_state\":\"lost\",\"silent_s\":15.1,\"bound_s\":15."
    "0},"
    "{\"name\":\"c\",\"region\":\"us\",\"live\":true,\"member_state\":\"drained\"},"
    "{\"name\":\"d\",\"region\":\"us\",\"live\":true,\"member_state\":\"done\"},"
    "{\"name\":\"e\",\"region\":\"us\",\"live\":true,\"member_state\":\"suspect\"},"
    "{\"name\":\"f\",\"region\":\"us\",\"live\":false,\"member_state\":\"drained\"}]}";

static const char *word(const json_t *rows, size_t row, const char *key)
{
    return json_string_value(json_object_get(json_array_get(rows, row), key));
}

TEST(members_are_servers_and_workers)
{
    static const char *const expected[][3] = {
        {"s0", "server", "live"},   {"s1", "standby", "suspect"}, {"a", "worker", "live"},
        {"b", "worker", "lost"},    {"c", "worker", "drained"},   {"d", "worker", "done"},
        {"e", "worker", "suspect"}, {"f", "worker", "drained"}};
    json_t *all;
    assert_int_equal(dp_admin_parse(MEMBERS, &all), LH_OK);
    json_t *rows = dp_get_members(all);
    assert_int_equal(json_array_size(rows), LH_COUNT(expected));
    for (size_t i = 0; i < LH_COUNT(expected); i++) {
        assert_string_equal(word(rows, i, "name"), expected[i][0]);
        assert_string_equal(word(rows, i, "role"), expected[i][1]);
        assert_string_equal(word(rows, i, "state"), expected[i][2]);
    }
    const json_t *a = json_array_get(rows, 2), *d = json_array_get(rows, 5);
    assert_true(json_real_value(json_object_get(a, "bound_s")) == 24.6);
    assert_true(json_real_value(json_object_get(a, "trip_ms")) == 1200.0);
    assert_null(json_object_get(d, "bound_s"));
    struct lh_buf text = lh_buf(1 << 16);
    assert_int_equal(dp_get_show("members", all, false, &text), LH_OK);
    lh_put_u8(&text, 0);
    const char *line = strstr((const char *)text.data, "\na ");
    assert_non_null(line);
    line = strstr(line, "live");
    assert_true(line && strstr(line, "15.1     24.6   1200.0\nb "));
    lh_buf_free(&text);
    json_decref(rows);
    json_decref(all);
}

static json_t *leases(bool with_rows, bool json, struct lh_buf *out)
{
    json_t *all = status();
    json_t *rows = with_rows ? json_pack("[{s:i s:i s:s s:s s:s s:s s:i}]", "unit", 7, "data_epoch",
                                         2, "state", "leased", "lease", "recalled", "home", "eu",
                                         "holder", "eu-0\x1b", "token", 3)
                             : NULL;
    assert_int_equal(dp_get_leases(all, rows, json, out), LH_OK);
    json_decref(rows);
    json_decref(all);
    return json ? json_loadb((const char *)out->data, out->len, 0, NULL) : NULL;
}

TEST(leases_are_counts_and_rows)
{
    struct lh_buf out = lh_buf(1 << 16), text = lh_buf(1 << 16);
    json_t *all = leases(true, true, &out), *totals = json_object_get(all, "totals");
    assert_int_equal(json_integer_value(json_object_get(totals, "free")), 3);
    assert_int_equal(json_integer_value(json_object_get(totals, "leased")), 3);
    assert_int_equal(json_integer_value(json_object_get(totals, "begun")), 2);
    assert_int_equal(json_integer_value(json_object_get(totals, "recalled")), 1);
    assert_int_equal(json_integer_value(json_object_get(totals, "credited_tokens")), 400);
    assert_int_equal(number(json_object_get(all, "leases"), 0, "token"), 3);
    json_decref(all);
    lh_buf_clear(&out);
    all = leases(false, true, &out);
    assert_non_null(json_object_get(all, "totals"));
    assert_true(json_is_null(json_object_get(all, "leases")));
    json_decref(all);
    assert_null(leases(true, false, &text));
    lh_put_u8(&text, 0);
    assert_non_null(strstr((const char *)text.data, "BUDGET"));
    assert_non_null(strstr((const char *)text.data, "        7     2 -        eu "));
    assert_non_null(strstr((const char *)text.data, " eu-0? "));
    assert_non_null(strstr((const char *)text.data, " leased   recalled "));
    lh_buf_free(&text);
    lh_buf_free(&out);
}

TEST(tables)
{
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = status();
    assert_int_equal(dp_get_show("workers", all, false, &out), LH_OK);
    assert_int_equal(dp_get_show("shards", all, false, &out), LH_OK);
    json_decref(all);
    lh_put_u8(&out, 0);
    const char *text = (const char *)out.data;
    assert_non_null(strstr(text, "TOKENS/S"));
    assert_non_null(strstr(text, "eu-1?")); // names of others can't move the terminal's cursor
    assert_null(strchr(text, 27));
    assert_non_null(strstr(text, "    0 a:1 "));
    lh_buf_free(&out);
}

TEST(a_screen_is_not_left)
{
    static const struct {
        const char *text, *shown;
        unsigned columns, lines;
    } row[] = {
        {"one\ntwo\n", "one\ntwo\n", 3, 3},
        {"one\ntwo\n", "one\ntwo", 3, 2}, // a final line break would scroll the screen
        {"one\ntwo\n", "on\ntw", 2, 2},
        {"one\ntwo\nthree\n", "one\ntwo", 80, 2},
        {"caf\xc3\xa9s\n", "caf\xc3\xa9\n", 4, 2}, // no half of a character
        {"", "", 80, 24},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct lh_buf out = lh_buf(100);
        dp_table_fit(&out, lh_span_str(row[i].text), row[i].columns, row[i].lines);
        lh_put_u8(&out, 0);
        assert_string_equal((const char *)out.data, row[i].shown);
        lh_buf_free(&out);
    }
}

TEST(unknown_views_and_malformed_statuses_are_refused)
{
    struct lh_buf out = lh_buf(1 << 16);
    json_t *all = status();
    assert_int_equal(dp_get_show("nodes", all, false, &out), LH_ERR_INVALID);
    json_decref(all);
    assert_int_equal(dp_admin_parse("{\"role\":\"worker\"}", &all), LH_ERR_MALFORMED);
    assert_int_equal(dp_admin_parse("no JSON", &all), LH_ERR_MALFORMED);
    assert_null(all);
    assert_int_equal(out.len, 0);
    lh_buf_free(&out);
}

static const char *missing(const char *home, const char *language, const char *worker)
{
    const struct dp_lease_filter filter = {.home = home, .language = language, .worker = worker};
    json_t *all = status(), *rows = json_array();
    for (int i = 0; i < 1000; i++) // each name is listed once
        json_array_append_new(rows, json_pack("{s:s s:s}", "home", i % 2 ? "eu" : "us", "language",
                                              i % 3 ? "de" : "en"));
    lh_err err = dp_leases_known(&filter, json_object_get(all, "workers"), rows);
    json_decref(rows);
    json_decref(all);
    if (!err) return "";
    assert_int_equal(err, LH_ERR_NOT_FOUND);
    return lh_err_text(err);
}

TEST(a_name_that_nobody_has)
{
    assert_string_equal(missing(NULL, NULL, NULL), "");
    assert_string_equal(missing("eu", "en", "us-0"), "");
    assert_string_equal(missing("", NULL, ""), ""); // the coordinator takes "" for any
    assert_string_equal(missing("as", NULL, NULL), "no home as in this run; there are: us eu");
    assert_string_equal(missing("eu", "ja", NULL), "no language ja in this run; there are: en de");
    assert_non_null(
        strstr(missing("eu", NULL, "eu-9"), "no worker eu-9 in this run; there are: eu-0 us"));
}

static int get(const char *a, const char *b, const char *c)
{
    const char *argv[] = {"get", a, b, c};
    int argc = 1;
    while (argc < 4 && argv[argc]) argc++;
    return dp_command(argc, (char **)argv);
}

TEST(wrong_lines)
{
    assert_int_equal(get(NULL, NULL, NULL), DP_USAGE);
    assert_int_equal(get("shards", NULL, NULL), DP_USAGE);
    assert_int_equal(get("nodes", "--dir", "/nonexistent"), DP_USAGE);
    assert_int_equal(get("shards", "--coordinator", "h:1"), DP_USAGE); // no certificate
    assert_int_equal(get("shards", "--dir", "/nonexistent"), DP_MISSING);
    assert_int_equal(get("leases", "--dir=/nonexistent", "--state=gone"), DP_USAGE);
    assert_int_equal(get("shards", "--dir=/nonexistent", "--state=free"), DP_USAGE);
    assert_int_equal(get("leases", "--dir=/nonexistent", "--state=free"), DP_MISSING);
}
