// Members: joins, incarnations, and the reports in lease requests
// (server/docs/0000-protocol.md#rule-8). grant.c leases the units.
#include <stdlib.h>
#include <string.h>

#include "common/format/frame.h"
#include "common/net/wire_member.h"
#include "server/audit.h"
#include "server/coordinator/balance/asking.h"
#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/grants.h"
#include "server/coordinator/balance/measure.h"
#include "server/coordinator/cadence.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/grant.h"
#include "server/coordinator/member.h"
#include "server/coordinator/plan.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/stable.h"
#include "server/coordinator/watch/machine.h"
#include "server/coordinator/watch/stall.h"

// ---------------------------------------------------------------- rows of the store

static const int64_t TOKENS_PAUSE = 10 * LH_SECOND;
// Bounds on the units in a lease request: units that a worker can hold, and claims of its undecided
// pushes.
enum { UNITS_SAID = 2 * LH_LEASES_MAX, CLAIMS_SAID = LH_SMALL_BYTES / LH_UNIT_WIRE_BYTES };
// Bound on the tokens that a worker says it has trained, which are shown and summed up: as much as
// a run can have (run.budget_tokens).
static const uint64_t SAID_TOKENS_MAX = UINT64_C(1000000000000000);

static lh_err store_worker(struct ps_coordinator *c, struct ps_co_worker *w)
{
    struct lh_buf b = lh_buf(1024);
    lh_put_u64(&b, w->id);
    lh_put_u32(&b, w->granted);
    lh_put_str(&b, w->region);
    lh_put_str(&b, w->name);
    lh_put_u64(&b, w->attempt);
    lh_put_u64(&b, w->lease_tokens);
    lh_put_u64(&b, w->tokens);
    w->tokens_kept = w->tokens;
    w->tokens_kept_ns = ps_co_now(c);
    return ps_co_put_of(c, "worker/", w->id, &b);
}

// A worker's tokens are stored with its leases, and otherwise every TOKENS_PAUSE. They are stored
// once it has drained or is done, because it may never report to a restarted coordinator.
static bool keeps_tokens(struct ps_coordinator *c, const struct ps_co_worker *w)
{
    if (w->tokens == w->tokens_kept) return false;
    return w->drained || w->done || ps_co_now(c) - w->tokens_kept_ns >= TOKENS_PAUSE;
}

lh_err ps_co_keep_gone(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        if (!w->live && w->tokens != w->tokens_kept) LH_TRY(store_worker(c, w));
    }
    return LH_OK;
}

// Reads a row. A known worker keeps the fields that the row does not have.
static const char *read_worker(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    uint64_t id = lh_get_u64(at), named;
    uint32_t index = ps_co_worker_index(c, id);
    if (!ps_co_row_number(name, 16, &named) || named != id) return "is another worker's";
    if (index == LH_WORKERS_MAX) return "is of one worker more than a run may have";
    struct ps_co_worker w = {.id = id, .seen_ns = ps_co_now(c), .live = true};
    if (index < c->workers) w = c->worker[index];
    w.stored = true;
    w.granted = lh_get_u32(at);
    lh_get_str(at, w.region, sizeof w.region);
    lh_get_str(at, w.name, sizeof w.name);
    w.attempt = lh_get_u64(at);
    w.lease_tokens = lh_get_u64(at);
    w.tokens_kept = lh_get_u64(at);
    if (w.tokens < w.tokens_kept) w.tokens = w.tokens_kept;
    if (at->failed) return NULL; // ps_co_load_named() reports it
    c->worker[index] = w;
    if (index == c->workers) c->workers++;
    return NULL;
}

lh_err ps_co_load_members(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) c->worker[i].stored = false;
    LH_TRY(ps_co_load_named(c, "worker/", read_worker));
    while (c->workers && !c->worker[c->workers - 1].stored) { // the workers that joined last
        ps_co_free_worker(&c->worker[--c->workers]);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- join

static lh_err check_epochs(const struct ps_coordinator *c, const struct lh_join_request *m)
{
    if (m->any_epochs || m->epochs == c->epochs) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "the run has %u data epochs (run.epochs), the worker expects %u "
                   "(run.epochs): give both the same number, or the worker 0",
                   c->epochs, m->epochs);
}

