// Disk full: what a server does while its disk is full (deploy/docs/full-disk.md#a-server).
//
// Only the log's next segment and a checkpoint take room. A segment leaves what a checkpoint needs
// (invariant 1), so the log is the first to find the disk full. Nothing of that group happened, its
// pushes are sent again, and a checkpoint is made, which lets the log be trimmed. Where the
// checkpoint has no room either, what is not promised is removed: logs and checkpoints that were
// set aside (quarantine.c), then older checkpoints of weights. Where no checkpoint is due or can be
// made, the next group gets a segment of its own size. Where not even that fits, a record of our
// own is written into the few blocks that invariant 1 keeps for it: it makes a checkpoint due.
//
// Invariants: 1. a whole segment leaves a full checkpoint of any shard, and RECORDS_BYTES. 2. A
// small one leaves as much, unless it is that record's. 3. Two checkpoints and the log from the
// older one on are never given up.
#include <stdlib.h>

#include "server/core.h"
#include "server/state/checkpointer.h"
#include "server/state/disk_full.h"
#include "server/wal/quarantine.h"

// A segment with a DIGEST record of each shard, in blocks of the file system's.
enum { RECORDS_BYTES = 4096, RECORD_BYTES = 256 };

uint64_t ps_disk_full_reserve(const struct ps_server *s)
{
    return ps_checkpointer_bytes(s) + RECORDS_BYTES + (uint64_t)RECORD_BYTES * s->conf.shard_count;
}

// The room that is left is that checkpoint's: small segments would use it up and make none.
static bool checkpoint_lacks_room(const struct ps_server *s)
{
    for (uint32_t k = 0; k < s->conf.shard_count; k++)
        if (s->shard[k]->unwritten) return true;
    return false;
}

// ---------------------------------------------------------------- the log

bool ps_disk_full_needs_record(const struct ps_shard *shard)
{
    const struct ps_server *s = shard->server;
    const struct lh_ledger *l = &shard->replica.ledger;
    bool could = s->disk_full.stuck && l->version == shard->checkpointed && shard->index_count > 1;
    return could && !ps_checkpointer_busy(s) && !checkpoint_lacks_room(s);
}

void ps_disk_full_before_commit(struct ps_server *s)
{
    ps_wal_reserve(s->wal, ps_disk_full_reserve(s));
    s->disk_full.may_squeeze =
        s->disk_full.now && !ps_checkpointer_busy(s) && !checkpoint_lacks_room(s);
    s->disk_full.squeezed = false;
}

lh_err ps_disk_full_commit(struct ps_server *s)
{
    s->disk_full.squeezed = s->disk_full.may_squeeze;
    return s->disk_full.squeezed ? ps_wal_commit_small(s->wal, s->disk_full.small_reserve)
                                 : LH_ERR_DISK_FULL;
}

static LH_MUST lh_err make_room(struct ps_server *s)
{
    bool gone;
    for (uint32_t k = 0; k < s->conf.shard_count; k++) ps_checkpointer_start(s->shard[k]);
    return ps_checkpointer_busy(s) ? LH_OK : ps_quarantine_remove(s, &gone);
}

lh_err ps_disk_full_met(struct ps_server *s)
{
    bool before = s->disk_full.now;
    s->disk_full.now = true;
    s->disk_full.stuck = s->disk_full.squeezed;
    s->count.full++;
    if (!before)
        lh_logf(s->conf.log, LH_ERROR, "log.disk_full",
                "no room for the log in %s: pushes wait, follows go on; a checkpoint lets the "
                "log be trimmed, if there is room for it. Else free some space",
                s->conf.dir);
    if (!before && !ps_checkpointer_busy(s))
        LH_TRY(ps_checkpointer_trim(s)); // a start may have left it to do
    return make_room(s);
}

void ps_disk_full_committed(struct ps_server *s)
{
    s->disk_full.stuck = false;
    if (!s->disk_full.now || s->disk_full.squeezed) return;
    s->disk_full.now = false;
    lh_logf(s->conf.log, LH_INFO, "log.room", "there is room for the log again");
    for (uint32_t k = 0; k < s->conf.shard_count; k++)
        s->shard[k]->disk_retry_at_ns = 0; // checkpoints are tried again at once, too
}
