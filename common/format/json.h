// JSON of status and of hashed files, which are read as a whole and written in one fixed form.
#ifndef LH_COMMON_JSON_H
#define LH_COMMON_JSON_H

#include <jansson.h>

#include "common/base/buf.h"

// Reads a document of at most `max` bytes; refuses duplicate keys. Free it with json_decref(). The
// texts of LH_ERR_TOO_LARGE and LH_ERR_MALFORMED begin with `what`.
LH_MUST lh_err lh_json_load(const char *what, struct lh_span json, size_t max, json_t **out);
// Appends a text of less than LH_JSON_FORMAT_MAX bytes.
enum { LH_JSON_FORMAT_MAX = 640 };
void lh_json_put(struct lh_buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Appends `root` as text and frees it. NULL, a failed json_pack()'s result: LH_ERR_NO_MEMORY.
LH_MUST lh_err lh_json_give(json_t *root, struct lh_buf *out);

// A field of an object; 0, "" or false where it is missing or of another type. lh_json_word()
// borrows from `o`.
double lh_json_number(const json_t *o, const char *key);
const char *lh_json_word(const json_t *o, const char *key);
bool lh_json_yes(const json_t *o, const char *key);

#endif