// The units of a private region are its records: its workers name no manifest and get no leases.
static lh_err check_units(const struct ps_coordinator *c, const char *region,
                          const struct lh_join_request *m)
{
    if (ps_co_region_data(c, region) == LH_DATA_PRIVATE && !m->units.len) return LH_OK;
    if (lh_span_equal(m->units, lh_span(c->conf.units->hash.b, LH_HASH_BYTES))) return LH_OK;
    if (!m->units.len)
        return lh_fail(LH_ERR_CONFIG,
                       "the worker is private (privacy.budget), but this run's coordinator.data "
                       "does not mark region %s as private",
                       region);
    return lh_fail(LH_ERR_CONFIG, "the worker has another manifest of data units; give every "
                                  "region the same data.units file");
}

static lh_err check_join(struct ps_coordinator *c, const struct lh_peer *peer,
                         const struct lh_join_request *m)
{
    LH_TRY(ps_co_check_run(c, m->wire, &m->run));
    LH_TRY(check_units(c, peer->region, m));
    return check_epochs(c, m);
}

// A join that is retried because its answer was lost gets the same number. If another process has
// replaced that number meanwhile, the join is granted nothing: two processes with one number would
// decide each other's pushes.
static bool attempted(const struct ps_co_worker *w, uint64_t attempt)
{
    return attempt && w->attempt == attempt;
}

// Joins without a directory are ordered by the number that each replaces: a late join of an earlier
// process names a number that was replaced meanwhile.
static bool replaces(const struct ps_co_worker *w, const struct lh_join_request *m)
{
    return m->over == w->granted;
}

// Upper bound on a number that a worker reports and the store does not have. Above it, numbers rise
// by one per join. Every new name gets a number above those of retired names, so a worker that
// reported the highest number would leave none for others (server/docs/0000-protocol.md#rule-35).
static const uint32_t GRANTED_BELIEVED = UINT32_C(1) << 31;

// `has`: number in the directory of an unknown worker; 0: the worker has no directory.
static LH_MUST lh_err check_retired(const struct ps_coordinator *c, uint64_t id, uint32_t has)
{
    if (ps_co_is_retiring(c, id))
        return lh_fail(LH_ERR_BUSY, "this name is being retired; join again in a moment");
    if (!has || has > c->retired_up_to) return LH_OK;
    return lh_fail(LH_ERR_FENCED, "this name was retired (longhaul retire), and this directory is "
                                  "void: start the worker on an empty one");
}

// Sets *taken if the join was granted nothing because another number is in force.
static lh_err join(struct ps_coordinator *c, const struct lh_peer *peer,
                   const struct lh_join_request *m, struct ps_co_worker **out, bool *taken)
{
    LH_TRY(check_join(c, peer, m));
    uint64_t id = lh_worker_id(peer);
    uint32_t i = ps_co_worker_index(c, id), has = (uint32_t)(m->incarnation >> 32);
    bool unknown = i == c->workers;
    if (i == LH_WORKERS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE,
                       "the run has %d workers' names already: retire those that will not come "
                       "back (longhaul retire REGION/NAME)",
                       LH_WORKERS_MAX);
    LH_TRY(check_retired(c, id, unknown ? has : 0));
    struct ps_co_worker *w = &c->worker[i];
    if (unknown) {
        *w = (struct ps_co_worker){.id = id, .granted = c->retired_up_to};
        memcpy(w->region, peer->region, sizeof w->region);
        memcpy(w->name, peer->name, sizeof w->name);
        c->workers++;
    }
    *out = w;
    bool fresh = m->fresh || has == 0, again = fresh && attempted(w, m->attempt);
    *taken = fresh && !again && !replaces(w, m);
    if (*taken)
        return unknown ? store_worker(c, w) : LH_OK; // because operators may name the worker
    if (again) {
        // A retry of the same join gets the same number.
    } else if (fresh && w->granted == UINT32_MAX) {
        return lh_fail(LH_ERR_FENCED, "this name has no number left: join under another one");
    } else if (fresh) { // its directory is gone, so its leases are free
        if (!LH_BUG("inc_reuse") || !w->granted) w->granted++;
        w->attempt = m->attempt;
        ps_co_forget_copies(w);
        LH_TRY(ps_co_free_leases(c, i));
    } else if (has > w->granted && has > GRANTED_BELIEVED) {
        return lh_fail(LH_ERR_FENCED,
                       "incarnation %u was never granted: remove the directory to join anew", has);
    } else if (has > w->granted) {
        w->granted = has; // The store was lost or is an older copy. The number never falls.
    } else if (has < w->granted) {
        return lh_fail(LH_ERR_FENCED,
                       "incarnation %u of this worker was replaced by %u: another "
                       "process runs under this name, or an old directory was "
                       "brought back; remove the directory to join anew",
                       has, w->granted);
    }
    LH_TRY(store_worker(c, w));
    w->joined = true;
    w->seen_ns = ps_co_now(c);
    c->speaker = id;
    // A new process has no measurement yet: the path keeps its last one.
    if (m->trip.mean_ns) LH_TRY(ps_co_hear_worker_trip(c, w, m->trip));
    return LH_OK;
}

