// The bytes of the coordinator's store: commits, their heads and entries. Layout:
// server/coordinator/store.h.
#ifndef PS_STORE_BYTES_H
#define PS_STORE_BYTES_H

#include "common/base/buf.h"
#include "server/coordinator/store/rows.h"

enum {
    PS_COMMIT_HEAD_BYTES = 28,
    PS_ENTRY_BYTES = 18, // besides key and value
};

// ---- writing

// Entries one after the other, after space for their commit's head.
struct ps_entries {
    struct lh_buf bytes; // empty: without head, too
    uint32_t count;
};

void ps_entries_put(struct ps_entries *e, const char *key, struct lh_span value);
void ps_entries_remove(struct ps_entries *e, const char *key);
// Fills in checksums and the number of following entries; `behind` more entries come after these.
void ps_entries_seal(struct ps_entries *e, uint32_t behind);
void ps_entries_clear(struct ps_entries *e);
size_t ps_entries_bytes(const struct ps_entries *e); // without the head
// Fills in the head of a commit of `first` and `then` (NULL: none): the commit is the bytes of
// `first`, then those of `then` without its head.
LH_MUST lh_err ps_commit_head(struct ps_entries *first, const struct ps_entries *then,
                              uint64_t number);
void ps_commit_mark(uint64_t number, uint8_t out[PS_COMMIT_HEAD_BYTES]); // one without entries

// ---- reading

struct ps_commit {
    uint64_t number, bytes; // bytes: of its entries
    uint32_t entries;
};

struct ps_entry {
    char key[PS_ROW_KEY_BYTES];
    struct lh_span value;
    uint32_t following;
    bool removed;
};

bool ps_commit_read(struct lh_span bytes, size_t at, struct ps_commit *out);
// Are all its entries present? *bad: if not, the place of the first invalid one.
bool ps_commit_is_whole(struct lh_span bytes, size_t at, const struct ps_commit *h, uint64_t *bad);
bool ps_entry_read(struct lh_cursor *c, struct ps_entry *e, bool check); // check: verify its
                                                                         // checksum
// Applies the entries of a whole commit.
LH_MUST lh_err ps_entries_apply(struct ps_rows *rows, struct lh_span entries);
// Is there a head of a commit later than `number` at or after `from`?
bool ps_commit_later(struct lh_span bytes, size_t from, uint64_t number);

#endif
