// JSON of files which are hashed, read as a whole and written byte by byte as we say; and of
// status.
#ifndef LH_COMMON_JSON_H
#define LH_COMMON_JSON_H

#include <jansson.h>

#include "common/base/buf.h"

// Reads a document of at most `max` bytes without keys that come twice; free it with json_decref().
// LH_ERR_TOO_LARGE, LH_ERR_MALFORMED, whose texts begin with `what`.
LH_MUST lh_err lh_json_load(const char *what, struct lh_span json, size_t max, json_t **out);
// Appends a text of less than LH_JSON_FORMAT_MAX bytes.
enum { LH_JSON_FORMAT_MAX = 640 };
void lh_json_put(struct lh_buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Appends a status's text and frees it; NULL, as json_pack() gives where it fails: no memory.
LH_MUST lh_err lh_json_give(json_t *root, struct lh_buf *out);

#endif
