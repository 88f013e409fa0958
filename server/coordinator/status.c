// Status: the coordinator's state as JSON, for operators.
//
// The whole state: an object with the members, the shards, the servers, the plan, each region's
// forecast end (balance/forecast.h), and the workers' measurements (balance/measure.h). An answer
// shows the state in memory, since it is held until that is durable. status.json shows only the
// last durable state, which no commit can take back.
//
// The leases of all units of the run, one page at a time:
// {"leases": [{"unit", "data_epoch", "language", "home", "tokens", "state":
//   "free|leased|credited", "lease": "waits|begun|recalled" | null, "holder", "holder_region",
//   "token", "age_s", "expires_s", "credited_tokens"}], "next": unit | null}
//
// `unit` is numbered in the run, `data_epoch` from 0: epoch * units of the data + unit of the data.
// `lease` of a leased unit: waits (leased ahead), begun (trained in part, or whole with its claim
// on its way), or recalled, by the holder's last report. `holder` of a credited unit: the last one
// known to this process. `token` is the holder's granted incarnation: messages under an older one
// are ignored. Every message of the holder, about once a second, renews a lease; `expires_s` is the
// time left if the holder falls silent. A page shows the present state; between two pages a unit
// may change.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/json.h"
#include "common/net/wire_admin.h"
#include "common/privacy/account.h"
#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/forecast.h"
#include "server/coordinator/balance/measure.h"
#include "server/coordinator/cadence.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/order.h"
#include "server/coordinator/scale.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/status.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/hook.h"
#include "server/coordinator/watch/machine.h"
#include "server/coordinator/watch/pause.h"
#include "server/coordinator/watch/rules.h"
#include "server/coordinator/watch/stall.h"
#include "server/coordinator/watch/states.h"

enum { PAGE_MAX = 512, ROW_BYTES = 1000 }; // names of 63 bytes, escaped at worst
enum { LOOKED_AT = 1 << 16 };              // units examined per page; they may give no row
static const int64_t HEARS_NS = 5 * LH_SECOND;
LH_STATIC_ASSERT(PAGE_MAX *ROW_BYTES <= LH_SMALL_BYTES, "a page fits a message");

// ---------------------------------------------------------------- how long each is silent

static void tell_silence(json_t *row, int64_t silent_ns, int64_t bound_ns, const struct lh_trip *t)
{
    json_object_set_new(row, "silent_s", json_real((double)silent_ns / LH_SECOND));
    json_object_set_new(row, "bound_s", json_real((double)bound_ns / LH_SECOND));
    if (!t->mean_ns) return;
    json_object_set_new(row, "trip_ms", json_real((double)t->mean_ns / LH_MS));
    json_object_set_new(row, "spread_ms", json_real((double)t->spread_ns / LH_MS));
}

// The row of this server with one more shard, created for its first one; NULL: no memory.
static json_t *server_row(json_t *rows, const char *name, const char *region, const char *role,
                          uint32_t shard)
{
    json_t *row = NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *other = json_array_get(rows, i);
        if (!strcmp(lh_json_word(other, "name"), name) &&
            !strcmp(lh_json_word(other, "role"), role))
            row = other;
    }
    if (!row) {
        row =
            json_pack("{s:s s:s s:s s:[]}", "name", name, "region", region, "role", role, "shards");
        if (json_array_append_new(rows, row)) return NULL;
    }
    json_array_append_new(json_object_get(row, "shards"), json_integer(shard));
    return row;
}

// The owner's row among the expelled; NULL: it is not expelled, or no process said whose the shard
// is.
static const struct ps_co_expelled *expelled_owner(const struct ps_coordinator *c,
                                                   const struct ps_co_shard *s)
{
    for (uint32_t i = 0; i < c->expelled_count; i++) {
        const struct ps_co_expelled *e = &c->expelled[i];
        if (e->server && (e->id == s->server || e->id == s->heard_of)) return e;
    }
    return NULL;
}

