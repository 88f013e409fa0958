// The coordinator: start, door, servers' reports, status. See coordinator.h.
#include "server/coordinator/coordinator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/frame.h"
#include "common/format/manifest.h"
#include "common/net/head.h"
#include "common/format/json.h"
#include "longhaul/v1/health.pb-c.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/answer.h"

enum { COPIES_ASKED = 256 }; // about: workers' copies that one answer asks the server for

static const int64_t LISTEN_MIN = 10 * LH_MS;

// Who reads its rows at a start, and again after a commit that failed, in this order: leases and
// what is said of members go by the members' places.
static ps_co_load_fn *const LOADS[] = {
    ps_co_load_members,
    ps_co_load_leases,
    ps_co_load_drains,
    ps_co_load_trips,
    ps_co_load_points,
    ps_co_load_epochs,
    ps_co_load_insync,
    ps_co_load_moves,
    ps_co_load_plan,
    ps_co_load_status,
    NULL,
};

static void on_timer(void *arg)
{
    struct ps_coordinator *c = arg;
    c->timer = 0;
    if (c->stopped) return;
    ps_co_tick(c);
    if (!c->stopped) c->timer = lh_after(c->conf.env, c->conf.tick_ns, on_timer, c);
}

// ---------------------------------------------------------------- who is heard

static void listen(void *arg)
{
    struct ps_coordinator *c = arg;
    (void)ps_co_now(c);
    c->listen_timer = lh_after(c->conf.env, c->listen_ns, listen, c);
}

// A gap counts as heard through where it is a small part of what anybody is given up after.
static void start_listening(struct ps_coordinator *c)
{
    const struct ps_co_conf *conf = &c->conf;
    int64_t least = conf->worker_timeout_ns;
    if (conf->take_over_ns && conf->take_over_ns < least) least = conf->take_over_ns;
    c->listen_ns = least / 8 < conf->tick_ns ? least / 8 : conf->tick_ns;
    if (c->listen_ns < LISTEN_MIN) c->listen_ns = LISTEN_MIN;
    lh_listener_start(&c->listener, lh_now(conf->env), 2 * c->listen_ns, ps_co_rest(c));
    c->listen_timer = lh_after(conf->env, c->listen_ns, listen, c);
    for (uint32_t i = 0; i < conf->manifest->shards; i++) // not silent yet: nobody was heard of
        c->shard[i].heard_ns = ps_co_now(c);
}

// ---------------------------------------------------------------- start and end

// From here on there is one that is durable.
static lh_err make_first_status(struct ps_coordinator *c)
{
    struct lh_buf json = lh_buf(PS_CO_STATUS_BYTES);
    lh_err err = ps_coordinator_durable_status(c, &json);
    lh_buf_free(&json);
    return err;
}

lh_err ps_coordinator_start(const struct ps_co_conf *conf, struct ps_coordinator **out)
{
    struct ps_coordinator *c = calloc(1, sizeof *c);
    if (!c) return LH_ERR_NO_MEMORY;
    c->conf = *conf;
    c->lease = calloc(conf->units->count + 1, sizeof *c->lease);
    c->leased_s = calloc(conf->units->count + 1, sizeof *c->leased_s);
    c->begun = calloc(conf->units->count + 1, sizeof *c->begun);
    c->wanted_by = calloc(conf->units->count + 1, sizeof *c->wanted_by);
    c->shard = calloc(conf->manifest->shards, sizeof *c->shard);
    lh_err err = LH_ERR_NO_MEMORY;
    if (!c->lease || !c->leased_s || !c->begun || !c->wanted_by || !c->shard) goto fail;
    LH_TRY_TO(fail, err, conf->env->ops->files->make_dir(conf->env, conf->dir));
    LH_TRY_TO(fail, err, ps_store_open(conf->env, conf->dir, &c->store));
    c->status.durable = c->status.made = lh_buf(PS_CO_STATUS_BYTES);
    LH_TRY_TO(fail, err, ps_co_commit_open(c, LOADS));
    start_listening(c);
    LH_TRY_TO(fail, err, ps_co_load(c));
    c->service = (struct lh_service){c, ps_coordinator_on_call};
    if (conf->listen[0])
        LH_TRY_TO(fail, err,
                  conf->transport->ops->listen(conf->transport, conf->listen, &c->service,
                                               c->address, sizeof c->address));
    LH_TRY_TO(fail, err, make_first_status(c));
    c->timer = lh_after(conf->env, conf->tick_ns, on_timer, c);
    *out = c;
    return LH_OK;
fail:
    ps_coordinator_stop(c);
    return err;
}

