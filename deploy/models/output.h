// A file written piece by piece that appears whole or not at all.
#ifndef DP_OUTPUT_H
#define DP_OUTPUT_H

#include "deploy/tool/files.h"

struct dp_output {
    int fd; // -1: none
    char path[DP_PATH_BYTES], tmp[DP_PATH_BYTES];
};

// Opens PATH.tmp. After LH_OK dp_output_end() must follow.
LH_MUST lh_err dp_output_begin(struct dp_output *o, const char *path);
LH_MUST lh_err dp_output_put(struct dp_output *o, struct lh_span bytes);
// With LH_OK syncs the file, renames it to PATH and syncs the folder; else removes it. Returns
// `err`, or the error that occurred here.
LH_MUST lh_err dp_output_end(struct dp_output *o, lh_err err);

#endif
