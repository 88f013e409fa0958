// Recover: a start, and the directory's own epochs and name (recover.c, epoch.c, identity.c).
#ifndef PS_RECOVER_H
#define PS_RECOVER_H

#include "common/env/env.h"

struct ps_server;
struct ps_shard;

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

// ---- recover.c
// Builds the shards' states from checkpoints and log, and opens the log. LH_ERR_CORRUPT, LH_ERR_IO:
// the start fails.
LH_MUST lh_err ps_recover(struct ps_server *s);
// Every shard's history is settled: makes the state to serve durable. `fetched`: some replica holds
// a state from elsewhere. LH_ERR_DISK_FULL: try again.
LH_MUST lh_err ps_recovered(struct ps_server *s, bool fetched);
// Makes the replicas' states the only ones: checkpoints of them, and a new log. LH_ERR_DISK_FULL:
// try again.
LH_MUST lh_err ps_start_over(struct ps_server *s);

// ---- epoch.c
// The highest epoch that directory `dir` requested, and its token (0: none). LH_ERR_NOT_FOUND: none
// requested. LH_ERR_CORRUPT. A write is durable when it returns.
LH_MUST lh_err ps_epoch_read(struct lh_env *env, const char *dir, uint32_t shard, uint64_t *epoch,
                             uint64_t *token);
LH_MUST lh_err ps_epoch_write(struct lh_env *env, const char *dir, uint32_t shard, uint64_t epoch,
                              uint64_t token);
LH_MUST lh_err ps_epoch_load(struct ps_shard *shard); // into the shard; a missing file is no error
// Marks the directory as an older copy: stores the shard's next epoch with a reserved token, for
// every later start. Durable.
LH_MUST lh_err ps_epoch_give_up(struct ps_shard *shard);
// The directory was marked as an older copy, and no epoch has begun since.
bool ps_epoch_given_up(const struct ps_shard *shard);
// Stores the epoch that the shard requests, under a new token; durable.
LH_MUST lh_err ps_epoch_store(struct ps_shard *shard, uint64_t epoch);
// The log's epoch is older than the requested one: an EPOCH record must be written.
bool ps_epoch_asked_for(const struct ps_shard *shard);
bool ps_epoch_due(const struct ps_shard *shard); // a new epoch must be opened before serving

// ---- identity.c
// Loads the directory's number into s->standby; creates it if missing.
LH_MUST lh_err ps_identity_load(struct ps_server *s);
LH_MUST lh_err ps_identity_renew(struct ps_server *s); // durable when it returns
// The log's tail was dropped, not yet durably: notes that a standby directory may lack records that
// it confirmed.
LH_MUST lh_err ps_identity_torn(struct ps_server *s);

#endif
