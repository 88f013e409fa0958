// DIR/status.json: what the application says of itself and the process beside it, about once a
// second, and once more at the end. All on the loop's thread.
#ifndef LH_COMMON_STATUS_H
#define LH_COMMON_STATUS_H

#include "common/app/program.h"

// Writes it, on a lane: while the file system writes a long copy, a rename in it may take seconds.
// While the one before is being written this does nothing: the next one tells more. A status that
// can't be written is told once and is no reason to stop.
void lh_status_write(struct lh_program *p);
// Keeps the last one's text, while the application is still open.
void lh_status_keep(struct lh_program *p);
// Writes what was kept, when the lanes are at rest: one under way has the same names.
void lh_status_last(struct lh_program *p);

#endif
