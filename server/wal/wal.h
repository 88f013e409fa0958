// The write-ahead log of a server: the records of all its shards, in segments, one sync per group.
//
// Segment file DIR/<number, 16 hex digits>.seg, preallocated with zeros:
//   header (64 bytes): magic "LHWS" u32, version u16, 0 u16, number u64, generation u64,
//                      first sequence u64, job 16 bytes, 0 u64, CRC-32C of the 56 bytes before
//                      u32, 0 u32
//   entry (8-aligned): magic "LHWR" u32, total bytes u32, generation u64, sequence u64,
//                      durable u64, shard u32 (~0: a mark),
//                      entries of its group that follow it u32,               -- 40 bytes
//                      record header (64 bytes, record.h) and body,           -- not in a mark
//                      zeros to 8, CRC-32C of all before u32, 0 u32
// `generation` is random and new at every start: an entry counts only if it names its segment's.
// The reason: workers choose the bodies, a body may be in the file before its push was decided
// (ps_wal_write_ahead), and a start may parse bytes inside a body (look_ahead() of wal_scan.c).
// Because the generation is random, no worker can forge an entry. Its top bit is 0. An entry counts
// only if the rest of its group follows it. `sequence` counts entries of the whole log without
// gaps. `durable` is the highest sequence known to be synced when the entry was written; a mark
// repeats it when the log falls idle.
//
// Invariants: 1. Every start makes the surviving entries durable, then opens a new generation in a
// new segment; nothing is ever appended to a segment of an earlier start. 2. An entry at or below a
// durable position that was written after it is never dropped: damage there stops the start, with
// the place. 3. What stands above is a torn tail and is dropped; if bytes stood there, `torn` says
// so, because they may have been acknowledged (server/docs/0000-protocol.md#rule-18). 4. A failed
// sync is final. 5. A group whose write failed is never whole, so it never counts: nothing is
// written to its segment any more, and the log goes on in the next one, which names the first
// sequence that is not the older one's. Whether the failed group's bytes could be removed does not
// matter.
#ifndef PS_WAL_H
#define PS_WAL_H

#include "common/env/env.h"
#include "common/env/log.h"
#include "common/format/frame.h"
#include "common/format/record.h"

struct ps_wal;

struct ps_wal_conf {
    struct lh_env *env;
    struct lh_log *log;
    const char *dir;
    uint64_t segment_bytes;
    // Bytes that the segment opened at start must leave free, see ps_wal_reserve(); 0: none.
    uint64_t reserve;
    uint8_t job[LH_JOB_BYTES];
    // Called after the last replay and before a new segment is opened, which hides that bytes were
    // dropped: the place to note that durably. NULL: not called. An error stops the start.
    lh_err (*scanned)(void *arg, bool torn);
};

// The place of an entry's record bytes (header and body, as followers get them).
struct ps_place {
    uint64_t segment;
    uint64_t at;
    uint32_t bytes;
};

struct ps_segments {
    uint64_t from, to; // the first segment, and the first one after the range
};

// An entry as ps_wal_look() reports it.
struct ps_wal_entry {
    uint64_t segment, at; // the segment, and the entry's first byte in the file
    uint32_t bytes;       // bytes of the whole entry
    uint64_t generation, sequence, durable;
    uint32_t shard;
    const struct lh_record *record; // NULL: a mark, which belongs to no shard
};

struct ps_wal_found {
    uint8_t job[LH_JOB_BYTES];
    uint64_t segments, entries, records;
    uint64_t durable;    // highest durable position that any entry names
    uint64_t generation; // generation of the newest segment
    bool torn;           // bytes follow the last whole entry of a segment, at the place below
    uint64_t torn_segment, torn_at;
};

// Called for every surviving record in order. An error stops the start.
typedef lh_err (*ps_wal_replay_fn)(void *arg, uint32_t shard, const struct lh_record *r,
                                   struct ps_place place);

LH_MUST lh_err ps_wal_open(const struct ps_wal_conf *conf, ps_wal_replay_fn replay, void *arg,
                           bool *torn, struct ps_wal **out);
void ps_wal_close(struct ps_wal *w);

// Loop thread: adds a record to the next group. Nothing is written yet, and the body is borrowed
// until the group is done or dropped. `place` is relative to the group until
// ps_wal_committed_place() makes it a place in a segment, after commit and before group_done.
LH_MUST lh_err ps_wal_add(struct ps_wal *w, uint32_t shard, const struct lh_record *r,
                          struct ps_place *place);
uint64_t ps_wal_group_bytes(const struct ps_wal *w);
// Any thread: sets the bytes that a new segment must leave free, for a checkpoint.
void ps_wal_reserve(struct ps_wal *w, uint64_t bytes);
// Disk lane: writes and syncs the group. LH_ERR_DISK_FULL: nothing of the group counts;
// ps_wal_drop_group() may drop it, and the server goes on. Any other error: the process must end.
LH_MUST lh_err ps_wal_commit(struct ps_wal *w);
// Disk lane, after LH_ERR_DISK_FULL: writes the group to its own segment of exactly its size, and
// leaves `reserve` bytes free.
LH_MUST lh_err ps_wal_commit_small(struct ps_wal *w, uint64_t reserve);
// Disk lane, between two commits: writes a body to the place it has if its record is the first of
// the next group; that commit then writes only the rest. The body's memory must stay valid and
// unchanged until that commit. It is a hint: a group that begins with another record leaves the
// body behind at the end of its segment. An error is only logged: the commit writes the body again.
void ps_wal_write_ahead(struct ps_wal *w, struct lh_span body);
struct ps_place ps_wal_committed_place(const struct ps_wal *w, struct ps_place in_group);
// Loop thread, after a commit: the group is durable; or drop the group.
void ps_wal_group_done(struct ps_wal *w);
void ps_wal_drop_group(struct ps_wal *w);
// Adds a mark to an empty group if the last entry is not one.
bool ps_wal_mark(struct ps_wal *w);

// Reads record bytes back: `n` of them from byte `from` of the record on.
LH_MUST lh_err ps_wal_read(struct ps_wal *w, struct ps_place place, size_t from, size_t n,
                           struct lh_blob **out);
// The segments before `first_segment_needed`, which nobody reads any more. Loop thread.
struct ps_segments ps_wal_release(struct ps_wal *w, uint64_t first_segment_needed);
// Removes the segments, oldest first. Any thread: a busy file system may take seconds.
LH_MUST lh_err ps_wal_remove(const struct ps_wal *w, struct ps_segments gone);
uint64_t ps_wal_generation(const struct ps_wal *w);
uint64_t ps_wal_segment(const struct ps_wal *w); // the segment being written

// Reads a log as a start would, and changes nothing. `each` gets every entry in order; its error
// ends the scan. `job` NULL: any run. Damage that would stop a start is LH_ERR_CORRUPT with its
// place, after the entries before it. If a server writes to the log meanwhile, the end may look
// torn, and LH_ERR_NOT_FOUND means that the server trimmed the log.
LH_MUST lh_err ps_wal_look(struct lh_env *env, const char *dir, const uint8_t *job,
                           lh_err (*each)(void *arg, const struct ps_wal_entry *e), void *arg,
                           struct ps_wal_found *found);

#endif
