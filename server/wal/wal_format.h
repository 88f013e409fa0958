// Shared by wal.c and wal_scan.c: the struct and the numbers of the layout. Nobody else includes
// it.
#ifndef PS_WAL_FORMAT_H
#define PS_WAL_FORMAT_H

#include "common/base/limits.h"
#include "server/wal/wal.h"

enum { PS_SEGMENT_HEADER_BYTES = 64, PS_ENTRY_HEADER_BYTES = 40, PS_ENTRY_TRAILER = 8 };
enum { PS_ENTRY_FOLLOWING = 36 };                    // place of that number in an entry
static const uint32_t PS_SEGMENT_MAGIC = 0x5357484c; // "LHWS"
static const uint32_t PS_ENTRY_MAGIC = 0x5257484c;   // "LHWR"
static const uint32_t PS_MARK = UINT32_MAX;
// The largest sequence, none of which ever wraps, and the bits that a generation may have.
static const uint64_t PS_COUNT_MAX = UINT64_MAX / 2;

struct ps_wal {
    struct ps_wal_conf conf;
    uint64_t generation, segment, oldest; // the current segment's number; the oldest kept one
    uint64_t
        segment_seen; // the same, as the loop knows it: the disk lane may be opening the next one
    uint64_t segment_first; // sequence of the current one's first entry
    struct lh_file *file;
    uint64_t at, size;    // the next group's place in the segment; its preallocated size
    uint64_t next;        // sequence of the next entry
    uint64_t group_first; // sequence of the first entry of the group that is being gathered
    uint64_t durable;     // highest synced sequence
    bool last_is_mark;
    _Atomic uint64_t reserve; // bytes of the disk that no new segment may take
    struct lh_buf group;      // our bytes of its entries: all but the bodies, which are borrowed
    struct ps_piece {
        size_t start, body_at, end; // places in `group`: the entry, its body, its trailer
        struct lh_span body;
    } * piece; // one for each entry
    size_t pieces, piece_cap;
    uint64_t group_bytes; // bytes of the group's entries, bodies included
    struct lh_span ahead; // the disk lane's: stands at `at` as the next entry's body would
    struct {
        uint64_t segment;
        struct lh_file *file;
    } reader[4];
};

void ps_wal_segment_path(const struct ps_wal *w, uint64_t number, char out[LH_PATH_BYTES]);
// Reads every segment, replays, makes the survivors durable; sets generation, segment, next,
// oldest.
LH_MUST lh_err ps_wal_scan(struct ps_wal *w, ps_wal_replay_fn replay, void *arg, bool *torn);

#endif
