// What happened in a run, out of the logs of its processes.
//
// A log line, text or JSON (common/log.h), is one event; its kind is a word for what operators ask
// about (dp_event_kinds). One event is in no log and is derived: a process whose life begins anew
// without a last word of the old one was killed ("process.killed"). Times are those of the hosts'
// clocks, in whole seconds.
#ifndef DP_EVENTS_H
#define DP_EVENTS_H

#include <jansson.h>

#include "common/buf.h"
#include "common/err.h"

struct dp_event_kind {
    const char *name, *help;
};
extern const struct dp_event_kind dp_event_kinds[]; // ends with a NULL name

struct dp_event_filter {
    const char *const *kind; // any of these
    unsigned kinds;          // 0: every kind
    const char *who;         // part of "role/region/name"; NULL: everybody
    const char *since;       // "2026-01-31T12:00:00Z", or a beginning of it; NULL: from the start
};

// Appends the events of a log file to `rows`: {"time", "up_s", "level", "who", "event", "kind",
// "text", "source": "FILE:LINE"}. Lines that are none are left out. LH_ERR_NOT_FOUND, LH_ERR_IO,
// LH_ERR_TOO_LARGE.
LH_MUST lh_err dp_events_read(const char *path, json_t *rows);
// Those that pass the filter, by time; of one second as they were read. A new reference; NULL: no
// memory.
json_t *dp_events_choose(const json_t *rows, const struct dp_event_filter *filter);
// A line for each.
void dp_events_put(const json_t *rows, struct lh_buf *out);

#endif
