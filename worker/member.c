// Member: join, lease units, report (DESIGN.md#section-10). A coordinator that can't be reached
// stops nothing but new units.
#include "worker/member.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/machine.h"
#include "common/net/wire_member.h"
#include "worker/disk_full.h"
#include "worker/privacy/private.h"
#include "worker/push/history.h"
#include "worker/push/idle.h"
#include "worker/push/outcome.h"
#include "worker/push/path.h"
#include "worker/replica/prove.h"
#include "worker/units/grants.h"
#include "worker/units/travel.h"
#include "worker/units/units.h"

static const int64_t CONTEST_NS = 100 * LH_MS; // between two joins that ask about a shard's row

static void tick(void *arg);

static void again(struct wk_worker *w, int64_t ns)
{
    if (w->stopped) return;
    lh_cancel(w->conf.env, &w->member_timer);
    w->member_timer = lh_after(w->conf.env, ns, tick, w);
}

static void say_unreachable(struct wk_worker *w, lh_err err)
{
    uint32_t tries = w->member_tries;
    if (wk_worth_saying(tries))
        lh_logf(w->conf.log, wk_missing_level(!w->joined, tries), "member.unreachable",
                "coordinator %s, attempt %u: %s; %s", w->conf.coordinator, tries + 1,
                lh_err_text(err), w->joined ? "training goes on" : "trying again");
}

static bool refused(struct wk_worker *w, const char *what, lh_err err)
{
    if (lh_err_class(err) != LH_CLASS_REJECT) {
        say_unreachable(w, err);
        return false;
    }
    lh_logf(w->conf.log, LH_ERROR, "member.refused", "%s at %s: %s", what, w->conf.coordinator,
            lh_err_text(err));
    bool final = err == LH_ERR_MANIFEST || err == LH_ERR_VERSION || err == LH_ERR_DENIED ||
                 err == LH_ERR_FENCED || err == LH_ERR_CONFIG || err == LH_ERR_EXPELLED;
    if (final) wk_fatal(w, err);
    return final;
}

// The certificate behind the shard's address is its server's, as the coordinator names it: another
// server of the run that answers there is not believed.
static void expect(struct wk_shard *s, uint64_t server)
{
    struct lh_link *link = s->session.link;
    s->session.server = server;
    if (server) link->transport_ops->expect(link, server);
}

static void take_addresses(struct wk_worker *w, size_t n, const struct lh_shard_address *list)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].shard >= w->shards) continue;
        struct wk_shard *s = &w->shard[list[i].shard];
        uint64_t named = s->history.told_epoch;
        // This comes before a greeting to the address.
        wk_history_told(s, list[i].epoch, list[i].version);
        if (s->session.link) expect(s, list[i].server);
        if (strcmp(s->session.address, list[i].address) == 0) {
            // Its server may have been turned away until the coordinator names its epoch.
            if (s->session.link && s->history.told_epoch > named) w->hooks->address(s);
            continue;
        }
        struct lh_link *link;
        struct lh_transport *t = w->conf.transport;
        if (t->ops->dial(t, list[i].address, LH_S, LH_LINE_FIRST, &link)) continue;
        if (s->session.link) s->session.link->transport_ops->hangup(s->session.link);
        s->session.link = link;
        expect(s, list[i].server);
        memcpy(s->session.address, list[i].address, strlen(list[i].address) + 1);
        s->session.process = 0;
        s->path = (struct wk_path){0};
        s->stream.tries = s->session.tries = 0;
        w->hooks->address(s);
    }
}

// Right after the start servers may still be on their way: nothing is said the first time.
static void look_for_servers(struct wk_worker *w)
{
    uint32_t missing = 0, shard = 0;
    for (uint32_t i = w->shards; i-- > 0;) {
        if (w->shard[i].session.link) continue;
        missing++;
        shard = i;
    }
    uint32_t tries = missing ? w->unserved_tries++ : 0;
    if (tries && wk_worth_saying(tries))
        lh_logf(w->conf.log, wk_missing_level(true, tries), "shard.unserved",
                "shard %u (one of %u): no server has reported it to the coordinator %s; waiting: "
                "start its server",
                shard, missing, w->conf.coordinator);
}

