// Liars: partners of the run with all that a partner holds, and who lie.
//
// A lying worker has a worker's certificate and the job key. It invents pushes, claims, tokens,
// steps, norms, bases and speeds, and repeats frames. It says that it holds, began and trained
// units that it never saw. It never drains, or drains and ends with an invented state. A lying
// server has a server's certificate, and no shard. It reports, opens epochs and names standbys for
// all shards, and follows and confirms in standbys' names. A flooding worker sends cheap messages
// without end, and does not read the answers.
//
// Each is present in a third of the seeds: at most two of six workers lie, and the server has no
// right to a shard. They have no node in `sim`, because only their effect on the others counts.
// They lie until the run ends, beside every fault, and their calls meet the same network.
//
// A lying worker offers states that it does not have to servers without their disk. It says that it
// has copies at the log's head, and invents the proofs. It does not bring such a state.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/sim/liars.h"

enum { CALLS_MAX = 64 };
static const int64_t DEADLINE = 3 * LH_SECOND;

// Returns a number that arithmetic mistakes are sensitive to.
uint64_t sim_liar_number(struct sim_liar *l, uint64_t near)
{
    switch (sim_liar_draw(l, 8)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return near + 1;
    case 3: return near ? near - 1 : 0;
    case 4: return UINT64_MAX;
    case 5: return UINT64_C(1) << 40;
    case 6: return near + (UINT64_C(1) << 20);
    default: return near;
    }
}

bool sim_is_liar(const struct sim *s, uint64_t worker)
{
    for (int i = 0; i < SIM_LIARS; i++)
        if (s->liar[i] && s->liar[i]->id == worker) return true;
    return false;
}

bool sim_liar_has(const struct sim *s, uint64_t worker, uint64_t unit)
{
    for (int i = 0; i < SIM_LIARS; i++)
        if (s->liar[i] && s->liar[i]->id == worker && s->liar[i]->granted[unit % SIM_UNITS])
            return true;
    return false;
}

// ---------------------------------------------------------------- calls

struct lh_link *sim_liar_link(struct sim_liar *l, const struct sim_node *n)
{
    struct lh_link **link = &l->link[n - l->sim->node];
    enum lh_role role = n->kind == SIM_COORDINATOR ? LH_C : LH_S;
    const char *address = role == LH_C ? sim_coordinator_address(l->sim) : n->address;
    if (!*link &&
        l->transport->ops->dial(l->transport, address, role, LH_LINE_FIRST, link) != LH_OK)
        *link = NULL;
    return *link;
}

struct lh_link *sim_liar_to_shard(struct sim_liar *l, uint32_t shard)
{
    return sim_liar_link(l, sim_owner(l->sim, shard));
}

struct said { // a call in progress
    struct sim_liar *liar;
    enum lh_rpc rpc;
    uint32_t shard;
    uint64_t process;
    struct lh_call *call;
};

static void took_join(struct sim_liar *l, const Longhaul__V1__JoinReply *m)
{
    l->joined = true;
    l->incarnation = (uint64_t)m->granted << 32 | 1;
    for (uint32_t k = 0; k < l->sim->shards; k++) l->shard[k].greeted = false;
}

static void took_lease(struct sim_liar *l, const Longhaul__V1__LeaseReply *m)
{
    struct lh_cursor c = lh_cursor(lh_span(m->grants.data, m->grants.len));
    if (m->unknown) l->joined = false;
    while (lh_left(&c) && !c.failed) {
        struct lh_grant grant;
        uint64_t unit = lh_claim_read(&c, &grant);
        if (c.failed || unit >= SIM_UNITS) break;
        l->grant[unit] = grant;
        l->granted[unit] = true;
    }
    for (size_t i = 0; i < m->n_challenges; i++) {
        const Longhaul__V1__Challenge *asked = m->challenges[i];
        if (asked->shard < SIM_SHARDS_MAX && asked->challenge.len == LH_HASH_BYTES)
            memcpy(l->challenge[asked->shard], asked->challenge.data, LH_HASH_BYTES);
    }
    l->holds = 0;
    for (size_t i = 0; i < m->n_units && l->holds < SIM_UNITS; i++)
        l->held[l->holds++] = m->units[i];
    l->phase = m->phase;
    l->allowance = m->allowance;
    for (size_t k = 0; k < m->n_allowance_tags && k < SIM_SHARDS_MAX; k++)
        l->tag[k] = m->allowance_tags[k];
}

