// Rows of JSON objects, as a table for people or as JSON for programs.
#ifndef DP_TABLE_H
#define DP_TABLE_H

#include <jansson.h>
#include <stdbool.h>

#include "common/buf.h"
#include "common/err.h"

// A column shows one field of every row; a list of them ends with a NULL title.
struct dp_column {
    const char *title, *key;
    int width; // negative: to the left
};

// Appends a head and a line a row. What comes from a network is printed without control
// characters; a field that is missing is "-".
void dp_table_put(struct lh_buf *out, const struct dp_column *columns, const json_t *rows);
// Appends a value as indented JSON, and a newline. LH_ERR_NO_MEMORY.
LH_MUST lh_err dp_table_json(struct lh_buf *out, const json_t *value);
// Reads the argument of -o: "table" or "json". LH_ERR_INVALID.
LH_MUST lh_err dp_table_form(const char *format, bool *json);

#endif
