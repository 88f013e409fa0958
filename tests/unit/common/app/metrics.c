// Metrics: Prometheus text from a status, escapes, types; curves in bounded memory.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/app/history.h"
#include "common/app/metrics.h"
#include "common/format/histogram.h"
#include "tests/test.h"

enum { TEXT = 1 << 20 };

static char *text_of(const json_t *status)
{
    struct lh_buf out = lh_buf(TEXT);
    assert_int_equal(lh_metrics_prometheus(status, &out), LH_OK);
    lh_put_u8(&out, 0);
    assert_int_equal(lh_buf_err(&out), LH_OK);
    return (char *)out.data;
}

TEST(each_row_is_well_formed)
{
    for (unsigned i = 0; i < lh_metrics_count; i++) {
        const struct lh_metric *m = &lh_metrics[i];
        assert_int_equal(strncmp(m->name, "longhaul_", 9), 0);
        for (const char *at = m->name; *at; at++)
            assert_true(islower((unsigned char)*at) || isdigit((unsigned char)*at) || *at == '_');
        bool total = strlen(m->name) > 6 && !strcmp(m->name + strlen(m->name) - 6, "_total");
        assert_int_equal(total, m->type == LH_COUNTER);
        assert_true(m->roles[0] && strspn(m->roles, "swc") == strlen(m->roles));
        assert_true(isupper((unsigned char)m->help[0]) || isdigit((unsigned char)m->help[0]));
        assert_null(strchr(m->help, '\n'));
        for (unsigned k = 0; k < i; k++) assert_string_not_equal(m->name, lh_metrics[k].name);
    }
}