static void took_hello(struct sim_liar_shard *s, const Longhaul__V1__HelloReply *m,
                       uint64_t incarnation)
{
    s->greeted = m->session;
    s->process = m->process;
    s->epoch = m->epoch;
    s->version = m->version;
    s->step = m->last_incarnation == incarnation ? m->last_step : 0;
}

static void heard(void *self, lh_err err, const ProtobufCMessage *m)
{
    struct said *said = self;
    struct sim_liar *l = said->liar;
    l->calls--;
    sim_trace(l->sim, "%s hears of %s: %s", l->self.name, lh_rpc_path(said->rpc),
              err ? lh_err_text(err) : "ok");
    if (!err && said->rpc == LH_RPC_JOIN) took_join(l, (const Longhaul__V1__JoinReply *)m);
    if (!err && said->rpc == LH_RPC_LEASE) took_lease(l, (const Longhaul__V1__LeaseReply *)m);
    if (!err && said->rpc == LH_RPC_HELLO)
        took_hello(&l->shard[said->shard], (const Longhaul__V1__HelloReply *)m, l->incarnation);
    free(said);
}

static struct said *new_call(struct sim_liar *l, enum lh_rpc rpc, uint32_t shard)
{
    struct said *said = l->calls < CALLS_MAX ? calloc(1, sizeof *said) : NULL;
    if (!said) return NULL;
    *said = (struct said){.liar = l, .rpc = rpc, .shard = shard};
    l->calls++;
    return said;
}

void sim_liar_ask(struct sim_liar *l, struct lh_link *link, enum lh_rpc rpc, uint32_t shard,
                  const ProtobufCMessage *m, const ProtobufCMessageDescriptor *answer)
{
    struct said *said = link ? new_call(l, rpc, shard) : NULL;
    if (!said) return;
    if (pb_ask(link, rpc, DEADLINE, m, answer, heard, said) == LH_OK) return;
    l->calls--;
    free(said);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct said *said = self;
    ProtobufCMessage *m;
    if (said->rpc != LH_RPC_PUSH) return; // it reads no more answers
    if (pb_parse(msg, &longhaul__v1__push_reply__descriptor, &m) != LH_OK) return;
    const Longhaul__V1__PushReply *decided = (Longhaul__V1__PushReply *)m;
    struct sim_liar_shard *at = &said->liar->shard[said->shard];
    if (!decided->resume && decided->step > at->step) at->step = decided->step;
    if (decided->version > at->version) at->version = decided->version;
    protobuf_c_message_free_unpacked(m, NULL);
    lh_call_read(call);
}

static void on_nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_sent(void *self, struct lh_call *call)
{
    if (((struct said *)self)->rpc == LH_RPC_PUSH) lh_call_finish(call, LH_OK, NULL);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct said *said = self;
    (void)call;
    (void)text;
    if (status == LH_ERR_NEED_HELLO) said->liar->shard[said->shard].greeted = false;
    said->liar->calls--;
    free(said);
}

static const struct lh_call_ops call_ops = {on_message, on_nothing, on_sent, on_close};

struct lh_call *sim_liar_open(struct sim_liar *l, struct lh_link *link, enum lh_rpc rpc,
                              uint32_t shard)
{
    struct said *said = link ? new_call(l, rpc, shard) : NULL;
    if (!said) return NULL;
    if (lh_call_open(link, rpc, DEADLINE, &call_ops, said, &said->call) == LH_OK) {
        lh_call_read(said->call);
        return said->call;
    }
    l->calls--;
    free(said);
    return NULL;
}

// ---------------------------------------------------------------- the three