// The newest known version of the shard in this epoch. A worker ignores a server that is below it:
// within an epoch history never goes back (server/docs/0000-protocol.md#rule-27). The reported head
// is in memory only; the stable point outlives the coordinator.
static uint64_t known_version(const struct ps_co_shard *s, uint64_t epoch)
{
    uint64_t stable = s->stable.epoch == epoch ? s->stable.version : 0;
    uint64_t head = s->head.epoch == epoch ? s->head.version : 0;
    return head > stable ? head : stable;
}

// An epoch is registered before a server serves in it. So a worker that gets a shard's address
// knows the epoch before it greets the server (server/docs/0000-protocol.md#rule-27). The epoch is
// not `least`, which may be reserved but never opened, and an operator can take a reservation back.
static size_t addresses(const struct ps_coordinator *c, struct lh_shard_address *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        if (!c->shard[i].address[0]) continue;
        uint64_t epoch = ps_co_epoch(&c->shard[i]);
        out[n++] = (struct lh_shard_address){
            i, c->shard[i].address, epoch, known_version(&c->shard[i], epoch), c->shard[i].server};
    }
    return n;
}

// Logs each failed join, at a bounded rate.
static void refuse_join(struct ps_coordinator *c, struct lh_request *rq, lh_err err)
{
    const struct lh_peer *peer = lh_request_peer(rq);
    lh_log_peer(c->conf.log, LH_WARN, "join.refused", "worker %s of %s: %s", peer->name,
                peer->region, lh_err_text(err));
    ps_co_refuse(c, rq, err);
}

void ps_co_on_join(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_join_request *m = request;
    const struct lh_peer *peer = lh_request_peer(rq);
    struct ps_co_worker *w = NULL;
    bool taken = false;
    lh_err err = join(c, peer, m, &w, &taken);
    if (err) {
        refuse_join(c, rq, err);
        return;
    }
    ps_audit(c->conf.audit, "audit.join", peer, "incarnation %u%s", w->granted,
             taken ? ", which is in force; nothing was granted" : "");
    ps_co_say_peer(c, LH_INFO, taken ? "join.taken" : "worker.joined", "%s of %s, incarnation %u",
                   w->name, w->region, w->granted);
    if (!taken) w->live = true; // logged here, so the next tick does not log its return
    err = ps_co_take_machine(c, w, m->has_machine ? &m->machine : NULL);
    uint32_t shards = c->conf.manifest->shards;
    struct lh_shard_address *list = calloc(shards, sizeof *list);
    if (err || !list) {
        refuse_join(c, rq, err ? err : lh_fail(LH_ERR_BUSY, "out of memory"));
    } else {
        struct lh_join_reply out = {.wire = lh_versions_ours(),
                                    .worker = w->id,
                                    .granted = w->granted,
                                    .n_shards = addresses(c, list),
                                    .shards = list,
                                    .taken = taken,
                                    .epochs = c->epochs};
        ps_co_answer(c, rq, LH_MESSAGE(join_reply, &out));
    }
    free(list);
    ps_co_tick(c);
}

// ---------------------------------------------------------------- lease

static void take_final(struct ps_coordinator *c, struct ps_co_worker *w,
                       const struct lh_lease_request *m)
{
    uint32_t shards = c->conf.manifest->shards;
    if (!w->final) w->final = calloc(shards, sizeof *w->final);
    for (size_t i = 0; w->final && i < m->n_final; i++) {
        const struct lh_shard_point *p = &m->final[i];
        if (p->shard < shards && p->chained) w->final[p->shard] = p->at;
    }
}

