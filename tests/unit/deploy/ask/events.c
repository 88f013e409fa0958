// Events from logs: both forms of a line, kinds, processes that ended without a last line, order,
// filters; and logs that are followed as they grow.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/ask/events.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "tests/test.h"

static char dir[] = "/tmp/longhaul-events-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

static json_t *read_text(const char *text)
{
    char path[DP_PATH_BYTES];
    json_t *rows = json_array();
    assert_int_equal(dp_path(path, "%s/a.log", dir), LH_OK);
    assert_int_equal(dp_file_write(path, lh_span_str(text), 0666), LH_OK);
    assert_int_equal(dp_events_read(path, rows), LH_OK);
    unlink(path);
    return rows;
}

static const char *field(const json_t *rows, size_t row, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(rows, row), key));
    assert_non_null(text);
    return text;
}

TEST(both_forms_of_a_line)
{
    json_t *rows = read_text(
        "listening 127.0.0.1:7400\n"
        "2026-11-21T21:12:29Z +0.539 INFO coordinator/eu/c worker.joined asia-0 of asia, 1\n"
        "{\"time\":\"2026-11-21T21:12:30Z\",\"up_s\":1.5,\"mono_us\":7,\"level\":\"warn\",\"who\":"
        "\"coordinator/eu/c\",\"event\":\"worker.lost\",\"text\":\"asia-0\"}\n"
        "{\"time\":\"yesterday\",\"up_s\":1.5,\"who\":\"a\",\"event\":\"b\"}\n"
        "{\"time\":\"2026-11-21T21:12:30Z\",\"up_s\":\n"
        "2026-11-21T21:12 +0.539 INFO a b c\n"
        "2026-11-21T21:12:29Z 0.539 INFO a b c\n"
        "2026-11-21T21:12:31Z +2.000 WARN coordinator/eu/c odd.event caf\xe9");
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(field(rows, 0, "event"), "worker.joined");
    assert_string_equal(field(rows, 0, "kind"), "join");
    assert_string_equal(field(rows, 0, "level"), "info");
    assert_string_equal(field(rows, 0, "text"), "asia-0 of asia, 1");
    assert_string_equal(field(rows, 0, "source"), "a.log:2");
    assert_string_equal(field(rows, 1, "kind"), "lost");
    assert_string_equal(field(rows, 1, "source"), "a.log:3");
    assert_string_equal(field(rows, 2, "kind"), "other");
    assert_string_equal(field(rows, 2, "text"), "caf?");
    json_decref(rows);
}

