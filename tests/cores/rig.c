// Cores on the fake env: see rig.h.
#include "server/coordinator/commit.h"
#include "server/coordinator/owners/insync.h"
#include "tests/cores/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "tests/sim/synthetic.h"

static const char JOB[LH_JOB_BYTES + 1] = "cores by hand 01";

static void on_fatal(void *arg, lh_err err, const char *text)
{
    struct rig *r = arg;
    (void)err;
    snprintf(r->fatal_text, sizeof r->fatal_text, "%s", text);
    r->fatal_count++;
}

static void nothing(void *arg) // a crashed node: its test looks at it
{
    (void)arg;
}

static void make_node(struct rig *r, struct rig_node *n, enum lh_role role, uint32_t index)
{
    n->self = setup_peer(role, index, "cores");
    snprintf(n->dir, sizeof n->dir, "%.31s", n->self.name);
    snprintf(n->address, sizeof n->address, "mem-%.27s", n->self.name);
    n->env = lh_fake_node(r->world, nothing, NULL);
}

static void boot(struct rig *r, struct rig_node *n)
{
    lh_fake_boot(n->env);
    lh_err err = lh_transport_mem_create(r->fabric, n->env, &n->self, true, &n->transport);
    assert_int_equal(err, LH_OK);
}

static void die(struct rig_node *n, bool power)
{
    if (!n->transport) return;
    lh_fake_kill(n->env, power);
    lh_transport_mem_kill(n->transport, false);
    n->transport = NULL;
}

static void dial(struct rig_node *n, const struct rig_node *to, enum lh_role role,
                 struct lh_link **out)
{
    assert_int_equal(n->transport->ops->dial(n->transport, to->address, role, LH_LINE_FIRST, out),
                     LH_OK);
}

static void hang_up(struct lh_link **link)
{
    if (*link) (*link)->transport_ops->hangup(*link);
    *link = NULL;
}

static void make_model(struct rig *r, uint64_t values, uint32_t shards)
{
    static const char *const names[RIG_SHARDS] = {"a.weight", "b.weight"};
    const uint64_t shapes[RIG_SHARDS][5] = {{values}, {values}}; // one tensor a shard
    assert_int_equal(lh_manifest_build(&r->manifest, shards, names, shapes, shards, NULL), LH_OK);
    r->initial = calloc(r->manifest.values, sizeof *r->initial);
    assert_non_null(r->initial);
}

static void make_another(struct rig *r, uint64_t values, uint32_t shards)
{
    lh_manifest_free(&r->manifest);
    free(r->initial);
    make_model(r, values, shards);
}

void rig_enlarge(struct rig *r, uint64_t values)
{
    make_another(r, values, r->manifest.shards);
}

void rig_two_shards(struct rig *r)
{
    make_another(r, r->manifest.values, RIG_SHARDS);
}

struct rig *rig_new(uint64_t seed)
{
    struct rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->world = lh_fake_world_create(seed);
    r->fabric = lh_fabric_create();
    make_model(r, 40, 1);
    setup_units(&r->units, 8, 64, RIG_WORKERS);
    r->keys = setup_keys();
    make_node(r, &r->c, LH_C, 0);
    make_node(r, &r->s, LH_S, 0);
    make_node(r, &r->t, LH_S, 1);
    for (uint32_t i = 0; i < RIG_WORKERS; i++) {
        make_node(r, &r->w[i], LH_W, i);
        rig_boot_worker(r, i);
    }
    return r;
}

void rig_free(struct rig *r)
{
    rig_kill_coordinator(r);
    rig_kill_server(r, false);
    rig_kill_standby(r, false);
    for (uint32_t i = 0; i < RIG_WORKERS; i++) rig_kill_worker(r, i, false);
    lh_fake_world_destroy(r->world);
    lh_fabric_destroy(r->fabric);
    lh_manifest_free(&r->manifest);
    lh_units_free(&r->units);
    lh_keyring_destroy(r->keys);
    free(r->initial);
    free(r);
}