static void send_lease(struct ps_coordinator *c, struct lh_request *rq,
                       const struct ps_co_worker *w, const struct lh_lease_request *m,
                       struct ps_co_leased *leased)
{
    struct lh_giver givers[LH_GIVERS_MAX];
    uint32_t shards = c->conf.manifest->shards;
    struct lh_shard_address *list = calloc(shards, sizeof *list);
    struct lh_shard_point *points = calloc(shards, sizeof *points);
    uint64_t *tags = calloc(shards, sizeof *tags);
    struct lh_challenge *challenges = calloc(shards, sizeof *challenges);
    bool memory = list && points && tags && challenges;
    struct lh_buf grants = lh_buf((size_t)LH_CLAIM_BYTES * LH_LEASES_MAX);
    uint32_t index = (uint32_t)(w - c->worker);
    lh_err err = ps_co_grants_tell(c, index, m, leased->unit, leased->units, &grants);
    if (err || !memory) {
        ps_co_refuse(c, rq, err ? err : lh_fail(LH_ERR_BUSY, "out of memory"));
    } else {
        struct lh_lease_reply out = {0};
        out.n_units = leased->units;
        out.units = leased->unit;
        out.n_recalled = leased->recalls;
        out.recalled = leased->recalled;
        out.window = leased->window;
        out.epochs = c->epochs;
        bool drain = c->plan.phase == LH_PHASE_RUN && ps_co_draining(c, w);
        out.phase = drain ? LH_PHASE_DRAIN : c->plan.phase;
        out.start = out.phase >= LH_PHASE_RUN;
        out.paused = c->pause.is;
        out.left_out = lh_plan_left_out(&c->plan, w->id);
        out.local_steps = ps_co_local_steps(c, w);
        out.rounds = ps_co_rounds(c);
        out.n_shards = addresses(c, list);
        out.shards = list;
        for (uint32_t i = 0; i < shards; i++) {
            const struct lh_point *p = &c->shard[i].stable;
            if (p->version) points[out.n_stable++] = (struct lh_shard_point){i, true, *p};
        }
        out.stable = points;
        out.n_challenges = ps_co_challenges(c, w, challenges);
        out.challenges = challenges;
        out.grants = lh_buf_span(&grants);
        out.allowance = ps_co_allowance(c, w, tags);
        out.allowance_tags = tags;
        out.n_allowance_tags = shards;
        out.n_givers = ps_co_givers(c, m, givers);
        out.givers = givers;
        ps_co_answer(c, rq, LH_MESSAGE(lease_reply, &out));
    }
    free(list);
    free(points);
    free(tags);
    free(challenges);
    lh_buf_free(&grants);
}

// Refuses a worker whose loop has own data although the settings lease units to it, or the reverse.
// Once the run ends nothing is leased, so every worker may report that it has drained.
static LH_MUST lh_err check_data(const struct ps_coordinator *c, const struct ps_co_worker *w,
                                 const struct lh_lease_request *m)
{
    bool own = ps_co_data(c, w) != LH_DATA_LEASED, ends = c->plan.phase > LH_PHASE_RUN;
    if (m->own_data && !own && !ends)
        return lh_fail(LH_ERR_CONFIG,
                       "the loop of %.64s of %.64s brings its own data, but the coordinator "
                       "leases units there: use a LeasedDataLoader, or set coordinator.data "
                       "to own for this region",
                       w->name, w->region);
    if (m->want && own && !ends)
        return lh_fail(LH_ERR_CONFIG,
                       "%.64s of %.64s asks for units, but workers there have data of their own "
                       "(coordinator.data): give its loop data, or set leased for this region",
                       w->name, w->region);
    return LH_OK;
}

// Every unit that a request names is looked up, and one message has room for a million.
static LH_MUST lh_err check_lists(const struct ps_coordinator *c, const struct lh_lease_request *m)
{
    uint32_t shards = c->conf.manifest->shards;
    bool fits = m->n_holding <= UNITS_SAID && m->n_begun <= UNITS_SAID &&
                m->n_returned <= UNITS_SAID && m->n_claimed <= CLAIMS_SAID &&
                m->n_durable <= shards && m->n_final <= shards && m->n_possessions <= shards;
    if (fits) return LH_OK;
    return lh_fail(LH_ERR_TOO_LARGE,
                   "a lease request that names %zu held, %zu begun, %zu returned and %zu claimed "
                   "units, and %zu copies",
                   m->n_holding, m->n_begun, m->n_returned, m->n_claimed, m->n_durable);
}

