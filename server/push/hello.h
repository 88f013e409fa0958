// Hello: opens a worker's session.
#ifndef PS_HELLO_H
#define PS_HELLO_H

#include "server/core.h"

struct lh_request;

void ps_on_hello(void *self, struct lh_request *rq, const void *request);

#endif
