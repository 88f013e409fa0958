// Servers: their reports on their shards, and the epochs that they request.
#ifndef PS_CO_SERVERS_H
#define PS_CO_SERVERS_H

#include "server/coordinator/core.h"

void ps_co_on_report(void *self, struct lh_request *rq, const void *m);
void ps_co_on_epoch(void *self, struct lh_request *rq, const void *m);

#endif