int rig_set_up(void **state)
{
    *state = rig_new(1);
    return 0;
}

int rig_tear_down(void **state)
{
    rig_free(*state);
    return 0;
}

struct setup rig_common(struct rig *r, const struct rig_node *n)
{
    return (struct setup){.env = n->env,
                          .transport = n->transport,
                          .self = &n->self,
                          .dir = n->dir,
                          .listen = n->address,
                          .coordinator = r->c.address,
                          .job = JOB,
                          .manifest = &r->manifest,
                          .units = &r->units,
                          .keys = r->keys,
                          .initial = r->initial,
                          .fatal = on_fatal,
                          .arg = r};
}

lh_err rig_try_coordinator(struct rig *r)
{
    boot(r, &r->c);
    struct setup all = rig_common(r, &r->c);
    struct ps_co_conf conf = setup_coordinator(&all, 1);
    conf.worker_timeout_ns = 600 * LH_SECOND;
    conf.tick_ns = 200 * LH_MS;
    conf.plan.staleness_per_live = 4;
    conf.epochs = r->epochs;
    conf.seed = r->order;
    conf.servers = r->servers;
    if (r->replicated) conf.take_over_ns = 1500 * LH_MS;
    return ps_coordinator_start(&conf, &r->coordinator);
}

void rig_name_servers(struct rig *r)
{
    const struct lh_peer *s = &r->s.self, *t = &r->t.self;
    snprintf(r->named, sizeof r->named, "0-%u=%s/%s+%s/%s", r->manifest.shards - 1, s->region,
             s->name, t->region, t->name);
    r->servers = r->named;
}

void rig_start_coordinator(struct rig *r)
{
    assert_int_equal(rig_try_coordinator(r), LH_OK);
}

void rig_serve(struct rig *r, int64_t ns)
{
    rig_start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    if (ns > 0) rig_run(r, ns);
}

static struct ps_conf server_conf(struct rig *r, struct rig_node *n, bool alone)
{
    static const uint32_t shard[RIG_SHARDS] = {0, 1};
    boot(r, n);
    struct setup all = rig_common(r, n);
    if (alone) all.coordinator = "";
    struct ps_conf conf = setup_server(&all, shard);
    conf.shard_count = r->manifest.shards;
    conf.segment_bytes = r->segment_bytes ? r->segment_bytes : 1 << 20;
    conf.checkpoint_every = 5;
    conf.digest_every = 0; // only the test adds versions
    conf.report_ns = 500 * LH_MS;
    conf.mark_ns = 100 * LH_MS;
    conf.grace_ns = LH_SECOND;
    conf.folded = r->folded;
    conf.folded_arg = r;
    conf.below_stable = r->below_stable;
    conf.voices = r->voices;
    conf.replicated = r->replicated;
    conf.wait_ns = LH_SECOND;
    conf.unsealed_states = r->unsealed;
    conf.rebuild_damaged = r->rebuild_damaged;
    if (r->replicated) conf.report_ns = 200 * LH_MS;
    if (r->crash_at) lh_fake_crash_at(n->env, r->crash_at - 1, true);
    r->crash_at = 0;
    return conf;
}

lh_err rig_start_server(struct rig *r, bool alone)
{
    struct ps_conf conf = server_conf(r, &r->s, alone);
    conf.standby = r->stands_by;
    return ps_server_start(&conf, &r->server);
}

void rig_boot_server(struct rig *r)
{
    boot(r, &r->s);
}

void rig_boot_standby(struct rig *r)
{
    boot(r, &r->t);
    dial(&r->t, &r->s, LH_S, &r->t_to_s);
    dial(&r->t, &r->c, LH_C, &r->t_to_c);
}

lh_err rig_start_standby(struct rig *r)
{
    struct ps_conf conf = server_conf(r, &r->t, false);
    conf.standby = true;
    return ps_server_start(&conf, &r->standby);
}

