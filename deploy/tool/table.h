// Rows of JSON objects, as a table for people or as JSON for programs.
#ifndef DP_TABLE_H
#define DP_TABLE_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// A column shows one field of every row; a list of them ends with a NULL title.
struct dp_column {
    const char *title, *key;
    int width; // negative: to the left
};

// How a number that is not whole is written: 12.3, or 0.012 where tenths would show zero; or by
// four digits, as 0.01234 or 1.234e+06.
enum dp_real { DP_TENTHS, DP_FOUR_DIGITS };
// Writes a string, number or truth value as people read it, control characters as "?"; "-": it is
// none of them.
void dp_scalar_text(const json_t *value, enum dp_real real, char *out, size_t size);
// Appends a head and a line a row. What comes from a network is printed without control
// characters; a field that is missing is "-".
void dp_table_put(struct lh_buf *out, const struct dp_column *columns, const json_t *rows);
// Appends what a screen shows of a text: so many lines, each cut off at so many columns, and no
// line break after the last, which would scroll. UTF-8, a character a column.
void dp_table_fit(struct lh_buf *out, struct lh_span text, unsigned columns, unsigned lines);
// The size of the terminal that standard output is; UINT16_MAX of each where that is not known.
void dp_table_screen(unsigned *columns, unsigned *lines);
// Appends a value as indented JSON, and a newline. LH_ERR_NO_MEMORY.
LH_MUST lh_err dp_table_json(struct lh_buf *out, const json_t *value);
// Prints the rows as a table or as JSON.
LH_MUST lh_err dp_table_show(const struct dp_column *columns, const json_t *rows, bool json);
// LH_ERR_NOT_FOUND: "no KIND NAME in this run", and what there is in its place: each value of `key`
// in `rows` once, with the value of `under` and a "/" before it (NULL: without).
LH_MUST lh_err dp_table_missing(const json_t *rows, const char *under, const char *key,
                                const char *kind, const char *name);

#endif
