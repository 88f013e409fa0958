// Commit: the only way to change the coordinator's store, and to answer. An answer or log line
// after a change is sent once the change is durable; if it can't become durable, the peer gets
// "busy" (server/docs/0000-protocol.md#rule-26).
#ifndef PS_CO_COMMIT_H
#define PS_CO_COMMIT_H

#include "server/coordinator/core.h"

struct lh_peer;
struct lh_request;

typedef lh_err ps_co_load_fn(struct ps_coordinator *c);

// Borrows `load`: the functions that read rows, in order; NULL ends the list.
LH_MUST lh_err ps_co_commit_open(struct ps_coordinator *c, ps_co_load_fn *const *load);
// Reads everything that has rows in the store and leaves the rest unchanged. After a failed commit,
// memory equals the store again, and derived values are computed anew.
LH_MUST lh_err ps_co_load(struct ps_coordinator *c);
void ps_co_commit_close(struct ps_coordinator *c); // cancels its timers
void ps_co_commit_free(struct ps_coordinator *c);

// ---- changes
LH_MUST lh_err ps_co_put(struct ps_coordinator *c, const char *key, struct lh_span value);
LH_MUST lh_err ps_co_remove(struct ps_coordinator *c, const char *key);
// Stores a row under this key; frees `row`.
LH_MUST lh_err ps_co_put_buf(struct ps_coordinator *c, const char *key, struct lh_buf *row);
// The same for a member's row: the key is `kind`, which ends with a slash, and the id.
struct ps_co_key {
    char text[48];
};
struct ps_co_key ps_co_key(const char *kind, uint64_t id);
LH_MUST lh_err ps_co_put_of(struct ps_coordinator *c, const char *kind, uint64_t id,
                            struct lh_buf *row);
LH_MUST lh_err ps_co_remove_of(struct ps_coordinator *c, const char *kind, uint64_t id);
// Stores a shard's row of this kind; `kind` ends with a slash; frees `row`.
LH_MUST lh_err ps_co_put_row(struct ps_coordinator *c, const char *kind, uint32_t shard,
                             struct lh_buf *row);
// The error for an unreadable row: file, row, cause and remedy. LH_ERR_CORRUPT.
LH_MUST lh_err ps_co_bad_row(const struct ps_coordinator *c, const char *key, const char *why);
// Reads one row into memory; `name` is its key without the prefix. Returns the cause of an error,
// as words after "row KEY", or NULL. A failed cursor (row too short) needs no words.
typedef const char *ps_co_read_named(struct ps_coordinator *c, const char *name,
                                     struct lh_cursor *at);
// Reads all rows whose keys begin with `prefix`. LH_ERR_CORRUPT: the first unreadable one.
LH_MUST lh_err ps_co_load_named(struct ps_coordinator *c, const char *prefix,
                                ps_co_read_named *read);
// Parses a row's whole name as a number. False: it is no number.
bool ps_co_row_number(const char *name, int base, uint64_t *out);
// Parses a row's whole name as a unit of the run. Returns the cause of an error, as above.
const char *ps_co_no_unit(void); // the cause: a unit outside the run
const char *ps_co_row_unit(const struct ps_coordinator *c, const char *name, uint64_t *unit);
// Parses a row's whole name as a worker's id; *index: the worker's. Returns the cause of an error.
const char *ps_co_row_worker(const struct ps_coordinator *c, const char *name, uint32_t *index);
// Reads one row into the shard. `at` NULL: the shard has no row; resets its values.
typedef lh_err ps_co_read_row(struct ps_co_shard *s, struct lh_cursor *at);
// Reads the rows of the model's shards. LH_ERR_CORRUPT: a row is too short.
LH_MUST lh_err ps_co_load_rows(struct ps_coordinator *c, const char *kind, ps_co_read_row *read);

// ---- what is said
void ps_co_answer(struct ps_coordinator *c, struct lh_request *rq, const struct lh_wire_type *type,
                  const void *answer);
// Answers with lh_err_text(err); an error of class STOP ends the coordinator.
void ps_co_refuse(struct ps_coordinator *c, struct lh_request *rq, lh_err err);
// An operator's command for the audit log. The answer in the same handler waits until the line is
// on disk.
void ps_co_audit(struct ps_coordinator *c, const char *event, const struct lh_peer *peer,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
// A log line about a change, written after the change. Dropped if the change is taken back.
void ps_co_say(struct ps_coordinator *c, enum lh_level level, const char *event, const char *format,
               ...) __attribute__((format(printf, 4, 5)));

// The same for a line that a peer can cause as often as it likes: at a bounded rate (log.h).
void ps_co_say_peer(struct ps_coordinator *c, enum lh_level level, const char *event,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

// ---- where it stands
bool ps_co_owes(const struct ps_coordinator *c, uint64_t peer); // the peer waits for an answer
bool ps_co_settled(const struct ps_coordinator *c);             // all changes are durable
// Logs how long the current commit takes, if that is long.
void ps_co_commit_look(struct ps_coordinator *c);
double ps_co_commit_age_s(const struct ps_coordinator *c); // 0: none under way
bool ps_co_full(const struct ps_coordinator *c);           // disk full: a commit waits
                                                           // waits

#endif
