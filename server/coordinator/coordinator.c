// The coordinator: start, calls, servers' reports, status. See coordinator.h.
#include "server/coordinator/coordinator.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/format/frame.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_member.h"
#include "server/answer.h"
#include "server/coordinator/balance/assign.h"
#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/grants.h"
#include "server/coordinator/balance/override.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/drain.h"
#include "server/coordinator/goes_on.h"
#include "server/coordinator/member.h"
#include "server/coordinator/order.h"
#include "server/coordinator/owners/choice.h"
#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/insync.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/owners/refold.h"
#include "server/coordinator/owners/rights.h"
#include "server/coordinator/plan.h"
#include "server/coordinator/scale.h"
#include "server/coordinator/servers.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/stable.h"
#include "server/coordinator/status.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/hook.h"
#include "server/coordinator/watch/machine.h"
#include "server/coordinator/watch/pause.h"
#include "server/coordinator/watch/retired.h"
#include "server/coordinator/watch/rules.h"
#include "server/coordinator/watch/states.h"

static const int64_t LISTEN_MIN = 10 * LH_MS;

// These functions read their rows at a start, and again after a failed commit, in this order: rows
// of leases and members use the members' indices.
static ps_co_load_fn *const LOADS[] = {
    ps_co_load_members,  ps_co_load_overrides,
    ps_co_load_grants,   ps_co_load_leases,
    ps_co_load_drains,   ps_co_load_pause,
    ps_co_load_alarms,   ps_co_load_expelled,
    ps_co_load_let_back, ps_co_load_trips,
    ps_co_load_points,   ps_co_load_epochs,
    ps_co_load_choices,  ps_co_load_insync,
    ps_co_load_rights,   ps_co_load_moves,
    ps_co_load_refold,   ps_co_load_plan,
    ps_co_load_live,     ps_co_load_retired,
    ps_co_load_status,   ps_co_load_decided,
    ps_co_load_crossed,  ps_co_load_machines,
    ps_co_load_states,   NULL,
};

// A run that has ended continues if there is more to train.
static lh_err go_on(struct ps_coordinator *c)
{
    struct ps_co_budget was;
    if (c->plan.phase != LH_PHASE_END) return LH_OK;
    LH_TRY(ps_co_budget_was(c, &was));
    if (!ps_co_goes_on(c, &was)) return LH_OK;
    LH_TRY(ps_co_forget_end(c));
    return ps_co_plan_goes_on(c);
}

static void on_timer(void *arg)
{
    struct ps_coordinator *c = arg;
    c->timer = 0;
    if (c->stopped) return;
    ps_co_commit_look(c);
    lh_err err = ps_co_full(c) ? LH_OK : go_on(c); // the start may have met a full disk
    if (!err && !ps_co_full(c)) err = ps_co_keep_gone(c);
    if (err) ps_co_fatal(c, err);
    ps_co_tick(c);
    ps_co_scale_tick(c);
    ps_co_rules_tick(c);
    ps_co_hook_tick(c);
    if (!c->stopped) c->timer = lh_after(c->conf.env, c->conf.tick_ns, on_timer, c);
}

// ---------------------------------------------------------------- who is heard

static void listen(void *arg)
{
    struct ps_coordinator *c = arg;
    (void)ps_co_now(c);
    c->listen_timer = lh_after(c->conf.env, c->listen_ns, listen, c);
}

// A pause counts as listened through if it is a small part of every member's timeout.
static void start_listening(struct ps_coordinator *c)
{
    const struct ps_co_conf *conf = &c->conf;
    int64_t least = conf->worker_timeout_ns;
    if (conf->take_over_ns && conf->take_over_ns < least) least = conf->take_over_ns;
    c->listen_ns = least / 8 < conf->tick_ns ? least / 8 : conf->tick_ns;
    if (c->listen_ns < LISTEN_MIN) c->listen_ns = LISTEN_MIN;
    lh_listener_start(&c->listener, lh_now(conf->env), 2 * c->listen_ns, ps_co_rest(c));
    c->listen_timer = lh_after(conf->env, c->listen_ns, listen, c);
    for (uint32_t i = 0; i < conf->manifest->shards; i++) // silence counts from here
        c->shard[i].heard_ns = ps_co_now(c);
}

// ---------------------------------------------------------------- start and end

static lh_err make_units(struct ps_coordinator *c)
{
    c->epochs = c->conf.epochs ? c->conf.epochs : 1;
    LH_TRY(lh_units_check_epochs(c->conf.units, c->epochs));
    c->units = c->epochs * c->conf.units->count;
    for (uint64_t u = 0; u < c->conf.units->count; u++) c->epoch_tokens += ps_co_unit(c, u)->tokens;
    c->lease = calloc(c->units + 1, sizeof *c->lease);
    c->leased_s = calloc(c->units + 1, sizeof *c->leased_s);
    c->number = calloc(c->units + 1, sizeof *c->number);
    c->begun = calloc(c->units + 1, sizeof *c->begun);
    c->wanted_by = calloc(c->units + 1, sizeof *c->wanted_by);
    c->guess = calloc(PS_CO_GUESSES, sizeof *c->guess);
    if (!c->lease || !c->number || !c->leased_s || !c->begun || !c->wanted_by || !c->guess)
        return LH_ERR_NO_MEMORY;
    LH_TRY(ps_co_make_order(c));
    LH_TRY(ps_co_balancer_make(c));
    LH_TRY(ps_co_decided_make(c));
    return LH_OK;
}