static void tell_owner(const struct ps_coordinator *c, uint32_t shard, json_t *rows)
{
    const struct ps_co_shard *s = &c->shard[shard];
    char unheard[32];
    bool known = s->name[0]; // false: this process has not heard it
    const struct ps_co_expelled *e = expelled_owner(c, s);
    snprintf(unheard, sizeof unheard, "shard %u", shard);
    const char *name = e ? e->name : known ? s->name : unheard;
    const char *region = e ? e->region : known ? s->region : "-";
    int64_t silent = c->listener.ns - s->heard_ns, bound = ps_co_owner_bound(c, s);
    bool away = c->conf.take_over_ns && silent >= bound;
    json_t *row = server_row(rows, name, region, "server", shard);
    const char *state = e ? "expelled" : !known ? "unheard" : away ? "suspect" : "live";
    json_object_set_new(row, "state", json_string(state));
    tell_silence(row, silent, bound, &s->trip);
}

static void tell_standbys(const struct ps_coordinator *c, uint32_t shard, json_t *rows)
{
    const struct ps_co_shard *s = &c->shard[shard];
    for (const struct ps_co_standby *b = s->standing; b < s->standing + PS_CO_STANDBYS; b++) {
        if (!b->identity || b->identity == s->owner) continue;
        json_t *row = server_row(rows, b->name, b->region, "standby", shard);
        int64_t silent = c->listener.ns - b->heard_ns, bound = ps_co_standby_bound(b);
        json_object_set_new(row, "state", json_string(silent >= bound ? "suspect" : "live"));
        tell_silence(row, silent, bound, &b->trip);
    }
}

static json_t *servers_status(const struct ps_coordinator *c)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        tell_owner(c, i, rows);
        tell_standbys(c, i, rows);
    }
    return rows;
}

// ---------------------------------------------------------------- the leases of units

static const char *state_of(const struct ps_coordinator *c, uint64_t unit)
{
    if (ps_co_credited(c, unit)) return "credited";
    return c->lease[unit] == CO_FREE ? "free" : "leased";
}

// The state of a lease, "waits", "begun" or "recalled"; NULL: not leased, or credited.
static const char *lease_name(const struct ps_coordinator *c, uint64_t unit)
{
    if (c->lease[unit] == CO_FREE || ps_co_credited(c, unit)) return NULL;
    return c->begun[unit] != CO_WAITS ? "begun" : c->wanted_by[unit] ? "recalled" : "waits";
}

static const struct ps_co_worker *holder_of(const struct ps_coordinator *c, uint64_t unit)
{
    return c->lease[unit] == CO_FREE ? NULL : &c->worker[c->lease[unit] - 1];
}

static bool matches(const char *wanted, const char *value)
{
    return !wanted[0] || strcmp(wanted, value) == 0;
}

static bool wanted(const struct ps_coordinator *c, const struct lh_status_request *q, uint64_t unit)
{
    const struct lh_unit *u = ps_co_unit(c, unit);
    const struct ps_co_worker *w = holder_of(c, unit);
    return matches(q->state, state_of(c, unit)) && matches(q->home, u->home) &&
           matches(q->language, u->language) && matches(q->worker, w ? w->name : "");
}

static json_t *row_of(const struct ps_coordinator *c, uint64_t unit)
{
    const struct lh_unit *u = ps_co_unit(c, unit);
    const struct ps_co_worker *w = holder_of(c, unit);
    bool credited = ps_co_credited(c, unit);
    json_t *row =
        json_pack("{s:I s:I s:s s:s s:I s:s s:s? s:s? s:s? s:I}", "unit", (json_int_t)unit,
                  "data_epoch", (json_int_t)(unit / c->conf.units->count), "language", u->language,
                  "home", u->home, "tokens", (json_int_t)u->tokens, "state", state_of(c, unit),
                  "lease", lease_name(c, unit), "holder", w ? w->name : NULL, "holder_region",
                  w ? w->region : NULL, "credited_tokens", (json_int_t)(credited ? u->tokens : 0));
    if (!w) return row;
    json_object_set_new(row, "token", json_integer(w->granted));
    if (credited) return row;
    int64_t age = c->conf.env->ops->wall_s(c->conf.env) - c->leased_s[unit];
    int64_t left = ps_co_worker_bound(c, w) - (c->listener.ns - w->seen_ns);
    if (c->leased_s[unit]) json_object_set_new(row, "age_s", json_integer(age > 0 ? age : 0));
    json_object_set_new(row, "expires_s", json_real(left > 0 ? (double)left / LH_SECOND : 0));
    return row;
}

