// Checkpointer: writes checkpoints and trims the log below the older one.
#ifndef PS_CHECKPOINTER_H
#define PS_CHECKPOINTER_H

#include "server/wal/wal.h"

struct ps_checkpointer;
struct ps_item;
struct ps_server;
struct ps_shard;

struct ps_trim { // removal of the log's beginning, on the copy lane
    struct ps_segments segments;
    lh_err result;
    bool busy;
};

bool ps_checkpointer_due(const struct ps_shard *s);         // a full checkpoint is due
bool ps_checkpointer_weights_due(const struct ps_shard *s); // a weights-only checkpoint is due
void ps_checkpointer_start(struct ps_shard *s);             // begins one if any is due
bool ps_checkpointer_busy(const struct ps_server *s);       // one is being made
// Upper bound on the bytes of a full checkpoint.
uint64_t ps_checkpointer_bytes(const struct ps_shard *s);
// Removes log segments below every shard's older checkpoint.
LH_MUST lh_err ps_checkpointer_trim(struct ps_server *s);
// Passes a folded record to the checkpoint being copied, which may keep the item's payload and its
// memory for longer.
void ps_checkpointer_folded(struct ps_item *i);
void ps_checkpointer_free(struct ps_checkpointer *k); // NULL is allowed

#endif
