// A reader for the XML of an S3 store's answers, which use little of XML.
//
// It walks over tags and text, copies names and values into fixed memory and never recurses.
// Malformed XML ends the walk with LH_ERR_MALFORMED. Attributes, comments and declarations are
// skipped; namespaces are ignored. Five entities and numeric ones up to 127 are decoded.
#ifndef LH_COMMON_XML_H
#define LH_COMMON_XML_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_XML_NAME_BYTES = 64, LH_XML_TEXT_BYTES = 2048 };

// An element that repeats, such as <Contents>, by two of its fields.
struct lh_xml_row {
    char key[LH_XML_TEXT_BYTES], value[LH_XML_TEXT_BYTES]; // "": the element has no such field
};
typedef lh_err (*lh_xml_fn)(void *arg, const struct lh_xml_row *row);

// Calls each(arg, row) for every element `name` with the texts of its fields `key` and `value`.
// LH_ERR_MALFORMED: no XML, or a field is too long; or the error of `each`.
LH_MUST lh_err lh_xml_rows(struct lh_span xml, const char *name, const char *key, const char *value,
                           lh_xml_fn each, void *arg);
// Gives the text of the first field of this name outside elements `except` (NULL: anywhere), or "".
// Bytes beyond `size` are cut off.
void lh_xml_find(struct lh_span xml, const char *field, const char *except, char *out, size_t size);

#endif