static const struct {
    enum sim_fault fault;
    enum lh_role role;
    const char *name;
    uint64_t every_ms; // mean interval
    void (*lie)(struct sim_liar *l);
} kinds[SIM_LIARS] = {
    {SIM_FAULT_liar, LH_W, "liar", 60, sim_lie_as_worker},
    {SIM_FAULT_impostor, LH_S, "impostor", 150, sim_lie_as_server},
    {SIM_FAULT_flood, LH_W, "flooder", 15, sim_flood},
};

static void turn(void *arg)
{
    struct sim_liar *l = arg;
    for (int i = 0; i < SIM_LIARS; i++) {
        if (kinds[i].fault != l->fault) continue;
        kinds[i].lie(l);
        lh_fake_at(l->sim->world, (int64_t)(1 + sim_liar_draw(l, 2 * kinds[i].every_ms)) * LH_MS,
                   turn, l);
    }
}

static void never(void *arg)
{
    (void)arg;
}

static struct sim_liar *begin(struct sim *s, int kind)
{
    struct sim_liar *l = calloc(1, sizeof *l);
    LH_ASSERT(l);
    l->sim = s;
    l->fault = kinds[kind].fault;
    l->self = setup_peer(kinds[kind].role, 0, "sim");
    snprintf(l->self.name, sizeof l->self.name, "%s", kinds[kind].name);
    snprintf(l->self.region, sizeof l->self.region, "%s", "oceania"); // no unit's home
    l->id = lh_worker_id(&l->self);
    l->random = sim_liar_draw(l, UINT64_MAX);
    l->drains = sim_liar_one_in(l, 3);
    l->env = lh_fake_node(s->world, never, l);
    lh_fake_boot(l->env);
    lh_err err = lh_transport_mem_create(s->fabric, l->env, &l->self, true, &l->transport);
    LH_ASSERT(!err);
    lh_fake_at(s->world, (int64_t)sim_liar_draw(l, 1000) * LH_MS, turn, l);
    s->met.happened[l->fault]++;
    sim_trace(s, "%s is there", l->self.name);
    return l;
}

void sim_liars_start(struct sim *s)
{
    const bool on[SIM_LIARS] = {s->conf.faults.liar, s->conf.faults.impostor, s->conf.faults.flood};
    for (int i = 0; i < SIM_LIARS; i++)
        if (on[i] && sim_draw(s, kinds[i].fault, 3) == 0) s->liar[i] = begin(s, i);
    bool some = false;
    for (int i = 0; i < SIM_LIARS; i++) some |= s->liar[i] != NULL;
    s->met.lied += some;
}

void sim_liars_end(struct sim *s)
{
    for (int i = 0; i < SIM_LIARS; i++) {
        struct sim_liar *l = s->liar[i];
        if (!l) continue;
        for (int k = 0; k < SIM_NODES_MAX; k++)
            if (l->link[k]) l->transport->ops->hangup(l->link[k]);
        lh_fake_kill(l->env, false);
        lh_transport_mem_kill(l->transport, false);
        LH_ASSERT(!l->calls);
        for (uint32_t k = 0; k < SIM_SHARDS_MAX; k++) lh_blob_release(l->shard[k].frame);
        free(l);
        s->liar[i] = NULL;
    }
}

// If a server may lie, the operator names the servers of each shard
// (server/docs/0004-authority.md#identity-before-role).
const char *sim_liars_servers(struct sim *s)
{
    struct lh_buf b = lh_buf_over(s->servers, sizeof s->servers - 1);
    if (!s->conf.faults.impostor) return NULL;
    for (uint32_t k = 0; k < s->shards; k++) {
        bool first = true;
        for (uint32_t i = 0; i < s->nodes; i++) {
            const struct sim_node *n = &s->node[i];
            char word[160];
            if (!sim_has(n, k)) continue;
            if (first)
                snprintf(word, sizeof word, "%s%u=%s/%s", k ? "," : "", k, n->self.region, n->name);
            else
                snprintf(word, sizeof word, "+%s/%s", n->self.region, n->name);
            lh_put(&b, word, strlen(word));
            first = false;
        }
    }
    LH_ASSERT(!lh_buf_err(&b));
    s->servers[b.len] = 0;
    return s->servers;
}