void ps_coordinator_close(struct ps_coordinator *c)
{
    c->stopped = true;
    lh_cancel(c->conf.env, &c->timer);
    lh_cancel(c->conf.env, &c->listen_timer);
    if (c->commit) ps_co_commit_close(c);
}

void ps_coordinator_stop(struct ps_coordinator *c)
{
    if (!c) return;
    ps_coordinator_close(c);
    ps_co_commit_free(c);
    lh_buf_free(&c->status.durable);
    lh_buf_free(&c->status.made);
    ps_store_close(c->store);
    for (uint32_t i = 0; i < c->workers; i++) {
        free(c->worker[i].final);
        ps_co_forget_copies(&c->worker[i]);
    }
    for (uint32_t i = 0; c->shard && i < c->conf.manifest->shards; i++) {
        free(c->shard[i].credit);
        free(c->shard[i].begun);
    }
    free(c->shard);
    free(c->lease);
    free(c->leased_s);
    free(c->begun);
    free(c->wanted_by);
    free(c);
}

// ---------------------------------------------------------------- points and credit

static const char POINTS[] = "stable/";

lh_err ps_co_store_point(struct ps_coordinator *c, uint32_t shard)
{
    const struct lh_point *p = &c->shard[shard].stable;
    struct lh_buf b = lh_buf(64);
    lh_put_u64(&b, p->epoch);
    lh_put_u64(&b, p->version);
    lh_put(&b, p->chain.b, LH_HASH_BYTES);
    return ps_co_put_row(c, POINTS, shard, &b);
}

static lh_err read_point(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->stable = (struct lh_point){0};
    if (!at) return LH_OK;
    s->stable.epoch = lh_get_u64(at);
    s->stable.version = lh_get_u64(at);
    lh_get_into(at, s->stable.chain.b, LH_HASH_BYTES);
    return LH_OK;
}

lh_err ps_co_load_points(struct ps_coordinator *c)
{
    return ps_co_load_rows(c, POINTS, read_point);
}

// ---------------------------------------------------------------- servers' reports

// The shard's own word replaces what was known: also when an epoch lost credited units (rule 20).
static lh_err take_shard(struct ps_coordinator *c, const Longhaul__V1__ReportRequest *m,
                         const Longhaul__V1__ShardReport *r, uint64_t server)
{
    if (!r->head || r->head->shard >= c->conf.manifest->shards ||
        r->credited.len > LH_UNITS_MAX / 8)
        return lh_fail(LH_ERR_MALFORMED, "a report of a shard that does not exist");
    struct ps_co_shard *s = &c->shard[r->head->shard];
    struct lh_point head = lh_point_of(r->head);
    LH_TRY(ps_co_heard_owner(c, r->head->shard, m->standby, server, m->process, &head));
    LH_TRY(ps_co_believe_owner(c, r->head->shard, r->in_sync, r->changes));
    struct lh_point told = {.epoch = r->head->epoch};
    LH_TRY(ps_co_adopt_epoch(c, r->head->shard, &told));
    // Within an epoch versions only rise: this one was overtaken, or comes a second time.
    if (s->reported && r->head->epoch == s->head.epoch && r->head->version < s->head.version)
        return LH_OK;
    uint8_t *credit = malloc(r->credited.len + 1);
    if (!credit) return LH_ERR_NO_MEMORY;
    if (r->credited.len) memcpy(credit, r->credited.data, r->credited.len);
    for (size_t i = 0; i < s->credit_bytes && i < r->credited.len; i++)
        if (LH_BUG("ledger_sticky")) credit[i] |= s->credit[i]; // planted: done stays done
    free(s->credit);
    s->credit = credit;
    s->credit_bytes = r->credited.len;
    s->head = head;
    if (LH_BUG("local_stable")) s->stable = s->head; // planted: durable, but on its own disk only
    s->tokens = r->tokens;
    s->plan = r->plan;
    s->phase = r->phase;
    s->process = m->process;
    s->reported = true;
    s->vouches = m->vouches;
    snprintf(s->address, sizeof s->address, "%s", m->address);
    return ps_co_take_answers(c, r->head->shard, r);
}

