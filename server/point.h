// Point: compares a point of a shard's history with a log (server/docs/0000-protocol.md#rule-14,
// #rule-27).
//
// An owner compares the points of its standby (insync.c, follow.c), of the coordinator (rebuild.c)
// and of workers' copies (vouch.c). Those files decide the consequences.
#ifndef PS_POINT_H
#define PS_POINT_H

#include "common/base/err.h"
#include "common/format/point.h"

struct ps_shard;

enum ps_stand {
    PS_POINT_EARLIER, // an epoch before the log's last: the log's end says nothing about it
    PS_POINT_LATER,   // an epoch that the log has not begun
    PS_POINT_AHEAD,   // above the log's end, in the log's epoch
    PS_POINT_OURS,    // the log has it
    PS_POINT_OTHER,   // the log has another record there: two histories of one epoch
    PS_POINT_CUT,     // its record was trimmed: the log can't tell
};

struct ps_log_answer {           // the log's data for comparing a point
    uint64_t epoch, version;     // the log's end
    const struct lh_hash *chain; // the log's chain at the point's version; NULL: no record there
};

// The chains of the last records that this process folded or found in the log, even if trimmed
// since. Zero-initialised: none.
enum { PS_CHAINS = 1024 };
struct ps_chains {
    uint64_t first, last; // versions; first > last, or last 0: none
    struct lh_hash at[PS_CHAINS];
};

// Adds this version's record; one that does not follow the last one replaces all.
void ps_chains_add(struct ps_chains *c, uint64_t version, const struct lh_hash *chain);
const struct lh_hash *ps_chains_at(const struct ps_chains *c, uint64_t version); // NULL: not known

// Pure.
enum ps_stand ps_point_stand(const struct lh_point *p, const struct ps_log_answer *log);
// The same for a shard's durable log. LH_ERR_IO: the log could not be read.
LH_MUST lh_err ps_shard_stand(const struct ps_shard *s, const struct lh_point *p,
                              enum ps_stand *out);
// Can a follower go on with the log from this point? LH_ERR_NOT_FOUND: it must take a snapshot.
LH_MUST lh_err ps_shard_goes_on(const struct ps_shard *s, const struct lh_point *from);
#endif
