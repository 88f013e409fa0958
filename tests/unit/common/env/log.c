// Log: line formats, levels, quoting, rate limit, a failing disk. The env is one of this file.
// labels: tsan
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/log.h"
#include "tests/test.h"

struct lh_file {
    char text[65536];
    size_t len;
    bool full;
};
struct world {
    struct lh_env env;
    struct lh_file file;
    int64_t now_ns;
};

static int64_t world_now(struct lh_env *env)
{
    return ((struct world *)env)->now_ns;
}
static int64_t world_wall(struct lh_env *env)
{
    (void)env;
    return 86400;
}
static lh_err world_open(struct lh_env *env, const char *path, unsigned flags, struct lh_file **out)
{
    if (!strcmp(path, "/nowhere/log")) return lh_fail(LH_ERR_NOT_FOUND, "%s: no such folder", path);
    assert_int_equal(flags, LH_OPEN_WRITE | LH_OPEN_CREATE); // keeps an old log
    *out = &((struct world *)env)->file;
    return LH_OK;
}
static void world_close(struct lh_file *file)
{
    file->text[file->len] = 0;
}
static lh_err world_size(struct lh_file *file, uint64_t *out)
{
    *out = file->len;
    return LH_OK;
}
static lh_err world_write(struct lh_file *file, uint64_t at, struct lh_span bytes)
{
    if (file->full) return lh_fail(LH_ERR_DISK_FULL, "disk full");
    assert_int_equal(at, file->len);
    assert_true(file->len + bytes.len < sizeof file->text);
    memcpy(file->text + at, bytes.data, bytes.len);
    file->len += bytes.len;
    return LH_OK;
}
static const struct lh_files_ops files = {
    .open = world_open, .close = world_close, .size = world_size, .write = world_write};
static const struct lh_env_ops ops = {.now_ns = world_now, .wall_s = world_wall, .files = &files};

static struct lh_log *open_log(struct world *w, bool json)
{
    *w = (struct world){.env = {&ops}};
    struct lh_log *log;
    assert_int_equal(lh_log_open(&log, &w->env, "server/eu/s1", LH_INFO, json, "log"), LH_OK);
    return log;
}

