// Log lines. See log.h.
//
//   text  2026-01-31T12:00:00Z +12.345 WARN server/eu/s1 push.refused staleness 14 over bound 12
//   json  {"time":"2026-01-31T12:00:00Z","up_s":12.345,"mono_us":98765432,
//          "level":"warn","who":"server/eu/s1","event":"push.refused","text":"..."}
//          (of lh_log_data: "data":{...} instead of "text"; of a push: "trace":"<32 digits>" before
//          "who")
//
// mono_us is the machine's monotonic clock: it orders lines of one machine's processes.
// 1. One event is one line: control characters of the text are replaced (text) or escaped (JSON).
// 2. A line is at most LINE_MAX bytes; the text of a longer one is cut.
// 3. Any thread may log. Each line is one write, under a mutex.
// 4. Logging never fails its caller: lines that can't be written are counted, and the count is
//    logged later.
// 5. After lh_log_apart() the file, or standard error, belongs to the writer's thread. A caller
//    waits WAIT_NS for its line: so a process that is killed has said all that it logged. Where a
//    line takes longer, nobody waits until the queue is empty again.
#include "common/env/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/text.h"

enum { LINE_MAX_BYTES = 4096, TEXT_BYTES_MAX = 2048, EVENTS_MAX = 64, EVENT_BYTES = 48 };

// Lines of one event: written in the current second (an audit: of its burst), and suppressed.
struct rate {
    char event[EVENT_BYTES];
    int64_t window_ns;
    unsigned written;
    uint64_t left_out;
};

// The thread of lh_log_apart(). The log's lock guards all fields but `batch`, which is the
// thread's.
struct writer {
    bool on, quit;
    bool over; // the thread has written all and ends
    bool left; // lh_log_close() did not wait for the thread, which frees the log
    bool slow; // a line took longer than WAIT_NS, and the queue was not empty since
    uint64_t lines_queued, lines_done; // since the start; done: written or lost
    pthread_t thread;
    pthread_cond_t wanted, done;
    struct lh_buf queue, batch; // whole lines
    uint64_t syncs_wanted, syncs_done;
};

static const int64_t WAIT_NS = 20 * LH_MS;     // a caller's patience for its own line
static const int64_t CLOSE_NS = 5 * LH_SECOND; // lh_log_close()'s, for one batch of lines

struct lh_log {
    struct lh_env *env;
    struct lh_file *file; // NULL: stderr
    uint64_t at;          // offset in `file` of the next line
    uint64_t bytes_max;   // bytes of a file before the next begins; 0: one file
    char path[LH_PATH_BYTES];
    bool named; // the file's name is durable
    int64_t opened_ns;
    enum lh_level min;
    bool json;
    char who[128];
    uint64_t lost; // lines that could not be written
    pthread_mutex_t lock;
    struct rate rate[EVENTS_MAX]; // all further events share the last row
    unsigned rates;
    struct writer writer;
};

static const char *const level_name[] = {"DEBUG", "INFO", "WARN", "ERROR"};
static const char *const level_json[] = {"debug", "info", "warn", "error"};

// ---------------------------------------------------------------- one line

static void put_text(struct lh_buf *b, const char *text)
{
    size_t n = strlen(text), from = b->len;
    lh_put(b, text, n);
    if (!lh_buf_err(b)) lh_text_tame((char *)b->data + from, n);
}

static void put_json(struct lh_buf *b, const char *text)
{
    char escape[8];
    for (; *text; text++) {
        uint8_t c = (uint8_t)*text;
        if (c == '"' || c == '\\') {
            lh_put_u8(b, '\\');
            lh_put_u8(b, c);
        } else if (c < ' ' || c >= 127) { // other bytes may be invalid UTF-8
            int n = snprintf(escape, sizeof escape, "\\u%04x", c);
            lh_put(b, escape, (size_t)n);
        } else {
            lh_put_u8(b, c);
        }
    }
}

// The parts of a line.
struct said {
    const char *trace, *event, *text;
    bool data; // the text is JSON
};

