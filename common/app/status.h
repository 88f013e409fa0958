// DIR/status.json: the application's status and the process's figures, about once a second and at
// the end. All on the loop's thread.
#ifndef LH_COMMON_STATUS_H
#define LH_COMMON_STATUS_H

#include <jansson.h>

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

// Finds in status.json how the life before this one ended: "signal" (it was asked to end), "ended"
// (the run was over), the name of an error, "killed" (it could not say: kill -9, a crash, a power
// cut), or "none" (no life before). Called before the first write.
void lh_status_last_exit(struct lh_program *p);
// Sets what a peer may know of the process: "version", "time_s", "disk_free_bytes",
// "certificate_expires_s", "http".
void lh_status_tell(const struct lh_program *p, json_t *out);

#endif
