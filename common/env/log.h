// Logs of a process: one line per event, text for people or JSON for machines, to stderr or a file.
//
// `event` is a stable dotted name (push.refused); the text gives the event's details, place and
// remedy. Lines that a peer can cause are limited to LH_LOG_PEER_RATE a second per event;
// suppressed lines are counted, and a later line or lh_log_look() logs the count. A NULL log drops
// everything (the simulator's default).
#ifndef LH_COMMON_LOG_H
#define LH_COMMON_LOG_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/env/env.h"

enum lh_level { LH_DEBUG, LH_INFO, LH_WARN, LH_ERROR };
enum { LH_LOG_PEER_RATE = 5 }; // lines a second per event; an audit's: a minute
struct lh_log;

// `who` ("server/eu/s1") is in every line. Borrows `env` and copies the rest. path NULL: stderr.
LH_MUST lh_err lh_log_open(struct lh_log **out, struct lh_env *env, const char *who,
                           enum lh_level min, bool json, const char *path);
// A separate log of JSON lines for rare events. At LH_LOG_AUDIT_BYTES the file is renamed to
// PATH.1, replacing the previous one, and a new file begins. Lines that a peer can cause are
// limited to LH_LOG_PEER_RATE a minute and event after a burst, as all of a run's workers join at
// once: so a peer that floods needs days to push out what operators did.
enum { LH_LOG_AUDIT_BYTES = 16 << 20, LH_LOG_AUDIT_BURST = 300 };
LH_MUST lh_err lh_log_open_audit(struct lh_log **out, struct lh_env *env, const char *who,
                                 const char *path);
// From here on the log's own thread writes the lines, so neither a hanging disk nor a pipe that
// nobody reads blocks a caller for long. At most LH_LOG_QUEUE_BYTES of lines wait for it; further
// lines are dropped and counted.
enum { LH_LOG_QUEUE_BYTES = 1 << 20 };
LH_MUST lh_err lh_log_apart(struct lh_log *log);
// Makes all lines durable. Blocks: not for a loop.
void lh_log_sync(struct lh_log *log);
// Call about once a second: logs the counts of suppressed lines.
void lh_log_look(struct lh_log *log);
void lh_log_close(struct lh_log *log);
void lh_logf(struct lh_log *log, enum lh_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// As lh_logf(), about a push of this trace (32 digits; "": none): a field "trace" of a JSON line.
void lh_log_traced(struct lh_log *log, enum lh_level level, const char *trace, const char *event,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
// `json` is an object on one line: the text of a text line, or "data" instead of "text" in a JSON
// line.
void lh_log_data(struct lh_log *log, enum lh_level level, const char *event, const char *json);
// As lh_logf(), rate-limited: for events that a peer can cause.
void lh_log_peer(struct lh_log *log, enum lh_level level, const char *event, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
void lh_log_peer_traced(struct lh_log *log, enum lh_level level, const char *trace,
                        const char *event, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
