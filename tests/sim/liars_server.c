// A lying server, with no shard of its own. See liars.c.
#include <string.h>

#include "tests/head.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/sim/liars.h"

static struct lh_point invented(struct sim_liar *l, uint32_t shard)
{
    const struct sim_log *log = sim_log_of(l->sim, shard);
    struct lh_point p = {
        sim_liar_number(l, log->epoch), sim_liar_number(l, log->acknowledged), {{0}}};
    for (size_t i = 0; i < sizeof p.chain.b; i++) p.chain.b[i] = (uint8_t)sim_liar_draw(l, 256);
    return p;
}

// Returns the identity of a server's directory, or an invented one.
static uint64_t directory(struct sim_liar *l)
{
    uint64_t known = l->sim->judging->identity[sim_liar_draw(l, l->sim->nodes)];
    return sim_liar_one_in(l, 3) ? sim_liar_draw(l, UINT64_MAX) : known;
}

static void report(struct sim_liar *l)
{
    Longhaul__V1__ReportRequest m = LONGHAUL__V1__REPORT_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    Longhaul__V1__ShardReport row = LONGHAUL__V1__SHARD_REPORT__INIT, *rows[] = {&row};
    uint32_t shard = (uint32_t)sim_liar_draw(l, l->sim->shards);
    struct lh_point p = invented(l, shard);
    Longhaul__V1__Point head = lh_head_point(shard, p.epoch, p.version, &p.chain);
    uint8_t all[SIM_UNITS / 8];
    memset(all, 0xff, sizeof all);
    m.wire = &wire;
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.address = (char *)(uintptr_t) "mem-nobody";
    m.process = 1 + sim_liar_draw(l, UINT64_MAX - 1);
    m.n_shards = 1;
    m.shards = rows;
    row.head = &head;
    row.tokens = sim_liar_number(l, SIM_UNITS * SIM_UNIT_TOKENS);
    row.credited = (ProtobufCBinaryData){sizeof all, all};
    row.plan = sim_liar_number(l, 5);
    row.phase = (uint32_t)sim_liar_draw(l, 6);
    row.moving = sim_liar_one_in(l, 4) ? sim_liar_number(l, p.epoch) : 0;
    row.begun = sim_liar_number(l, p.epoch);
    row.in_sync = sim_liar_one_in(l, 2) ? directory(l) : 0;
    row.changes = sim_liar_number(l, 3);
    m.standing = sim_liar_one_in(l, 2);
    m.standby = m.standing || sim_liar_one_in(l, 2) ? directory(l) : 0;
    m.number = sim_liar_number(l, 1000);
    m.gives = sim_liar_one_in(l, 2);
    sim_liar_ask(l, sim_liar_link(l, &l->sim->node[0]), LH_RPC_REPORT, shard, &m.base,
                 &longhaul__v1__report_reply__descriptor);
}

static void open_epoch(struct sim_liar *l)
{
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    uint32_t shard = (uint32_t)sim_liar_draw(l, l->sim->shards);
    struct lh_point p = invented(l, shard);
    Longhaul__V1__Point open = lh_head_point(shard, p.epoch + 1, p.version, &p.chain);
    m.wire = &wire;
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.address = (char *)(uintptr_t) "mem-nobody";
    m.shard = shard;
    if (!sim_liar_one_in(l, 4)) m.open = &open;
    m.expect = p.epoch;
    m.token = sim_liar_draw(l, UINT64_MAX);
    m.below_stable = sim_liar_one_in(l, 2);
    m.rewound = sim_liar_one_in(l, 2);
    m.starts = sim_liar_one_in(l, 2);
    m.standby = sim_liar_one_in(l, 2) ? directory(l) : 0;
    m.from = sim_liar_one_in(l, 4) ? directory(l) : 0;
    m.ticket = sim_liar_draw(l, 4);
    sim_liar_ask(l, sim_liar_link(l, &l->sim->node[0]), LH_RPC_EPOCH, shard, &m.base,
                 &longhaul__v1__epoch_reply__descriptor);
}

static void change_standby(struct sim_liar *l)
{
    Longhaul__V1__InSyncRequest m = LONGHAUL__V1__IN_SYNC_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    uint32_t shard = (uint32_t)sim_liar_draw(l, l->sim->shards);
    struct lh_point p = invented(l, shard);
    Longhaul__V1__Point head = lh_head_point(shard, p.epoch, p.version, &p.chain);
    m.wire = &wire;
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.shard = shard;
    m.epoch = p.epoch;
    m.standby = sim_liar_one_in(l, 2) ? directory(l) : 0;
    m.expect = sim_liar_draw(l, 6);
    m.owner = sim_liar_one_in(l, 2) ? directory(l) : 0;
    m.head = m.checked = &head;
    m.process = sim_liar_draw(l, UINT64_MAX);
    sim_liar_ask(l, sim_liar_link(l, &l->sim->node[0]), LH_RPC_INSYNC, shard, &m.base,
                 &longhaul__v1__in_sync_reply__descriptor);
}

static void confirm(struct sim_liar *l, uint32_t shard)
{
    Longhaul__V1__ConfirmRequest m = LONGHAUL__V1__CONFIRM_REQUEST__INIT;
    struct lh_point p = invented(l, shard);
    Longhaul__V1__Point have = lh_head_point(shard, p.epoch, p.version, &p.chain);
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.standby = directory(l);
    m.have = &have;
    sim_liar_ask(l, sim_liar_to_shard(l, shard), LH_RPC_CONFIRM, shard, &m.base,
                 &longhaul__v1__confirm_reply__descriptor);
}

static void follow_as_standby(struct sim_liar *l, uint32_t shard)
{
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    struct lh_point p = invented(l, shard);
    Longhaul__V1__Point from = lh_head_point(shard, p.epoch, p.version, &p.chain);
    struct lh_call *call = sim_liar_open(l, sim_liar_to_shard(l, shard), LH_RPC_FOLLOW, shard);
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.from = &from;
    m.standby = directory(l);
    if (call && pb_send(call, &m.base)) lh_call_cancel(call);
}

static void ask_as_standby(struct sim_liar *l, uint32_t shard)
{
    Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
    struct lh_point p = invented(l, shard);
    Longhaul__V1__Point have = lh_head_point(shard, p.epoch, p.version, &p.chain);
    struct lh_call *call = sim_liar_open(l, sim_liar_to_shard(l, shard), LH_RPC_SNAPSHOT, shard);
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.shard = shard;
    m.standby = sim_liar_one_in(l, 2) ? directory(l) : 0;
    m.asker = directory(l);
    m.have = &have;
    if (call && pb_send(call, &m.base)) lh_call_cancel(call);
}

void sim_lie_as_server(struct sim_liar *l)
{
    uint32_t shard = (uint32_t)sim_liar_draw(l, l->sim->shards);
    switch (sim_liar_draw(l, 6)) {
    case 0: open_epoch(l); break;
    case 1: change_standby(l); break;
    case 2: confirm(l, shard); break;
    case 3: follow_as_standby(l, shard); break;
    case 4: ask_as_standby(l, shard); break;
    default: report(l); break;
    }
}
