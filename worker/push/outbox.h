// The outbox: durable copies of a worker's pushes that are not yet under a stable point
// (server/docs/0000-protocol.md#rule-1, #rule-7, #rule-9, #rule-12). One file per frame: DIR/<shard
// 4 hex>-<incarnation 16 hex>-<step 16 hex>, the sealed bytes and their CRC-32C; DIR/<shard 4
// hex>.tmp is a file that is being written, or was when a process died; the next push overwrites
// it.
//
// Invariants: 1. An entry is synced before the slot names its step. The slot is flipped (slot.h
// says when it is synced) before the entry is sent.
// 2. At most one entry of a shard is undecided: the newest. 3. A refused entry's file is durably
// gone before the next one is written, so a file that is not the newest was admitted. 4. A frame is
// in memory from its cut until it is admitted and the own replica folded it; then its file alone
// has it, however long the stable point lags. A start reads them all, one after another, and keeps
// none. 5. A file has an entry's name only when it is whole and durable: whatever a crash or a
// power cut left unfinished is no entry, so one that is damaged was damaged later.
#ifndef WK_OUTBOX_H
#define WK_OUTBOX_H

#include "common/env/env.h"
#include "common/format/frame.h"

// WK_AGAIN: a private region's push that was refused or fenced; it is sealed again
// (worker/privacy/release.h).
enum wk_status { WK_UNDECIDED, WK_ADMITTED, WK_AGAIN };

struct wk_entry {
    struct wk_entry *next; // ascending by (incarnation, step)
    struct lh_frame head;
    struct lh_blob *frame;   // NULL: its file alone has it (invariant 4)
    size_t bytes;            // size of the frame
    struct lh_digest digest; // the frame's
    struct lh_buf plain;     // its payload, from the cut until the own replica folds it; or empty
    enum wk_status status;   // wk_outbox_admitted() sets WK_ADMITTED
    uint64_t version, epoch; // the point at which the own replica folded it; 0: not yet
    bool over_budget;        // refused for its total of charged steps: it is given up
    bool ungranted;          // refused for its claims, which do not come back
    bool accounted_refused;  // a snapshot holds its mass already: it is dropped, not returned
};

struct wk_outbox {
    struct lh_env *env;
    const char *dir; // borrows
    uint32_t shard;
    struct wk_entry *first; // the list, the oldest first
    // Entries off the list whose files are to be removed, the oldest first, so that a start finds
    // no hole. Only the incarnation and step of each are used.
    struct wk_entry *leaving;  // these wait
    struct wk_entry *removing; // these belong to the removal under way, and to its thread
    size_t entries;            // on the list
    uint64_t bytes;            // size of all listed frames
    uint64_t held_bytes;       // size of those in memory
};

// Reads from a file's name which push it holds. False: it is no entry's name.
bool wk_outbox_named(const char *file, uint32_t *shard, uint64_t *incarnation, uint64_t *step);
// Reads the directory's entries of this shard. A damaged file, or one that the disk can't read, is
// left out and told to bad(), which may remove it.
LH_MUST lh_err wk_outbox_load(struct wk_outbox *o,
                              void (*bad)(void *arg, const char *file, lh_err e), void *arg);
// Renames a damaged file to FILE.damaged, durably: no start reads it.
LH_MUST lh_err wk_outbox_set_aside(const struct wk_outbox *o, const char *file);
void wk_outbox_free(struct wk_outbox *o);
// Writes and syncs a new entry (invariant 1), on any thread; it is not listed yet. Shares the
// frame. LH_ERR_DISK_FULL: nothing of it is there.
LH_MUST lh_err wk_outbox_write(const struct wk_outbox *o, struct lh_blob *frame,
                               struct wk_entry **out);
void wk_outbox_insert(struct wk_outbox *o, struct wk_entry *e); // takes the entry
// Gives an entry's frame, to be released: from memory, or from its file, read and checked again. An
// undecided entry's frame then stays in memory. The loop waits for the disk here, which happens
// after a start and where a server lost what it had decided. LH_ERR_CORRUPT: the file is damaged,
// gone or can't be read, the text says which; the entry stays.
LH_MUST lh_err wk_outbox_frame(struct wk_outbox *o, struct wk_entry *e, struct lh_blob **out);
// A listed entry was admitted; it was folded at this point, or (version 0) it is not folded any
// more. Its frame leaves memory when it is admitted and folded (invariant 4).
void wk_outbox_admitted(struct wk_outbox *o, struct wk_entry *e);
void wk_outbox_folded(struct wk_outbox *o, struct wk_entry *e, uint64_t version, uint64_t epoch);
// Removes the file of an entry that is not listed. Only its incarnation and step are used.
LH_MUST lh_err wk_outbox_erase(const struct wk_outbox *o, const struct wk_entry *e);
void wk_entry_free(struct wk_entry *e); // one that is not listed
// Removes an entry and, durably, its file (invariant 3).
LH_MUST lh_err wk_outbox_drop(struct wk_outbox *o, struct wk_entry *e);
// Takes an admitted entry off the list at once and leaves its file to wk_outbox_remove(): a file
// system under load takes seconds to remove a name, and a process that dies before finds an
// admitted entry again.
void wk_outbox_leave(struct wk_outbox *o, struct wk_entry *e);
// A removal in three parts: on the loop, on any thread, on the loop. begin: false where nothing
// waits or a removal is under way. end: entries that were not removed wait once more.
bool wk_outbox_begin_removal(struct wk_outbox *o);
LH_MUST lh_err wk_outbox_remove(const struct wk_outbox *o);
void wk_outbox_end_removal(struct wk_outbox *o, bool removed);
// Borrows; NULL: none.
struct wk_entry *wk_outbox_find(const struct wk_outbox *o, uint64_t incarnation, uint64_t step);
struct wk_entry *wk_outbox_undecided(const struct wk_outbox *o);
// Compares by (incarnation, step): below 0, 0, above 0.
int wk_entry_compare(const struct wk_entry *e, uint64_t incarnation, uint64_t step);

#endif
