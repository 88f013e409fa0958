// The folder tree that `longhaul data prepare` reads: DIR/<region>/<language>/*.txt.
#ifndef DP_DATA_SCAN_H
#define DP_DATA_SCAN_H

#include "common/base/err.h"

struct dp_language {
    char region[64], name[16];
    char **file; // paths, sorted
    unsigned files;
};

struct dp_tree {
    struct dp_language *language; // languages that have text, by region, then by name
    unsigned languages;
    struct dp_language heldout; // its files' stems are languages; region is ""
    char **passed;              // paths passed over: neither read nor walked
    unsigned passed_count;
};

// An error names what is wrong: a link to nothing, a folder that can't be read, a region without a
// language, or a language without text (on an unmounted disk, say).
LH_MUST lh_err dp_tree_scan(struct dp_tree *t, const char *dir);
void dp_tree_free(struct dp_tree *t);

#endif
