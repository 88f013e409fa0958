// Disk full: what the server does while its disk has no room.
#ifndef PS_DISK_FULL_H
#define PS_DISK_FULL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct ps_server;
struct ps_shard;

struct ps_disk_full { // a full disk, as far as is known
    bool now;         // no whole segment found room, and none has since
    bool may_squeeze; // no checkpoint is under way that would make room: any room at all will do
    bool squeezed;    // the commit looked for no more room than its group takes
    bool stuck;       // it did not find that either
    uint64_t small_reserve; // bytes that the segment of such a group has to leave
};

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
