// Hello: opens a worker's session.
#ifndef PS_HELLO_H
#define PS_HELLO_H

#include "server/core.h"

LH_MUST lh_err ps_hello_accept(struct ps_server *s, struct lh_call *call,
                               const struct lh_peer *peer, const struct lh_call_ops **ops,
                               void **self);

#endif
