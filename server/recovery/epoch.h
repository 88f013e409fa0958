// Epoch: the epochs that a directory has requested. See epoch.c.
#ifndef PS_EPOCH_H
#define PS_EPOCH_H

#include "common/env/env.h"

struct ps_shard;

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

#endif