TEST(a_servers_status)
{
    struct lh_histogram h = {0};
    lh_histogram_add(&h, &lh_scale_seconds, 0.001);
    lh_histogram_add(&h, &lh_scale_seconds, 0.003);
    lh_histogram_add(&h, &lh_scale_seconds, 1e6);
    json_t *status =
        json_pack("{s:s s:s s:f s:b s:[{s:i s:i s:s} {s:i s:i s:s}] s:{s:o}}", "role", "server",
                  "version", "0.1.0", "loop_longest_ms", 250.0, "disk_full", 1, "shards", "shard",
                  0, "version", 7, "phase", "train", "shard", 1, "version", 9, "phase", "train",
                  "seconds", "fold", lh_histogram_status(&h, &lh_scale_seconds));
    char *text = text_of(status);
    assert_non_null(strstr(text, "# TYPE longhaul_shard_version gauge\n"
                                 "longhaul_shard_version{shard=\"0\"} 7\n"
                                 "longhaul_shard_version{shard=\"1\"} 9\n"));
    assert_non_null(strstr(text, "longhaul_loop_longest_seconds 0.25\n"));
    assert_non_null(strstr(text, "longhaul_disk_full 1\n"));
    assert_non_null(strstr(text, "longhaul_shard_phase{shard=\"1\",phase=\"train\"} 1\n"));
    assert_non_null(strstr(text, "longhaul_info{role=\"server\",version=\"0.1.0\"} 1\n"));
    assert_non_null(strstr(text, "longhaul_fold_seconds_bucket{le=\"0.001\"} 1\n"));
    assert_non_null(strstr(text, "longhaul_fold_seconds_bucket{le=\"0.004\"} 2\n"));
    assert_non_null(strstr(text, "longhaul_fold_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(text, "longhaul_fold_seconds_count 3\n"));
    assert_null(strstr(text, "longhaul_member_state")); // belongs to another role
    free(text);
    json_decref(status);
}

TEST(names_are_escaped_and_wrong_types_left_out)
{
    json_t *status = json_pack("{s:s s:s s:[{s:s s:s s:s s:s}]}", "role", "coordinator", "units",
                               "many", "workers", "name", "a\"b\\c\nd", "region", "r",
                               "member_state", "live", "tokens_per_s", "fast");
    char *text = text_of(status);
    assert_non_null(strstr(text, "{region=\"r\",worker=\"a\\\"b\\\\c\\nd\",state=\"live\"} 1\n"));
    assert_null(strstr(text, "longhaul_units"));
    assert_null(strstr(text, "longhaul_member_tokens_per_second"));
    free(text);
    json_decref(status);
    struct lh_buf out = lh_buf(TEXT);
    assert_int_equal(lh_metrics_prometheus(NULL, &out), LH_ERR_INVALID);
    lh_buf_free(&out);
}

TEST(a_server_that_is_coordinator_too)
{
    json_t *status = json_pack("{s:s s:f s:{s:b s:[{s:i s:i}]} s:{s:b s:i}}", "role", "both",
                               "up_s", 2.0, "server", "disk_full", 0, "shards", "shard", 0,
                               "version", 3, "coordinator", "disk_full", 1, "units", 5);
    char *text = text_of(status);
    assert_non_null(strstr(text, "longhaul_up_seconds 2\n"));
    assert_non_null(strstr(text, "longhaul_disk_full 0\n"));
    assert_null(strstr(text, "longhaul_disk_full 1\n")); // each name with its labels appears once
    assert_non_null(strstr(text, "longhaul_shard_version{shard=\"0\"} 3\n"));
    assert_non_null(strstr(text, "longhaul_units 5\n"));
    free(text);
    json_decref(status);
}

TEST(alarms_and_a_pause_are_series_of_the_coordinator)
{
    json_t *status =
        json_pack("{s:s s:{s:s s:s s:i} s:[{s:s s:b s:s}{s:s s:b}]}", "role", "coordinator",
                  "paused", "by", "boss", "why", "a \"look\"", "since_s", 1700000000, "alarms",
                  "rule", "diverging", "active", 1, "region", "asia", "rule", "disk", "active", 0);
    char *text = text_of(status);
    assert_non_null(strstr(text, "longhaul_run_paused_timestamp_seconds 1700000000\n"));
    assert_non_null(strstr(text, "longhaul_alarm_active{rule=\"diverging\"} 1\n"));
    assert_non_null(strstr(text, "longhaul_alarm_active{rule=\"disk\"} 0\n"));
    assert_null(strstr(text, "boss"));
    free(text);
    json_decref(status);
}

static json_t *run_of(const char *worker, double loss)
{
    return json_pack("{s:s s:I s:[{s:s s:s s:f}]}", "role", "coordinator", "credited_tokens",
                     (json_int_t)loss, "workers", "name", worker, "region", "r", "loss", loss);
}

static json_t *series(const struct lh_history *h, const char *metric, const char *with)
{
    struct lh_buf out = lh_buf(1 << 24);
    lh_history_json(h, &out);
    json_t *root = json_loadb((const char *)out.data, out.len, 0, NULL), *found = NULL;
    assert_non_null(root);
    json_t *all = json_object_get(root, "series");
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *s = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(s, "metric")), metric) == 0 &&
            strstr(json_string_value(json_object_get(s, "labels")), with))
            found = json_incref(json_object_get(s, "values"));
    }
    lh_buf_free(&out);
    json_decref(root);
    return found;
}

TEST(a_long_run_stays_bounded)
{
    struct lh_history *h = lh_history_create(1);
    for (int t = 0; t < 100000; t++) {
        json_t *status = run_of(t < 50000 ? "early" : "late", 1 + (double)t);
        lh_history_add(h, t, status);
        json_decref(status);
    }
    json_t *values = series(h, "longhaul_run_tokens_total", "");
    size_t n = json_array_size(values);
    assert_in_range(n, LH_HISTORY_POINTS / 2, LH_HISTORY_POINTS);
    for (size_t i = 1; i < n; i++) // no point is missing, and they are in order
        assert_true(json_number_value(json_array_get(values, i)) >
                    json_number_value(json_array_get(values, i - 1)));
    assert_true(json_number_value(json_array_get(values, n - 1)) > 90000);
    json_decref(values);
    values = series(h, "longhaul_member_loss", "late");
    assert_true(json_is_null(json_array_get(values, 0)));
    assert_true(json_is_real(json_array_get(values, n - 1)));
    json_decref(values);
    lh_history_destroy(h);
}

