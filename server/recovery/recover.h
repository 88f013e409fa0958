// Recover: a start, from checkpoints and log. See recover.c.
#ifndef PS_RECOVER_H
#define PS_RECOVER_H

#include "common/base/err.h"

struct ps_server;

struct ps_log_condition { // condition of the log, found at start or later
    bool torn;            // bytes at its end were dropped
    bool damaged;         // the log can't be continued
    bool unreliable;      // nor can the state folded from it
    bool replayed;        // the log has records
    bool given_up;        // another history than the checkpoints'
    bool rewound;         // an operator made this state the history (refold.h)
    bool older;           // an earlier start found the directory to be an older copy
    bool aside;           // the log was quarantined, and the disk has no space for a new one
    bool installed;       // the fetched states are durable and their log has begun
    char damage[256];     // cause of `damaged`
};

// Builds the shards' states from checkpoints and log, and opens the log. LH_ERR_CORRUPT, LH_ERR_IO:
// the start fails.
LH_MUST lh_err ps_recover(struct ps_server *s);
// Every shard's history is settled: makes the state to serve durable. `fetched`: some replica holds
// a state from elsewhere. LH_ERR_DISK_FULL: try again.
LH_MUST lh_err ps_recovered(struct ps_server *s, bool fetched);
// Makes the replicas' states the only ones: checkpoints of them, and a new log. LH_ERR_DISK_FULL:
// try again.
LH_MUST lh_err ps_start_over(struct ps_server *s);

#endif