lh_err ps_co_leases(const struct ps_coordinator *c, const struct lh_status_request *q,
                    struct lh_buf *out)
{
    uint32_t limit = q->limit && q->limit < PAGE_MAX ? q->limit : PAGE_MAX;
    json_t *rows = json_array();
    uint64_t u = q->from, end = q->from < c->units ? q->from : c->units;
    end = c->units - end < LOOKED_AT ? c->units : end + LOOKED_AT;
    for (; u < end && json_array_size(rows) < limit; u++)
        if (wanted(c, q, u)) json_array_append_new(rows, row_of(c, u));
    json_t *next = u < c->units ? json_integer((json_int_t)u) : json_null();
    json_t *root = json_pack("{s:o s:o}", "leases", rows, "next", next);
    return lh_json_give(root, out);
}

// ---------------------------------------------------------------- the whole

// Steps that the shards' logs have admitted of a private worker. At region level each shard's
// pushes have a share of a step; else all shards show one count.
static double charged_steps(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    uint32_t shards = c->conf.manifest->shards;
    double sum = 0, most = 0;
    for (uint32_t i = 0; w->admitted && i < shards; i++) {
        double steps = (double)w->admitted[i].charged;
        sum += steps / shards;
        if (steps > most) most = steps;
    }
    return c->plan.privacy.level == LH_PRIVACY_REGION ? sum : most;
}

// Epsilon of the admitted pushes of a private worker, by the plan's terms. Where records are drawn
// it takes too long for this thread: this is a bound of it then, and the operator's tool computes
// it from the terms.
static void tell_privacy(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row)
{
    const struct lh_privacy *p = &c->plan.privacy;
    if (!p->level || ps_co_data(c, w) != LH_DATA_PRIVATE) return;
    double steps = charged_steps(c, w);
    double sigma = lh_privacy_multiplier(p);
    json_object_update_new(
        row, json_pack("{s:f s:f s:f s:b s:f s:f s:f}", "charged", steps, "epsilon_max", p->epsilon,
                       "delta", p->delta, "budget_spent", w->spent, "sigma", sigma, "rate", p->rate,
                       "epsilon_at_most", lh_account_bound(&c->bound, steps, p->delta)));
    if (p->rate >= 1)
        json_object_set_new(row, "epsilon",
                            json_real(lh_account_spent(sigma, p->rate, steps, p->delta)));
}

// Tokens a second of a worker that trains; one that is gone or has drained makes none.
static double speed_of(const struct ps_co_worker *w)
{
    return w->live && !w->drained ? w->tokens_per_s : 0;
}

