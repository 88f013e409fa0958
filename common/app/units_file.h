// The data's manifest, mapped from its index, so that units take none of the program's own memory
// (common/format/units_index.h).
#ifndef LH_COMMON_UNITS_FILE_H
#define LH_COMMON_UNITS_FILE_H

#include "common/format/units.h"

// Opens units.json at `path`. Makes `path`.index if it is missing, damaged or of another
// units.json. If the folder is not writable, makes an unnamed index in TMPDIR for this process
// alone.
LH_MUST lh_err lh_units_open(const char *path, struct lh_units *u);
// Closes what lh_units_open() opened; *u may be empty.
void lh_units_close(struct lh_units *u);

#endif
