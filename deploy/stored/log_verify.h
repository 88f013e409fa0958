// Whether a server's log is whole, and fits its checkpoints.
#ifndef DP_LOG_VERIFY_H
#define DP_LOG_VERIFY_H

#include "deploy/stored/job.h"

// Reads a server's directory and prints its findings, as text or as one JSON object. `deep` (the
// job has all its parts): folds every record too. LH_ERR_CORRUPT: damage; LH_ERR_CONFLICT: a torn
// end, and no running server that may just be writing; LH_ERR_NOT_FOUND: no log.
LH_MUST lh_err dp_log_verify(struct dp_job *job, const char *dir, bool deep, bool json);

#endif