void rig_begin_in_sync(struct rig *r)
{
    r->replicated = true;
    rig_serve(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    for (uint64_t i = 1; i <= 6; i++) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
    assert_true(r->coordinator->shard[0].standby != 0);
}

void rig_settle(struct rig *r)
{
    for (int i = 0; i < 100000 && !ps_co_settled(r->coordinator); i++) rig_run(r, LH_MS);
    assert_true(ps_co_settled(r->coordinator));
}

void rig_kill_coordinator(struct rig *r)
{
    die(&r->c, false);
    ps_coordinator_stop(r->coordinator);
    r->coordinator = NULL;
}

void rig_kill_server(struct rig *r, bool power)
{
    die(&r->s, power);
    ps_server_stop(r->server);
    r->server = NULL;
}

void rig_kill_standby(struct rig *r, bool power)
{
    hang_up(&r->t_to_s);
    hang_up(&r->t_to_c);
    die(&r->t, power);
    ps_server_stop(r->standby);
    r->standby = NULL;
}

void rig_boot_worker(struct rig *r, uint32_t w)
{
    struct rig_node *n = &r->w[w];
    boot(r, n);
    dial(n, &r->c, LH_C, &r->to_c[w]);
    dial(n, &r->s, LH_S, &r->to_s[w]);
}

void rig_kill_worker(struct rig *r, uint32_t w, bool power)
{
    hang_up(&r->to_c[w]);
    hang_up(&r->to_s[w]);
    die(&r->w[w], power);
}

void rig_dial_standby(struct rig *r, uint32_t w)
{
    hang_up(&r->to_s[w]);
    dial(&r->w[w], &r->t, LH_S, &r->to_s[w]);
}

void rig_run(struct rig *r, int64_t ns)
{
    lh_fake_run(r->world, lh_fake_now(r->world) + ns);
}

// ---------------------------------------------------------------- requests

struct asking {
    const ProtobufCMessageDescriptor *type;
    ProtobufCMessage *answer;
    bool over;
    lh_err err;
};

static void answered(void *self, lh_err err, const ProtobufCMessage *m)
{
    struct asking *a = self;
    a->over = true;
    a->err = err;
    if (err) return;
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    assert_non_null(bytes);
    protobuf_c_message_pack(m, bytes);
    a->answer = protobuf_c_message_unpack(a->type, NULL, n, bytes);
    free(bytes);
    assert_non_null(a->answer);
}

static const ProtobufCMessageDescriptor *const reply_to[] = {
    [LH_RPC_JOIN] = &longhaul__v1__join_reply__descriptor,
    [LH_RPC_LEASE] = &longhaul__v1__lease_reply__descriptor,
    [LH_RPC_STATUS] = &longhaul__v1__status_reply__descriptor,
    [LH_RPC_REPORT] = &longhaul__v1__report_reply__descriptor,
    [LH_RPC_EPOCH] = &longhaul__v1__epoch_reply__descriptor,
    [LH_RPC_INSYNC] = &longhaul__v1__in_sync_reply__descriptor,
    [LH_RPC_HELLO] = &longhaul__v1__hello_reply__descriptor,
    [LH_RPC_OFFER] = &longhaul__v1__offer_reply__descriptor,
    [LH_RPC_CONFIRM] = &longhaul__v1__confirm_reply__descriptor,
};

static lh_err await(struct rig *r, const struct asking *a)
{
    for (int i = 0; i < 600 && !a->over; i++) rig_run(r, 10 * LH_MS);
    assert_true(a->over);
    return a->err;
}

lh_err rig_ask(struct rig *r, struct lh_link *link, enum lh_rpc rpc, const ProtobufCMessage *m,
               ProtobufCMessage **answer)
{
    assert_true(rpc < LH_COUNT(reply_to) && reply_to[rpc]);
    struct asking a = {.type = reply_to[rpc]};
    *answer = NULL;
    LH_TRY(pb_ask(link, rpc, 5 * LH_SECOND, m, a.type, answered, &a));
    lh_err err = await(r, &a);
    *answer = a.answer;
    return err;
}

void rig_free_message(void *message)
{
    if (message) protobuf_c_message_free_unpacked(message, NULL);
}

lh_err rig_say(struct rig *r, struct lh_link *link, enum lh_rpc rpc, const ProtobufCMessage *m)
{
    ProtobufCMessage *answer;
    lh_err err = rig_ask(r, link, rpc, m, &answer);
    rig_free_message(answer);
    return err;
}

Longhaul__V1__LeaseRequest rig_lease_request(struct rig *r, uint32_t w)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    m.worker = lh_worker_id(&r->w[w].self);
    m.incarnation = UINT64_C(1) << 32;
    return m;
}

