// Calls of every role. See answer.h.
#include "server/answer.h"

#include "common/net/wire_admin.h"

void ps_answer_health(struct lh_request *rq, bool serving)
{
    struct lh_health_check_response out = {.status = serving ? LH_SERVING : LH_NOT_SERVING};
    lh_answer(rq, LH_MESSAGE(health_check_response, &out));
}

lh_err ps_answer_call(const lh_answer_fn by[LH_RPC_COUNT], void *self, struct lh_call *call,
                      enum lh_rpc rpc, const struct lh_peer *peer, const struct lh_call_ops **ops,
                      void **call_self)
{
    if (!by[rpc]) return lh_fail(LH_ERR_UNSUPPORTED, "%s is not answered here", lh_rpc_path(rpc));
    return lh_request_take(call, peer, lh_rpc_request(rpc), by[rpc], self, ops, call_self);
}
