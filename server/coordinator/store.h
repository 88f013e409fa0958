// The coordinator's store: small keys and values that survive kill -9 and a power cut.
//
// One file: magic "LHST" u32, version u16 (3), 0 u16; then commits. A commit is a head and its
// entries:
//   head   magic "LHSC" u32, CRC-32C u32 of what follows, number of the commit u64, entries u32,
//          bytes of the entries u64                                                  -- 28 bytes
//   entry  bytes u32 (of what follows the CRC), CRC-32C u32 of them, entries of its commit that
//          follow it u32, key (u16 length), value (u32 length; ~0: the key is removed)
// Commits are numbered without gaps. A commit is written once the previous one is durable, so a
// head also proves that all below it is durable. A commit without entries is a mark: it proves that
// when nothing else is to be written (server/docs/0000-protocol.md#rule-18).
//
// A start reads whole commits. Bytes after the last one are torn, were never acknowledged, and are
// dropped. But if a later head follows them, or no commit is whole, the file was damaged, and the
// start is refused.
//
// A file that has grown to a multiple of its content is replaced. Meanwhile commits go to both
// files, and each copies some of the rows to DIR/store.next, which then replaces DIR/store: no
// commit waits for a whole file. DIR/store.lock is held all the time.
//
// An unreadable row in a whole file (from another version, or a run with more units) also refuses
// the start (ps_co_bad_row in commit.h).
//
// A commit has three parts: begin() and end() on the loop, and write() between them, wherever
// blocking is allowed. Changes made meanwhile belong to the next commit. A failed commit is taken
// back with all later changes: the rows are again those of the last durable commit, so that nothing
// is built on state that is not on disk (server/docs/0000-protocol.md#rule-26).
#ifndef PS_STORE_H
#define PS_STORE_H

#include "common/env/env.h"

struct ps_store;

// LH_ERR_BUSY: another process has it; LH_ERR_CORRUPT: damaged, with file, place and remedy, and
// unchanged.
LH_MUST lh_err ps_store_open(struct lh_env *env, const char *path, struct ps_store **out);
void ps_store_close(struct ps_store *s);
// The value of a key, as of the last put (durable or not); false: none. Borrowed until the next
// put, remove or end.
bool ps_store_get(const struct ps_store *s, const char *key, struct lh_span *value);
LH_MUST lh_err ps_store_put(struct ps_store *s, const char *key, struct lh_span value);
LH_MUST lh_err ps_store_remove(struct ps_store *s, const char *key);
// Changes are numbered from 1: the last one, and the last durable one.
uint64_t ps_store_changed(const struct ps_store *s);
uint64_t ps_store_durable(const struct ps_store *s);
// Gathers the changes since the last begin. If there are none and the file does not end with a
// mark, gathers a mark. False: nothing to write.
LH_MUST lh_err ps_store_begin(struct ps_store *s, bool *begun);
// Makes the gathered changes durable, on any thread. LH_ERR_DISK_FULL, LH_ERR_IO.
LH_MUST lh_err ps_store_write(struct ps_store *s);
// Any thread: lets a write() that waits for a store elsewhere give up soon.
void ps_store_stop(struct ps_store *s);
// Takes write()'s result. If it is not LH_OK, takes back everything since the last durable commit,
// including changes after begin().
void ps_store_end(struct ps_store *s, lh_err result);
// begin(), write() and end() in one, where the loop may block.
LH_MUST lh_err ps_store_commit(struct ps_store *s);
// Calls each(arg, key, value) for all keys that begin with `prefix`, in order. LH_ERR_NO_MEMORY: no
// call was made.
LH_MUST lh_err ps_store_each(const struct ps_store *s, const char *prefix,
                             void (*each)(void *arg, const char *key, struct lh_span value),
                             void *arg);

#endif
