// The outbox: durable copies of a worker's pushes that are not yet under a stable point
// (server/docs/0000-protocol.md#rule-1, #rule-7, #rule-9, #rule-12). One file per frame: DIR/<shard
// 4 hex>-<incarnation 16 hex>-<step 16 hex>, the sealed bytes and their CRC-32C; DIR/<shard 4
// hex>.tmp is one that is not finished, or never was, and the next one's.
//
// Invariants: 1. An entry is synced before the slot names its step, and the slot before it is sent.
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

enum wk_status { WK_UNDECIDED, WK_ADMITTED };

struct wk_entry {
    struct wk_entry *next; // ascending by (incarnation, step)
    struct lh_frame head;
    struct lh_blob *frame; // NULL: its file alone has it (invariant 4)
    size_t bytes;          // of the frame
    struct lh_digest digest;
    struct lh_buf plain;     // its payload, from the cut until the own replica folds it; or empty
    enum wk_status status;   // set to WK_ADMITTED by wk_outbox_admitted()
    uint64_t version, epoch; // where the own replica folded it; 0: not yet. By wk_outbox_folded()
    bool accounted_refused;  // a snapshot holds its mass already: it is dropped, not returned
};

struct wk_outbox {
    struct lh_env *env;
    const char *dir;
    uint32_t shard;
    struct wk_entry *first;
    // Off the list, their files to be removed: those that wait, and those of the removal under way,
    // which are its thread's until it is over. The oldest first: what a start finds has no hole. Of
    // each is left whose and which it is.
    struct wk_entry *leaving, *removing;
    size_t entries;
    uint64_t bytes, held; // of all frames; of those in memory
};

// Which push a file of the directory is of; false: none.
bool wk_outbox_named(const char *file, uint32_t *shard, uint64_t *incarnation, uint64_t *step);
// Reads the directory's entries of this shard. Damaged files, and those that the disk can't read,
// are reported and left out; bad() may remove them.
LH_MUST lh_err wk_outbox_load(struct wk_outbox *o,
                              void (*bad)(void *arg, const char *file, lh_err e), void *arg);
// A damaged file keeps its bytes under another name, which no start reads: FILE.damaged.
LH_MUST lh_err wk_outbox_set_aside(const struct wk_outbox *o, const char *file);
void wk_outbox_free(struct wk_outbox *o);
// Writes and syncs a new entry (invariant 1), on any thread; it is not listed yet. Shares the
// frame. LH_ERR_DISK_FULL: nothing of it is there.
LH_MUST lh_err wk_outbox_write(const struct wk_outbox *o, struct lh_blob *frame,
                               struct wk_entry **out);
void wk_outbox_insert(struct wk_outbox *o, struct wk_entry *e); // lists it and owns it from then on
// An entry's frame, with one owner more: from memory, or from its file, read and checked again;
// that of an undecided entry then stays in memory. On the loop, which waits for the disk: whoever
// needs one again starts anew (its undecided push, what its copy of the replica lacks), or has a
// server that lost what it had decided. LH_ERR_CORRUPT: the file is damaged, gone or can't be
// read, the text says which; its entry stays.
LH_MUST lh_err wk_outbox_frame(struct wk_outbox *o, struct wk_entry *e, struct lh_blob **out);
// Where a listed entry stands now; its frame leaves memory when both are so (invariant 4).
void wk_outbox_admitted(struct wk_outbox *o, struct wk_entry *e);
void wk_outbox_folded(struct wk_outbox *o, struct wk_entry *e, uint64_t version, uint64_t epoch);
// Removes the file of an entry that is not listed; all that counts of it is whose and which it is.
LH_MUST lh_err wk_outbox_erase(const struct wk_outbox *o, const struct wk_entry *e);
void wk_entry_free(struct wk_entry *e); // one that is not listed
// Removes an entry and, durably, its file (invariant 3).
LH_MUST lh_err wk_outbox_drop(struct wk_outbox *o, struct wk_entry *e);
// Takes an admitted entry off the list at once and leaves its file to wk_outbox_remove(): a file
// system under load takes seconds to remove a name, and a process that dies before finds an
// admitted entry again.
void wk_outbox_leave(struct wk_outbox *o, struct wk_entry *e);
bool wk_outbox_begin_removal(struct wk_outbox *o); // false: nothing waits, or one is under way
LH_MUST lh_err wk_outbox_remove(const struct wk_outbox *o);    // on any thread
void wk_outbox_end_removal(struct wk_outbox *o, bool removed); // else they wait once more
struct wk_entry *wk_outbox_find(const struct wk_outbox *o, uint64_t incarnation, uint64_t step);
struct wk_entry *wk_outbox_undecided(const struct wk_outbox *o); // NULL: none
// Order of (incarnation, step).
int wk_entry_compare(const struct wk_entry *e, uint64_t incarnation, uint64_t step);

#endif