static void format_line(const struct lh_log *log, enum lh_level level, const struct said *said,
                        struct lh_buf *line)
{
    char stamp[32], head[256];
    time_t wall = (time_t)log->env->ops->wall_s(log->env);
    struct tm utc;
    gmtime_r(&wall, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
    int64_t now = lh_now(log->env);
    bool data = said->data, traced = said->trace[0] != 0;
    double up_s = (double)(now - log->opened_ns) / (double)LH_SECOND;
    int n = log->json ? snprintf(head, sizeof head,
                                 "{\"time\":\"%s\",\"up_s\":%.3f,\"mono_us\":%lld,\"level\":\"%s\","
                                 "%s%s%s\"who\":\"",
                                 stamp, up_s, (long long)(now / 1000), level_json[level],
                                 traced ? "\"trace\":\"" : "", said->trace, traced ? "\"," : "")
                      : snprintf(head, sizeof head, "%s +%.3f %s ", stamp, up_s, level_name[level]);
    lh_put(line, head, (size_t)n);
    void (*put)(struct lh_buf *, const char *) = log->json ? put_json : put_text;
    const char *parts[] = {log->who, said->event, said->text};
    const char *json_after[] = {"\",\"event\":\"", data ? "\",\"data\":" : "\",\"text\":\"",
                                data ? "}\n" : "\"}\n"};
    const char *text_after[] = {" ", " ", "\n"};
    for (int i = 0; i < 3; i++) {
        if (data && i == 2)
            lh_put(line, said->text, strlen(said->text));
        else
            put(line, parts[i]);
        const char *after = log->json ? json_after[i] : text_after[i];
        lh_put(line, after, strlen(after));
    }
}

// If the rename fails, the file keeps growing.
static void begin_next_file(struct lh_log *log)
{
    const struct lh_files_ops *files = log->env->ops->files;
    char before[LH_PATH_BYTES];
    struct lh_file *fresh;
    if (snprintf(before, sizeof before, "%s.1", log->path) >= (int)sizeof before ||
        files->rename(log->env, log->path, before) ||
        files->open(log->env, log->path, LH_OPEN_WRITE | LH_OPEN_CREATE, &fresh))
        return;
    files->close(log->file);
    log->file = fresh;
    log->at = 0;
    log->named = false;
}

static bool write_line(struct lh_log *log, struct lh_span line)
{
    if (log->bytes_max && log->at >= log->bytes_max) begin_next_file(log);
    if (!log->file) return write(STDERR_FILENO, line.data, line.len) == (ssize_t)line.len;
    if (log->env->ops->files->write(log->file, log->at, line)) return false;
    log->at += line.len;
    return true;
}

static bool queue_line(struct writer *w, struct lh_span line)
{
    if (line.len > LH_LOG_QUEUE_BYTES - w->queue.len) return false;
    lh_put(&w->queue, line.data, line.len);
    bool kept = lh_buf_err(&w->queue) == LH_OK;
    w->queue.err = LH_OK; // the next line may find memory
    w->lines_queued += kept;
    if (kept) pthread_cond_signal(&w->wanted);
    return kept;
}

static bool keep_line(struct lh_log *log, struct lh_span line)
{
    return log->writer.on ? queue_line(&log->writer, line) : write_line(log, line);
}

// Returns the lost lines that are not logged yet.
static uint64_t say_lost(struct lh_log *log, uint64_t lost)
{
    struct lh_buf line = lh_buf(6 * LINE_MAX_BYTES);
    char count[64];
    snprintf(count, sizeof count, "%llu lines could not be written", (unsigned long long)lost);
    format_line(log, LH_ERROR, &(struct said){"", "log.lost", count, false}, &line);
    if (!lh_buf_err(&line) && write_line(log, lh_buf_span(&line))) lost = 0;
    lh_buf_free(&line);
    return lost;
}

// With the lock held.
static void emit(struct lh_log *log, enum lh_level level, const struct said *said)
{
    struct lh_buf line = lh_buf(6 * LINE_MAX_BYTES); // every byte may be escaped
    format_line(log, level, said, &line);
    if (lh_buf_err(&line) || !keep_line(log, lh_buf_span(&line)))
        log->lost++;
    else if (log->lost && !log->writer.on) // a writer logs it itself
        log->lost = say_lost(log, log->lost);
    lh_buf_free(&line);
}

// ---------------------------------------------------------------- the file, and who writes it

static bool sync_file(struct lh_log *log)
{
    const struct lh_files_ops *files = log->env->ops->files;
    char folder[LH_PATH_BYTES];
    if (!log->file) return true;
    snprintf(folder, sizeof folder, "%s", log->path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    if (files->sync(log->file)) return false;
    if (!log->named && slash) log->named = files->sync_dir(log->env, folder) == LH_OK;
    return log->named || !slash;
}

static bool is_left(struct lh_log *log)
{
    pthread_mutex_lock(&log->lock);
    bool left = log->writer.left;
    pthread_mutex_unlock(&log->lock);
    return left;
}

// Returns the number of lines that could not be written.
static uint64_t write_batch(struct lh_log *log)
{
    struct lh_span rest = lh_buf_span(&log->writer.batch);
    uint64_t lost = 0;
    while (rest.len && !is_left(log)) {
        const uint8_t *end = memchr(rest.data, '\n', rest.len);
        size_t n = end ? (size_t)(end - rest.data) + 1 : rest.len;
        lost += !write_line(log, lh_span(rest.data, n));
        rest = lh_span(rest.data + n, rest.len - n);
    }
    return lost;
}

static void release(struct lh_log *log)
{
    struct writer *w = &log->writer;
    if (w->on) {
        pthread_cond_destroy(&w->wanted);
        pthread_cond_destroy(&w->done);
        lh_buf_free(&w->queue);
        lh_buf_free(&w->batch);
    }
    pthread_mutex_destroy(&log->lock);
    free(log);
}

static void *write_lines(void *arg)
{
    struct lh_log *log = arg;
    struct writer *w = &log->writer;
    pthread_mutex_lock(&log->lock);
    while (!w->left) {
        while (!w->quit && !w->queue.len && w->syncs_done == w->syncs_wanted)
            pthread_cond_wait(&w->wanted, &log->lock);
        if (w->quit && !w->queue.len && w->syncs_done == w->syncs_wanted) break;
        struct lh_buf taken = w->queue;
        uint64_t lost = log->lost, syncs = w->syncs_wanted, queued = w->lines_queued;
        bool sync = syncs != w->syncs_done;
        w->queue = w->batch;
        w->queue.len = 0;
        w->batch = taken;
        log->lost = 0;
        pthread_mutex_unlock(&log->lock);
        uint64_t more = write_batch(log);
        if (lost && taken.len && !more && !is_left(log)) lost = say_lost(log, lost);
        if (sync && !is_left(log)) more += !sync_file(log);
        pthread_mutex_lock(&log->lock);
        log->lost += lost + more; // logged with the next lines
        w->syncs_done = syncs;
        w->lines_done = queued;
        w->slow = w->slow && w->queue.len;
        pthread_cond_broadcast(&w->done);
    }
    w->over = true;
    bool left = w->left;
    pthread_cond_broadcast(&w->done);
    pthread_mutex_unlock(&log->lock);
    if (left) release(log);
    return NULL;
}

// With the lock held. False: the writer did nothing for so long.
static bool wait_done(struct lh_log *log, int64_t patience_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + patience_ns;
    until.tv_sec += (time_t)(ns / LH_SECOND);
    until.tv_nsec = (long)(ns % LH_SECOND);
    return pthread_cond_timedwait(&log->writer.done, &log->lock, &until) == 0;
}

// With the lock held.
static void wait_for_lines(struct lh_log *log)
{
    struct writer *w = &log->writer;
    uint64_t line = w->lines_queued;
    while (w->on && w->lines_done < line && !w->slow) w->slow = !wait_done(log, WAIT_NS);
}

// False: what the writer writes to hangs. Then the thread frees the log, should it ever go on.
static bool end_writer(struct lh_log *log)
{
    struct writer *w = &log->writer;
    if (!w->on) return true;
    pthread_mutex_lock(&log->lock);
    w->quit = true;
    pthread_cond_signal(&w->wanted);
    while (!w->over && !w->left) w->left = !wait_done(log, CLOSE_NS) && !w->over;
    bool left = w->left;
    pthread_t thread = w->thread;
    pthread_mutex_unlock(&log->lock);
    if (left)
        pthread_detach(thread);
    else
        pthread_join(thread, NULL);
    return !left;
}

// ---------------------------------------------------------------- rate limit

static bool is_audit(const struct lh_log *log)
{
    return log->bytes_max != 0;
}

static struct rate *rate_of(struct lh_log *log, const char *event)
{
    for (unsigned i = 0; i < log->rates; i++)
        if (!strncmp(log->rate[i].event, event, EVENT_BYTES - 1)) return &log->rate[i];
    if (log->rates == EVENTS_MAX) return &log->rate[EVENTS_MAX - 1];
    struct rate *rate = &log->rate[log->rates++];
    bool shared = log->rates == EVENTS_MAX;
    snprintf(rate->event, EVENT_BYTES, "%s", shared ? "log.other" : event);
    rate->window_ns = lh_now(log->env);
    return rate;
}

static void say_left_out(struct lh_log *log, struct rate *rate)
{
    if (!rate->left_out) return;
    char text[96];
    snprintf(text, sizeof text, "%llu more lines of this event were suppressed",
             (unsigned long long)rate->left_out);
    rate->left_out = 0;
    emit(log, LH_WARN, &(struct said){"", rate->event, text, false});
}

// Logs the counts of suppressed lines, also of events that have stopped.
static void look(struct lh_log *log)
{
    int64_t now = lh_now(log->env), window_ns = is_audit(log) ? 60 * LH_SECOND : LH_SECOND;
    for (unsigned i = 0; i < log->rates; i++) {
        struct rate *rate = &log->rate[i];
        if (now - rate->window_ns < window_ns) continue;
        rate->window_ns = now;
        rate->written -= rate->written < LH_LOG_PEER_RATE ? rate->written : LH_LOG_PEER_RATE;
        say_left_out(log, rate);
    }
}

static bool rate_allows(struct lh_log *log, const char *event)
{
    struct rate *rate = rate_of(log, event);
    if (rate->written < (is_audit(log) ? LH_LOG_AUDIT_BURST : LH_LOG_PEER_RATE)) {
        rate->written++;
        return true;
    }
    rate->left_out++;
    return false;
}

// ---------------------------------------------------------------- public

lh_err lh_log_open(struct lh_log **out, struct lh_env *env, const char *who, enum lh_level min,
                   bool json, const char *path)
{
    struct lh_log *log = calloc(1, sizeof *log);
    if (!log) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the log");
    *log = (struct lh_log){.env = env, .opened_ns = lh_now(env), .min = min, .json = json};
    snprintf(log->who, sizeof log->who, "%s", who);
    if (path && path[0]) {
        const struct lh_files_ops *files = env->ops->files;
        lh_err err = files->open(env, path, LH_OPEN_WRITE | LH_OPEN_CREATE, &log->file);
        if (!err) err = files->size(log->file, &log->at);
        if (err) {
            if (log->file) files->close(log->file);
            free(log);
            return err;
        }
    }
    pthread_mutex_init(&log->lock, NULL);
    *out = log;
    return LH_OK;
}

lh_err lh_log_open_audit(struct lh_log **out, struct lh_env *env, const char *who, const char *path)
{
    if (strlen(path) + sizeof ".1" > LH_PATH_BYTES)
        return lh_fail(LH_ERR_TOO_LARGE, "the path of the audit log: %s", path);
    LH_TRY(lh_log_open(out, env, who, LH_INFO, true, path));
    snprintf((*out)->path, sizeof(*out)->path, "%s", path);
    (*out)->bytes_max = LH_LOG_AUDIT_BYTES;
    return LH_OK;
}

void lh_log_sync(struct lh_log *log)
{
    if (!log || !log->file) return;
    struct writer *w = &log->writer;
    pthread_mutex_lock(&log->lock);
    if (w->on) {
        uint64_t want = ++w->syncs_wanted;
        pthread_cond_signal(&w->wanted);
        while (w->syncs_done < want) pthread_cond_wait(&w->done, &log->lock);
    } else if (!sync_file(log)) {
        log->lost++; // logged with the next line
    }
    pthread_mutex_unlock(&log->lock);
}

lh_err lh_log_apart(struct lh_log *log)
{
    struct writer *w = &log->writer;
    LH_ASSERT(!w->on);
    w->queue = lh_buf(LH_LOG_QUEUE_BYTES);
    w->batch = lh_buf(LH_LOG_QUEUE_BYTES);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wanted, NULL);
    pthread_cond_init(&w->done, &clock);
    pthread_condattr_destroy(&clock);
    w->on = pthread_create(&w->thread, NULL, write_lines, log) == 0;
    return w->on ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "cannot start the thread that writes a log");
}

