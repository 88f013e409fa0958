// Machine: the machines and the software that workers report, for operators. A join logs
// differences; nothing is refused because of them.
#ifndef PS_CO_MACHINE_H
#define PS_CO_MACHINE_H

#include <jansson.h>

#include "common/net/wire_member.h"
#include "server/coordinator/core.h"

LH_MUST lh_err ps_co_load_machines(struct ps_coordinator *c); // after the workers
// Takes a joining worker's report and logs how it differs from another worker (worker.differs).
// NULL: not known. A row of the store.
LH_MUST lh_err ps_co_take_machine(struct ps_coordinator *c, struct ps_co_worker *w,
                                  const struct lh_machine *said);
// Adds the known ones of these to a worker's row: "version", "system", "processor", "processors",
// "memory_gib", "gpu", "codec", "cipher".
void ps_co_tell_machine(const struct ps_co_worker *w, json_t *row);

#endif
