// Events of a run, from the logs of its processes.
//
// A log line, text or JSON (common/env/log.h), is one event; its kind is a topic of interest to
// operators (dp_event_kinds). One event is derived instead: a process that starts again without a
// final line of the previous one was killed ("process.killed"). Times are those of the hosts'
// clocks, in whole seconds.
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
    unsigned kinds;          // 0: all kinds except norms
    const char *who;         // part of "role/region/name"; NULL: all
    const char *since;       // "2026-01-31T12:00:00Z", or a prefix; NULL: from the start
};

// Appends the events of a log file to `rows`: {"time", "up_s", "level", "who", "event", "kind",
// "text", "source": "FILE:LINE"}. Skips other lines. LH_ERR_NOT_FOUND, LH_ERR_IO, LH_ERR_TOO_LARGE.
LH_MUST lh_err dp_events_read(const char *path, json_t *rows);
// The same for a growing log, in parts: each read appends the events of the lines completed since
// the previous one. A file that became shorter, or was replaced, is read from its start.
struct dp_event_log;
// Creates the reader; opens nothing yet. LH_ERR_TOO_LARGE, LH_ERR_NO_MEMORY.
LH_MUST lh_err dp_event_log_create(const char *path, struct dp_event_log **out);
void dp_event_log_destroy(struct dp_event_log *log);
LH_MUST lh_err dp_event_log_read(struct dp_event_log *log, json_t *rows); // errors as above
const char *dp_event_log_path(const struct dp_event_log *log);
// Has the last process written its final line? For a log that is not empty.
bool dp_event_log_ended(const struct dp_event_log *log);
bool dp_event_log_empty(const struct dp_event_log *log); // no process's line so far
// The events that pass the filter, by time; within a second in reading order. A new reference;
// NULL: no memory.
json_t *dp_events_choose(const json_t *rows, const struct dp_event_filter *filter);
// One line per event.
void dp_events_put(const json_t *rows, struct lh_buf *out);

#endif
