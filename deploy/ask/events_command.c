// longhaul events: past events of a run, from the logs of its processes; --follow: new ones.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "deploy/ask/events.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"

static const size_t OUTPUT_BYTES_MAX = (size_t)2 << 30;
enum { LOGS_MAX = 4096, LOOK_MS = 250 };

struct request {
    const char *dir, *who, *since;
    struct dp_texts kinds, files;
    bool json, list, follow, audit;
};

struct logs {
    struct dp_event_log *at[LOGS_MAX];
    unsigned count;
};

static int is_log(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 4 && !strcmp(entry->d_name + n - 4, ".log");
}

static LH_MUST lh_err add_log(struct logs *logs, const char *path)
{
    for (unsigned i = 0; i < logs->count; i++)
        if (!strcmp(dp_event_log_path(logs->at[i]), path)) return LH_OK;
    if (logs->count == LOGS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "more than %d logs: name fewer files", LOGS_MAX);
    lh_err err = dp_event_log_create(path, &logs->at[logs->count]);
    if (!err) logs->count++;
    return err;
}

static void free_logs(struct logs *logs)
{
    while (logs->count) dp_event_log_destroy(logs->at[--logs->count]);
}

// Finds the logs of a run's folder, by name; adds those new since the last call.
static LH_MUST lh_err find_logs(const char *dir, struct logs *logs)
{
    struct dirent **entry = NULL;
    char path[DP_PATH_BYTES];
    lh_err err = LH_OK;
    int count = scandir(dir, &entry, is_log, alphasort);
    if (count < 0 && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "no folder %s", dir);
    if (count < 0) return lh_fail_errno(errno, "%s", dir);
    for (int i = 0; i < count; i++) {
        if (!err) err = dp_path(path, "%s/%s", dir, entry[i]->d_name);
        if (!err) err = add_log(logs, path);
        free(entry[i]);
    }
    free(entry);
    if (!err && !count)
        err = lh_fail(LH_ERR_NOT_FOUND,
                      "no logs in %s: `longhaul up` keeps NAME.log of every process in a run's "
                      "folder; if you started the processes yourself, name their log files",
                      dir);
    return err;
}

// Adds the audit file of a process's directory, the older part first.
static LH_MUST lh_err add_audit(struct logs *logs, const char *dir)
{
    static const char *const name[] = {"audit.jsonl.1", "audit.jsonl"};
    char path[DP_PATH_BYTES];
    for (size_t i = 0; i < LH_COUNT(name); i++) {
        LH_TRY(dp_path(path, "%s/%s", dir, name[i]));
        if (dp_file_exists(path)) LH_TRY(add_log(logs, path));
    }
    return LH_OK;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

// Adds audit files of a directory and of its subdirectories.
static LH_MUST lh_err find_audits(const char *dir, struct logs *logs)
{
    struct dirent **entry = NULL;
    char path[DP_PATH_BYTES];
    unsigned before = logs->count;
    int count = scandir(dir, &entry, is_visible, alphasort);
    if (count < 0 && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "no folder %s", dir);
    if (count < 0) return lh_fail_errno(errno, "%s", dir);
    lh_err err = add_audit(logs, dir);
    for (int i = 0; i < count; i++) {
        if (!err) err = dp_path(path, "%s/%s", dir, entry[i]->d_name);
        if (!err) err = add_audit(logs, path);
        free(entry[i]);
    }
    free(entry);
    if (!err && logs->count == before)
        err = lh_fail(LH_ERR_NOT_FOUND,
                      "no audit.jsonl in %s or in a folder of it: name the directory (setting dir) "
                      "of a coordinator or a server, or the file",
                      dir);
    return err;
}

static LH_MUST lh_err all_logs(const struct request *q, struct logs *logs)
{
    lh_err err = LH_OK;
    if (q->dir) err = q->audit ? find_audits(q->dir, logs) : find_logs(q->dir, logs);
    for (unsigned i = 0; !err && i < q->files.count; i++) err = add_log(logs, q->files.at[i]);
    return err;
}

// One JSON document of all events; with --follow, one per line.
static LH_MUST lh_err put_json(const struct request *q, json_t *chosen, struct lh_buf *out)
{
    size_t i;
    json_t *event;
    if (!q->follow) return dp_table_json(out, chosen);
    json_array_foreach(chosen, i, event)
    {
        char *text = json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII);
        if (!text) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the events");
        dp_put(out, "%s\n", text);
        free(text);
    }
    return LH_OK;
}

static LH_MUST lh_err show(const struct request *q, const json_t *rows)
{
    const struct dp_event_filter filter = {q->kinds.at, q->kinds.count, q->who, q->since};
    struct lh_buf out = lh_buf(OUTPUT_BYTES_MAX);
    json_t *chosen = dp_events_choose(rows, &filter);
    lh_err err = chosen ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for the events");
    if (!err && q->json)
        err = put_json(q, chosen, &out);
    else if (!err)
        dp_events_put(chosen, &out);
    err = dp_print(&out, err);
    fflush(stdout);
    json_decref(chosen);
    return err;
}

