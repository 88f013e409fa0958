// The data's manifest, mapped from its index, so that units take none of the program's own memory
// (common/format/units_index.h).
#ifndef LH_COMMON_UNITS_FILE_H
#define LH_COMMON_UNITS_FILE_H

#include "common/base/limits.h"
#include "common/env/log.h"
#include "common/format/units.h"

// Opens units.json at `path`. Makes `path`.index if it is missing, damaged or of another
// units.json. If the folder is not writable, makes an unnamed index in TMPDIR for this process
// alone.
LH_MUST lh_err lh_units_open(const char *path, struct lh_units *u);
// Gives the path of the manifest that data.units names. One in an object store,
// s3://BUCKET/PREFIX/units.json, is fetched into `dir`; if the store can't be asked, an earlier
// copy there serves, and the log says so.
LH_MUST lh_err lh_units_find(struct lh_env *env, struct lh_log *log, const char *from,
                             const char *dir, char path[LH_PATH_BYTES]);
// Closes what lh_units_open() opened; *u may be empty.
void lh_units_close(struct lh_units *u);

#endif
