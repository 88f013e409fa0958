// Disk full: how the server behaves while its disk is full.
#ifndef PS_DISK_FULL_H
#define PS_DISK_FULL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct ps_server;
struct ps_shard;

struct ps_disk_full {       // state of a full disk
    bool now;               // no whole segment has fitted since the last failure
    bool may_squeeze;       // no checkpoint will free space soon: a small segment may be used
    bool squeezed;          // the commit used, or tried, a segment of its group's size
    bool stuck;             // even that one did not fit
    uint64_t small_reserve; // bytes that such a small segment must leave free
};

// Bytes that a whole new segment must leave free: for a checkpoint, and for the records that make
// one due.
uint64_t ps_disk_full_reserve(const struct ps_server *s);
// Not even a small segment fits, and the newest checkpoint is already at the last version. The
// older checkpoint holds the log back, and only a new record makes another checkpoint possible. The
// server writes a record of its own for that.
bool ps_disk_full_needs_record(const struct ps_shard *shard);
void ps_disk_full_before_commit(struct ps_server *s);
// Disk lane, after a commit for which no whole segment fitted: uses a smaller segment if allowed.
// LH_ERR_DISK_FULL: it does not fit, or a checkpoint may free space; other errors are
// ps_wal_commit()'s.
LH_MUST lh_err ps_disk_full_commit(struct ps_server *s);
LH_MUST lh_err ps_disk_full_met(struct ps_server *s); // the group did not fit: frees space
void ps_disk_full_committed(struct ps_server *s);     // the group fitted

#endif
