// Receive: the push stream.
#ifndef PS_RECEIVE_H
#define PS_RECEIVE_H

#include "server/core.h"

LH_MUST lh_err ps_push_accept(struct ps_server *s, struct lh_call *call, const struct lh_peer *peer,
                              const struct lh_call_ops **ops, void **self);
void ps_receive_waiting(struct ps_server *s); // handles PS_FREED
// Ends streams of pushes that have been silent too long. True: streams remain, look again later.
bool ps_receive_look(struct ps_server *s);
void ps_receive_free(struct ps_server *s);
// Ends the pushes of expelled workers.
void ps_receive_expel(struct ps_server *s);

#endif