static lh_err take_report(struct ps_coordinator *c, const Longhaul__V1__ReportRequest *m,
                          uint64_t server, bool *serves)
{
    *serves = false;
    uint32_t version;
    if (!m->wire) return lh_fail(LH_ERR_VERSION, "a report without wire versions");
    LH_TRY(lh_wire_negotiate(m->wire->min, m->wire->max, &version));
    LH_TRY(ps_co_check_run(c, &m->job, &m->manifest));
    if (m->standing) return ps_co_turns(c, m, server, serves);
    for (size_t i = 0; i < m->n_shards; i++) LH_TRY(take_shard(c, m, m->shards[i], server));
    return LH_OK;
}

// To a standby: whom it follows, or what it is to serve.
static void reply_standby(struct ps_coordinator *c, struct lh_request *rq,
                          const Longhaul__V1__ReportRequest *m, bool serves,
                          Longhaul__V1__ReportReply *out)
{
    size_t n = m->n_shards;
    Longhaul__V1__ShardTurn *turn = calloc(n + 1, sizeof *turn),
                            **turns = calloc(n + 1, sizeof *turns);
    Longhaul__V1__ShardAddress *owner = calloc(n + 1, sizeof *owner),
                               **owners = calloc(n + 1, sizeof *owners);
    bool ok = turn && turns && owner && owners;
    for (size_t i = 0; i < n && ok; i++) {
        uint32_t id = m->shards[i]->head->shard;
        const struct ps_co_shard *s = &c->shard[id];
        uint64_t last = ps_co_epoch(s);
        longhaul__v1__shard_turn__init(turns[i] = &turn[i]);
        turn[i].shard = id;
        turn[i].epoch = s->least > last ? s->least : last;
        longhaul__v1__shard_address__init(owners[i] = &owner[i]);
        owner[i].shard = id;
        owner[i].address = (char *)(uintptr_t)s->address; // not changed
    }
    out->n_turns = serves ? n : 0;
    out->turns = turns;
    out->n_owners = serves ? 0 : n;
    out->owners = owners;
    if (ok)
        ps_co_answer(c, rq, &out->base);
    else
        ps_co_refuse(c, rq, lh_fail(LH_ERR_BUSY, "out of memory"));
    free(turn);
    free(turns);
    free(owner);
    free(owners);
}

// Of every shard it asks about one copy at least. Without memory the next answer asks.
static void reply_owner(struct ps_coordinator *c, struct lh_request *rq,
                        const Longhaul__V1__ReportRequest *m, Longhaul__V1__ReportReply *out)
{
    struct lh_buf plan = lh_buf(LH_SMALL_BYTES);
    size_t n = m->n_shards, each = n < COPIES_ASKED ? COPIES_ASKED / (n + 1) + 1 : 1;
    Longhaul__V1__Point *item = calloc(n * each + 1, sizeof *item),
                        **list = calloc(n * each + 1, sizeof *list);
    for (size_t i = 0; i < n && item && list; i++)
        out->n_copies += ps_co_ask_copies(c, m->shards[i]->head->shard, each, item + out->n_copies);
    for (size_t i = 0; i < out->n_copies; i++) list[i] = &item[i];
    out->copies = list;
    if (c->plan.number && !c->stopped) lh_plan_write(&c->plan, &plan);
    out->plan = (ProtobufCBinaryData){plan.len, plan.data};
    if (lh_buf_err(&plan))
        ps_co_refuse(c, rq, lh_fail(LH_ERR_BUSY, "out of memory"));
    else
        ps_co_answer(c, rq, &out->base);
    lh_buf_free(&plan);
    free(item);
    free(list);
}