static json_t *worker_status(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    json_t *final = json_array();
    for (uint32_t i = 0; w->done && w->final && i < c->conf.manifest->shards; i++) {
        char hex[2 * LH_HASH_BYTES + 1];
        lh_hash_hex(&w->final[i].chain, hex);
        json_array_append_new(final, json_pack("{s:i s:I s:s}", "shard", (int)i, "version",
                                               (json_int_t)w->final[i].version, "digest", hex));
    }
    // Not "state": the worker's own status has that key, and tools show both together.
    json_t *row = json_pack(
        "{s:s s:s s:I s:I s:b s:b s:b s:b s:f s:I s:i s:o s:b s:s}", "name", w->name, "region",
        w->region, "granted", (json_int_t)w->granted, "incarnation", (json_int_t)w->incarnation,
        "live", w->live, "draining", ps_co_draining(c, w), "drained", w->drained, "done", w->done,
        "tokens_per_s", speed_of(w), "tokens", (json_int_t)w->tokens, "h",
        (int)ps_co_local_steps(c, w), "final", final, "expelled", ps_co_is_expelled(c, w->id),
        "member_state", ps_co_state_name(ps_co_worker_state(c, w)));
    tell_silence(row, c->listener.ns - w->seen_ns, ps_co_worker_bound(c, w), &w->trip);
    ps_co_tell_stall(c, w, row);
    ps_co_tell_aside(c, w, row);
    if (lh_plan_left_out(&c->plan, w->id))
        json_object_set_new(row, "left_out",
                            json_pack("{s:I s:I}", "lost_pushes",
                                      (json_int_t)(w->stall.lost_pushes & INT64_MAX), "lost_tokens",
                                      (json_int_t)(w->stall.lost_tokens & INT64_MAX)));
    ps_co_tell_measured(w, row);
    ps_co_tell_away(c, w, row);
    ps_co_tell_cadence(c, w, row);
    ps_co_tell_machine(w, row);
    tell_privacy(c, w, row);
    return row;
}

static json_t *shard_status(const struct ps_coordinator *c, uint32_t i)
{
    const struct ps_co_shard *s = &c->shard[i];
    uint64_t head = s->head.version, stable = s->stable.version;
    return json_pack("{s:i s:s s:I s:I s:I s:I s:I s:s s:b s:b s:b}", "shard", (int)i, "address",
                     s->address, "epoch", (json_int_t)s->head.epoch, "version", (json_int_t)head,
                     "stable", (json_int_t)stable, "stable_lag",
                     (json_int_t)(head > stable ? head - stable : 0), "plan", (json_int_t)s->plan,
                     "phase", lh_phase_name((uint8_t)s->phase), "standby_in_sync", s->standby != 0,
                     "moving", s->move.target != 0, "taken_over", s->owner != 0);
}

// {"rule", "frozen", "twice": units that two workers run now, "decisions": the last ones
// (balance/decided.h), "links": bytes that crossed them (balance/crossed.h)}
static json_t *balancer_status(const struct ps_coordinator *c)
{
    const char *rule =
        c->conf.balance.follows ? ps_balance_kind_name(c->conf.balance.kind) : "level";
    return json_pack("{s:s s:b s:i s:o s:o}", "rule", rule, "frozen", c->frozen, "twice",
                     (int)c->seconds, "decisions", ps_co_decisions(c), "links", ps_co_crossed(c));
}

bool ps_coordinator_over(const struct ps_coordinator *c)
{
    return c->plan.phase == LH_PHASE_END && ps_co_settled(c);
}

// A restarted coordinator hears from servers and workers within a second or two. Until then its
// status of them is incomplete, so callers wait (deploy/ask/admin.c).
static bool hears(const struct ps_coordinator *c)
{
    bool all = c->listener.ns - c->began_ns >= HEARS_NS || c->plan.phase == LH_PHASE_WAIT;
    for (uint32_t i = 0; !all && i < c->conf.manifest->shards; i++)
        if (!c->shard[i].reported) return true;
    for (uint32_t i = 0; !all && i < c->workers; i++)
        if (!c->worker[i].joined && !c->worker[i].drained_kept &&
            !lh_plan_left_out(&c->plan, c->worker[i].id))
            return true;
    return false;
}

// Appends it: it is current even if the rest is the last durable state.
static void tell_commit_age(const struct ps_coordinator *c, struct lh_buf *out)
{
    char text[64];
    int n = snprintf(text, sizeof text, ",\"commit_age_s\":%.3f}", ps_co_commit_age_s(c));
    LH_ASSERT(out->len && out->data[out->len - 1] == '}');
    out->len--;
    lh_put(out, text, (size_t)n);
}

