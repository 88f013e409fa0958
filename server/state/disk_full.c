// Disk full: how a server behaves while its disk is full (deploy/docs/full-disk.md#a-server).
//
// Only the log's next segment and a checkpoint need new disk space. A segment leaves enough for a
// checkpoint (invariant 1), so the log meets the full disk first. Its group is dropped, its pushes
// must be sent again, and a checkpoint is made, which lets the log be trimmed. If the checkpoint
// does not fit either, files that need not be kept are removed: quarantined logs and checkpoints
// (quarantine.c), then older weights checkpoints. If no checkpoint is due or possible, the next
// group gets a segment of its own size. If even that does not fit, a record of our own is written
// into the few blocks that invariant 1 reserves for it: it makes a checkpoint due, of the shard
// whose older checkpoint holds the log back.
//
// Invariants: 1. A whole segment leaves space for a full checkpoint of any shard, for those that
// replace no older one, and RECORDS_BYTES. 2. A small segment leaves as much, unless it holds that
// record; then it leaves a checkpoint of that shard. 3. Two checkpoints and the log from the older
// one on are never removed.
#include <stdlib.h>

#include "server/core.h"
#include "server/state/checkpointer.h"
#include "server/state/disk_full.h"
#include "server/wal/quarantine.h"

// Bytes of a segment with one DIGEST record per shard, in blocks of the file system.
enum { RECORDS_BYTES = 4096, RECORD_BYTES = 256 };

uint64_t ps_disk_full_reserve(const struct ps_server *s)
{
    uint64_t most = 0, more = 0;
    for (uint32_t k = 0; k < s->conf.shard_count; k++) {
        uint64_t bytes = ps_checkpointer_bytes(s->shard[k]);
        if (bytes > most) most = bytes;
        if (!s->shard[k]->kept) more += bytes; // its next checkpoint replaces none
    }
    return most + more + RECORDS_BYTES + (uint64_t)RECORD_BYTES * s->conf.shard_count;
}

// A newer checkpoint of the shard would free more of the log than the record that it needs takes:
// no other shard needs earlier segments, and this one holds several records or segments. Shards
// that hold the same ones all get a record.
static bool would_free_log(const struct ps_shard *shard)
{
    const struct ps_server *s = shard->server;
    uint64_t next = ps_wal_segment(s->wal) + 1;
    for (uint32_t k = 0; k < s->conf.shard_count; k++) {
        uint64_t other = s->shard[k]->held_from;
        if (other < shard->held_from) return false;
        if (other > shard->held_from && other < next) next = other;
    }
    return shard->index_count > 1 || next - 1 > shard->held_from;
}

// That checkpoint needs the remaining space: small segments would use it up and free none.
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
    bool could = s->disk_full.stuck && l->version == shard->checkpointed && would_free_log(shard);
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
                "no space for the log in %s: pushes wait, followers still get records. If a "
                "checkpoint fits, the log is trimmed; otherwise free some space",
                s->conf.dir);
    if (!before && !ps_checkpointer_busy(s))
        LH_TRY(ps_checkpointer_trim(s)); // a start may have left segments to trim
    return make_room(s);
}

void ps_disk_full_committed(struct ps_server *s)
{
    s->disk_full.stuck = false;
    if (!s->disk_full.now || s->disk_full.squeezed) return;
    s->disk_full.now = false;
    lh_logf(s->conf.log, LH_INFO, "log.room", "there is space for the log again");
    for (uint32_t k = 0; k < s->conf.shard_count; k++)
        s->shard[k]->disk_retry_at_ns = 0; // try checkpoints again at once, too
}