void lh_log_look(struct lh_log *log)
{
    if (!log) return;
    pthread_mutex_lock(&log->lock);
    look(log);
    pthread_mutex_unlock(&log->lock);
}

void lh_log_close(struct lh_log *log)
{
    if (!log) return;
    pthread_mutex_lock(&log->lock);
    for (unsigned i = 0; i < log->rates; i++) say_left_out(log, &log->rate[i]);
    pthread_mutex_unlock(&log->lock);
    if (!end_writer(log)) return;
    if (log->file) log->env->ops->files->close(log->file);
    release(log);
}

__attribute__((format(printf, 6, 0))) static void vlog(struct lh_log *log, bool limited,
                                                       enum lh_level level, const char *trace,
                                                       const char *event, const char *format,
                                                       va_list args)
{
    char text[TEXT_BYTES_MAX];
    pthread_mutex_lock(&log->lock);
    look(log);
    if (!limited || rate_allows(log, event)) {
        vsnprintf(text, sizeof text, format, args);
        emit(log, level, &(struct said){trace, event, text, false});
        wait_for_lines(log);
    }
    pthread_mutex_unlock(&log->lock);
}

void lh_logf(struct lh_log *log, enum lh_level level, const char *event, const char *format, ...)
{
    if (!log || level < log->min) return;
    va_list args;
    va_start(args, format);
    vlog(log, false, level, "", event, format, args);
    va_end(args);
}

void lh_log_traced(struct lh_log *log, enum lh_level level, const char *trace, const char *event,
                   const char *format, ...)
{
    if (!log || level < log->min) return;
    va_list args;
    va_start(args, format);
    vlog(log, false, level, trace, event, format, args);
    va_end(args);
}

void lh_log_peer_traced(struct lh_log *log, enum lh_level level, const char *trace,
                        const char *event, const char *format, ...)
{
    if (!log || level < log->min) return;
    va_list args;
    va_start(args, format);
    vlog(log, true, level, trace, event, format, args);
    va_end(args);
}

void lh_log_data(struct lh_log *log, enum lh_level level, const char *event, const char *json)
{
    if (!log || level < log->min) return;
    pthread_mutex_lock(&log->lock);
    emit(log, level, &(struct said){"", event, json, true});
    wait_for_lines(log);
    pthread_mutex_unlock(&log->lock);
}

void lh_log_peer(struct lh_log *log, enum lh_level level, const char *event, const char *format,
                 ...)
{
    if (!log || level < log->min) return;
    va_list args;
    va_start(args, format);
    vlog(log, true, level, "", event, format, args);
    va_end(args);
}
