// The data's manifest as programs have it: mapped from its index, so that a unit takes none of the
// program's own memory (common/format/units_index.h).
#ifndef LH_COMMON_UNITS_FILE_H
#define LH_COMMON_UNITS_FILE_H

#include "common/format/units.h"

// Opens units.json at `path`. Where `path`.index is missing, damaged or of another units.json, it
// is made; where the folder takes no file, one without a name in TMPDIR is, for this process alone.
LH_MUST lh_err lh_units_open(const char *path, struct lh_units *u);
// Takes what lh_units_open() gave, or one that is empty.
void lh_units_close(struct lh_units *u);

#endif