TEST(events_have_kinds)
{
    static const char *const pairs[][2] = {
        {"push.refused", "refusal"},
        {"push.rejected", "refusal"},
        {"join.refused", "refusal"},
        {"incarnation.raised", "incarnation"},
        {"checkpoint.written", "checkpoint"},
        {"checkpoint.disk_full", "disk"},
        {"log.room", "disk"},
        {"outbox.room", "disk"},
        {"hello.older", "history"},
        {"log.older", "history"},
        {"store.old", "history"},
        {"follow.ahead", "history"},
        {"residual.snapshot", "damage"},
        {"log.torn", "damage"},
        {"replica.differs", "damage"},
        {"member.unreachable", "link"},
        {"member.refused", "refusal"},
        {"run.phase", "run"},
        {"run.drain", "drain"},
        {"worker.stop", "process"},
        {"worker.drained", "drain"},
        {"eval.loss", "eval"},
        {"rank.joined", "join"},
        {"rank.lost", "lost"},
        {"scale.called", "scale"},
        {"member.state", "member"},
        {"hook.given_up", "member"},
        {"cadence.changed", "cadence"},
        {"worker.differs", "join"},
        {"tensor.norms", "norms"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char line[160];
        snprintf(line, sizeof line, "2026-11-21T21:12:29Z +1.000 INFO a/b/c %s x\n", pairs[i][0]);
        json_t *rows = read_text(line);
        assert_int_equal(json_array_size(rows), 1);
        assert_string_equal(field(rows, 0, "kind"), pairs[i][1]);
        json_decref(rows);
    }
}

static unsigned kills(const json_t *rows)
{
    unsigned count = 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        count += !strcmp(field(rows, i, "event"), "process.killed");
    return count;
}

TEST(a_life_without_a_last_word_was_a_kill)
{
    json_t *rows = read_text("2026-11-21T21:12:29Z +0.100 INFO server/eu/s shard.ready a\n"
                             "2026-11-21T21:12:40Z +11.100 INFO server/eu/s checkpoint.written b\n"
                             "2026-11-21T21:12:50Z +0.200 INFO server/eu/s shard.ready c\n");
    assert_int_equal(json_array_size(rows), 4);
    assert_int_equal(kills(rows), 1);
    assert_string_equal(field(rows, 2, "event"), "process.killed");
    assert_string_equal(field(rows, 2, "kind"), "kill");
    assert_string_equal(field(rows, 2, "time"), "2026-11-21T21:12:50Z");
    assert_non_null(strstr(field(rows, 2, "text"), "after 11.1 s"));
    json_decref(rows);
    // The process logged nothing for ten minutes before it died.
    rows = read_text("2026-11-21T21:12:29Z +0.100 INFO server/eu/s program.begin a\n"
                     "2026-11-21T21:13:06Z +37.300 INFO server/eu/s shard.ready b\n"
                     "2026-11-21T21:23:40Z +0.200 INFO server/eu/s program.begin c\n");
    assert_string_equal(field(rows, 2, "event"), "process.killed");
    assert_non_null(strstr(field(rows, 2, "text"), "ran for 671 s at most"));
    assert_non_null(strstr(field(rows, 2, "text"), "its last line after 37.3 s"));
    json_decref(rows);
    rows = read_text("2026-11-21T21:12:29Z +0.100 INFO server/eu/s shard.ready a\n"
                     "2026-11-21T21:12:40Z +11.100 INFO server/eu/s program.end asked\n"
                     "2026-11-21T21:12:50Z +0.200 INFO server/eu/s shard.ready c\n"
                     "2026-11-21T21:12:51Z +1.200 INFO server/eu/s shard.ready d\n"
                     "2026-11-21T21:12:52Z +0.100 INFO server/eu/other shard.ready e\n");
    assert_int_equal(kills(rows), 0);
    json_decref(rows);
    rows = read_text("2026-11-21T21:12:40Z +11.100 INFO server/eu/s program.end asked\n"
                     "2026-11-21T21:12:50Z +3.200 INFO server/eu/s shard.ready c\n"
                     "2026-11-21T21:12:52Z +0.100 INFO server/eu/s shard.ready d\n");
    assert_int_equal(kills(rows), 1); // the second process ended without a last line
    json_decref(rows);
    rows = read_text("2026-11-21T21:12:40Z +0.001 INFO server/eu/s program.begin 1\n"
                     "longhaul-server: b.yaml:3: no setting x\n"
                     "2026-11-21T21:12:50Z +0.000 INFO server/eu/s program.begin 2\n"
                     "2026-11-21T21:12:52Z +0.000 INFO server/eu/s program.begin 3\n");
    assert_int_equal(kills(rows), 1); // the first logged why it would not start, the second did not
    json_decref(rows);
}

TEST(columns_fit_the_longest_name)
{
    json_t *rows = read_text("2026-11-21T21:12:39Z +1.000 INFO worker/as/a run.done x\n"
                             "2026-11-21T21:12:40Z +2.000 INFO coordinator/northamerica/coordinator"
                             " run.done x\n");
    struct lh_buf out = lh_buf(1 << 12);
    dp_events_put(rows, &out);
    lh_put_u8(&out, 0);
    const char *text = (const char *)out.data, *second = strchr(text, '\n') + 1;
    assert_int_equal(strstr(text, " run ") - text, strstr(second, " run ") - second);
    lh_buf_free(&out);
    json_decref(rows);
}

TEST(by_time_and_filtered)
{
    json_t *rows = read_text("2026-11-21T21:12:40Z +1.000 INFO worker/as/a push.refused one\n"
                             "2026-11-21T21:12:39Z +2.000 INFO worker/as/b push.refused two\n"
                             "2026-11-21T21:12:40Z +3.000 INFO worker/eu/c push.refused three\n"
                             "2026-11-21T21:12:41Z +4.000 INFO worker/as/a run.done four\n"
                             "2026-11-21T21:12:42Z +5.000 INFO worker/as/a tensor.norms {}\n");
    struct dp_event_filter all = {.kinds = 0};
    json_t *chosen = dp_events_choose(rows, &all);
    assert_int_equal(json_array_size(chosen), 4);
    assert_string_equal(field(chosen, 0, "text"), "two");
    assert_string_equal(field(chosen, 1, "text"), "one");
    assert_string_equal(field(chosen, 2, "text"), "three");
    json_decref(chosen);
    const char *kinds[] = {"refusal", "drain"};
    struct dp_event_filter some = {kinds, 2, "worker/as", "2026-11-21T21:12:40"};
    chosen = dp_events_choose(rows, &some);
    assert_int_equal(json_array_size(chosen), 1);
    assert_string_equal(field(chosen, 0, "text"), "one");
    json_decref(chosen);
    const char *norms[] = {"norms"}; // one event for each tensor, so shown only on request
    struct dp_event_filter many = {.kind = norms, .kinds = 1};
    chosen = dp_events_choose(rows, &many);
    assert_int_equal(json_array_size(chosen), 1);
    json_decref(chosen);
    json_decref(rows);
}

static int events(const char *a, const char *b)
{
    const char *argv[] = {"events", a, b};
    return dp_command(b ? 3 : a ? 2 : 1, (char **)argv);
}

TEST(wrong_lines)
{
    assert_int_equal(events(NULL, NULL), DP_USAGE);
    assert_int_equal(events("--dir=/nonexistent", "--kind=odd"), DP_USAGE);
    assert_int_equal(events("--dir=/nonexistent", "--kind=join"), DP_MISSING);
    assert_int_equal(events("/nonexistent.log", NULL), DP_MISSING);
    static const char *const never[] = {"--since=yesterday",
                                        "--since=2026-1-2",
                                        "--since=2026-01",
                                        "--since=2026-01-31T12:00:00Z0",
                                        "--since=2026-13-01",
                                        "--since=2026-12-41",
                                        "--since=2026-01-31T99:00:00Z"};
    for (size_t i = 0; i < LH_COUNT(never); i++)
        assert_int_equal(events("--dir=/nonexistent", never[i]), DP_USAGE);
    assert_int_equal(events("--dir=/nonexistent", "--since=2026-01-31T12"), DP_MISSING);
    assert_int_equal(events("--dir", dir), DP_MISSING); // no logs
    assert_int_equal(events("--kinds", NULL), DP_OK);
}

static void append(const char *path, const char *text)
{
    FILE *file = fopen(path, "ae");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Reads the new events, of which there must be `count`, and returns them.
static json_t *more(struct dp_event_log *log, size_t count)
{
    json_t *rows = json_array();
    assert_int_equal(dp_event_log_read(log, rows), LH_OK);
    assert_int_equal(json_array_size(rows), count);
    return rows;
}

// Waits until a file contains a word, and gives the file's text.
static void wait_for(const char *path, char *text, size_t size, const char *word)
{
    for (int i = 0; i < 6000; i++) {
        FILE *file = fopen(path, "re");
        size_t n = file ? fread(text, 1, size - 1, file) : 0;
        text[n] = 0;
        if (file) fclose(file);
        if (strstr(text, word)) return;
        usleep(10000);
    }
    fail_msg("%s never came; there is: %s", word, text);
}

TEST(a_log_that_grows)
{
    struct dp_event_log *log;
    char path[DP_PATH_BYTES];
    json_t *rows = json_array();
    assert_int_equal(dp_path(path, "%s/grows.log", dir), LH_OK);
    assert_int_equal(dp_event_log_create(path, &log), LH_OK);
    assert_int_equal(dp_event_log_read(log, rows), LH_ERR_NOT_FOUND);
    json_decref(rows);
    append(path, "listening\n2026-11-21T21:12:29Z +0.100 INFO server/eu/s shard.ready a\n");
    assert_true(dp_event_log_empty(log));
    json_decref(more(log, 1));
    assert_false(dp_event_log_empty(log));
    assert_false(dp_event_log_ended(log));
    json_decref(more(log, 0));
    append(path, "2026-11-21T21:12:30Z +1.100 INFO server/eu/s check");
    json_decref(more(log, 0)); // half a line is no event yet
    append(path, "point.written b\n2026-11-21T21:12:50Z +0.200 INFO server/eu/s shard.ready c\n");
    rows = more(log, 3);
    assert_string_equal(field(rows, 0, "text"), "b");
    assert_string_equal(field(rows, 0, "source"), "grows.log:3");
    assert_string_equal(field(rows, 1, "event"), "process.killed"); // detected across two reads
    json_decref(rows);
    append(path, "2026-11-21T21:12:51Z +1.200 INFO server/eu/s program.end asked\n");
    json_decref(more(log, 1));
    assert_true(dp_event_log_ended(log));
    assert_int_equal(truncate(path, 0), 0);
    append(path, "2026-11-21T21:12:52Z +0.100 INFO server/eu/s program.begin d\n");
    json_decref(more(log, 1));
    assert_false(dp_event_log_ended(log));
    dp_event_log_destroy(log);
    unlink(path);
}

// The command runs in a child process, with its output in a file.
TEST(follows_until_all_have_ended)
{
    char a[DP_PATH_BYTES], b[DP_PATH_BYTES], said[DP_PATH_BYTES], text[4096] = "";
    assert_int_equal(dp_path(a, "%s/a.log", dir), LH_OK);
    assert_int_equal(dp_path(b, "%s/b.log", dir), LH_OK);
    assert_int_equal(dp_path(said, "%s/said", dir), LH_OK);
    append(a, "2026-11-21T21:12:29Z +0.100 INFO server/eu/a shard.ready one\n");
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (!freopen(said, "w", stdout)) _exit(99);
        const char *argv[] = {"events", "--follow", "-o", "json", "--kind=run", "--dir", dir};
        _exit(dp_command(7, (char **)argv));
    }
    wait_for(said, text, sizeof text, "\"one\"");
    append(b, "2026-11-21T21:12:30Z +0.100 INFO server/eu/b shard.ready two\n"); // a new log
    wait_for(said, text, sizeof text, "\"two\"");
    append(a, "2026-11-21T21:12:31Z +1.100 INFO server/eu/a program.end x\n");
    append(a, "2026-11-21T21:12:31Z +1.200 INFO server/eu/a shard.ready three\n");
    wait_for(said, text, sizeof text, "\"three\"");
    int status;
    assert_int_equal(waitpid(child, &status, WNOHANG), 0); // b goes on
    append(b, "2026-11-21T21:12:32Z +1.100 INFO server/eu/b program.end x\n");
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    wait_for(said, text, sizeof text, "\"three\"");
    unsigned lines = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, lines++) {
        *end = 0;
        json_t *event = json_loads(line, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(event, "kind")), "run");
        json_decref(event);
    }
    assert_int_equal(lines, 3); // each once, and only the events asked for
    unlink(a);
    unlink(b);
    unlink(said);
}

int main(void)
{
    return test_run(setup, teardown);
}
