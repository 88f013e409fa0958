// Logs of a process: one line per event, text for people or JSON for machines, to stderr or a file.
//
// `event` is a stable dotted name (push.refused); the text says what, where and what to do. Lines
// that a peer can cause are limited to LH_LOG_PEER_RATE a second per event; what was left out is
// counted, and said with any later line or look. A NULL log drops everything (the simulator's
// default).
#ifndef LH_COMMON_LOG_H
#define LH_COMMON_LOG_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/env/env.h"

enum lh_level { LH_DEBUG, LH_INFO, LH_WARN, LH_ERROR };
enum { LH_LOG_PEER_RATE = 5 }; // lines a second and event
struct lh_log;

// who: "server/eu/s1", in every line. Borrows nothing. path NULL: stderr.
LH_MUST lh_err lh_log_open(struct lh_log **out, struct lh_env *env, const char *who,
                           enum lh_level min, bool json, const char *path);
// A log of JSON lines that is kept apart from what happens often: at LH_LOG_AUDIT_BYTES the file
// becomes PATH.1, in place of the one before, and the next begins.
enum { LH_LOG_AUDIT_BYTES = 16 << 20 };
LH_MUST lh_err lh_log_open_audit(struct lh_log **out, struct lh_env *env, const char *who,
                                 const char *path);
// From here on a thread of the log's own writes the lines, so a disk that hangs keeps nobody who
// logs. At most LH_LOG_QUEUE_BYTES of lines wait for it; what is beyond that is lost, and counted.
enum { LH_LOG_QUEUE_BYTES = 1 << 20 };
LH_MUST lh_err lh_log_apart(struct lh_log *log);
// Makes all lines durable. It blocks: not for a loop.
void lh_log_sync(struct lh_log *log);
// About once a second: says how many lines were left out, where nothing else is logged.
void lh_log_look(struct lh_log *log);
void lh_log_close(struct lh_log *log);
void lh_logf(struct lh_log *log, enum lh_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// `json` is an object on one line: the text of a text line, "data" of a JSON line instead of
// "text".
void lh_log_data(struct lh_log *log, enum lh_level level, const char *event, const char *json);
// The same, rate-limited: for what a peer can cause.
void lh_log_peer(struct lh_log *log, enum lh_level level, const char *event, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

#endif
