// The gRPC transport reports each refused call with its caller, for the audit log.
#include "tests/unit/common/net/grpc/transport_grpc.h"

struct told {
    int count;
    struct lh_peer peer;
    char rpc[64], text[256];
};

static void hear_of_it(void *self, const struct lh_peer *peer, const char *rpc, const char *text)
{
    struct told *t = self;
    t->count++;
    t->peer = *peer;
    snprintf(t->rpc, sizeof t->rpc, "%s", rpc);
    snprintf(t->text, sizeof t->text, "%s", text);
}

// Makes every RPC as every role; it is refused by the role table, by its owner, or in its answer.
IN_PAIR(each_refused_call_is_told_with_its_caller, struct world *w)
{
    static const enum lh_role roles[] = {LH_W, LH_S, LH_C, LH_A};
    struct told told = {0};
    lh_transport_grpc_on_refused(w->server, hear_of_it, &told);
    for (size_t r = 0; r < LH_COUNT(roles); r++) {
        struct lh_transport *caller;
        issue(w, roles[r], "caller", "r1", 1);
        assert_int_equal(create(w, "caller", &caller), LH_OK);
        struct lh_link *link = dial(caller, w->bound, LH_S);
        for (int rpc = 0; rpc < LH_RPC_COUNT; rpc++) {
            bool allowed = lh_rpc_allowed((enum lh_rpc)rpc, roles[r]);
            int before = told.count;
            w->refuse = LH_OK;
            (void)call_once(w, link, (enum lh_rpc)rpc);
            assert_int_equal(told.count, before + !allowed);
            w->refuse = LH_ERR_FENCED;
            before = told.count;
            (void)call_once(w, link, (enum lh_rpc)rpc);
            assert_int_equal(told.count, before + 1);
            assert_string_equal(told.rpc, lh_rpc_path((enum lh_rpc)rpc));
            assert_string_equal(told.peer.name, "caller");
            assert_int_equal(told.peer.role, roles[r]);
            w->refuse = LH_ERR_UNAVAILABLE; // not the peer's fault
            before = told.count;
            (void)call_once(w, link, (enum lh_rpc)rpc);
            assert_int_equal(told.count, before + !allowed);
        }
        lh_transport_grpc_destroy(caller);
    }
    w->refuse = LH_OK;
    w->plan.hold = true;
    struct side open = {0};
    side_open(w, &open, LH_RPC_JOIN, 0);
    int accepts = w->accepts;
    UNTIL(w, w->accepts > accepts);
    int before = told.count;
    lh_call_finish(w->accepted[w->accepts - 1].call, LH_ERR_MALFORMED, "a join that can't be read");
    UNTIL(w, open.closes);
    assert_int_equal(told.count, before + 1);
    assert_string_equal(told.text, "a join that can't be read");
    lh_transport_grpc_on_refused(w->server, NULL, NULL);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