void rig_join_request(struct rig *r, uint64_t attempt, Longhaul__V1__Wire *wire,
                      Longhaul__V1__JoinRequest *out)
{
    *out = (Longhaul__V1__JoinRequest)LONGHAUL__V1__JOIN_REQUEST__INIT;
    *wire = lh_head_wire();
    out->wire = wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &out->job, &out->manifest);
    out->units = (ProtobufCBinaryData){LH_HASH_BYTES, r->units.hash.b};
    out->fresh = true;
    out->attempt = attempt;
    out->epochs = r->epochs ? r->epochs : 1;
}

Longhaul__V1__JoinReply rig_join(struct rig *r, uint32_t w, uint64_t attempt, uint32_t over)
{
    Longhaul__V1__JoinRequest m;
    Longhaul__V1__Wire wire;
    ProtobufCMessage *answer;
    rig_join_request(r, attempt, &wire, &m);
    m.over = over;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_JOIN, &m.base, &answer), LH_OK);
    Longhaul__V1__JoinReply out = *(Longhaul__V1__JoinReply *)answer;
    rig_free_message(answer);
    return out; // only its numbers are valid
}

static void start_hello(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next,
                        pb_done_fn done, void *arg)
{
    Longhaul__V1__HelloRequest m = LONGHAUL__V1__HELLO_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.shard = r->shard;
    m.worker = lh_worker_id(&r->w[w].self);
    m.incarnation = number;
    m.incarnation_random = number + 7;
    m.decided = decided;
    m.next = next;
    assert_int_equal(pb_ask(r->to_s[w], LH_RPC_HELLO, 5 * LH_SECOND, &m.base,
                            &longhaul__v1__hello_reply__descriptor, done, arg),
                     LH_OK);
}

static void unheard(void *self, lh_err err, const ProtobufCMessage *m)
{
    (void)self;
    (void)err;
    (void)m;
}

void rig_greet(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next)
{
    start_hello(r, w, number, decided, next, unheard, NULL);
}

static lh_err hello(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next,
                    bool *session)
{
    struct asking a = {.type = &longhaul__v1__hello_reply__descriptor};
    start_hello(r, w, number, decided, next, answered, &a);
    lh_err err = await(r, &a);
    *session = a.answer && ((Longhaul__V1__HelloReply *)a.answer)->session;
    rig_free_message(a.answer);
    return err;
}

void rig_hello(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next)
{
    bool session;
    assert_int_equal(hello(r, w, number, decided, next, &session), LH_OK);
    assert_true(session);
}

lh_err rig_fence(struct rig *r, uint32_t w, uint64_t number)
{
    bool session;
    return hello(r, w, number, 0, 1, &session);
}

void rig_log(struct rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t v = from; v <= to; v++) rig_hello(r, 0, v << 32, 0, 1);
    assert_int_equal(r->server->shard[r->shard]->replica.ledger.version, to);
}

