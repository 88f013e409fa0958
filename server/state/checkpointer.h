// Checkpointer: checkpoints, the log cut below the older one, and what happens while the disk is
// full (checkpointer.c, disk_full.c).
#ifndef PS_CHECKPOINTER_H
#define PS_CHECKPOINTER_H

#include "server/push/item.h"

// ---- checkpointer.c
bool ps_checkpointer_due(const struct ps_shard *s);         // a full checkpoint is due
bool ps_checkpointer_weights_due(const struct ps_shard *s); // one of weights only is due
void ps_checkpointer_start(struct ps_shard *s);             // begins one if any is due
bool ps_checkpointer_busy(const struct ps_server *s);       // one is being made
// Bytes that the next full one takes at most, of any shard: parameters, optimizer, ledger, seals.
uint64_t ps_checkpointer_bytes(const struct ps_server *s);
// Removes what only versions below every shard's older checkpoint need.
LH_MUST lh_err ps_checkpointer_trim(struct ps_server *s);
// The item's record was folded: a checkpoint that is being copied hears of it, and may hold the
// item's payload, with its memory, for longer.
void ps_checkpointer_folded(struct ps_item *i);
void ps_checkpointer_free(struct ps_checkpointer *k); // NULL is allowed

// ---- disk_full.c
// Bytes that a whole new segment has to leave: a checkpoint's, and those of records that make one
// due.
uint64_t ps_disk_full_reserve(const struct ps_server *s);
// Not even a small segment found room, and the newest checkpoint is of the last version: the older
// one keeps the log, and only a record lets another be made that takes its place. One of our own
// does.
bool ps_disk_full_needs_record(const struct ps_shard *shard);
void ps_disk_full_before_commit(struct ps_server *s);
// Disk lane, after a commit that found no room for a whole segment: any room, where that is all
// that is left. LH_ERR_DISK_FULL: there is none, or a checkpoint may make more; other errors are
// ps_wal_commit()'s.
LH_MUST lh_err ps_disk_full_commit(struct ps_server *s);
LH_MUST lh_err ps_disk_full_met(struct ps_server *s); // the group found no room: makes some
void ps_disk_full_committed(struct ps_server *s);     // the group found room

#endif
