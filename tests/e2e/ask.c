// Asks a running program one question over gRPC, under any certificate, and prints the answer.
// e2e_ask CA CERT KEY DOMAIN RUN ROLE ADDRESS status|shards|health|drain|old-join
// Exits with the error's code and prints its text to stderr. `old-join` speaks an unknown wire
// version.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/exit.h"
#include "common/net/grpc/transport_grpc.h"
#include "common/net/rpc.h"
#include "longhaul/v1/health.pb-c.h"
#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/world/pb.h"

struct asked {
    struct lh_env *env;
    enum lh_rpc rpc;
    lh_err err;
};

static void on_answer(void *self, lh_err err, const ProtobufCMessage *m)
{
    struct asked *a = self;
    a->err = err;
    if (err) fprintf(stderr, "%s: %s\n", lh_err_name(err), lh_err_text(err));
    if (!err && (a->rpc == LH_RPC_STATUS || a->rpc == LH_RPC_SHARD_STATUS))
        printf("%s\n", ((const Longhaul__V1__StatusReply *)m)->json);
    if (!err && a->rpc == LH_RPC_HEALTH_CHECK)
        printf("%d\n", (int)((const Grpc__Health__V1__HealthCheckResponse *)m)->status);
    lh_env_real_stop(a->env);
}

static lh_err ask(struct asked *a, struct lh_link *link, const char *what)
{
    Longhaul__V1__StatusRequest status = LONGHAUL__V1__STATUS_REQUEST__INIT;
    Longhaul__V1__ShardStatusRequest shards = LONGHAUL__V1__SHARD_STATUS_REQUEST__INIT;
    Longhaul__V1__DrainRequest drain = LONGHAUL__V1__DRAIN_REQUEST__INIT;
    Grpc__Health__V1__HealthCheckRequest health = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    Longhaul__V1__JoinRequest join = LONGHAUL__V1__JOIN_REQUEST__INIT;
    Longhaul__V1__Wire wire = LONGHAUL__V1__WIRE__INIT; // 0 to 0
    join.wire = &wire;
    const struct {
        const char *what;
        enum lh_rpc rpc;
        const ProtobufCMessage *request;
        const ProtobufCMessageDescriptor *answer;
    } row[] = {
        {"status", LH_RPC_STATUS, &status.base, &longhaul__v1__status_reply__descriptor},
        {"shards", LH_RPC_SHARD_STATUS, &shards.base, &longhaul__v1__status_reply__descriptor},
        {"drain", LH_RPC_DRAIN, &drain.base, &longhaul__v1__drain_reply__descriptor},
        {"health", LH_RPC_HEALTH_CHECK, &health.base,
         &grpc__health__v1__health_check_response__descriptor},
        {"old-join", LH_RPC_JOIN, &join.base, &longhaul__v1__join_reply__descriptor},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        if (strcmp(row[i].what, what) != 0) continue;
        a->rpc = row[i].rpc;
        return pb_ask(link, row[i].rpc, 10 * LH_SECOND, row[i].request, row[i].answer, on_answer,
                      a);
    }
    return lh_fail(LH_ERR_INVALID, "no question %s", what);
}

int main(int argc, char **argv)
{
    if (argc != 9) return LH_EXIT_USAGE;
    struct asked a = {0};
    struct lh_transport *t = NULL;
    struct lh_link *link;
    enum lh_role role;
    lh_err err = lh_env_real_create(&a.env);
    if (err) return LH_EXIT_FAILED;
    const struct lh_grpc_conf conf = {.env = a.env,
                                      .ca = argv[1],
                                      .cert = argv[2],
                                      .key = argv[3],
                                      .domain = argv[4],
                                      .run = argv[5]};
    err = lh_transport_grpc_create(&conf, &t);
    if (!err) err = lh_role_parse(argv[6], &role);
    if (!err) err = t->ops->dial(t, argv[7], role, LH_LINE_FIRST, &link);
    if (!err) err = ask(&a, link, argv[8]);
    if (err)
        fprintf(stderr, "%s: %s\n", lh_err_name(err), lh_err_text(err));
    else
        lh_env_real_run(a.env);
    lh_transport_grpc_destroy(t);
    lh_env_real_destroy(a.env);
    return (int)lh_exit_of(err ? err : a.err);
}