static void find_bound(struct ps_coordinator *c)
{
    const struct lh_privacy *p = &c->plan.privacy;
    double sigma = p->level ? lh_privacy_multiplier(p) : 0;
    if (p->level && (c->bound.sigma != sigma || c->bound.q != p->rate))
        lh_account_bound_make(sigma, p->rate, &c->bound);
}

lh_err ps_coordinator_status(struct ps_coordinator *c, struct lh_buf *out)
{
    json_t *workers = json_array(), *shards = json_array(), *drained = json_array();
    uint64_t begun = 0, recalled = 0;
    find_bound(c);
    for (uint32_t i = 0; i < c->workers; i++)
        json_array_append_new(workers, worker_status(c, &c->worker[i]));
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        json_array_append_new(shards, shard_status(c, i));
    for (uint32_t i = 0; i < c->stock.pools; i++)
        begun +=
            c->stock.pool[i].leased_units[CO_BEGUN] + c->stock.pool[i].leased_units[CO_CLAIMED];
    for (uint32_t i = 0; i < c->workers; i++)
        recalled += c->worker[i].wanted.units - c->worker[i].wanted.kept_units;
    for (uint32_t i = 0; i < c->drained_regions; i++)
        json_array_append_new(drained, json_string(c->drained_region[i]));
    // Ready: it answers only once its store is read.
    json_t *root = json_pack(
        "{s:s s:s s:s s:b s:b s:o s:I s:I s:I s:i s:i s:I s:I s:I s:I s:I s:o s:o s:o s:o s:b s:b "
        "s:b s:I s:o s:o s:o* s:o* s:o* s:o*}",
        "role", "coordinator", "address", c->address, "phase", lh_phase_name(c->plan.phase),
        "draining", c->draining, "ending", c->ending, "drained_regions", drained, "credited_tokens",
        (json_int_t)ps_co_credited_tokens(c), "budget_tokens", (json_int_t)c->conf.budget_tokens,
        "units", (json_int_t)c->units, "data_epoch", (int)ps_co_data_epoch(c), "data_epochs",
        (int)c->epochs, "credited", (json_int_t)c->stock.credited_units, "leased",
        (json_int_t)c->stock.leased_units, "begun", (json_int_t)begun, "recalled",
        (json_int_t)recalled, "plan", (json_int_t)c->plan.number, "workers", workers, "shards",
        shards, "servers", servers_status(c), "forecast", ps_co_forecast(c), "ready", true, "hears",
        hears(c), "disk_full", ps_co_full(c), "refused_servers", (json_int_t)c->refused_servers,
        "links", ps_co_links(c), "balancer", balancer_status(c), "scale", ps_co_scale_status(c),
        "paused", ps_co_pause_status(c), "alarms", ps_co_rules_status(c), "hook",
        ps_co_hook_status(c));
    if (root && c->conf.tell) c->conf.tell(c->conf.tell_arg, root);
    return lh_json_give(root, out);
}

// ---------------------------------------------------------------- what is durable of it

lh_err ps_co_load_status(struct ps_coordinator *c)
{
    lh_buf_clear(&c->status.made);
    return LH_OK;
}

static void swap(struct lh_buf *a, struct lh_buf *b)
{
    struct lh_buf was = *a;
    *a = *b;
    *b = was;
}

lh_err ps_coordinator_durable_status(struct ps_coordinator *c, struct lh_buf *out)
{
    struct ps_co_status *m = &c->status;
    if (m->made.len && m->made_change <= ps_store_durable(c->store)) {
        swap(&m->durable, &m->made);
        lh_buf_clear(&m->made);
    }
    struct lh_buf *to = ps_co_settled(c) ? &m->durable : m->made.len ? NULL : &m->made;
    if (to) {
        lh_buf_clear(to);
        LH_TRY(ps_coordinator_status(c, to));
    }
    if (to == &m->made) m->made_change = ps_store_changed(c->store);
    if (!m->durable.len) return lh_fail(LH_ERR_BUSY, "the disk has no status yet");
    lh_put(out, m->durable.data, m->durable.len);
    if (!lh_buf_err(out)) tell_commit_age(c, out);
    return lh_buf_err(out);
}

