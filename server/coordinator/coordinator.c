// The coordinator: start, door, servers' reports, status. See coordinator.h.
#include "server/coordinator/coordinator.h"

#include <inttypes.h>
#include <jansson.h>
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

void ps_co_fatal(struct ps_coordinator *c, lh_err err)
{
    if (c->stopped) return;
    c->stopped = true;
    lh_logf(c->conf.log, LH_ERROR, "coordinator.stop", "%s", lh_err_text(err));
    if (c->conf.fatal) c->conf.fatal(c->conf.fatal_arg, err, lh_err_text(err));
}

static void on_timer(void *arg)
{
    struct ps_coordinator *c = arg;
    c->timer = 0;
    if (c->stopped) return;
    ps_co_tick(c);
    if (!c->stopped) c->timer = lh_after(c->conf.env, c->conf.tick_ns, on_timer, c);
}

// ---------------------------------------------------------------- who is heard

int64_t ps_co_now(struct ps_coordinator *c)
{
    return lh_listener_look(&c->listener, lh_now(c->conf.env));
}

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

void ps_co_kept_waiting(struct ps_coordinator *c, uint64_t peer)
{
    int64_t now = ps_co_now(c);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (c->shard[i].heard_of == peer) c->shard[i].heard_ns = now;
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].id == peer) c->worker[i].seen_ns = now;
}

// ---------------------------------------------------------------- start and end

lh_err ps_co_load(struct ps_coordinator *c)
{
    LH_TRY(ps_co_load_members(c));
    LH_TRY(ps_co_load_drains(c));
    LH_TRY(ps_co_load_trips(c));
    LH_TRY(ps_co_load_points(c));
    LH_TRY(ps_co_load_epochs(c));
    LH_TRY(ps_co_load_insync(c));
    LH_TRY(ps_co_load_moves(c));
    return ps_co_load_plan(c);
}

static bool in_plan(const struct ps_coordinator *c, uint64_t worker)
{
    for (uint32_t i = 0; i < c->plan.live; i++)
        if (c->plan.worker[i] == worker) return true;
    return false;
}

// Leases that went to others are back with whom they were: that one is given up once more.
lh_err ps_co_take_back(struct ps_coordinator *c)
{
    LH_TRY(ps_co_load(c));
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        w->live |= in_plan(c, w->id);
        if (w->left) w->left_ns = ps_co_now(c);
    }
    return LH_OK;
}

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
    LH_TRY_TO(fail, err, ps_co_commit_open(c));
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

bool ps_co_credited(const struct ps_coordinator *c, uint64_t unit)
{
    const struct ps_co_shard *s = &c->shard[unit % c->conf.manifest->shards];
    return unit / 8 < s->credit_bytes && (s->credit[unit / 8] >> (unit % 8) & 1);
}

uint64_t ps_co_credited_tokens(const struct ps_coordinator *c)
{
    uint64_t sum = 0;
    for (uint64_t u = 0; u < c->conf.units->count; u++)
        if (ps_co_credited(c, u)) sum += c->conf.units->unit[u].tokens;
    return sum;
}

// ---------------------------------------------------------------- servers' reports

lh_err ps_co_check_run(const struct ps_coordinator *c, const ProtobufCBinaryData *job,
                       const ProtobufCBinaryData *manifest)
{
    return lh_head_check_run(c->conf.job, &c->conf.manifest->hash, job, manifest, "member");
}

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