// From here on there is a durable status.
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
    if (!c) {
        ps_store_close(conf->store);
        return LH_ERR_NO_MEMORY;
    }
    c->conf = *conf;
    c->store = conf->store;
    lh_err err = make_units(c);
    if (err) goto fail;
    c->shard = calloc(conf->manifest->shards, sizeof *c->shard);
    if (!c->shard) {
        err = LH_ERR_NO_MEMORY;
        goto fail;
    }
    LH_TRY_TO(fail, err, ps_co_refold_make(c));
    LH_TRY_TO(fail, err, ps_co_stock_make(c)); // reads which units are credited
    LH_TRY_TO(fail, err, conf->env->ops->files->make_dir(conf->env, conf->dir));
    if (!c->store) LH_TRY_TO(fail, err, ps_store_open(conf->env, conf->dir, &c->store));
    c->status.durable = c->status.made = lh_buf(PS_CO_STATUS_BYTES);
    LH_TRY_TO(fail, err, ps_co_commit_open(c, LOADS));
    start_listening(c);
    c->began_ns = c->listener.ns;
    ps_co_first_tickets(c);
    LH_TRY_TO(fail, err, ps_co_states_make(c));
    LH_TRY_TO(fail, err, ps_co_rules_make(c));
    LH_TRY_TO(fail, err, ps_co_load(c));
    LH_TRY_TO(fail, err, ps_co_scale_make(c));
    LH_TRY_TO(fail, err, ps_co_hook_make(c));
    c->service = (struct lh_service){c, ps_coordinator_on_call};
    if (conf->listen[0])
        LH_TRY_TO(fail, err,
                  conf->transport->ops->listen(conf->transport, conf->listen, &c->service,
                                               c->address, sizeof c->address));
    LH_TRY_TO(fail, err, make_first_status(c));
    LH_TRY_TO(fail, err, ps_co_budget_start(c));
    LH_TRY_TO(fail, err, go_on(c));
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
    if (c->store) ps_store_stop(c->store);
    ps_co_scale_close(c);
    ps_co_hook_close(c);
}

void ps_coordinator_stop(struct ps_coordinator *c)
{
    if (!c) return;
    ps_coordinator_close(c);
    ps_co_commit_free(c);
    lh_buf_free(&c->status.durable);
    lh_buf_free(&c->status.made);
    for (int i = 0; i < PS_CO_READERS_MAX; i++) lh_buf_free(&c->status.told[i].text);
    ps_store_close(c->store);
    for (uint32_t i = 0; i < c->workers; i++) ps_co_free_worker(&c->worker[i]);
    for (uint32_t i = 0; c->shard && i < c->conf.manifest->shards; i++) {
        free(c->shard[i].credit);
        free(c->shard[i].begun);
    }
    free(c->shard);
    free(c->lease);
    free(c->leased_s);
    free(c->number);
    free(c->begun);
    free(c->wanted_by);
    free(c->guess);
    free(c->order);
    free(c->refold.shard);
    ps_co_stock_free(c);
    free(c->balancer);
    free(c->scale);
    free(c->hook);
    free(c->states);
    free(c->rules);
    free(c->decided);
    free(c);
}

const char *ps_coordinator_address(const struct ps_coordinator *c)
{
    return c->address;
}

void ps_coordinator_at(struct ps_coordinator *c, const char *address)
{
    snprintf(c->address, sizeof c->address, "%s", address);
}

// ---------------------------------------------------------------- the door

static void on_health(void *self, struct lh_request *rq, const void *m)
{
    (void)m;
    struct ps_coordinator *c = self;
    ps_answer_health(rq, !c->stopped);
}

static LH_MUST lh_err refuse_expelled(struct ps_coordinator *c, const struct lh_peer *peer)
{
    lh_log_peer(c->conf.log, LH_WARN, "expelled.refused", "%s %s of %s", lh_role_name(peer->role),
                peer->name, peer->region);
    return lh_fail(
        LH_ERR_EXPELLED,
        "%s %s of %s was expelled from this run; an operator can undo that (longhaul admit)",
        lh_role_name(peer->role), peer->name, peer->region);
}

static const lh_answer_fn answers[LH_RPC_COUNT] = {
    [LH_RPC_JOIN] = ps_co_on_join,     [LH_RPC_LEASE] = ps_co_on_lease,
    [LH_RPC_REPORT] = ps_co_on_report, [LH_RPC_EPOCH] = ps_co_on_epoch,
    [LH_RPC_INSYNC] = ps_co_on_insync, [LH_RPC_STATUS] = ps_co_on_status,
    [LH_RPC_DRAIN] = ps_co_on_drain,   [LH_RPC_PAUSE] = ps_co_on_pause,
    [LH_RPC_MOVE] = ps_co_on_move,     [LH_RPC_EXPEL] = ps_co_on_expel,
    [LH_RPC_ADOPT] = ps_co_on_adopt,   [LH_RPC_REFOLD] = ps_co_on_refold,
    [LH_RPC_HEALTH_CHECK] = on_health,
};

lh_err ps_coordinator_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                              const struct lh_peer *peer, const struct lh_call_ops **ops,
                              void **call_self)
{
    struct ps_coordinator *c = self;
    if (c->stopped) return lh_fail(LH_ERR_UNAVAILABLE, "the coordinator is stopping");
    if (ps_co_is_expelled(c, lh_worker_id(peer))) return refuse_expelled(c, peer);
    return ps_answer_call(answers, c, call, rpc, peer, ops, call_self);
}
