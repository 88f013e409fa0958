// Descriptions of worlds: topology files, and the same words at run time.
#ifndef LH_DEPLOY_WAN_TOPOLOGY_H
#define LH_DEPLOY_WAN_TOPOLOGY_H

#include <stdio.h>

#include "common/base/err.h"
#include "deploy/wan/world.h"

// Units of quantities; ends with a NULL name.
struct dp_unit {
    const char *name;
    double scale;
};
extern const struct dp_unit dp_units_time[], dp_units_rate[], dp_units_size[], dp_units_share[];

// Instances and regions: a lower-case letter, then lower-case letters, digits or '-', shorter than
// DP_WORLD_NAME_BYTES.
bool dp_name_valid(const char *name);

// Splits a line in place into at most DP_WORDS_MAX words. Returns how many.
int dp_world_words(char *line, const char *separators, char **words);

// Carries out "A [to] B SETTING...", where A and B are regions or 'all'. Changes every link that
// this selects or, on a mistake (LH_ERR_INVALID), none.
LH_MUST lh_err dp_world_change(struct dp_world *world, char *const *words, int count);

// Reads a topology; `name` is the file's name in errors. The world is zeros but for its instance.
// LH_ERR_INVALID with the line's number, LH_ERR_IO.
LH_MUST lh_err dp_world_read(struct dp_world *world, const char *name, FILE *in);
LH_MUST lh_err dp_world_load(struct dp_world *world, const char *path);

#endif