struct told {
    Longhaul__V1__ShardMove *move, **list;
    size_t count;
};

// What the server is to know of moves; without memory it is told with the next report.
static struct told tell_moves(const struct ps_coordinator *c, const Longhaul__V1__ReportRequest *m)
{
    struct told t = {calloc(m->n_shards + 1, sizeof *t.move),
                     calloc(m->n_shards + 1, sizeof *t.list), 0};
    for (size_t i = 0; i < m->n_shards && t.move && t.list; i++) {
        const Longhaul__V1__ShardReport *r = m->shards[i];
        t.list[t.count] = &t.move[t.count];
        t.count += ps_co_tell_move(&c->shard[r->head->shard], m, r, &t.move[t.count]);
    }
    return t;
}

static void on_report(void *self, struct lh_request *rq, const ProtobufCMessage *message)
{
    struct ps_coordinator *c = self;
    const Longhaul__V1__ReportRequest *m = (const Longhaul__V1__ReportRequest *)message;
    bool serves;
    lh_err err = take_report(c, m, lh_worker_id(lh_request_peer(rq)), &serves);
    if (!err) err = ps_co_hear_server(c, m, lh_request_peer(rq), serves || !m->standing);
    if (err) {
        lh_log_peer(c->conf.log, LH_WARN, "report.refused", "server %s: %s",
                    lh_request_peer(rq)->name, lh_err_text(err));
        ps_co_refuse(c, rq, err);
        return;
    }
    ps_co_tick(c);
    Longhaul__V1__ReportReply out = LONGHAUL__V1__REPORT_REPLY__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    out.wire = &wire;
    struct told told = tell_moves(c, m);
    out.moves = told.list;
    out.n_moves = told.count;
    if (m->standing)
        reply_standby(c, rq, m, serves, &out);
    else
        reply_owner(c, rq, m, &out);
    free(told.list);
    free(told.move);
}

// ---------------------------------------------------------------- the door

static void on_health(void *self, struct lh_request *rq, const ProtobufCMessage *m)
{
    (void)m;
    struct ps_coordinator *c = self;
    ps_answer_health(rq, !c->stopped);
}

lh_err ps_coordinator_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                              const struct lh_peer *peer, const struct lh_call_ops **ops,
                              void **call_self)
{
    struct ps_coordinator *c = self;
    const ProtobufCMessageDescriptor *type;
    lh_request_fn handle;
    if (c->stopped) return lh_fail(LH_ERR_UNAVAILABLE, "the coordinator is stopping");
    switch (rpc) {
    case LH_RPC_JOIN:
        type = &longhaul__v1__join_request__descriptor;
        handle = ps_co_on_join;
        break;
    case LH_RPC_LEASE:
        type = &longhaul__v1__lease_request__descriptor;
        handle = ps_co_on_lease;
        break;
    case LH_RPC_REPORT:
        type = &longhaul__v1__report_request__descriptor;
        handle = on_report;
        break;
    case LH_RPC_EPOCH:
        type = &longhaul__v1__epoch_request__descriptor;
        handle = ps_co_on_epoch;
        break;
    case LH_RPC_INSYNC:
        type = &longhaul__v1__in_sync_request__descriptor;
        handle = ps_co_on_insync;
        break;
    case LH_RPC_STATUS:
        type = &longhaul__v1__status_request__descriptor;
        handle = ps_co_on_status;
        break;
    case LH_RPC_DRAIN:
        type = &longhaul__v1__drain_request__descriptor;
        handle = ps_co_on_drain;
        break;
    case LH_RPC_MOVE:
        type = &longhaul__v1__move_request__descriptor;
        handle = ps_co_on_move;
        break;
    case LH_RPC_HEALTH_CHECK:
        type = &grpc__health__v1__health_check_request__descriptor;
        handle = on_health;
        break;
    default: return lh_fail(LH_ERR_UNSUPPORTED, "%s is not answered here", lh_rpc_path(rpc));
    }
    return lh_request_accept(call, peer, type, handle, c, ops, call_self);
}