static unsigned lines_with(const struct world *w, const char *what)
{
    unsigned n = 0;
    for (const char *at = w->file.text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

TEST(text_line_is_exact)
{
    static struct world w;
    struct lh_log *log = open_log(&w, false);
    w.now_ns = 1234 * LH_MS;
    lh_logf(log, LH_DEBUG, "push.seen", "below the level");
    lh_logf(log, LH_WARN, "push.refused", "staleness %d\nforged line\x1b[2J", 14);
    lh_log_close(log);
    assert_string_equal(w.file.text, "1970-01-02T00:00:00Z +1.234 WARN server/eu/s1 push.refused "
                                     "staleness 14?forged line?[2J\n");
}

TEST(json_line_is_exact)
{
    static struct world w;
    struct lh_log *log = open_log(&w, true);
    lh_logf(log, LH_ERROR, "disk.full", "say \"no\" \\ \n\xff");
    lh_log_close(log);
    assert_string_equal(
        w.file.text,
        "{\"time\":\"1970-01-02T00:00:00Z\",\"up_s\":0.000,\"mono_us\":0,\"level\":\"error\","
        "\"who\":\"server/eu/s1\",\"event\":\"disk.full\","
        "\"text\":\"say \\\"no\\\" \\\\ \\u000a\\u00ff\"}\n");
}

TEST(a_line_about_a_push_has_its_trace)
{
    static struct world w;
    struct lh_log *log = open_log(&w, true);
    lh_log_traced(log, LH_DEBUG, "0af7", "push.sent", "below the level");
    lh_log_traced(log, LH_INFO, "0af7", "push.sent", "%d", 1);
    lh_log_traced(log, LH_INFO, "", "push.sent", "of none");
    for (int i = 0; i < 2 * LH_LOG_PEER_RATE; i++)
        lh_log_peer_traced(log, LH_WARN, "c319", "push.refused", "%d", i);
    lh_log_close(log);
    assert_int_equal(lines_with(&w,
                                "\"level\":\"info\",\"trace\":\"0af7\",\"who\":\"server/eu/s1\","
                                "\"event\":\"push.sent\",\"text\":\"1\"}\n"),
                     1);
    assert_int_equal(lines_with(&w, "\"level\":\"info\",\"who\""), 1);
    assert_int_equal(lines_with(&w, "\"trace\":\"c319\""), LH_LOG_PEER_RATE);
    log = open_log(&w, false);
    lh_log_traced(log, LH_INFO, "0af7", "push.sent", "1");
    lh_log_close(log);
    assert_string_equal(w.file.text, "1970-01-02T00:00:00Z +0.000 INFO server/eu/s1 push.sent 1\n");
}

TEST(data_stays_an_object)
{
    for (int json = 0; json < 2; json++) {
        static struct world w;
        struct lh_log *log = open_log(&w, json);
        lh_log_data(log, LH_DEBUG, "eval.loss", "{}"); // below the level
        lh_log_data(log, LH_INFO, "eval.loss", "{\"loss\":1.5}");
        lh_log_data(NULL, LH_INFO, "eval.loss", "{}");
        lh_log_close(log);
        assert_string_equal(
            w.file.text,
            json ? "{\"time\":\"1970-01-02T00:00:00Z\",\"up_s\":0.000,\"mono_us\":0,\"level\":"
                   "\"info\","
                   "\"who\":\"server/eu/s1\",\"event\":\"eval.loss\",\"data\":{\"loss\":1.5}}\n"
                 : "1970-01-02T00:00:00Z +0.000 INFO server/eu/s1 eval.loss {\"loss\":1.5}\n");
    }
}

TEST(peers_are_limited_per_event)
{
    static struct world w;
    struct lh_log *log = open_log(&w, false);
    for (int i = 0; i < 100; i++) lh_log_peer(log, LH_WARN, "tls.refused", "peer %d", i);
    lh_log_peer(log, LH_WARN, "push.refused", "another event");
    for (int i = 0; i < 7; i++) lh_logf(log, LH_WARN, "own", "not limited");
    w.now_ns += LH_SECOND;
    lh_log_peer(log, LH_WARN, "tls.refused", "peer again");
    lh_log_close(log);
    assert_int_equal(lines_with(&w, "tls.refused peer"), LH_LOG_PEER_RATE + 1);
    assert_int_equal(lines_with(&w, "tls.refused 95 more lines of this event were suppressed\n"),
                     1);
    assert_int_equal(lines_with(&w, "another event"), 1);
    assert_int_equal(lines_with(&w, "not limited"), 7);
}

TEST(omitted_lines_are_counted_if_the_event_never_recurs)
{
    static struct world w;
    struct lh_log *log = open_log(&w, false);
    for (int i = 0; i < LH_LOG_PEER_RATE + 3; i++) lh_log_peer(log, LH_INFO, "tls.refused", "p");
    lh_log_look(log); // within the same second
    assert_int_equal(lines_with(&w, " more lines"), 0);
    w.now_ns += LH_SECOND;
    lh_log_look(log);
    assert_int_equal(lines_with(&w, "tls.refused 3 more lines"), 1);
    for (int i = 0; i < LH_LOG_PEER_RATE + 4; i++) lh_log_peer(log, LH_INFO, "tls.refused", "p");
    w.now_ns += LH_SECOND;
    lh_logf(log, LH_INFO, "own", "another event");
    assert_int_equal(lines_with(&w, "tls.refused 4 more lines"), 1);
    lh_log_look(NULL);
    lh_log_close(log);
    assert_int_equal(lines_with(&w, " more lines"), 2);
}

TEST(omitted_lines_are_counted_at_close)
{
    static struct world w;
    struct lh_log *log = open_log(&w, false);
    for (int i = 0; i < LH_LOG_PEER_RATE + 3; i++) lh_log_peer(log, LH_INFO, "tls.refused", "p");
    lh_log_close(log);
    assert_int_equal(lines_with(&w, " 3 more lines"), 1);
}

// A peer that invents events uses one row for all of them, so it cannot make memory grow.
TEST(many_events_share_a_row)
{
    static struct world w;
    struct lh_log *log = open_log(&w, false);
    char event[16];
    for (int i = 0; i < 500; i++) {
        snprintf(event, sizeof event, "e%d", i);
        lh_log_peer(log, LH_INFO, event, "x");
    }
    lh_log_close(log);
    assert_int_equal(lines_with(&w, "\n"), 63 + LH_LOG_PEER_RATE + 1);
    assert_int_equal(lines_with(&w, "log.other 432 more lines"), 1);
}

TEST(lost_lines_are_counted)
{
    static struct world w;
    struct lh_log *log = open_log(&w, false);
    w.file.full = true;
    lh_logf(log, LH_INFO, "a", "lost");
    lh_logf(log, LH_INFO, "a", "lost");
    w.file.full = false;
    lh_logf(log, LH_INFO, "a", "written");
    lh_log_close(log);
    assert_int_equal(lines_with(&w, " a lost"), 0);
    assert_int_equal(lines_with(&w, " a written\n"), 1);
    assert_int_equal(lines_with(&w, "log.lost 2 lines could not be written\n"), 1);
}

TEST(a_long_text_is_cut)
{
    static struct world w;
    static char big[5000];
    memset(big, 'x', sizeof big - 1);
    struct lh_log *log = open_log(&w, false);
    lh_logf(log, LH_INFO, "a", "%s", big);
    lh_log_close(log);
    assert_in_range(w.file.len, 2000, 2200);
    assert_int_equal(w.file.text[w.file.len - 1], '\n');
}

TEST(a_bad_path_and_no_log)
{
    static struct world w;
    w = (struct world){.env = {&ops}};
    struct lh_log *log;
    assert_int_equal(lh_log_open(&log, &w.env, "x", LH_INFO, false, "/nowhere/log"),
                     LH_ERR_NOT_FOUND);
    lh_logf(NULL, LH_ERROR, "a", "dropped");
    lh_log_peer(NULL, LH_ERROR, "a", "dropped");
    lh_log_close(NULL);
}

// ---------------------------------------------------------------- a writer thread

// A disk that blocks while `hangs`, and counts of the writes that reached it.
struct apart {
    struct lh_env env;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hangs, full;
    size_t bytes, lines, syncs, lost;
};

static int64_t apart_now(struct lh_env *env)
{
    (void)env;
    return 0;
}

static lh_err apart_open(struct lh_env *env, const char *path, unsigned flags, struct lh_file **out)
{
    (void)path, (void)flags;
    *out = (struct lh_file *)env;
    return LH_OK;
}

static lh_err apart_size(struct lh_file *file, uint64_t *out)
{
    (void)file;
    *out = 0;
    return LH_OK;
}

static void apart_close(struct lh_file *file)
{
    (void)file;
}

static struct apart *wait_for_disk(struct lh_file *file)
{
    struct apart *a = (struct apart *)file;
    pthread_mutex_lock(&a->lock);
    while (a->hangs) pthread_cond_wait(&a->changed, &a->lock);
    return a;
}

static lh_err apart_write(struct lh_file *file, uint64_t at, struct lh_span bytes)
{
    (void)at;
    struct apart *a = wait_for_disk(file);
    bool full = a->full;
    if (!full) {
        unsigned count = 0;
        const char *said = memmem(bytes.data, bytes.len, "log.lost ", 9);
        a->bytes += bytes.len;
        a->lines++;
        if (said && sscanf(said, "log.lost %u", &count) == 1) a->lost += count;
    }
    pthread_mutex_unlock(&a->lock);
    return full ? LH_ERR_DISK_FULL : LH_OK;
}

static lh_err apart_sync(struct lh_file *file)
{
    struct apart *a = wait_for_disk(file);
    a->syncs++;
    pthread_mutex_unlock(&a->lock);
    return LH_OK;
}

static const struct lh_files_ops apart_files = {.open = apart_open,
                                                .close = apart_close,
                                                .size = apart_size,
                                                .write = apart_write,
                                                .sync = apart_sync};
static const struct lh_env_ops apart_ops = {
    .now_ns = apart_now, .wall_s = apart_now, .files = &apart_files};

static struct lh_log *open_apart(struct apart *a)
{
    struct lh_log *log;
    *a = (struct apart){.env = {&apart_ops}};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    assert_int_equal(lh_log_open(&log, &a->env, "t", LH_INFO, false, "log"), LH_OK);
    assert_int_equal(lh_log_apart(log), LH_OK);
    return log;
}

static void set(struct apart *a, bool hangs, bool full)
{
    pthread_mutex_lock(&a->lock);
    a->hangs = hangs;
    a->full = full;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void close_apart(struct apart *a, struct lh_log *log)
{
    lh_log_close(log);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
}

TEST(logging_does_not_wait_for_a_hung_disk)
{
    enum { LINES = 2000, LINE_BYTES = 1000 };
    static struct apart a;
    struct lh_log *log = open_apart(&a);
    char text[LINE_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    lh_logf(log, LH_INFO, "first", "it is written at once");
    lh_log_sync(log);
    assert_true(a.lines == 1 && a.syncs == 1);
    set(&a, true, false);
    // logging does not block
    for (int i = 0; i < LINES; i++) lh_logf(log, LH_INFO, "many", "%s", text);
    set(&a, false, false);
    lh_log_sync(log);
    assert_true(a.syncs == 2 && a.lines > 900);
    // the queue, and the part that the writer had taken
    assert_true(a.bytes < 3 * LH_LOG_QUEUE_BYTES);
    for (int i = 0; i < 10 && !a.lost; i++) {
        lh_logf(log, LH_INFO, "last", "with it what was lost is said");
        lh_log_sync(log);
    }
    size_t lost = a.lost, lines = a.lines;
    assert_true(lost > 0 && lines >= 2 + (LINES - lost) && lines <= 12 + (LINES - lost));
    close_apart(&a, log);
}

TEST(lines_lost_to_a_full_disk_are_counted_once)
{
    static struct apart a;
    struct lh_log *log = open_apart(&a);
    set(&a, false, true);
    for (int i = 0; i < 5; i++) {
        lh_logf(log, LH_INFO, "lost", "%d", i);
        lh_log_sync(log);
    }
    set(&a, false, false);
    lh_logf(log, LH_INFO, "room", "again");
    lh_log_sync(log);
    assert_true(a.lines == 2 && a.lost == 5);
    close_apart(&a, log);
}

TEST(queued_lines_are_written_at_close)
{
    static struct apart a;
    struct lh_log *log = open_apart(&a);
    for (int i = 0; i < 100; i++) lh_logf(log, LH_INFO, "line", "%d", i);
    close_apart(&a, log);
    assert_int_equal(a.lines, 100);
}

// Standard error is a full pipe that nobody reads.
TEST(a_full_pipe_blocks_neither_logging_nor_close)
{
    enum { PATIENCE_S = 100 };
    static struct apart a;
    char filler[4096] = {0};
    struct lh_log *log;
    int to[2], before = dup(STDERR_FILENO);
    a = (struct apart){.env = {&apart_ops}};
    assert_int_equal(pipe2(to, O_NONBLOCK), 0);
    while (write(to[1], filler, sizeof filler) > 0) {
    }
    assert_int_equal(fcntl(to[1], F_SETFL, 0), 0);
    assert_int_equal(dup2(to[1], STDERR_FILENO), STDERR_FILENO);
    alarm(PATIENCE_S); // ends the test if a caller blocks on the pipe
    assert_int_equal(lh_log_open(&log, &a.env, "t", LH_INFO, false, NULL), LH_OK);
    assert_int_equal(lh_log_apart(log), LH_OK);
    for (int i = 0; i < 3; i++) lh_logf(log, LH_INFO, "line", "%d", i);
    lh_log_close(log);
    alarm(0);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(to[1]);
    assert_int_equal(fcntl(to[0], F_SETFL, 0), 0);
    while (read(to[0], filler, sizeof filler) > 0) {
    } // until the writer's last write to the pipe has ended; the writer frees the log
    close(to[0]);
    close(before);
}
