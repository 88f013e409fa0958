// Reads events from logs. See events.h.
#include "deploy/ask/events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/format/json.h"
#include "deploy/tool/files.h"

enum { EVENTS_MAX = 1 << 20, WHO_BYTES = 160 };

const struct dp_event_kind dp_event_kinds[] = {
    {"join", "a worker joined, or came back; a rank of one"},
    {"lost", "a worker was silent for too long; a rank of one died"},
    {"member", "workers that became live, suspect, lost or drained, and the hook that was called"},
    {"kill", "a process that started again without having ended in order"},
    {"incarnation", "a worker's state began anew"},
    {"run", "phases of the run, shards ready and ended"},
    {"drain", "what operators asked, and who has drained"},
    {"audit", "joins, refusals, operators' commands"},
    {"expel", "workers and servers that were expelled, set aside or let back"},
    {"balance", "units that moved, or will move, to another region or worker, and why"},
    {"cadence", "local steps of a round that changed, and why"},
    {"scale", "the numbers of workers wanted, and requests for them"},
    {"move", "shards that moved, or will move, to another server"},
    {"checkpoint", "checkpoints and snapshots written and taken"},
    {"refusal", "a push, a join, a certificate was refused"},
    {"link", "a peer that could not be reached"},
    {"damage", "stored bytes that are torn, damaged or differ"},
    {"history", "an older copy of a directory, or one of another history"},
    {"disk", "a disk that is full or hangs, or is well again"},
    {"process", "starts and ends of programs"},
    {"eval", "held-out losses while training"},
    {"norms", "norms of every tensor: many, so only on request"},
    {"other", "all else"},
    {NULL, NULL},
};

// The first matching rule counts. A '*' matches any beginning or end.
static const struct {
    const char *event, *kind;
} rules[] = {
    {"worker.joined", "join"},
    {"worker.back", "join"},
    {"worker.differs", "join"},
    {"worker.lost", "lost"},
    {"worker.stalled", "lost"},
    {"worker.failing", "lost"},
    {"worker.moves", "join"},
    {"run.left_out", "lost"},
    {"run.untrained", "lost"},
    {"member.state", "member"},
    {"hook.*", "member"},
    {"rule.*", "member"},
    {"rank.joined", "join"},
    {"rank.lost", "lost"},
    {"worker.drained", "drain"},
    {"run.drain", "drain"},
    {"run.pause", "drain"},
    {"run.resume", "drain"},
    {"audit.*", "audit"},
    {"run.expel", "expel"},
    {"run.admit", "expel"},
    {"expelled.refused", "expel"},
    {"worker.set_aside", "expel"},
    {"rebuild.*", "history"},
    {"stable.*", "history"},
    {"shard.moved", "move"},
    {"move.*", "move"},
    {"balance.*", "balance"},
    {"scale.*", "scale"},
    {"cadence.*", "cadence"},
    {"process.killed", "kill"},
    {"incarnation.*", "incarnation"},
    {"residual.rebuilt", "incarnation"},
    {"*.disk_full", "disk"},
    {"*.room", "disk"},
    {"disk.*", "disk"},
    {"status.unwritten", "disk"},
    {"status.written", "disk"},
    {"tensorboard.unwritten", "disk"},
    {"*.older", "history"},
    {"store.old", "history"},
    {"follow.ahead", "history"},
    {"residual.snapshot", "damage"},
    {"checkpoint.written", "checkpoint"},
    {"checkpoint.stored", "checkpoint"},
    {"checkpoint.store_away", "checkpoint"},
    {"checkpoint.store_back", "checkpoint"},
    {"replica.snapshot", "checkpoint"},
    {"*.refused", "refusal"},
    {"*.rejected", "refusal"},
    {"*.unreachable", "link"},
    {"follow.broken", "link"},
    {"*.damaged", "damage"},
    {"*.torn", "damage"},
    {"*.differs", "damage"},
    {"*.skipped", "damage"},
    {"*.malformed", "damage"},
    {"run.*", "run"},
    {"shard.*", "run"},
    {"program.*", "process"},
    {"*.stop", "process"},
    {"eval.*", "eval"},
    {"tensor.norms", "norms"},
};

static bool matches(const char *rule, const char *event)
{
    size_t n = strlen(rule), m = strlen(event);
    if (rule[0] == '*') return m >= n - 1 && !strcmp(event + m - (n - 1), rule + 1);
    if (rule[n - 1] == '*') return !strncmp(event, rule, n - 1);
    return !strcmp(event, rule);
}

static const char *kind_of(const char *event)
{
    for (size_t i = 0; i < LH_COUNT(rules); i++)
        if (matches(rules[i].event, event)) return rules[i].kind;
    return "other";
}

// ---------------------------------------------------------------- lines

static bool is_time(const char *text)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:ddZ";
    size_t i = 0;
    for (; shape[i] && text[i]; i++)
        if (shape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i]) return false;
    return !shape[i] && !text[i];
}