// The data epochs of the run, as its coordinator says.
static LH_MUST lh_err take_epochs(struct wk_worker *w, uint32_t epochs)
{
    if (!epochs) return lh_fail(LH_ERR_PROTOCOL, "the coordinator names no data epochs");
    if (epochs == w->epochs) return LH_OK;
    if (w->conf.epochs && w->conf.epochs != epochs)
        return lh_fail(LH_ERR_CONFIG,
                       "the run has %u data epochs (run.epochs of the coordinator), this worker "
                       "expects %u (run.epochs): give both the same number, or the worker 0",
                       epochs, w->conf.epochs);
    LH_TRY(lh_units_check_epochs(w->conf.units, epochs));
    w->epochs = epochs;
    if (w->conf.told_epochs) w->conf.told_epochs(w->conf.told_epochs_arg, epochs);
    return LH_OK;
}

// ---------------------------------------------------------------- join

// The number that was to be replaced is not the one in force: asks once more, for that one. (Two
// processes that go on replacing each other have to wait in between.)
static void ask_over(struct wk_worker *w, uint32_t granted)
{
    w->over = granted;
    again(w, wk_backoff(w, &w->member_tries, LH_ERR_CONFLICT));
}

// The coordinator has just said that our number is in force: its store lost the row's
// (server/docs/0000-protocol.md#rule-8).
static lh_err go_above(struct wk_worker *w)
{
    if (w->contested != w->confirming) return LH_OK; // a higher one since: asked once more
    if (wk_cutting(w)) return LH_OK;                 // it owns the slots: asked once more after it
    lh_logf(
        w->conf.log, LH_WARN, "incarnation.unknown",
        "the coordinator %s granted %" PRIx64
        " to this worker but does not know it any more: its directory was lost or is an older copy",
        w->conf.coordinator, w->contested >> 32);
    LH_TRY(wk_bump(w, w->contested));
    w->contested = 0;
    return LH_OK;
}

static void on_join(void *self, lh_err err, const void *answer)
{
    struct wk_worker *w = self;
    w->join = NULL;
    if (w->stopped) return;
    if (!err) {
        const struct lh_join_reply *m = answer;
        if (w->fresh && m->taken) {
            ask_over(w, m->granted);
            return;
        }
        if (m->worker != w->id) err = lh_fail(LH_ERR_PROTOCOL, "joined as another worker");
        if (!err) err = take_epochs(w, m->epochs);
        if (!err && w->fresh) err = wk_incarnation_grant(w, m->granted);
        if (!err && m->granted != w->incarnation.number >> 32)
            err = lh_fail(LH_ERR_FENCED, "incarnation %u was granted, ours is %" PRIx64, m->granted,
                          w->incarnation.number);
        if (!err && w->confirming) err = go_above(w);
        if (err == LH_ERR_DISK_FULL) { // the same number is asked for again
            wk_disk_full_say(w, WK_DISK_FULL_OUTBOX, lh_err_text(err));
            again(w, wk_backoff(w, &w->member_tries, err));
            return;
        }
        if (err) {
            wk_fatal(w, err);
            return;
        }
        w->joined = !w->contested && m->granted == w->incarnation.number >> 32;
        w->member_tries = 0;
        take_addresses(w, m->n_shards, m->shards);
        again(w, w->contested ? CONTEST_NS : 0);
        return;
    }
    if (!refused(w, "join", err)) again(w, wk_backoff(w, &w->member_tries, err));
}