void ps_co_on_lease(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_lease_request *m = request;
    uint64_t id = lh_worker_id(lh_request_peer(rq));
    if (m->worker && m->worker != id) {
        ps_co_refuse(c, rq, lh_fail(LH_ERR_DENIED, "the worker id is not that of the certificate"));
        return;
    }
    lh_err err = check_lists(c, m);
    if (err) {
        lh_log_peer(c->conf.log, LH_WARN, "lease.refused", "%s of %s: %s",
                    lh_request_peer(rq)->name, lh_request_peer(rq)->region, lh_err_text(err));
        ps_co_refuse(c, rq, err);
        return;
    }
    uint32_t i = ps_co_worker_index(c, id);
    uint32_t granted = i < c->workers ? c->worker[i].granted : 0; // 0: the worker has not joined
    if (ps_co_is_retiring(c, id)) granted = 0;
    if (!granted || (uint32_t)(m->incarnation >> 32) != granted) {
        struct lh_lease_reply out = {.unknown = true};
        ps_co_answer(c, rq, LH_MESSAGE(lease_reply, &out));
        return;
    }
    struct ps_co_worker *w = &c->worker[i];
    w->joined = true;
    w->seen_ns = ps_co_now(c);
    c->speaker = w->id;
    w->incarnation = m->incarnation;
    w->tokens_said = ps_co_said_number(m->tokens_per_s);
    uint64_t tokens = m->tokens < SAID_TOKENS_MAX ? m->tokens : SAID_TOKENS_MAX;
    if (tokens > w->tokens) w->tokens = tokens; // a new process may report fewer at first
    w->step_tokens = m->step_tokens < LH_PUSH_TOKENS_MAX ? m->step_tokens : LH_PUSH_TOKENS_MAX;
    err = check_data(c, w, m);
    if (err) {
        lh_log_peer(c->conf.log, LH_WARN, "lease.refused", "%s", lh_err_text(err));
        ps_co_refuse(c, rq, err);
        return;
    }
    w->idle = !m->want && !m->own_data;
    ps_co_measured(c, w, m);
    ps_co_note_admitted(c, w);
    w->tokens_per_s = ps_co_believed_speed(c, w);
    ps_co_take_away(c, i, m);
    ps_co_lease_drop_closed(c, i);
    if (!w->stall.why) ps_co_pace(c, w); // The speed of a stalled worker sets no H.
    ps_co_hear_progress(c, w, &m->progress, ps_co_local_steps(c, w));
    w->stall.failing = m->failing;
    w->evaluates |= m->evaluates; // a restarted worker does not know at first
    if (!m->loop_away || !w->away_ns) w->away_ns = m->loop_away ? c->listener.ns : 0;
    w->gives = m->ahead > 0;
    w->spent |= m->spent && ps_co_data(c, w) == LH_DATA_PRIVATE;
    w->drained = m->drained;
    w->done =
        m->done && c->plan.phase == LH_PHASE_END; // before END there is no last version to report
    if (w->done) take_final(c, w, m);
    ps_co_tick(c);
    if (!ps_co_takes(c, i)) ps_co_lease_drop_wanted(c, i);
    struct ps_co_leased *leased = calloc(1, sizeof *leased);
    err = leased ? LH_OK : lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    if (!err) err = ps_co_hear_worker_trip(c, w, m->trip);
    if (!err) err = ps_co_take_durable(c, w, m);
    if (!err) err = ps_co_take_crossed(c, i, m);
    if (!err) err = ps_co_grants_keep(c);
    uint64_t had = w->lease_tokens;
    if (!err) err = ps_co_grant(c, i, m, leased);
    if (!err) err = ps_co_note_fetches(c, i, m, leased);
    if (!err && (w->lease_tokens != had || keeps_tokens(c, w))) err = store_worker(c, w);
    if (err)
        ps_co_refuse(c, rq, err);
    else
        send_lease(c, rq, w, m, leased);
    free(leased);
}
