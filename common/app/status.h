// DIR/status.json: the application's status and the process's figures, about once a second and at
// the end. All on the loop's thread.
#ifndef LH_COMMON_STATUS_H
#define LH_COMMON_STATUS_H

#include "common/app/program.h"

// Writes it on a lane, because a rename may take seconds while the file system is busy with a long
// copy. While the previous status is being written, only updates the HTTP page; a later call writes
// the file. A failed write is logged once and stops nothing.
void lh_status_write(struct lh_program *p);
// Renders the last status while the application is still open.
void lh_status_keep(struct lh_program *p);
// Writes the status of lh_status_keep(). The lanes must be idle: a write under way uses the same
// file names.
void lh_status_last(struct lh_program *p);

#endif