// ---------------------------------------------------------------- the call

// Escapes, the slice's head and the message's other fields still fit.
enum { SLICE_BYTES = LH_SMALL_BYTES / 4 * 3 };

static size_t end_of_slice(const struct lh_buf *text, size_t from)
{
    size_t end = from + SLICE_BYTES;
    if (end >= text->len) return text->len;
    while (end > from && (text->data[end] & 0xc0) == 0x80) end--; // not within a character
    return end;
}

static struct ps_co_told *told(struct ps_coordinator *c, uint64_t number)
{
    for (struct ps_co_told *t = c->status.told; t < c->status.told + PS_CO_READERS_MAX; t++)
        if (t->number == number) return t;
    return NULL;
}

// A free place, or that of the text that has not been read for longest: of this reader's, where it
// has as many as it may, so that no reader takes the others'.
static struct ps_co_told *place_for(struct ps_coordinator *c, uint64_t reader)
{
    struct ps_co_told *oldest = NULL, *own = NULL;
    uint32_t texts = 0;
    for (struct ps_co_told *t = c->status.told; t < c->status.told + PS_CO_READERS_MAX; t++) {
        if (t->number && t->reader == reader) {
            texts++;
            if (!own || t->read_ns < own->read_ns) own = t;
        }
        if (!oldest || (oldest->number && (!t->number || t->read_ns < oldest->read_ns))) oldest = t;
    }
    return texts < PS_CO_TEXTS_OF_A_READER ? oldest : own;
}

lh_err ps_co_status_slice(struct ps_coordinator *c, uint64_t reader, uint64_t *number,
                          uint64_t from, struct lh_buf *out, uint64_t *bytes)
{
    struct ps_co_told *t = *number ? told(c, *number) : place_for(c, reader);
    if (!t) return lh_fail(LH_ERR_BUSY, "other callers got newer states meanwhile: ask again");
    if (!*number) {
        lh_buf_free(&t->text);
        t->text = lh_buf(PS_CO_STATUS_BYTES);
        t->number = 0;
        LH_TRY(ps_coordinator_status(c, &t->text));
        lh_random(c->conf.env, &t->number, sizeof t->number);
        t->number |= 1;
        t->reader = reader;
        from = 0;
    }
    if (from > t->text.len) return lh_fail(LH_ERR_INVALID, "no such slice");
    size_t end = end_of_slice(&t->text, (size_t)from);
    t->read_ns = ps_co_now(c);
    *bytes = t->text.len;
    *number = from || end < t->text.len ? t->number : 0;
    lh_put(out, t->text.data + from, end - (size_t)from);
    if (end == t->text.len) { // the last slice
        lh_buf_free(&t->text);
        t->number = 0;
    }
    return lh_buf_err(out);
}

void ps_co_on_status(void *self, struct lh_request *rq, const void *request)
{
    const struct lh_status_request *q = request;
    struct lh_status_reply out = {.text = q->text};
    struct lh_buf json = lh_buf(LH_SMALL_BYTES);
    lh_err err = LH_OK;
    if (!q->part[0])
        err = ps_co_status_slice(self, lh_worker_id(lh_request_peer(rq)), &out.text, q->from, &json,
                                 &out.bytes);
    else if (!strcmp(q->part, "leases"))
        err = ps_co_leases(self, q, &json);
    else
        err = lh_fail(LH_ERR_UNSUPPORTED, "no part %.40s of a coordinator's status", q->part);
    lh_put_u8(&json, 0);
    out.json = (const char *)json.data;
    if (!err) err = lh_buf_err(&json);
    if (err)
        ps_co_refuse(self, rq, err);
    else
        ps_co_answer(self, rq, LH_MESSAGE(status_reply, &out));
    lh_buf_free(&json);
}