static lh_err send_join(struct wk_worker *w)
{
    struct lh_join_request m = {
        .wire = lh_versions_ours(),
        .run = lh_run_of(w->conf.job, &w->conf.manifest->hash),
        .fresh = w->fresh,
        .incarnation = w->incarnation.number,
        .attempt = w->attempt,
        .over = w->fresh ? w->over : 0,
        .trip = lh_link_trip(w->coordinator),
        .epochs = w->conf.epochs,
        .any_epochs = !w->conf.epochs,
        .has_machine = w->conf.machine != NULL,
    };
    // A private region's manifest stays inside: its hash would confirm a guess of its texts.
    if (!wk_private_is(w)) m.units = lh_span(w->conf.units->hash.b, LH_HASH_BYTES);
    if (w->conf.machine) m.machine = *w->conf.machine;
    w->confirming = w->contested;
    return lh_ask(w->coordinator, LH_RPC_JOIN, wk_deadline(w, w->coordinator),
                  LH_MESSAGE(join_request, &m), on_join, w, &w->join);
}

// ---------------------------------------------------------------- lease

static void take_stable(struct wk_worker *w, size_t n, const struct lh_shard_point *list)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].shard >= w->shards || !list[i].chained) continue;
        struct wk_shard *s = &w->shard[list[i].shard];
        s->stable = list[i].at;
        wk_trim(s);
    }
}

// An answer without a tag of every shard says nothing.
static void take_allowance(struct wk_worker *w, const struct lh_lease_reply *m)
{
    if (!(m->allowance > 0) || m->n_allowance_tags != w->shards) return;
    w->allowance = m->allowance;
    for (uint32_t i = 0; i < w->shards; i++)
        w->shard[i].progress.allowance_tag = m->allowance_tags[i];
}

// The density of pushes follows from it: a little more or less is no reason for another one.
static void take_rounds(struct wk_worker *w, double rounds)
{
    if (!w->conf.told_rounds || rounds < 1) return;
    if (w->rounds > 0 && fabs(rounds - w->rounds) < w->rounds / 10) return;
    w->rounds = rounds;
    w->conf.told_rounds(w->conf.density_arg, rounds);
}

// The end that this shard's replica stands at is not the run's last one: the coordinator, which
// stores an end before any log has it, is in an earlier phase, or the shard's log goes on beyond it
// (server/docs/0000-protocol.md#rule-36). A worker may start from a copy of an earlier end.
static bool goes_beyond(const struct wk_shard *s)
{
    const struct wk_history *h = &s->history;
    const struct lh_ledger *l = &s->replica.ledger;
    if (s->worker->phase < LH_PHASE_END) return true;
    return h->told_epoch > l->epoch || (h->told_epoch == l->epoch && h->told_version > l->version);
}

// The coordinator was asked after these shards had ended here, so it knew of the end. Nothing is
// trained before the logs say so too (wk_everything_ready).
static void go_on(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        if (!s->ended || !s->end_asked || !goes_beyond(s)) continue;
        s->ended = w->told_done = false;
        wk_note_plans(w);
        s->session.process = 0; // Greets again: no row has the pushes that the end took back.
        lh_logf(w->conf.log, LH_INFO, "shard.goes_on", "shard %u at version %" PRIu64, s->id,
                s->replica.ledger.version);
        if (s->session.address[0]) w->hooks->address(s);
    }
}