static void on_status(void *self, struct lh_request *rq, const ProtobufCMessage *m)
{
    const Longhaul__V1__StatusRequest *q = (const Longhaul__V1__StatusRequest *)m;
    Longhaul__V1__StatusReply out = LONGHAUL__V1__STATUS_REPLY__INIT;
    struct lh_buf json = lh_buf(LH_SMALL_BYTES);
    lh_err err = LH_OK;
    if (!q->part[0])
        err = ps_coordinator_status(self, &json);
    else if (!strcmp(q->part, "leases"))
        err = ps_co_leases(self, m, &json);
    else
        err = lh_fail(LH_ERR_UNSUPPORTED, "no part %.40s of a coordinator's status", q->part);
    lh_put_u8(&json, 0);
    out.json = (char *)json.data;
    if (!err) err = lh_buf_err(&json);
    if (err)
        ps_co_refuse(self, rq, err);
    else
        ps_co_answer(self, rq, &out.base);
    lh_buf_free(&json);
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
        handle = on_status;
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

// ---------------------------------------------------------------- status

static json_t *worker_status(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    json_t *final = json_array();
    for (uint32_t i = 0; w->done && w->final && i < c->conf.manifest->shards; i++) {
        char hex[2 * LH_HASH_BYTES + 1];
        lh_hash_hex(&w->final[i].chain, hex);
        json_array_append_new(final, json_pack("{s:i s:I s:s}", "shard", (int)i, "version",
                                               (json_int_t)w->final[i].version, "digest", hex));
    }
    json_t *row =
        json_pack("{s:s s:s s:I s:I s:b s:b s:b s:b s:f s:I s:i s:o}", "name", w->name, "region",
                  w->region, "granted", (json_int_t)w->granted, "incarnation",
                  (json_int_t)w->incarnation, "live", w->live, "draining", ps_co_draining(c, w),
                  "drained", w->drained, "done", w->done, "tokens_per_s", w->tokens_per_s, "tokens",
                  (json_int_t)w->tokens, "h", (int)ps_co_local_steps(c, w), "final", final);
    ps_co_tell_silence(row, c->listener.ns - w->seen_ns, ps_co_worker_bound(c, w), &w->trip);
    return row;
}

static json_t *shard_status(const struct ps_coordinator *c, uint32_t i)
{
    const struct ps_co_shard *s = &c->shard[i];
    return json_pack("{s:i s:s s:I s:I s:I s:I s:s s:b s:b s:b}", "shard", (int)i, "address",
                     s->address, "epoch", (json_int_t)s->head.epoch, "version",
                     (json_int_t)s->head.version, "stable", (json_int_t)s->stable.version, "plan",
                     (json_int_t)s->plan, "phase", lh_phase_name((uint8_t)s->phase),
                     "standby_in_sync", s->standby != 0, "moving", s->move.target != 0,
                     "taken_over", s->owner != 0);
}

bool ps_coordinator_over(const struct ps_coordinator *c)
{
    return c->plan.phase == LH_PHASE_END && ps_co_settled(c);
}

lh_err ps_coordinator_status(struct ps_coordinator *c, struct lh_buf *out)
{
    json_t *workers = json_array(), *shards = json_array(), *drained = json_array();
    uint64_t credited = 0, leased = 0, begun = 0, recalled = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        json_array_append_new(workers, worker_status(c, &c->worker[i]));
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        json_array_append_new(shards, shard_status(c, i));
    for (uint64_t u = 0; u < c->conf.units->count; u++) {
        credited += ps_co_credited(c, u);
        const char *lease = ps_co_lease_name(c, u);
        leased += lease != NULL;
        begun += lease && *lease == 'b';
        recalled += lease && *lease == 'r';
    }
    for (uint32_t i = 0; i < c->drained_regions; i++)
        json_array_append_new(drained, json_string(c->drained_region[i]));
    json_t *root = json_pack(
        "{s:s s:s s:s s:b s:b s:o s:I s:I s:I s:I s:I s:I s:I s:I s:o s:o s:o}", "role",
        "coordinator", "address", c->address, "phase", lh_phase_name(c->plan.phase), "draining",
        c->draining, "ending", c->ending, "drained_regions", drained, "credited_tokens",
        (json_int_t)ps_co_credited_tokens(c), "budget_tokens", (json_int_t)c->conf.budget_tokens,
        "units", (json_int_t)c->conf.units->count, "credited", (json_int_t)credited, "leased",
        (json_int_t)leased, "begun", (json_int_t)begun, "recalled", (json_int_t)recalled, "plan",
        (json_int_t)c->plan.number, "workers", workers, "shards", shards, "servers",
        ps_co_servers(c));
    return lh_json_give(root, out);
}
