// Calls any RPC of running programs over TLS, under any certificate, and prints how each call
// ended: the error's name, or LH_OK for an answer.
// e2e_say CA CERT KEY DOMAIN RUN MANIFEST CELL...
// CELL: ROLE ADDRESS RPC WORKER SHARD; the request names WORKER and SHARD. WORKER 0 stands for the
// certificate's own id.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/node.h"
#include "common/base/check.h"
#include "common/base/exit.h"
#include "common/base/limits.h"
#include "common/format/frame.h"
#include "common/format/manifest.h"
#include "common/net/grpc/transport_grpc.h"
#include "tests/head.h"
#include "common/net/rpc.h"
#include "common/security/certs.h"
#include "longhaul/v1/data.pb-c.h"
#include "longhaul/v1/health.pb-c.h"
#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/world/pb.h"

enum { CELL_WORDS = 5 };

struct said {
    struct lh_env *env;
    struct lh_call *call;
    bool over, answered, role; // role: the role may not call this RPC
    lh_err status;
};

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct said *s = self;
    (void)msg;
    s->answered = true;
    lh_call_cancel(call);
}

static void on_nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct said *s = self;
    (void)call;
    s->role = text && strstr(text, "may not call");
    s->over = true;
    s->status = s->answered ? LH_OK : status;
    lh_env_real_stop(s->env);
}

static const struct lh_call_ops ops = {on_message, on_nothing, on_nothing, on_close};

struct words { // contents of a request
    uint8_t job[LH_JOB_BYTES];
    const struct lh_manifest *manifest;
    uint64_t worker;
    uint32_t shard;
};

static struct lh_hash made_up = {{7}};

// Sends the first message of the call.
static lh_err send(struct lh_call *call, enum lh_rpc rpc, struct words *w)
{
    Longhaul__V1__Wire wire = lh_head_wire();
    Longhaul__V1__Point point = lh_head_point(w->shard, 9, 1000, &made_up), *points[] = {&point};
    ProtobufCBinaryData job, manifest;
    uint8_t digest[LH_DIGEST_BYTES] = {1};
    lh_head_run(w->job, &w->manifest->hash, &job, &manifest);
    if (rpc == LH_RPC_JOIN) {
        Longhaul__V1__JoinRequest m = LONGHAUL__V1__JOIN_REQUEST__INIT;
        m.wire = &wire;
        m.job = job;
        m.manifest = manifest;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_LEASE) {
        Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
        m.worker = w->worker;
        m.incarnation = (uint64_t)1 << 32;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_REPORT) {
        Longhaul__V1__ReportRequest m = LONGHAUL__V1__REPORT_REQUEST__INIT;
        Longhaul__V1__ShardReport r = LONGHAUL__V1__SHARD_REPORT__INIT, *list[] = {&r};
        m.wire = &wire;
        m.job = job;
        m.manifest = manifest;
        m.address = (char *)(uintptr_t) "127.0.0.1:9";
        m.process = 7;
        m.number = 1;
        r.head = &point;
        m.shards = list;
        m.n_shards = 1;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_EPOCH) {
        Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
        m.wire = &wire;
        m.job = job;
        m.manifest = manifest;
        m.address = (char *)(uintptr_t) "127.0.0.1:9";
        m.shard = w->shard;
        m.open = &point;
        m.below_stable = true;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_INSYNC) {
        Longhaul__V1__InSyncRequest m = LONGHAUL__V1__IN_SYNC_REQUEST__INIT;
        m.wire = &wire;
        m.job = job;
        m.manifest = manifest;
        m.shard = w->shard;
        m.epoch = point.epoch;
        m.standby = 77;
        m.head = m.checked = &point;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_DRAIN) {
        Longhaul__V1__DrainRequest m = LONGHAUL__V1__DRAIN_REQUEST__INIT;
        m.worker = (char *)(uintptr_t) "nobody";
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_PAUSE) {
        Longhaul__V1__PauseRequest m = LONGHAUL__V1__PAUSE_REQUEST__INIT;
        m.resume = true;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_MOVE) {
        Longhaul__V1__MoveRequest m = LONGHAUL__V1__MOVE_REQUEST__INIT;
        m.server = (char *)(uintptr_t) "nobody";
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_ADOPT) {
        Longhaul__V1__AdoptRequest m = LONGHAUL__V1__ADOPT_REQUEST__INIT;
        m.server = (char *)(uintptr_t) "nobody";
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_HELLO) {
        Longhaul__V1__HelloRequest m = LONGHAUL__V1__HELLO_REQUEST__INIT;
        m.wire = &wire;
        m.job = job;
        m.manifest = manifest;
        m.shard = w->shard;
        m.worker = w->worker;
        m.incarnation = (uint64_t)1 << 32;
        m.next = 1;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_FOLLOW) {
        Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
        Longhaul__V1__Point from = lh_head_point(w->shard, 0, 0, &made_up);
        from.chain = (ProtobufCBinaryData){0};
        m.job = job;
        m.manifest = manifest;
        m.from = &from;
        m.standby = w->worker == UINT64_MAX ? 77 : 0;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_SNAPSHOT) {
        Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
        uint8_t challenge[16] = {1};
        m.job = job;
        m.manifest = manifest;
        m.shard = w->shard;
        m.challenge = (ProtobufCBinaryData){sizeof challenge, challenge};
        m.asker = w->worker == UINT64_MAX ? 77 : 0;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_OFFER) {
        Longhaul__V1__OfferRequest m = LONGHAUL__V1__OFFER_REQUEST__INIT;
        m.job = job;
        m.manifest = manifest;
        m.shard = w->shard;
        m.worker = w->worker;
        m.have = points;
        m.n_have = 1;
        return pb_send(call, &m.base);
    }
    if (rpc == LH_RPC_CONFIRM) {
        Longhaul__V1__ConfirmRequest m = LONGHAUL__V1__CONFIRM_REQUEST__INIT;
        m.job = job;
        m.manifest = manifest;
        m.standby = 77;
        m.have = &point;
        return pb_send(call, &m.base);
    }
    if (rpc != LH_RPC_PUSH && rpc != LH_RPC_RESTORE) // an empty request
        return lh_call_send(call, &(struct lh_out){.head = {0}});
    struct lh_blob *bytes = lh_blob_new(400);
    if (!bytes) return LH_ERR_NO_MEMORY;
    memset(bytes->data, 0, 400);
    lh_err err = LH_ERR_INVALID;
    if (rpc == LH_RPC_PUSH) {
        Longhaul__V1__PushHead m = LONGHAUL__V1__PUSH_HEAD__INIT;
        m.shard = w->shard;
        m.process = 7;
        m.frame_bytes = 400;
        m.digest = (ProtobufCBinaryData){sizeof digest, digest};
        m.worker = w->worker;
        err = pb_send_bulk(call, &m.base, bytes, 0, 400);
    } else if (rpc == LH_RPC_RESTORE) {
        Longhaul__V1__RestoreHead m = LONGHAUL__V1__RESTORE_HEAD__INIT;
        m.of = &point;
        m.worker = w->worker;
        m.process = 7;
        m.total = 400;
        err = pb_send_bulk(call, &m.base, bytes, 0, 400);
    }
    lh_blob_release(bytes);
    return err;
}