// Points with times in the future are dropped, so that the curve continues.
TEST(a_clock_that_is_set_back_stops_no_curve)
{
    static const double at[] = {100, 200, 5000, 5100, 250, 350};
    struct lh_history *h = lh_history_create(1);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        json_t *status = run_of("w", at[i]);
        lh_history_add(h, at[i], status);
        json_decref(status);
    }
    json_t *values = series(h, "longhaul_run_tokens_total", "");
    static const double left[] = {100, 200, 250, 350};
    assert_int_equal(json_array_size(values), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(json_number_value(json_array_get(values, i)) == left[i]);
    json_decref(values);
    lh_history_destroy(h);
}

TEST(names_without_end_are_left_out)
{
    struct lh_history *h = lh_history_create(0);
    char name[32];
    for (int t = 0; t < 2 * LH_HISTORY_SERIES; t++) {
        snprintf(name, sizeof name, "w%d", t);
        json_t *status = run_of(name, 1);
        lh_history_add(h, t, status);
        json_decref(status);
    }
    struct lh_buf out = lh_buf(1 << 25);
    lh_history_json(h, &out);
    json_t *root = json_loadb((const char *)out.data, out.len, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(root, "series")), LH_HISTORY_SERIES);
    assert_true(json_integer_value(json_object_get(root, "left_out")) > 0);
    json_decref(root);
    lh_buf_free(&out);
    lh_history_destroy(h);
}

// The table of all metrics, as Markdown; cleared first.
static void put_page(struct lh_buf *out)
{
    static const char *const of[] = {"server", "worker", "coordinator"};
    static const char *const types[] = {"counter", "gauge", "histogram", "gauge"};
    static const char head[] =
        "| metric | type | processes | labels | meaning |\n|---|---|---|---|---|\n";
    char line[2000];
    lh_buf_clear(out);
    lh_put(out, head, sizeof head - 1);
    for (unsigned i = 0; i < lh_metrics_count; i++) {
        const struct lh_metric *m = &lh_metrics[i];
        char labels[200] = "", roles[64] = "";
        for (const char *at = m->labels; *at; at += strcspn(at, ","), at += *at == ',') {
            size_t n = strlen(labels);
            snprintf(labels + n, sizeof labels - n, "%s`%.*s`", n ? ", " : "",
                     (int)strcspn(at, "="), at);
        }
        for (unsigned k = 0; k < 3; k++) {
            size_t n = strlen(roles);
            if (strchr(m->roles, of[k][0]))
                snprintf(roles + n, sizeof roles - n, "%s%s", n ? ", " : "", of[k]);
        }
        int n = snprintf(line, sizeof line, "| `%s` | %s | %s | %s | %s |\n", m->name,
                         types[m->type], strlen(m->roles) == 3 ? "all" : roles, labels, m->help);
        lh_put(out, line, (size_t)n);
    }
}

// deploy/docs/metrics.md holds the registry's table between its marks. `unit_metrics page` prints
// the table.
TEST(the_page_is_the_registrys)
{
    struct lh_buf table = lh_buf(TEXT);
    char *page = calloc(1, TEXT);
    FILE *f = fopen("deploy/docs/metrics.md", "rb");
    assert_non_null(f);
    assert_true(fread(page, 1, TEXT - 1, f) > 0);
    fclose(f);
    put_page(&table);
    lh_put_u8(&table, 0);
    if (!strstr(page, (char *)table.data))
        fail_msg("deploy/docs/metrics.md is not up to date: unit_metrics page prints its table");
    lh_buf_free(&table);
    free(page);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "page")) {
        struct lh_buf table = lh_buf(TEXT);
        put_page(&table);
        fwrite(table.data, 1, table.len, stdout);
        lh_buf_free(&table);
        return 0;
    }
    return test_run(NULL, NULL);
}
