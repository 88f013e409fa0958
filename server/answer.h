// Calls that a role answers with one message, and the answer of every role: health.
#ifndef PS_ANSWER_H
#define PS_ANSWER_H

#include "common/net/rpc.h"

// By RPC: its request's type, and what answers it; NULL: it is not answered here.
struct ps_answers {
    const struct lh_wire_type *request;
    lh_answer_fn answer;
};
// Takes a call with a table of LH_RPC_COUNT rows. LH_ERR_UNSUPPORTED: the table has no answer.
LH_MUST lh_err ps_answer_call(const struct ps_answers *by, void *self, struct lh_call *call,
                              enum lh_rpc rpc, const struct lh_peer *peer,
                              const struct lh_call_ops **ops, void **call_self);
// grpc.health.v1: SERVING or NOT_SERVING.
void ps_answer_health(struct lh_request *rq, bool serving);

#endif
