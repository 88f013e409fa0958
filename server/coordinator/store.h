// The coordinator's store: small keys and values that survive kill -9 and a power cut.
//
// One file: magic "LHST" u32, version u16 (3), 0 u16; then commits. A commit is a head and its
// entries:
//   head   magic "LHSC" u32, CRC-32C u32 of what follows, number of the commit u64, entries u32,
//          bytes of the entries u64                                                  -- 28 bytes
//   entry  bytes u32 (of what follows the CRC), CRC-32C u32 of them, entries of its commit that
//          follow it u32, key (u16 length), value (u32 length; ~0: the key is removed)
// Commits are numbered without gaps. A commit is written once the one before it is durable, so a
// head also says that all below it is durable. A commit without entries is a mark: it says so when
// nothing else is to be written (server/docs/0000-protocol.md#rule-18).
//
// A start reads whole commits. What follows the last one is torn, was never acknowledged, and is
// dropped; but where a later head stands behind it, or no commit is whole, the file was damaged,
// and the start is refused.
//
// A file that has grown to a multiple of what it holds is replaced. Commits meanwhile go to both
// files, and each brings a part of the rows to DIR/store.next, which then takes the place of
// DIR/store: no commit waits for a whole file. DIR/store.lock is held meanwhile and always.
//
// Rows that a reader can't make out although the file is whole (of another version, or of a run
// with more units) refuse the start, too (ps_co_bad_row in commit.h).
//
// A commit has three parts: begin() and end() on the loop, write() between them wherever blocking
// hurts nobody. What is put and removed meanwhile belongs to the next one. A commit that failed is
// taken back with all that came after it: the rows are again those of the last durable commit, so
// that nobody can go on from what a disk has not taken (server/docs/0000-protocol.md#rule-26).
#ifndef PS_STORE_H
#define PS_STORE_H

#include "common/env/env.h"

struct ps_store;

// LH_ERR_BUSY: another process has it; LH_ERR_CORRUPT: damaged, with file, place and the way out;
// then nothing was changed.
LH_MUST lh_err ps_store_open(struct lh_env *env, const char *path, struct ps_store **out);
void ps_store_close(struct ps_store *s);
// The value of a key, as of the last put (durable or not); false: there is none. Borrowed until
// the next put, remove or end.
bool ps_store_get(const struct ps_store *s, const char *key, struct lh_span *value);
LH_MUST lh_err ps_store_put(struct ps_store *s, const char *key, struct lh_span value);
LH_MUST lh_err ps_store_remove(struct ps_store *s, const char *key);
// Changes are numbered from 1: the last one, and the last that is durable.
uint64_t ps_store_changed(const struct ps_store *s);
uint64_t ps_store_durable(const struct ps_store *s);
// Gathers what changed since the last begin. Where nothing did, and the file does not end with a
// mark, it gathers a mark. False: there is nothing to write.
LH_MUST lh_err ps_store_begin(struct ps_store *s, bool *begun);
// Makes that durable, on any thread. LH_ERR_DISK_FULL, LH_ERR_IO.
LH_MUST lh_err ps_store_write(struct ps_store *s);
// Takes write()'s result. Unless that was LH_OK, everything since the last durable commit is taken
// back, what was put after begin() too.
void ps_store_end(struct ps_store *s, lh_err result);
// Calls each(arg, key, value) for all keys that begin with `prefix`, in their order.
// LH_ERR_NO_MEMORY: it called nobody.
LH_MUST lh_err ps_store_each(const struct ps_store *s, const char *prefix,
                             void (*each)(void *arg, const char *key, struct lh_span value),
                             void *arg);

#endif
