// Commit: the only way to change the coordinator's store, and the only way out. A change is durable
// soon; what is said after it is heard after it, or, where that can't be had, "busy" instead
// (server/docs/0000-protocol.md#rule-26).
#ifndef PS_CO_COMMIT_H
#define PS_CO_COMMIT_H

#include "server/coordinator/core.h"

struct lh_peer;
struct lh_request;

typedef lh_err ps_co_load_fn(struct ps_coordinator *c);

// Borrows `load`: the functions that read rows, in their order; NULL ends it.
LH_MUST lh_err ps_co_commit_open(struct ps_coordinator *c, ps_co_load_fn *const *load);
// Reads all that has rows in the store, and leaves what has none as it is. After a commit that
// failed memory is as the store is again, and what was concluded from the rest is concluded anew.
LH_MUST lh_err ps_co_load(struct ps_coordinator *c);
void ps_co_commit_close(struct ps_coordinator *c); // takes no timer any more
void ps_co_commit_free(struct ps_coordinator *c);

// ---- changes
LH_MUST lh_err ps_co_put(struct ps_coordinator *c, const char *key, struct lh_span value);
LH_MUST lh_err ps_co_remove(struct ps_coordinator *c, const char *key);
// A shard's row of this kind, which ends with a slash; `row` is freed.
LH_MUST lh_err ps_co_put_row(struct ps_coordinator *c, const char *kind, uint32_t shard,
                             struct lh_buf *row);
// Refuses a row that can't be read: which file and row, why, and the way out. LH_ERR_CORRUPT.
LH_MUST lh_err ps_co_bad_row(const struct ps_coordinator *c, const char *key, const char *why);
// Reads one row into memory; `name` is its key without the prefix. Gives why it can't be, in words
// that go on from "row KEY", or NULL. A row that is too short needs no word: the cursor has failed.
typedef const char *ps_co_read_named(struct ps_coordinator *c, const char *name,
                                     struct lh_cursor *at);
// Reads all rows whose keys begin with `prefix`. LH_ERR_CORRUPT: the first that can't be read.
LH_MUST lh_err ps_co_load_named(struct ps_coordinator *c, const char *prefix,
                                ps_co_read_named *read);
// Reads a number that is all of a row's name. False: it is none.
bool ps_co_row_number(const char *name, int base, uint64_t *out);
// Reads a unit of the run that is all of a row's name. Gives why it can't be, as above.
const char *ps_co_no_unit(void); // says that a row is of a unit that the run does not have
const char *ps_co_row_unit(const struct ps_coordinator *c, const char *name, uint64_t *unit);
// Reads one row into the shard. `at` NULL: the shard has no row, and is as without one.
typedef lh_err ps_co_read_row(struct ps_co_shard *s, struct lh_cursor *at);
// Reads the rows of the model's shards. LH_ERR_CORRUPT where one is too short.
LH_MUST lh_err ps_co_load_rows(struct ps_coordinator *c, const char *kind, ps_co_read_row *read);

// ---- what is said
void ps_co_answer(struct ps_coordinator *c, struct lh_request *rq, const ProtobufCMessage *answer);
// Answers with lh_err_text(err); an error of class STOP ends the coordinator.
void ps_co_refuse(struct ps_coordinator *c, struct lh_request *rq, lh_err err);
// An operator's word for the audit. What answers the request afterwards, in the same handler, waits
// until the line is on the disk.
void ps_co_audit(struct ps_coordinator *c, const char *event, const struct lh_peer *peer,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
// A line of the log about what changed, after the change. Dropped where that is taken back.
void ps_co_say(struct ps_coordinator *c, enum lh_level level, const char *event, const char *format,
               ...) __attribute__((format(printf, 4, 5)));

// ---- where it stands
bool ps_co_owes(const struct ps_coordinator *c, uint64_t peer); // the peer waits for an answer
bool ps_co_settled(const struct ps_coordinator *c);             // all that changed is durable
// Says how long the commit that is under way takes, where that is long.
void ps_co_commit_look(struct ps_coordinator *c);
double ps_co_commit_age_s(const struct ps_coordinator *c); // 0: none is under way
bool ps_co_full(const struct ps_coordinator *c);           // the disk was, just now: a commit waits

#endif