static LH_MUST lh_err events(const struct request *q, struct logs *logs)
{
    json_t *rows = json_array();
    lh_err err = all_logs(q, logs);
    for (unsigned i = 0; !err && i < logs->count; i++)
        err = dp_events_read(dp_event_log_path(logs->at[i]), rows);
    if (!err) err = show(q, rows);
    if (!err && !json_array_size(rows))
        fprintf(stderr, "no line from a Longhaul process in %s\n",
                logs->count == 1 ? dp_event_log_path(logs->at[0]) : "these logs");
    json_decref(rows);
    return err;
}

// Has every process written its final line? Skips logs without lines of a process.
static bool all_ended(const struct logs *logs)
{
    unsigned ended = 0;
    for (unsigned i = 0; i < logs->count; i++) {
        if (dp_event_log_empty(logs->at[i])) continue;
        if (!dp_event_log_ended(logs->at[i])) return false;
        ended++;
    }
    return ended > 0;
}

// Prints new events, by time, until the run has ended and no more events come; or for ever.
static LH_MUST lh_err follow(const struct request *q, struct logs *logs)
{
    lh_err err = LH_OK;
    for (bool ended = false, quiet = false; !err && !(ended && quiet) && !ferror(stdout);) {
        json_t *rows = json_array();
        err = all_logs(q, logs);
        for (unsigned i = 0; !err && i < logs->count; i++)
            err = dp_event_log_read(logs->at[i], rows);
        quiet = ended && json_array_size(rows) == 0;
        ended = all_ended(logs);
        if (!err) err = show(q, rows);
        json_decref(rows);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
    return err;
}

static LH_MUST lh_err check_kinds(const struct dp_texts *kinds)
{
    for (unsigned i = 0; i < kinds->count; i++) {
        const struct dp_event_kind *k = dp_event_kinds;
        while (k->name && strcmp(k->name, kinds->at[i]) != 0) k++;
        if (!k->name)
            return lh_fail(LH_ERR_INVALID, "--kind %.40s: unknown kind (--kinds lists all)",
                           kinds->at[i]);
    }
    return LH_OK;
}

// Checks for a time in the logs' format, or a prefix from the day on: times are compared as text.
static LH_MUST lh_err check_since(const char *since)
{
    static const char form[] = "2000-01-01T00:00:00Z";
    char whole[sizeof form];
    struct tm parts;
    size_t n = since ? strlen(since) : 0;
    bool fits = n >= strlen("2000-01-01") && n < sizeof form;
    for (size_t i = 0; fits && i < n; i++) {
        bool digit = since[i] >= '0' && since[i] <= '9';
        fits = form[i] >= '0' && form[i] <= '9' ? digit : since[i] == form[i];
    }
    snprintf(whole, sizeof whole, "%s%s", fits ? since : "", form + (fits ? n : 0));
    if (!since || (fits && strptime(whole, "%Y-%m-%dT%H:%M:%SZ", &parts))) return LH_OK;
    return lh_fail(LH_ERR_INVALID,
                   "--since %.40s: expected a time in UTC such as 2026-01-31T12:00:00Z, or its "
                   "beginning, at least the day",
                   since);
}

lh_err dp_cmd_events(int argc, char **argv)
{
    struct request q = {0};
    const struct dp_flag flags[] = {
        {"--dir", DP_TEXT, &q.dir, "RUNDIR", "all logs of a run's folder"},
        {"--audit", DP_SWITCH, &q.audit, NULL,
         "joins, refusals and operators' commands, from the audit files in --dir"},
        {"--kind", DP_EACH, &q.kinds, "KIND", "only these; may repeat"},
        {"--kinds", DP_SWITCH, &q.list, NULL, "list the kinds and exit"},
        {"--who", DP_TEXT, &q.who, "TEXT", "only processes with this text in role/region/name"},
        {"--since", DP_TEXT, &q.since, "TIME",
         "only from this time on, such as 2026-01-31T12:00:00Z (UTC)"},
        {"--follow", DP_SWITCH, &q.follow, NULL,
         "continue with new events until the run has ended"},
        {"-o", DP_FORM, &q.json, "table|json",
         "form of the output; with --follow JSON is one object per line"},
    };
    const struct dp_usage usage = {
        "longhaul events --dir RUNDIR | LOG... [flags]",
        "Lists the events in the logs (text or JSON) of a run's processes, in the order of time:\n"
        "joins, losses, kills, incarnations, checkpoints, refusals. `up` keeps the logs in the\n"
        "run's folder; a process that you start yourself logs to stderr, or to the file of its\n"
        "setting log.file. No log shows a kill: it is inferred if a process starts again without\n"
        "having ended in order. Times come from each host's own clock. --follow prints the\n"
        "existing events, then each new one, until every process has ended or Ctrl-C.",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &q.files, &help));
    if (help) return LH_OK;
    for (const struct dp_event_kind *k = dp_event_kinds; q.list && k->name; k++)
        printf("%-12s %s\n", k->name, k->help);
    if (q.list) return LH_OK;
    if (!q.dir && !q.files.count) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(check_kinds(&q.kinds));
    LH_TRY(check_since(q.since));
    struct logs *logs = calloc(1, sizeof *logs);
    if (!logs) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the events");
    lh_err err = q.follow ? follow(&q, logs) : events(&q, logs);
    free_logs(logs);
    free(logs);
    return err;
}
