// Restore: receives offers and states from followers. See restore.c.
#ifndef PS_RESTORE_H
#define PS_RESTORE_H

#include "server/core.h"

struct lh_request;
struct ps_rebuild;

void ps_on_offer(void *self, struct lh_request *rq, const void *request);
LH_MUST lh_err ps_restore_accept(struct ps_server *s, struct lh_call *call,
                                 const struct lh_peer *peer, const struct lh_call_ops **ops,
                                 void **self);

// A state is being received. Drops a transfer whose follower fell silent (its host may be gone
// without an error).
bool ps_restore_coming(struct ps_rebuild *b);
// Drops the offers of silent workers: they could not send their states.
void ps_restore_drop_silent(struct ps_rebuild *b);
// Ends the turn of workers that were asked for their state and did not send it.
void ps_restore_pass_over(struct ps_rebuild *b);
void ps_restore_forget(struct ps_rebuild *b); // drops the state being received

#endif
