// Rows: the keys and values of the coordinator's store in memory.
//
// A row is found by its key through a chained hash table. The table grows a few chains at a time,
// so that no change waits for a whole table. Rows of one kind (the key up to its first slash) are
// in one list, so that a walk over a kind looks at no other row.
#ifndef PS_ROWS_H
#define PS_ROWS_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { PS_ROW_KEY_BYTES = 128 }; // The zero at its end counts.

struct ps_rows;

struct ps_row {
    struct ps_row *behind; // the next one of its chain
    uint32_t hash, place;  // place: its index in the list of its kind
    uint32_t bytes;        // The value has so many.
    uint16_t kind, key_bytes;
    char key[]; // the key, a zero, the value
};

// NULL: no memory. `expected`: about so many rows will come.
struct ps_rows *ps_rows_create(uint64_t expected);
void ps_rows_destroy(struct ps_rows *t); // Frees the rows, too; NULL: nothing.
// NULL: there is none.
struct ps_row *ps_rows_find(const struct ps_rows *t, const char *key);
struct lh_span ps_row_value(const struct ps_row *r);
// Makes a row, and memory in the table for it: ps_rows_put() of it can't fail.
LH_MUST lh_err ps_rows_make(struct ps_rows *t, const char *key, struct lh_span value,
                            struct ps_row **out);
// Takes `r`. Gives a row with that key and the value before, which is the caller's now; NULL: there
// was none.
struct ps_row *ps_rows_put(struct ps_rows *t, struct ps_row *r);
// Gives the row out of the table; NULL: there is none.
struct ps_row *ps_rows_take(struct ps_rows *t, const char *key);

uint64_t ps_rows_count(const struct ps_rows *t);
uint64_t ps_rows_bytes(const struct ps_rows *t); // Sum over all keys and values.
// Calls each(arg, key, value) for all keys that begin with `prefix`, in their order.
LH_MUST lh_err ps_rows_each(const struct ps_rows *t, const char *prefix,
                            void (*each)(void *arg, const char *key, struct lh_span value),
                            void *arg);

// A walk over all rows that goes on while rows change: a row that was there at its beginning, and
// is still there, is met at least once. A row that comes meanwhile may be left out.
struct ps_rows_walk {
    uint32_t kind;  // the kind at hand, + 1; 0: the walk is over
    uint32_t place; // rows of that kind below this place are not met yet
};
struct ps_rows_walk ps_rows_walk(const struct ps_rows *t);
const struct ps_row *ps_rows_next(const struct ps_rows *t, struct ps_rows_walk *w); // NULL: over

#endif