static void on_lease(void *self, lh_err err, const void *answer)
{
    struct wk_worker *w = self;
    w->lease = NULL;
    if (w->stopped) return;
    if (err) {
        if (!refused(w, "lease", err)) again(w, wk_backoff(w, &w->member_tries, err));
        return;
    }
    const struct lh_lease_reply *m = answer;
    w->member_tries = 0;
    w->told_drained = w->telling_drained && !m->unknown;
    if (m->unknown) {
        w->joined = false;
        again(w, 0);
        return;
    }
    err = take_epochs(w, m->epochs);
    if (err) {
        wk_fatal(w, err);
        return;
    }
    w->phase = (uint8_t)m->phase;
    w->started = m->start;
    wk_told_paused(w, m->paused);
    w->began_ended = false;
    if (m->local_steps) w->local_steps = m->local_steps;
    take_rounds(w, m->rounds);
    w->window = m->window;
    take_stable(w, m->n_stable, m->stable); // a first greeting knows it
    wk_prove(w, m->n_challenges, m->challenges);
    if (!w->stopped) wk_left_out_told(w, m->left_out);
    if (w->stopped) return;
    take_addresses(w, m->n_shards, m->shards);
    go_on(w);
    w->told_done |= w->telling_done && wk_all_ended(w) && w->phase == LH_PHASE_END;
    look_for_servers(w);
    wk_grants_take(w, m->grants);
    take_allowance(w, m);
    if (w->leave.asked)
        wk_units_give_back(w, m->n_units, m->units);
    else
        wk_units_give_back(w, m->n_recalled, m->recalled);
    w->leave.returned = w->leave.asking && !w->returned_count;
    uint32_t queued_before = w->queued;
    if (w->phase == LH_PHASE_RUN && wk_units_wanted(w)) wk_units_take(w, m->n_units, m->units);
    wk_travel_told(w, m->n_givers, m->givers);
    if (w->phase >= LH_PHASE_DRAIN && !w->stepping) wk_units_park(w); // during a step: after it
    if (w->stopped) return;
    w->want_lease = false;
    // No more units are left if the answer has fewer than requested, or only units that are known
    // to be credited here. An answer to a full queue brings none and proves nothing.
    bool full = queued_before >= wk_units_wanted(w);
    w->leased_out = m->n_units < w->asked || (w->queued == queued_before && !full);
    bool soon = w->returned_count || w->leave.asked != w->leave.returned; // others wait for these
    again(w, soon ? 0 : w->conf.lease_ns);
    wk_changed(w);
}

static uint64_t *list_claimed(const struct wk_worker *w, size_t *count)
{
    size_t cap = 0, n = 0;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        cap += s->finished.count + s->slot.committed->claim_count;
        for (struct wk_entry *e = s->outbox.first; e; e = e->next) cap += e->head.claims;
    }
    uint64_t *out = malloc((cap + 1) * sizeof *out);
    for (uint32_t i = 0; out && i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        for (uint32_t k = 0; k < s->finished.count; k++) out[n++] = s->finished.unit[k];
        for (uint32_t k = 0; k < s->slot.committed->claim_count; k++)
            out[n++] = s->slot.committed->claim[k].unit;
        for (struct wk_entry *e = s->outbox.first; e; e = e->next)
            for (uint32_t k = 0; k < e->head.claims; k++)
                if (!lh_ledger_credited(&s->replica.ledger, e->head.claim[k]))
                    out[n++] = e->head.claim[k];
    }
    *count = n;
    return out;
}

static size_t list_points(const struct wk_worker *w, bool final, struct lh_shard_point *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        if (final ? !s->ended : !s->copies.durable.version) continue;
        const struct lh_ledger *l = &s->replica.ledger;
        out[n++] = final ? lh_shard_point(i, l->epoch, l->version, &s->final_digest)
                         : lh_shard_point(i, s->copies.durable.epoch, s->copies.durable.version,
                                          &s->copies.durable.chain);
    }
    return n;
}

// Lists the units held, and those of them, or of an earlier life's, that are begun. Gives one list,
// the second behind the first.
static uint64_t *list_units(const struct wk_worker *w, struct lh_lease_request *m)
{
    uint64_t *out = malloc((2u * w->queued + w->resume_count + 1) * sizeof *out);
    uint64_t *begun = out ? out + w->queued : NULL;
    m->holding = out;
    m->begun = begun;
    m->n_holding = w->queued;
    for (uint32_t i = 0; out && i < w->queued; i++) {
        out[i] = w->queue[i].unit;
        if (!wk_units_begun(w, &w->queue[i])) continue;
        begun[m->n_begun++] = w->queue[i].unit;
        m->begun_tokens += w->queue[i].tokens - w->queue[i].done;
    }
    bool idle = w->conf.beside && w->beside.state == WK_BESIDE_AWAY;
    for (uint32_t i = 0; out && i < w->resume_count && !idle; i++)
        begun[m->n_begun++] = w->resume[i].unit;
    return out;
}