// Parses "TIME +UP LEVEL WHO EVENT TEXT"; NULL: a line of another form.
static json_t *text_event(char *line)
{
    char *part[5], *end;
    for (int i = 0; i < 5; i++) {
        part[i] = line;
        line = strchr(line, ' ');
        if (!line) return NULL;
        *line++ = 0;
    }
    double up_s = strtod(part[1], &end);
    if (!is_time(part[0]) || part[1][0] != '+' || *end) return NULL;
    for (char *at = part[2]; *at; at++)
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at + ('a' - 'A'));
    for (char *at = line; *at; at++) // replaces bytes that JSON cannot hold
        if ((unsigned char)*at >= 127) *at = '?';
    return json_pack("{s:s s:f s:s s:s s:s s:s}", "time", part[0], "up_s", up_s, "level", part[2],
                     "who", part[3], "event", part[4], "text", line);
}

static json_t *json_event(const char *line)
{
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    bool good = is_time(lh_json_word(o, "time")) && lh_json_word(o, "who")[0] &&
                lh_json_word(o, "event")[0] && json_is_number(json_object_get(o, "up_s"));
    if (good) return o;
    json_decref(o);
    return NULL;
}

// ---------------------------------------------------------------- files

// The process that writes a file, as its lines show it. Restarts of it append to the file.
struct life {
    char who[WHO_BYTES];
    double up_s;   // age of the process at its last line
    double last_s; // wall clock at its last line
    bool ended;    // it wrote a final line
};

static bool last_word(const char *event)
{
    bool begins = !strcmp(event, "program.begin");
    return (matches("program.*", event) && !begins) || matches("*.stop", event) ||
           !strcmp(event, "run.done");
}

// Gives the seconds of a line's "time".
static double wall_s(const json_t *event)
{
    struct tm t = {0};
    const char *rest = strptime(lh_json_word(event, "time"), "%Y-%m-%dT%H:%M:%SZ", &t);
    return rest ? (double)timegm(&t) : 0;
}

// Derives an event that no log has: this line is the first of a process, and the previous process
// wrote no final line. A process begins with "program.begin", and its age starts anew. The previous
// process may have lived long after its last line, at most until this one began.
static json_t *killed(const struct life *l, const json_t *first)
{
    char text[160];
    if (!l->who[0] || strcmp(l->who, lh_json_word(first, "who")) != 0 || l->ended) return NULL;
    double up_s = lh_json_number(first, "up_s");
    if (up_s >= l->up_s && strcmp(lh_json_word(first, "event"), "program.begin") != 0) return NULL;
    double lived_s = wall_s(first) - up_s - (l->last_s - l->up_s);
    snprintf(text, sizeof text,
             "started again; the previous process ran for %.0f s at most, and logged its last line "
             "after %.1f s",
             lived_s > l->up_s ? lived_s : l->up_s, l->up_s);
    return json_pack("{s:s s:f s:s s:s s:s s:s}", "time", lh_json_word(first, "time"), "up_s", up_s,
                     "level", "warn", "who", l->who, "event", "process.killed", "text", text);
}

static void note(struct life *l, const json_t *event)
{
    double up_s = lh_json_number(event, "up_s");
    bool same = !strcmp(l->who, lh_json_word(event, "who")) && up_s >= l->up_s &&
                strcmp(lh_json_word(event, "event"), "program.begin") != 0;
    l->ended = (same && l->ended) || last_word(lh_json_word(event, "event"));
    l->up_s = up_s;
    l->last_s = wall_s(event);
    snprintf(l->who, sizeof l->who, "%s", lh_json_word(event, "who"));
}

static LH_MUST lh_err add(json_t *rows, json_t *event, const char *path, uint64_t line)
{
    if (json_array_size(rows) >= EVENTS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "more than %d events: name fewer files", EVENTS_MAX);
    const char *name = strrchr(path, '/');
    json_object_set_new(event, "kind", json_string(kind_of(lh_json_word(event, "event"))));
    json_object_set_new(event, "source",
                        json_sprintf("%s:%llu", name ? name + 1 : path, (unsigned long long)line));
    return json_array_append(rows, event) ? lh_fail(LH_ERR_NO_MEMORY, "no memory for the events")
                                          : LH_OK;
}

struct dp_event_log {
    char path[DP_PATH_BYTES];
    ino_t file;     // inode of the file read so far
    off_t at;       // bytes read
    uint64_t lines; // lines read
    struct life life;
};

// Reads one line, without its newline.
static LH_MUST lh_err read_line(struct dp_event_log *l, char *line, json_t *rows)
{
    lh_err err = LH_OK;
    json_t *event = line[0] == '{' ? json_event(line) : text_event(line);
    if (!event) { // a line of a library or a person, or the last one of a failed program
        l->life.ended |= !strncmp(line, "longhaul-", 9); // text_event() cut the line
        return LH_OK;
    }
    json_t *kill = killed(&l->life, event);
    note(&l->life, event);
    if (kill) err = add(rows, kill, l->path, l->lines);
    if (!err) err = add(rows, event, l->path, l->lines);
    json_decref(kill);
    json_decref(event);
    return err;
}

