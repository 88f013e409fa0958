// The slot: a worker's commit point for one shard (server/docs/0000-protocol.md#rule-9, #rule-10),
// and the residual snapshot.
//
// Two files, DIR/slot-<shard>-a and -b, written in turn, each whole; integers little endian:
//
//    at size field                                   at size field
//     0   4  magic "LHSL"                            84   4  claims
//     4   2  version (4)                             88   8  values of the residual
//     6   2  flags (1: synced)                       96   4  positions
//     8   8  generation                             100   4  0
//    16  16  boot id                                104   8  tokens that came back
//    32  16  incarnation: number, random            112   8  epoch of the decision, or 0
//    48  16  gone: incarnation, step                120  16  name of the life of the trainer beside
//    64   8  next step                              136   8  the last cut of that life; 0: none
//    72   8  decided step                           144      claims: unit 4, grant 4 + 16 each
//    80   1  that push was admitted                          positions: unit 8, tokens of it 8
//    81   3  0
//
//   then CRC-32C of the residual u32, CRC-32C of all before u32, and the residual, fp32
//
// The valid file with the highest generation counts. It is written without a sync: it survives
// kill -9. After a power cut (another boot id) it counts only if it is marked as synced. A start
// syncs the slot that it reads, and the two flips after a start or a synced flip are synced too: so
// a power cut never brings back a synced slot that is older than a committed one.
//
// The snapshot, DIR/residual-<shard>, has the same layout and is synced every few rounds. The
// residual is rebuilt from it if the slot is lost (server/docs/0000-protocol.md#rule-11).
#ifndef WK_SLOT_H
#define WK_SLOT_H

#include "common/env/env.h"
#include "common/format/frame.h"

enum { WK_CLAIMS_HELD_MAX = 4096, WK_POSITIONS_MAX = 512 };

struct wk_position { // training position within a unit of data
    uint64_t unit;
    uint64_t tokens; // tokens trained, from its start
};

struct wk_claim { // a trained unit, and the grant that proves its lease
    uint64_t unit;
    struct lh_grant grant;
};

enum { WK_SLOT_LIFE_BYTES = 16 };

struct wk_slot {
    struct lh_incarnation incarnation;
    // The last entry whose mass this residual took back: if its file still exists, it is a
    // leftover. 0: none.
    uint64_t gone_incarnation, gone_step;
    uint64_t next;          // first step never committed
    uint64_t decided;       // highest step known to be decided
    bool decided_admitted;  // step `decided` was admitted
    uint64_t decided_epoch; // epoch of the shard's history that holds that decision; 0: not known
    uint64_t tokens;        // trained tokens of returned frames; the next frame reports them
    // The last external cut that this residual holds, or that was pushed from it
    // (worker/docs/0001-boundary.md): the life's name, and the cut's number in it. 0: none.
    uint8_t life[WK_SLOT_LIFE_BYTES];
    uint64_t cut;
    struct wk_claim *claim;       // claims of returned frames
    struct wk_position *position; // units in progress at the shard's last cut
    uint32_t claim_count, position_count;
};
// Frees the lists of a loaded slot. A slot that is written borrows its lists.
void wk_slot_free(struct wk_slot *slot);

// A shard's slot files. Any thread, one at a time.
struct wk_slots {
    struct lh_env *env;
    const char *dir; // borrows
    uint32_t shard;
    uint64_t values;     // parameters of the residual
    uint64_t generation; // generation of the newest valid file; 0: none
    uint8_t boot[16];    // names this boot of the host
    unsigned settle;     // flips that must still be synced: the disk may hold a synced slot
};

enum wk_slot_state { WK_SLOT_ABSENT, WK_SLOT_INTACT, WK_SLOT_LOST };

// Loads the newest valid slot into `out`, to be freed by wk_slot_free(), and its residual into
// residual[values]. WK_SLOT_LOST: a power cut made the slot invalid. LH_ERR_IO: the disk can't be
// read.
LH_MUST lh_err wk_slot_load(struct wk_slots *s, struct wk_slot *out, float *residual,
                            enum wk_slot_state *state);
// Reads the newest slot's residual again into residual[values]. LH_ERR_CORRUPT: the file is
// damaged.
LH_MUST lh_err wk_slot_residual(struct wk_slots *s, float *residual);
// Writes slot and residual[values] as the newest, atomically. `sync` makes them survive a power cut
// too (an orderly end). `residual` NULL: the first slot, before any cut: a residual of zeros, so a
// kill during the first cut leaves the same state as in later cuts: a slot below the unsent entry.
// LH_ERR_DISK_FULL: the new file is not valid; after any other error it may
// be.
LH_MUST lh_err wk_slot_flip(struct wk_slots *s, const struct wk_slot *slot, const float *residual,
                            bool sync);
// Writes the residual snapshot durably; the old one stays until the new one is complete.
LH_MUST lh_err wk_snapshot_write(struct wk_slots *s, const struct wk_slot *slot,
                                 const float *residual);
// Loads the residual snapshot. `residual` NULL: loads only its slot. LH_ERR_NOT_FOUND: none can be
// read.
LH_MUST lh_err wk_snapshot_load(struct wk_slots *s, struct wk_slot *out, float *residual);
// Removes the residual snapshot, durably. LH_OK if there is none.
LH_MUST lh_err wk_snapshot_remove(struct wk_slots *s);

#endif