// A worker requests no units once its loop has left or has begun to end. It gives back the units
// that it has, and those that an answer under way leases to it. A loop that may have outlived an
// earlier process of this worker keeps that process's units until it connects.
static bool gives_all(const struct wk_worker *w)
{
    const struct wk_beside *b = &w->beside;
    return w->conf.beside && b->lives && (b->state == WK_BESIDE_AWAY || b->ending);
}

// Fills all figures that depend on the training and its times (privacy.telemetry).
static void tell_training(struct wk_worker *w, struct lh_lease_request *m)
{
    m->tokens_per_s = wk_idle_speed(w);
    m->tokens = wk_all_tokens(w);
    m->failing = w->external && wk_external_failing(w->external);
    m->evaluates = w->evaluated.languages || w->beside.evaluates;
    m->loop_away = gives_all(w);
    m->step_tokens = w->step_tokens;
    if (w->conf.trainer && !m->step_tokens) // It makes such steps.
        m->step_tokens = w->conf.trainer->ops->step_tokens(w->conf.trainer);
    wk_path_tell(w, m);
    m->has_progress = true;
    wk_idle_tell(w, &m->progress);
}

static lh_err send_lease(struct wk_worker *w)
{
    struct lh_lease_request m = {.trip = lh_link_trip(w->coordinator)};
    struct lh_shard_point *points = calloc(2u * w->shards, sizeof *points);
    struct lh_possession *proofs = calloc(w->shards, sizeof *proofs);
    uint64_t *claims = list_claimed(w, &m.n_claimed), *units = list_units(w, &m);
    bool memory = points && proofs && claims && units;
    lh_err err = memory ? LH_OK : LH_ERR_NO_MEMORY;
    m.worker = w->id;
    m.incarnation = w->incarnation.number;
    w->leave.asking = w->leave.asked;
    m.want = w->asked = wk_units_wanted(w);
    m.ahead = m.want ? LH_LEASES_MAX : gives_all(w) && !w->leave.asked;
    m.claimed = claims;
    m.n_returned = w->returned_count;
    m.returned = w->returned;
    m.own_data = w->beside.own_data || wk_private_is(w);
    m.spent = wk_private_spent(w);
    if (!wk_private_is(w) || !w->conf.privacy.quiet) tell_training(w, &m);
    wk_travel_tell(w, &m);
    m.drained = w->telling_drained = wk_units_drained(w);
    m.done = w->telling_done = wk_all_ended(w);
    for (uint32_t i = 0; i < w->shards; i++) w->shard[i].end_asked = w->shard[i].ended;
    if (!err) {
        m.n_durable = list_points(w, false, points);
        m.durable = points;
        m.n_possessions = wk_prove_tell(w, proofs);
        m.possessions = proofs;
        if (m.done) m.n_final = list_points(w, true, points + w->shards);
        m.final = points + w->shards;
        err = lh_ask(w->coordinator, LH_RPC_LEASE, wk_deadline(w, w->coordinator),
                     LH_MESSAGE(lease_request, &m), on_lease, w, &w->lease);
    }
    free(points);
    free(proofs);
    free(claims);
    free(units);
    return err;
}

static void tick(void *arg)
{
    struct wk_worker *w = arg;
    w->member_timer = 0;
    if (w->stopped || w->join || w->lease) return;
    if (w->joined) wk_travel_give_back(w);
    lh_err err = w->joined ? send_lease(w) : send_join(w);
    if (err) again(w, wk_backoff(w, &w->member_tries, err));
}

void wk_lease_soon(struct wk_worker *w)
{
    if (w->want_lease || w->lease || w->join || !w->joined || w->member_tries) return;
    w->want_lease = true;
    again(w, 0);
}

void wk_member_leave(struct wk_worker *w)
{
    if (!w->join && !w->lease && !w->member_tries) again(w, 0);
}

void wk_member_contest(struct wk_worker *w, uint64_t row)
{
    if (row <= w->contested) return;
    w->contested = row;
    w->joined = false;
    again(w, 0);
}

void wk_member_start(struct wk_worker *w)
{
    tick(w);
}
