// Parses untrusted YAML into a small tree: maps, lists and scalars with their lines.
//
// Supports the part of YAML that settings need. Refused: anchors and aliases, tags, several
// documents, keys that are not scalars, a key given twice, more than LH_YAML_* of anything.
#ifndef LH_COMMON_YAML_H
#define LH_COMMON_YAML_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_YAML_BYTES_MAX = 1 << 20, LH_YAML_DEPTH_MAX = 8, LH_YAML_NODES_MAX = 4096 };

enum lh_yaml_kind { LH_YAML_SCALAR, LH_YAML_MAP, LH_YAML_LIST };

struct lh_yaml {
    enum lh_yaml_kind kind;
    unsigned line;         // from 1
    char *key;             // the key of a map's entry; else NULL
    char *text;            // a scalar's text, without zeros inside; else NULL
    struct lh_yaml *child; // first child of a map or list, in the file's order
    struct lh_yaml *next;  // sibling
};

// Errors (LH_ERR_CONFIG) begin with "name:line: ". An empty file is an empty map. The top level
// must be a map.
LH_MUST lh_err lh_yaml_parse(const char *name, struct lh_span text, struct lh_yaml **out);
void lh_yaml_free(struct lh_yaml *node);                                        // NULL is allowed
const struct lh_yaml *lh_yaml_find(const struct lh_yaml *map, const char *key); // NULL: absent

#endif
