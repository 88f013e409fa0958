// The XML that an S3 store answers with: as little of XML as its answers use.
//
// A reader walks over tags and text, copies names and values into fixed memory and never recurses.
// What is no XML ends the walk with LH_ERR_MALFORMED. Attributes, comments and declarations are
// passed over; namespaces are not looked at. Five entities and numeric ones up to 127 are decoded.
#ifndef LH_COMMON_XML_H
#define LH_COMMON_XML_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_XML_NAME_BYTES = 64, LH_XML_TEXT_BYTES = 2048 };

// An element that repeats, such as <Contents>, by two of its fields.
struct lh_xml_row {
    char key[LH_XML_TEXT_BYTES], value[LH_XML_TEXT_BYTES]; // "": it has no such field
};
typedef lh_err (*lh_xml_fn)(void *arg, const struct lh_xml_row *row);

// Calls each(arg, row) for every element `name` with the texts of its fields `key` and `value`.
// LH_ERR_MALFORMED: it is no XML, or a field is too long; or what `each` gives.
LH_MUST lh_err lh_xml_rows(struct lh_span xml, const char *name, const char *key, const char *value,
                           lh_xml_fn each, void *arg);
// The text of the first field of this name outside elements `except` (NULL: anywhere); "": there is
// none. Bytes beyond `size` are cut off.
void lh_xml_find(struct lh_span xml, const char *field, const char *except, char *out, size_t size);

#endif
