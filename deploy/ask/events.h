// Events of a run, out of the logs of its processes.
//
// A log line, text or JSON (common/env/log.h), is one event; its kind is a word for what operators
// ask about (dp_event_kinds). One event is in no log and is derived: a process whose life begins
// anew without a last word of the old one was killed ("process.killed"). Times are those of the
// hosts' clocks, in whole seconds.
#ifndef DP_EVENTS_H
#define DP_EVENTS_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct dp_event_kind {
    const char *name, *help;
};
extern const struct dp_event_kind dp_event_kinds[]; // ends with a NULL name

struct dp_event_filter {
    const char *const *kind; // any of these
    unsigned kinds;          // 0: every kind but norms
    const char *who;         // part of "role/region/name"; NULL: everybody
    const char *since;       // "2026-01-31T12:00:00Z", or a beginning of it; NULL: from the start
};

// Appends the events of a log file to `rows`: {"time", "up_s", "level", "who", "event", "kind",
// "text", "source": "FILE:LINE"}. Lines that are none are left out. LH_ERR_NOT_FOUND, LH_ERR_IO,
// LH_ERR_TOO_LARGE.
LH_MUST lh_err dp_events_read(const char *path, json_t *rows);
// The same of a log that grows, a part at a time: each read appends the events of the lines that
// were finished since the one before. A file that became shorter, or another, is read from its
// start.
struct dp_event_log;
// Takes nothing and opens nothing yet; gives the log. LH_ERR_TOO_LARGE, LH_ERR_NO_MEMORY.
LH_MUST lh_err dp_event_log_create(const char *path, struct dp_event_log **out);
void dp_event_log_destroy(struct dp_event_log *log);
LH_MUST lh_err dp_event_log_read(struct dp_event_log *log, json_t *rows); // errors as above
const char *dp_event_log_path(const struct dp_event_log *log);
// Has it lines of a process, and has that process, or the last of several, said its last word?
bool dp_event_log_ended(const struct dp_event_log *log);
bool dp_event_log_empty(const struct dp_event_log *log); // no line of a process so far
// Those that pass the filter, by time; of one second as they were read. A new reference; NULL: no
// memory.
json_t *dp_events_choose(const json_t *rows, const struct dp_event_filter *filter);
// A line for each.
void dp_events_put(const json_t *rows, struct lh_buf *out);

#endif