static LH_MUST lh_err find_rpc(const char *name, enum lh_rpc *out)
{
    for (int i = 0; i < LH_RPC_COUNT; i++) {
        const char *path = lh_rpc_path((enum lh_rpc)i), *slash = strchr(path, '/');
        const char *dot = slash;
        while (dot > path && dot[-1] != '.') dot--;
        if (strcmp(dot, name)) continue;
        *out = (enum lh_rpc)i;
        return LH_OK;
    }
    return lh_fail(LH_ERR_INVALID, "no RPC %s", name);
}

static LH_MUST lh_err say(struct lh_env *env, struct lh_transport *t, char **cell, struct words *w,
                          uint64_t own)
{
    struct said s = {.env = env};
    struct lh_link *link;
    enum lh_role role;
    enum lh_rpc rpc = LH_RPC_COUNT;
    LH_TRY(lh_role_parse(cell[0], &role));
    LH_TRY(find_rpc(cell[2], &rpc));
    w->worker = strtoull(cell[3], NULL, 10);
    w->shard = (uint32_t)strtoul(cell[4], NULL, 10);
    if (!w->worker) w->worker = own;
    LH_TRY(t->ops->dial(t, cell[1], role, LH_LINE_FIRST, &link));
    LH_TRY(lh_call_open(link, rpc, 20 * LH_SECOND, &ops, &s, &s.call));
    lh_call_read(s.call);
    lh_err err = send(s.call, rpc, w);
    if (err) lh_call_cancel(s.call);
    while (!s.over) lh_env_real_run(env);
    printf("%s\n", s.role ? "ROLE" : lh_err_name(err ? err : s.status));
    t->ops->hangup(link);
    return LH_OK;
}

static LH_MUST lh_err load_manifest(struct lh_env *env, const char *path, struct lh_manifest *out)
{
    struct lh_buf json = lh_buf(LH_SMALL_BYTES);
    lh_err err = lh_file_load(env, path, &json);
    if (!err) err = lh_manifest_parse(out, lh_buf_span(&json));
    lh_buf_free(&json);
    return err;
}

int main(int argc, char **argv)
{
    struct lh_env *env = NULL;
    struct lh_transport *t = NULL;
    struct lh_manifest manifest = {0};
    struct lh_certs_info info;
    struct words w = {.manifest = &manifest};
    if (argc < 7 || (argc - 7) % CELL_WORDS) return LH_EXIT_USAGE;
    lh_err err = lh_env_real_create(&env);
    if (err) return LH_EXIT_FAILED;
    err = lh_certs_inspect(argv[2], &info);
    if (!err) err = load_manifest(env, argv[6], &manifest);
    const struct lh_grpc_conf conf = {.env = env,
                                      .ca = argv[1],
                                      .cert = argv[2],
                                      .key = argv[3],
                                      .domain = argv[4],
                                      .run = argv[5]};
    if (!err) err = lh_transport_grpc_create(&conf, &t);
    lh_job_id(argv[4], argv[5], w.job);
    for (int i = 7; i < argc && !err; i += CELL_WORDS)
        err = say(env, t, argv + i, &w, lh_worker_id(&info.peer));
    if (err) fprintf(stderr, "%s: %s\n", lh_err_name(err), lh_err_text(err));
    if (t) lh_transport_grpc_destroy(t);
    lh_manifest_free(&manifest);
    lh_env_real_destroy(env);
    return (int)lh_exit_of(err);
}
