// Recover: a start, and what a directory says of itself: its epochs and its name
// (recover.c, epoch.c, identity.c).
#ifndef PS_RECOVER_H
#define PS_RECOVER_H

#include "common/env/env.h"

struct ps_server;
struct ps_shard;

struct ps_log_condition { // as a start found the log, and as it stands by now
    bool torn;            // bytes at its end were dropped
    bool damaged;         // it can't be gone on with
    bool unreliable;      // nor can what was folded from it
    bool replayed;        // it has records
    bool given_up;        // it is of another history than the checkpoints
    bool rewound;     // an operator made this state the history (deploy/stored/rewind_command.c)
    bool older;       // an earlier start found the directory to be an older copy
    bool aside;       // it was set aside, and the next one has no room yet
    bool installed;   // the fetched states are durable, and their log begun
    char damage[256]; // why it is damaged
};

#define PS_REWOUND_NAME "rewound" // a file of the directory (log.rewound)

// ---- recover.c
// Checkpoints and log become the shards' states, and the log is written on. LH_ERR_CORRUPT,
// LH_ERR_IO: it can't start from them.
LH_MUST lh_err ps_recover(struct ps_server *s);
// Every shard's history is settled: makes what is to be served durable. `fetched`: some replica
// holds a state that is not this directory's. LH_ERR_DISK_FULL: to be tried again.
LH_MUST lh_err ps_recovered(struct ps_server *s, bool fetched);
// The replicas' states become all there is: checkpoints of it, and a new log. LH_ERR_DISK_FULL:
// to be tried again.
LH_MUST lh_err ps_start_over(struct ps_server *s);

// ---- epoch.c
// The highest epoch that the directory `dir` asked for, and under which token (0: under none).
// LH_ERR_NOT_FOUND: it never did. LH_ERR_CORRUPT. A write is durable when it returns.
LH_MUST lh_err ps_epoch_read(struct lh_env *env, const char *dir, uint32_t shard, uint64_t *epoch,
                             uint64_t *token);
LH_MUST lh_err ps_epoch_write(struct lh_env *env, const char *dir, uint32_t shard, uint64_t epoch,
                              uint64_t token);
LH_MUST lh_err ps_epoch_load(struct ps_shard *shard); // into the shard; nothing there is no error
// The directory was found to be an older copy: the shard's next epoch, under a token that nobody
// draws, tells every later start. Durable.
LH_MUST lh_err ps_epoch_give_up(struct ps_shard *shard);
// The directory was found to be an older copy, and no epoch has begun since.
bool ps_epoch_given_up(const struct ps_shard *shard);
// The epoch that the shard asks for, under a new token; durable.
LH_MUST lh_err ps_epoch_store(struct ps_shard *shard, uint64_t epoch);
// An EPOCH record of it is to be written, for the log's own epoch is older.
bool ps_epoch_asked_for(const struct ps_shard *shard);
bool ps_epoch_due(const struct ps_shard *shard); // an epoch is to be opened before it is served

// ---- identity.c
// The directory's number into s->standby; a directory that has none gets one.
LH_MUST lh_err ps_identity_load(struct ps_server *s);
LH_MUST lh_err ps_identity_renew(struct ps_server *s); // durable when it returns
// The log's tail was dropped, not yet durably: a directory that stands by may lack what it
// confirmed.
LH_MUST lh_err ps_identity_torn(struct ps_server *s);

#endif
