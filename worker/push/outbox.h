// The outbox: durable copies of a worker's pushes that are not yet under a stable point
// (server/docs/0000-protocol.md#rule-1, #rule-7, #rule-9, #rule-12). Each frame has one file:
// DIR/<shard 4 hex>-<incarnation 16 hex>-<step 16 hex>, the sealed bytes and their CRC-32C.
// DIR/<shard 4 hex>.tmp is an unfinished file; the next push overwrites it.
//
// Invariants:
// 1. An entry is synced before the slot names its step. The slot is flipped (slot.h says when it is
//    synced) before the entry is sent.
// 2. At most one entry of a shard is undecided: the newest.
// 3. A refused entry's file is durably gone before the next one is written, so a file that is not
//    the newest was admitted.
// 4. A frame stays in memory from its cut until it is admitted and folded by the own replica. Then
//    only its file holds it, however long the stable point lags. A start reads all files, one after
//    another, and keeps no frame.
// 5. A file has an entry's name only when it is whole and durable. A crash or power cut leaves no
//    partial entry, so a damaged entry was damaged later.
#ifndef WK_OUTBOX_H
#define WK_OUTBOX_H

#include "common/env/env.h"
#include "common/format/frame.h"

// WK_AGAIN: a private region's refused or fenced push; it will be sealed again
// (worker/privacy/release.h).
enum wk_status { WK_UNDECIDED, WK_ADMITTED, WK_AGAIN };

struct wk_entry {
    struct wk_entry *next; // ascending by (incarnation, step)
    struct lh_frame head;
    struct lh_blob *frame;   // NULL: only its file holds it (invariant 4)
    size_t bytes;            // size of the frame
    struct lh_digest digest; // digest of the frame
    struct lh_buf plain;     // its payload, from the cut until the own replica folds it; else empty
    enum wk_status status;   // wk_outbox_admitted() sets WK_ADMITTED
    uint64_t version;        // version at which the own replica folded it; 0: not yet
    bool over_budget;        // refused for its total of charged steps: it is dropped
    bool ungranted;          // refused for its claims, which are dropped
    bool accounted_refused;  // a snapshot already holds its mass: drop it, return nothing
};

struct wk_outbox {
    struct lh_env *env;
    const char *dir; // borrows
    uint32_t shard;
    struct wk_entry *first; // the list, the oldest first
    // Unlisted entries whose files are to be removed, oldest first, so that a start finds no gap.
    // Only their incarnation and step are used.
    struct wk_entry *leaving;  // waiting
    struct wk_entry *removing; // owned by the removal in progress and its thread
    size_t entries;            // listed entries
    uint64_t bytes;            // bytes of all listed frames
    uint64_t held_bytes;       // bytes of those in memory
};

// Parses a file name into the push that it holds. False: it is not an entry's name.
bool wk_outbox_named(const char *file, uint32_t *shard, uint64_t *incarnation, uint64_t *step);
// Reads this shard's entries. Skips a damaged or unreadable file and reports it to bad(), which may
// remove it.
LH_MUST lh_err wk_outbox_load(struct wk_outbox *o,
                              void (*bad)(void *arg, const char *file, lh_err e), void *arg);
// Renames a damaged file to FILE.damaged, durably: no start reads it.
LH_MUST lh_err wk_outbox_set_aside(const struct wk_outbox *o, const char *file);
void wk_outbox_free(struct wk_outbox *o);
// Writes and syncs a new entry (invariant 1), on any thread; does not list it. Shares the frame.
// LH_ERR_DISK_FULL: nothing is left on disk.
LH_MUST lh_err wk_outbox_write(const struct wk_outbox *o, struct lh_blob *frame,
                               struct wk_entry **out);
void wk_outbox_insert(struct wk_outbox *o, struct wk_entry *e); // takes the entry
// Gives an entry's frame, from memory or read and checked from its file; the caller releases it. An
// undecided entry's frame then stays in memory. Blocks the loop on the disk; this happens only
// after a start, or if a server lost decisions. LH_ERR_CORRUPT: the file is damaged, gone or
// unreadable, and the text says which; the entry stays.
LH_MUST lh_err wk_outbox_frame(struct wk_outbox *o, struct wk_entry *e, struct lh_blob **out);
// A listed entry was admitted; it was folded at this point, or (version 0) is no longer folded. An
// admitted and folded frame leaves memory (invariant 4).
void wk_outbox_admitted(struct wk_outbox *o, struct wk_entry *e);
void wk_outbox_folded(struct wk_outbox *o, struct wk_entry *e, uint64_t version);
// Removes the file of an unlisted entry. Only its incarnation and step are used.
LH_MUST lh_err wk_outbox_erase(const struct wk_outbox *o, const struct wk_entry *e);
void wk_entry_free(struct wk_entry *e); // an unlisted entry
// Removes an entry and, durably, its file (invariant 3).
LH_MUST lh_err wk_outbox_drop(struct wk_outbox *o, struct wk_entry *e);
// Unlists an admitted entry at once and leaves its file to wk_outbox_remove(), because removing a
// name can take seconds on a loaded file system. If the process dies first, the next start finds
// the entry again.
void wk_outbox_leave(struct wk_outbox *o, struct wk_entry *e);
// Removal in three parts: on the loop, on any thread, on the loop. begin: false if nothing waits or
// a removal is in progress. end: entries that were not removed wait again.
bool wk_outbox_begin_removal(struct wk_outbox *o);
LH_MUST lh_err wk_outbox_remove(const struct wk_outbox *o);
void wk_outbox_end_removal(struct wk_outbox *o, bool removed);
// Borrows; NULL: none.
struct wk_entry *wk_outbox_find(const struct wk_outbox *o, uint64_t incarnation, uint64_t step);
struct wk_entry *wk_outbox_undecided(const struct wk_outbox *o);
// Compares by (incarnation, step): below 0, 0, above 0.
int wk_entry_compare(const struct wk_entry *e, uint64_t incarnation, uint64_t step);

#endif
