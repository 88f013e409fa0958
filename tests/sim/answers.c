// Checks every message that leaves a server or the coordinator, whatever the network does to it
// then.
//
// Invariants: 1. The coordinator's answers are on its disk at that moment, or were there until the
// commit that the answer waited for (sim_stored_held). 2. An answered push is a record of the log
// (history.c). The coordinator's rows on disk show when a standby comes in sync and when it takes a
// shard over.
#include <string.h>

#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/sim/judge.h"

// Finds a transport's node. NULL for a process that only has a node's address and directory.
static struct sim_node *node_of(struct sim *s, const struct lh_transport *transport)
{
    for (uint32_t i = 0; i < s->nodes; i++)
        if (s->node[i].transport == transport) return &s->node[i];
    return NULL;
}

// ---------------------------------------------------------------- the coordinator's rows

static void look_at_row(struct sim *s, uint32_t shard, const struct sim_stored_shard *before)
{
    const struct sim_stored_shard *now = &s->judging->stored.shard[shard];
    bool moved = before->move_target && before->move_target >> 32 == now->owner >> 32;
    bool taken = now->owner != before->owner && now->owner == before->standby;
    if (taken && !moved) sim_saw_taken(s, shard);
    const struct sim_node *standby = sim_named(s, now->standby);
    if (standby && now->standby != before->standby) sim_saw_in_sync(s, shard, standby);
}

static bool store_file(struct sim *s, struct lh_span *out)
{
    char path[64];
    if (s->pair) return sim_pair_file(s, out);
    snprintf(path, sizeof path, "%s/store", s->node[0].dir);
    return lh_fake_durable(s->node[0].env, path, out);
}

void sim_read_store(struct sim *s)
{
    struct sim_stored *stored = &s->judging->stored;
    struct sim_stored_shard before[SIM_SHARDS_MAX];
    struct lh_span file;
    if (!store_file(s, &file)) return;
    memcpy(before, stored->shard, sizeof before);
    sim_stored_read(stored, file);
    if (stored->unreadable) sim_fail(s, "a row of the coordinator's store went back");
    for (uint32_t k = 0; k < s->shards; k++) look_at_row(s, k, &before[k]);
}

// ---------------------------------------------------------------- the coordinator's answers

struct answer { // on its way from the coordinator
    const struct sim *sim;
    const struct sim_node *to;
    enum lh_rpc rpc;
    const ProtobufCMessage *message;
};

static const char *check_epochs(const struct sim_stored *stored, const struct sim *s,
                                const Longhaul__V1__EpochReply *m)
{
    const Longhaul__V1__Point *any = m->n_begun ? m->begun[0] : m->stable;
    if (!any) return m->opened ? "an epoch" : NULL;
    return any->shard < s->shards ? sim_stored_epochs(stored, any->shard, m) : "an epoch";
}

// The answer does not name its shard, which is one of those that the server asks about.
static const char *check_in_sync(const struct sim_stored *stored, const struct answer *a,
                                 const Longhaul__V1__InSyncReply *m)
{
    const char *missing = NULL;
    for (uint32_t k = 0; k < a->sim->shards; k++) {
        if (!sim_shard_at(a->to, k)) continue;
        missing = sim_stored_in_sync(stored, k, m);
        if (!missing) return NULL;
    }
    return missing;
}

static const char *check(const struct sim_stored *stored, void *arg)
{
    const struct answer *a = arg;
    const void *m = a->message;
    switch (a->rpc) {
    case LH_RPC_JOIN: return sim_stored_join(stored, m);
    case LH_RPC_LEASE:
        return a->to->kind == SIM_WORKER
                   ? sim_stored_lease(stored, a->sim->judging->id[a->to->index], m)
                   : NULL;
    case LH_RPC_REPORT: return sim_stored_report(stored, m);
    case LH_RPC_EPOCH: return check_epochs(stored, a->sim, m);
    case LH_RPC_INSYNC: return check_in_sync(stored, a, m);
    default: return NULL;
    }
}

static const ProtobufCMessageDescriptor *type_of(enum lh_rpc rpc)
{
    switch (rpc) {
    case LH_RPC_JOIN: return &longhaul__v1__join_reply__descriptor;
    case LH_RPC_LEASE: return &longhaul__v1__lease_reply__descriptor;
    case LH_RPC_REPORT: return &longhaul__v1__report_reply__descriptor;
    case LH_RPC_EPOCH: return &longhaul__v1__epoch_reply__descriptor;
    case LH_RPC_INSYNC: return &longhaul__v1__in_sync_reply__descriptor;
    case LH_RPC_PUSH: return &longhaul__v1__push_reply__descriptor;
    default: return NULL;
    }
}

// Counts recalls, and answers to requests in which a worker returned leases.
static void count_recalls(struct sim *s, const struct answer *a)
{
    if (a->rpc != LH_RPC_LEASE) return;
    s->met.recalls += ((const Longhaul__V1__LeaseReply *)a->message)->n_recalled > 0;
    s->met.returns += a->to->worker && a->to->worker->returned_count > 0;
}

static void saw_push_reply(struct sim_node *server, const struct sim_node *worker,
                           const Longhaul__V1__PushReply *m)
{
    if (!m->resume && worker->kind == SIM_WORKER && m->digest.len == 16)
        sim_saw_answer(server, m->digest.data, m->admitted);
}

// True if the reply shows that the coordinator knows the worker. A join without a grant, or a reply
// about an unknown incarnation, may answer a late message of an earlier life.
static bool is_member(enum lh_rpc rpc, const ProtobufCMessage *m)
{
    if (rpc == LH_RPC_JOIN) return !((const Longhaul__V1__JoinReply *)m)->taken;
    return rpc == LH_RPC_LEASE && !((const Longhaul__V1__LeaseReply *)m)->unknown;
}

void sim_saw_message(void *arg, const struct lh_transport *from, const char *to, enum lh_rpc rpc,
                     struct lh_span head)
{
    struct sim *s = arg;
    struct sim_node *sender = node_of(s, from), *heard_by = sim_node_named(s, to);
    const ProtobufCMessageDescriptor *type = type_of(rpc);
    if (sender) sim_pair_answers(sender);
    if (!type || !sender || !heard_by) return;
    ProtobufCMessage *m = protobuf_c_message_unpack(type, NULL, head.len, head.data);
    if (!m) return;
    sim_read_store(s);
    const char *missing = NULL;
    if (sender->kind == SIM_COORDINATOR) {
        struct answer a = {s, heard_by, rpc, m};
        missing = sim_stored_held(&s->judging->stored, check, &a);
        if (rpc == LH_RPC_JOIN)
            sim_stored_answered(&s->judging->stored, (const Longhaul__V1__JoinReply *)m);
        s->met.answers++;
        if (is_member(rpc, m)) sim_saw_heard(heard_by);
        count_recalls(s, &a);
    } else if (rpc == LH_RPC_PUSH) {
        saw_push_reply(sender, heard_by, (const Longhaul__V1__PushReply *)m);
    }
    if (missing) sim_fail(s, "the coordinator answered %s %s that is not on its disk", to, missing);
    protobuf_c_message_free_unpacked(m, NULL);
}
