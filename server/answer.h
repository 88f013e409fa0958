// Calls that a role answers with one message, and the answer of every role: health.
#ifndef PS_ANSWER_H
#define PS_ANSWER_H

#include "common/net/rpc.h"

// Takes a call. `by` has the function for each RPC; LH_ERR_UNSUPPORTED: it is NULL.
LH_MUST lh_err ps_answer_call(const lh_answer_fn by[LH_RPC_COUNT], void *self, struct lh_call *call,
                              enum lh_rpc rpc, const struct lh_peer *peer,
                              const struct lh_call_ops **ops, void **call_self);
// grpc.health.v1: SERVING or NOT_SERVING.
void ps_answer_health(struct lh_request *rq, bool serving);

#endif
