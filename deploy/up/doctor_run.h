// Checks a run that goes on, for `longhaul doctor`: by what its processes say of themselves.
#ifndef DP_DOCTOR_RUN_H
#define DP_DOCTOR_RUN_H

#include <jansson.h>

#include "deploy/up/finding.h"

// `status`: the coordinator's; `servers`: each server's by address, null where it does not answer;
// `files`: workers' status.json by name, as far as there are any; `now_s`: this machine's clock.
void dp_check_run(struct dp_check *c, const json_t *status, const json_t *servers,
                  const json_t *files, int64_t now_s);
// Checks what one process says of itself: disk, certificate, store, version.
void dp_check_process(struct dp_check *c, const char *who, const json_t *is);

#endif