uint64_t rig_fenced(const struct rig *r, const struct ps_server *s, uint32_t shard)
{
    const struct lh_ledger *l = &s->shard[shard]->replica.ledger;
    const struct lh_row *row = lh_ledger_row(l, lh_worker_id(&r->w[0].self));
    return row ? row->incarnation.number >> 32 : 0;
}

// ---------------------------------------------------------------- calls by hand

void rig_on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)self;
    (void)msg;
    lh_call_read(call);
}

void rig_on_nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

void rig_on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct rig_call *c = self;
    (void)call;
    c->over = true;
    c->status = status;
    snprintf(c->text, sizeof c->text, "%s", text ? text : "");
}

void rig_on_gone(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)self;
    (void)call;
    (void)status;
    (void)text;
}

const struct lh_call_ops rig_call_ops = {rig_on_message, rig_on_nothing, rig_on_nothing,
                                         rig_on_close};

void rig_call_open(struct rig *r, uint32_t w, enum lh_rpc rpc, const struct lh_call_ops *ops,
                   struct rig_call *c)
{
    *c = (struct rig_call){0};
    assert_int_equal(lh_call_open(r->to_s[w], rpc, 0, ops, c, &c->call), LH_OK);
}

void rig_call_wait(struct rig *r, const struct rig_call *c)
{
    for (int i = 0; i < 600 && !c->over; i++) rig_run(r, 10 * LH_MS);
    assert_true(c->over);
}

// ---------------------------------------------------------------- a worker's core

struct lh_log *rig_log_lines(struct rig *r)
{
    struct lh_log *log;
    assert_int_equal(lh_log_open(&log, r->t.env, "rig", LH_INFO, false, "log"), LH_OK);
    return log;
}

unsigned rig_said(struct rig *r, const char *event)
{
    struct lh_buf text = lh_buf(1 << 20);
    unsigned n = 0;
    assert_int_equal(lh_file_load(r->t.env, "log", &text), LH_OK);
    lh_put_u8(&text, 0);
    for (const char *at = (const char *)text.data; (at = strstr(at, event)); at++) n++;
    lh_buf_free(&text);
    return n;
}

static void on_worker_fatal(void *arg, lh_err err, const char *text)
{
    (void)arg;
    if (err == LH_ERR_KILLED) return; // lh_fake_crash_at() killed it
    fail_msg("the worker ends with %s: %s", lh_err_name(err), text);
}

struct wk_conf rig_life_conf(struct rig *r, struct rig_life *l, uint64_t step_ms)
{
    const struct rig_node *n = &r->w[1];
    struct setup all = rig_common(r, n);
    all.listen = "";
    all.fatal = on_worker_fatal;
    l->trainer = sim_trainer_new(n->env, r->manifest.values, step_ms);
    struct wk_conf conf = setup_worker(&all, l->trainer);
    conf.lease_ns = 500 * LH_MS;
    conf.retry_base_ns = 100 * LH_MS;
    conf.retry_max_ns = conf.reconnect_max_ns = LH_SECOND;
    conf.deadline_ns = 3 * LH_SECOND;
    return conf;
}

void rig_life_start(struct rig_life *l, const struct wk_conf *conf)
{
    assert_int_equal(wk_worker_start(conf, &l->worker), LH_OK);
}

void rig_life_end(struct rig *r, struct rig_life *l, bool power)
{
    struct ps_coordinator *c = NULL;
    struct ps_server *s = NULL;
    rig_kill_worker(r, 1, power);
    setup_stop(&c, &s, &l->worker, &l->trainer);
}

bool rig_serves(struct rig *r, uint64_t identity, uint64_t server, bool lost)
{
    const struct lh_shard_report report = {.has_head = true};
    const struct lh_report_request m = {.address = "",
                                        .n_shards = 1,
                                        .shards = &report,
                                        .standby = identity,
                                        .standing = true,
                                        .lost = lost};
    bool out;
    assert_int_equal(ps_co_turns(r->coordinator, &m, server, &out), LH_OK);
    return out;
}