// `all`: the last line counts even without a newline.
static LH_MUST lh_err read_lines(struct dp_event_log *l, FILE *in, bool all, json_t *rows)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t len;
    lh_err err = LH_OK;
    while (!err && (len = getline(&line, &capacity, in)) > 0) {
        bool whole = line[len - 1] == '\n';
        if (!whole && !all) break; // still being written
        if (whole) line[len - 1] = 0;
        l->at += len;
        l->lines++;
        err = read_line(l, line, rows);
    }
    free(line);
    return err;
}

static LH_MUST lh_err read_on(struct dp_event_log *l, bool all, json_t *rows)
{
    struct stat is;
    FILE *in = fopen(l->path, "re");
    if (!in && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "%s: no such log", l->path);
    if (!in) return lh_fail_errno(errno, "%s", l->path);
    lh_err err = fstat(fileno(in), &is) ? lh_fail_errno(errno, "%s", l->path) : LH_OK;
    if (!err && (is.st_ino != l->file || is.st_size < l->at)) {
        l->file = is.st_ino;
        l->at = 0;
        l->lines = 0;
    }
    if (!err && l->at && fseeko(in, l->at, SEEK_SET)) err = lh_fail_errno(errno, "%s", l->path);
    if (!err) err = read_lines(l, in, all, rows);
    if (!err && ferror(in)) err = lh_fail_errno(errno, "%s", l->path);
    fclose(in);
    return err;
}

lh_err dp_event_log_create(const char *path, struct dp_event_log **out)
{
    struct dp_event_log *l = calloc(1, sizeof *l);
    *out = l;
    if (!l) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the log %s", path);
    lh_err err = dp_path(l->path, "%s", path);
    if (!err) return LH_OK;
    free(l);
    *out = NULL;
    return err;
}

void dp_event_log_destroy(struct dp_event_log *log)
{
    free(log);
}

lh_err dp_event_log_read(struct dp_event_log *log, json_t *rows)
{
    return read_on(log, false, rows);
}

const char *dp_event_log_path(const struct dp_event_log *log)
{
    return log->path;
}

bool dp_event_log_ended(const struct dp_event_log *log)
{
    return log->life.ended;
}

bool dp_event_log_empty(const struct dp_event_log *log)
{
    return !log->life.who[0];
}

lh_err dp_events_read(const char *path, json_t *rows)
{
    struct dp_event_log *log;
    LH_TRY(dp_event_log_create(path, &log));
    lh_err err = read_on(log, true, rows);
    dp_event_log_destroy(log);
    return err;
}

// ---------------------------------------------------------------- choose, show

static bool passes(const json_t *event, const struct dp_event_filter *f)
{
    bool kind = !f->kinds && strcmp(lh_json_word(event, "kind"), "norms") != 0;
    for (unsigned i = 0; i < f->kinds; i++)
        kind |= !strcmp(f->kind[i], lh_json_word(event, "kind"));
    return kind && (!f->who || strstr(lh_json_word(event, "who"), f->who)) &&
           (!f->since || strcmp(lh_json_word(event, "time"), f->since) >= 0);
}

struct placed {
    json_t *event;
    size_t place;
};

static int earlier(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    int order = strcmp(lh_json_word(x->event, "time"), lh_json_word(y->event, "time"));
    return order ? order : x->place < y->place ? -1 : x->place > y->place;
}

json_t *dp_events_choose(const json_t *rows, const struct dp_event_filter *filter)
{
    size_t count = 0, i;
    struct placed *list = malloc((json_array_size(rows) + 1) * sizeof *list);
    json_t *event, *chosen = json_array();
    if (!list) {
        json_decref(chosen);
        return NULL;
    }
    json_array_foreach(rows, i, event)
    {
        if (passes(event, filter)) list[count++] = (struct placed){event, i};
    }
    qsort(list, count, sizeof *list, earlier);
    for (i = 0; i < count; i++) json_array_append(chosen, list[i].event);
    free(list);
    return chosen;
}

void dp_events_put(const json_t *rows, struct lh_buf *out)
{
    json_t *event;
    size_t i, width = 28; // upper bound on the column of who and where
    json_array_foreach(rows, i, event)
    {
        size_t n = strlen(lh_json_word(event, "who"));
        if (n > width) width = n < WHO_BYTES ? n : WHO_BYTES;
    }
    json_array_foreach(rows, i, event)
    {
        size_t from = out->len;
        dp_put(out, "%s  %-*s %-11s %-19s %s", lh_json_word(event, "time"), (int)width,
               lh_json_word(event, "who"), lh_json_word(event, "kind"),
               lh_json_word(event, "event"), lh_json_word(event, "text"));
        if (!lh_buf_err(out)) lh_text_tame((char *)out->data + from, out->len - from);
        dp_put(out, "\n");
    }
}
