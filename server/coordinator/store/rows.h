// Rows: the keys and values of the coordinator's store, in memory.
//
// A chained hash table finds a row by its key. The table grows a few chains at a time, so that no
// change waits for a whole table. Rows of one kind (the key up to its first slash) are in one list,
// so that a walk over a kind visits no other rows.
#ifndef PS_ROWS_H
#define PS_ROWS_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { PS_ROW_KEY_BYTES = 128 }; // includes the zero at the end

struct ps_rows;

struct ps_row {
    struct ps_row *behind; // next row of its chain
    uint32_t hash, place;  // place: index in its kind's list
    uint32_t bytes;        // length of the value
    uint16_t kind, key_bytes;
    char key[]; // the key, a zero, the value
};

// NULL: no memory. `expected`: approximate number of rows.
struct ps_rows *ps_rows_create(uint64_t expected);
void ps_rows_destroy(struct ps_rows *t); // Frees the rows, too; NULL is allowed.
// NULL: no such row.
struct ps_row *ps_rows_find(const struct ps_rows *t, const char *key);
struct lh_span ps_row_value(const struct ps_row *r);
// Makes a row and reserves its place in the table, so that ps_rows_put() of it can't fail.
LH_MUST lh_err ps_rows_make(struct ps_rows *t, const char *key, struct lh_span value,
                            struct ps_row **out);
// Takes `r`. Returns the previous row with that key, now the caller's; NULL: none.
struct ps_row *ps_rows_put(struct ps_rows *t, struct ps_row *r);
// Removes the row and gives it to the caller; NULL: none.
struct ps_row *ps_rows_take(struct ps_rows *t, const char *key);

uint64_t ps_rows_count(const struct ps_rows *t);
uint64_t ps_rows_bytes(const struct ps_rows *t); // Sum over all keys and values.
// Calls each(arg, key, value) for all keys that begin with `prefix`, in order.
LH_MUST lh_err ps_rows_each(const struct ps_rows *t, const char *prefix,
                            void (*each)(void *arg, const char *key, struct lh_span value),
                            void *arg);

// A walk over all rows that continues while rows change: a row present from its start to its end is
// visited at least once. A row added meanwhile may be skipped.
struct ps_rows_walk {
    uint32_t kind;  // the current kind, + 1; 0: the walk is over
    uint32_t place; // rows of that kind below this place are still to visit
};
struct ps_rows_walk ps_rows_walk(const struct ps_rows *t);
const struct ps_row *ps_rows_next(const struct ps_rows *t, struct ps_rows_walk *w); // NULL: over

#endif
