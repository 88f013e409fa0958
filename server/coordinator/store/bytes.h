// The bytes of the coordinator's store: commits, their heads and entries. Layout:
// server/coordinator/store.h.
#ifndef PS_STORE_BYTES_H
#define PS_STORE_BYTES_H

#include "common/base/buf.h"
#include "server/coordinator/store/rows.h"

enum {
    PS_COMMIT_HEAD_BYTES = 28,
    PS_ENTRY_BYTES = 18, // beside key and value
};

// ---- writing

// Entries one after the other, behind the place of their commit's head.
struct ps_entries {
    struct lh_buf bytes; // empty: no head either
    uint32_t count;
};

void ps_entries_put(struct ps_entries *e, const char *key, struct lh_span value);
void ps_entries_remove(struct ps_entries *e, const char *key);
// Fills in checksums, and how many entries follow each one: `behind` more come after all of these.
void ps_entries_seal(struct ps_entries *e, uint32_t behind);
void ps_entries_clear(struct ps_entries *e);
size_t ps_entries_bytes(const struct ps_entries *e); // without the head
// Fills in the head of a commit of `first` and `then` (NULL: none): a commit is the bytes of
// `first`, and those of `then` without its head.
LH_MUST lh_err ps_commit_head(struct ps_entries *first, const struct ps_entries *then,
                              uint64_t number);

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
// Are its entries all there? *bad: where not, the place of the first that does not count.
bool ps_commit_is_whole(struct lh_span bytes, size_t at, const struct ps_commit *h, uint64_t *bad);
bool ps_entry_read(struct lh_cursor *c, struct ps_entry *e, bool check); // check: its checksum
// Does the head of a later commit than `number` stand at `from` or behind it?
bool ps_commit_later(struct lh_span bytes, size_t from, uint64_t number);

#endif
