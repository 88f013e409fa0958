// Shared by wal.c and wal_scan.c only: the struct and the constants of the layout.
#ifndef PS_WAL_FORMAT_H
#define PS_WAL_FORMAT_H

#include "common/base/limits.h"
#include "server/wal/wal.h"

enum { PS_SEGMENT_HEADER_BYTES = 64, PS_ENTRY_HEADER_BYTES = 40, PS_ENTRY_TRAILER = 8 };
enum { PS_ENTRY_FOLLOWING = 36 };                    // offset of `following` in an entry
static const uint32_t PS_SEGMENT_MAGIC = 0x5357484c; // "LHWS"
static const uint32_t PS_ENTRY_MAGIC = 0x5257484c;   // "LHWR"
static const uint32_t PS_MARK = UINT32_MAX;
// The largest sequence (none ever wraps); also the mask of a generation's bits.
static const uint64_t PS_COUNT_MAX = UINT64_MAX / 2;

struct ps_wal {
    struct ps_wal_conf conf;
    uint64_t generation, segment, oldest; // the current segment; the oldest kept one
    uint64_t
        segment_seen; // `segment` as the loop knows it: the disk lane may be opening the next one
    uint64_t segment_first; // sequence of the current segment's first entry
    struct lh_file *file;
    uint64_t at, size;    // the next group's place in the segment; the preallocated size
    uint64_t next;        // sequence of the next entry
    uint64_t group_first; // sequence of the gathered group's first entry
    uint64_t durable;     // highest synced sequence
    bool last_is_mark;
    _Atomic uint64_t reserve; // disk bytes that a new segment must leave free
    struct lh_buf group;      // the group's bytes except the bodies, which are borrowed
    struct ps_piece {
        size_t start, body_at, end; // offsets in `group`: entry, end of header, trailer
        struct lh_span body;
    } * piece; // one for each entry
    size_t pieces, piece_cap;
    uint64_t group_bytes; // bytes of the group's entries, with bodies
    struct lh_span ahead; // the disk lane's: body written at `at` as the next entry's would be
    struct {
        uint64_t segment;
        struct lh_file *file;
    } reader[4];
};

void ps_wal_segment_path(const struct ps_wal *w, uint64_t number, char out[LH_PATH_BYTES]);
// Reads every segment, replays it, makes the survivors durable; sets generation, segment, next,
// oldest.
LH_MUST lh_err ps_wal_scan(struct ps_wal *w, ps_wal_replay_fn replay, void *arg, bool *torn);

#endif
