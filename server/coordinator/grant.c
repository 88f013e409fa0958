// Leases: which units a worker gets, and which it is to give back
// (server/docs/0000-protocol.md#rule-19, #rule-20).
//
// A lease saves work; what credits a unit is the first claim in its shard's log. A worker is handed
// all the units that it holds at every call, so a restarted one picks up where it was. A lease ends
// with its unit's credit, with its holder's silence, or where its holder gives it back.
//
// 1. A worker gets as many units as it asks for: what it trains and what it reads ahead.
// 2. Beyond those it gets as many tokens as it trains in conf.ride_out_ns, so that it goes on while
//    this process is away; but then it has at most half of what is left for it. So free units last
//    to the end of the run, and nobody takes what another needs.
// 3. Where nothing is free for a worker, units are recalled for it from the one that will be busy
//    longest, as many as let both end together. Only units that are not begun: the holder looks
//    again when it is asked, and its word counts. A unit that came back is kept for whom it was
//    recalled, as long as that one is there.
// 4. What is recalled and what is begun is in memory alone. A coordinator that starts again leases
//    by its store, and asks anew.
// 5. A worker that comes back after its leases went to others gives those back; what is still free
//    of what it holds is leased to it again.
//
// 6. A worker gets a unit of a later data epoch only where none of an earlier one is free for it.
//    Nobody waits for the end of an epoch: the one whose units others still train, or may not
//    leave their region, goes on with the next. So epochs overlap by what is leased, and regions
//    whose data stay at home may be epochs apart; where a budget ends the run, it counts tokens.
//
// Memory: 13 bytes a unit of the run, whoever has it, and those of order.c; 40 KiB for an answer.
// A request looks at every unit of the epochs under way a few times.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/manifest.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/grant.h"
#include "server/coordinator/order.h"

enum {
    // Whatever it asks for; and all that a worker of before leases ahead can hold.
    WANT_MAX = LH_WINDOW_MAX + LH_READ_AHEAD_MAX,
    // Leased to one worker: what it holds, and twice what it may have claimed (WK_CLAIMS_HELD_MAX).
    HELD_MAX = LH_LEASES_MAX + 2 * 4096,
};

// ---------------------------------------------------------------- what is stored

static void lease_key(char out[32], uint64_t unit)
{
    snprintf(out, 32, "lease/%010" PRIu64, unit);
}

static lh_err set_lease(struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    char key[32];
    lease_key(key, unit);
    c->lease[unit] = worker + 1;
    if (unit >= c->leased_end) c->leased_end = unit + 1;
    c->leased_s[unit] = (uint32_t)c->conf.env->ops->wall_s(c->conf.env);
    c->begun[unit] = CO_WAITS;
    c->wanted_by[unit] = 0;
    struct lh_buf b = lh_buf(16);
    lh_put_u64(&b, c->worker[worker].id);
    lh_put_u64(&b, c->leased_s[unit]);
    lh_err err = lh_buf_err(&b);
    if (!err) err = ps_co_put(c, key, lh_buf_span(&b));
    lh_buf_free(&b);
    return err;
}

static lh_err free_lease(struct ps_coordinator *c, uint64_t unit)
{
    char key[32];
    lease_key(key, unit);
    c->lease[unit] = CO_FREE;
    return ps_co_remove(c, key);
}

static void load_lease(void *arg, const char *key, struct lh_span value)
{
    struct ps_coordinator *c = arg;
    uint64_t unit = strtoull(key + strlen("lease/"), NULL, 10);
    struct lh_cursor at = lh_cursor(value);
    uint32_t w = ps_co_worker_index(c, lh_get_u64(&at));
    if (unit >= c->units || w >= c->workers || at.failed) return;
    c->lease[unit] = w + 1;
    if (unit >= c->leased_end) c->leased_end = unit + 1;
    uint64_t since = lh_get_u64(&at); // older stores do not say
    c->leased_s[unit] = at.failed ? 0 : (uint32_t)since;
}

lh_err ps_co_load_leases(struct ps_coordinator *c)
{
    uint64_t n = c->units;
    memset(c->lease, 0, n * sizeof *c->lease);
    memset(c->leased_s, 0, n * sizeof *c->leased_s);
    memset(c->begun, 0, n * sizeof *c->begun);
    memset(c->wanted_by, 0, n * sizeof *c->wanted_by);
    c->leased_end = 0;
    ps_store_each(c->store, "lease/", load_lease, c);
    return LH_OK;
}

lh_err ps_co_free_leases(struct ps_coordinator *c, uint32_t worker)
{
    for (uint64_t u = ps_co_under_way(c).from; u < c->leased_end; u++)
        if (c->lease[u] == worker + 1 && !ps_co_credited(c, u)) LH_TRY(free_lease(c, u));
    return LH_OK;
}

// ---------------------------------------------------------------- what may be leased

// Nothing is known of a shard's credits before its server has reported to this process.
static bool may_lease(const struct ps_coordinator *c, uint64_t unit)
{
    bool known = c->shard[unit % c->conf.manifest->shards].reported || LH_BUG("lease_unheard");
    return known && !ps_co_credited(c, unit);
}

// After a pause of this process the same holds until the server is heard again: a report that waits
// unread may say that a free unit is credited.
static bool may_lease_anew(const struct ps_coordinator *c, uint64_t unit)
{
    const struct ps_co_shard *s = &c->shard[unit % c->conf.manifest->shards];
    bool old = lh_listener_rests(&c->listener) && s->heard_after != c->listener.pauses;
    return !old && c->lease[unit] == CO_FREE && may_lease(c, unit);
}

// For whom the unit is recalled or kept: another worker than `but`, that is there to take it.
static bool wanted_elsewhere(const struct ps_coordinator *c, uint64_t unit, uint32_t but)
{
    uint32_t by = c->wanted_by[unit];
    if (!by || by == but + 1 || by > c->workers) return false;
    const struct ps_co_worker *w = &c->worker[by - 1];
    return w->live && !ps_co_draining(c, w);
}

static bool is_home(const struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    return strcmp(ps_co_unit(c, unit)->home, c->worker[worker].region) == 0;
}

static bool may_train(const struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    return ps_co_unit(c, unit)->may_leave || is_home(c, unit, worker);
}

// Tokens that are credited, or leased and on their way to be.
static uint64_t committed_tokens(const struct ps_coordinator *c)
{
    struct ps_co_span span = ps_co_under_way(c);
    uint64_t sum = ps_co_tokens_below(c, span.from);
    for (uint64_t u = span.from; u < span.to; u++)
        if (c->lease[u] != CO_FREE || ps_co_credited(c, u)) sum += ps_co_unit(c, u)->tokens;
    return sum;
}

// ---------------------------------------------------------------- one request

struct asking {
    struct ps_coordinator *c;
    uint32_t w; // its index in c->worker
    const Longhaul__V1__LeaseRequest *m;
    struct ps_co_leased *out;
    bool open;                // units are leased now, to this worker
    bool ahead;               // beyond what it asks for, too; and they are recalled
    size_t held;              // units that are leased to it, claimed ones too
    uint64_t tokens;          // tokens of those units that it has not claimed
    uint64_t sum, budget;     // committed tokens of the run, and where they end
    double need;              // tokens that it trains in the time to ride out
    uint64_t left;            // tokens that are left for it; 0: not counted yet
    uint8_t *claimed, *begun; // a bit for each unit of the run
};

// A bit for each unit of the list, however long that is. Gives; NULL: no memory.
static uint8_t *bits_of(const struct ps_coordinator *c, const uint64_t *list, size_t n)
{
    uint8_t *bits = calloc(c->units / 8 + 1, 1);
    for (size_t i = 0; bits && i < n; i++)
        if (list[i] < c->units) bits[list[i] / 8] |= (uint8_t)(1u << (list[i] % 8));
    return bits;
}

static bool has(const uint8_t *bits, uint64_t unit)
{
    return bits[unit / 8] >> (unit % 8) & 1;
}

static void recall(struct asking *a, uint64_t unit)
{
    if (a->out->recalls < LH_RECALLS_MAX) a->out->recalled[a->out->recalls++] = unit;
}

// A copy of this request that comes late may free a unit that was leased to the same worker again:
// it is trained twice then, and credited once.
static lh_err take_returned(struct asking *a)
{
    struct ps_coordinator *c = a->c;
    for (size_t i = 0; i < a->m->n_returned; i++) {
        uint64_t u = a->m->returned[i];
        if (u >= c->units || c->lease[u] != a->w + 1 || ps_co_credited(c, u)) continue;
        LH_TRY(free_lease(c, u));
    }
    return LH_OK;
}

// A worker may hold units that are not leased to it: it lost them while it could not be heard.
static lh_err reconcile(struct asking *a)
{
    struct ps_coordinator *c = a->c;
    uint64_t sum = 0, free_held = 0;
    for (size_t i = 0; i < a->m->n_holding; i++) {
        uint64_t u = a->m->holding[i];
        if (u >= c->units || c->lease[u] == a->w + 1) continue;
        bool gone = c->lease[u] != CO_FREE || ps_co_credited(c, u);
        if (!gone && !may_lease_anew(c, u)) continue; // not known yet
        if (!gone && !free_held++) sum = committed_tokens(c);
        gone |= !a->open || sum >= a->budget || free_held > LH_LEASES_MAX ||
                !may_train(c, u, a->w) || wanted_elsewhere(c, u, a->w);
        if (gone) {
            recall(a, u);
        } else {
            sum += ps_co_unit(c, u)->tokens;
            LH_TRY(set_lease(c, u, a->w));
        }
    }
    return LH_OK;
}

// Lists what it has, but what it claimed and what is recalled from it.
static void list_held(struct asking *a)
{
    struct ps_coordinator *c = a->c;
    bool leaves = ps_co_leaving(c, &c->worker[a->w]);
    struct ps_co_span span = ps_co_under_way(c);
    if (a->open) a->sum = ps_co_tokens_below(c, span.from);
    for (uint64_t place = span.from; place < span.to; place++) {
        uint64_t u = ps_co_nth(c, place);
        bool committed = c->lease[u] != CO_FREE || ps_co_credited(c, u) ||
                         wanted_elsewhere(c, u, a->w); // kept for another: as good as leased
        if (a->open && committed) a->sum += ps_co_unit(c, u)->tokens;
        if (c->lease[u] != a->w + 1 || !may_lease(c, u)) continue;
        a->held++;
        bool claimed = has(a->claimed, u);
        c->begun[u] = claimed ? CO_CLAIMED : has(a->begun, u) ? CO_BEGUN : CO_WAITS;
        if (c->begun[u] != CO_WAITS) c->wanted_by[u] = 0;
        if (claimed) continue;
        if (a->ahead && !c->begun[u] && (leaves || wanted_elsewhere(c, u, a->w))) {
            recall(a, u);
            continue;
        }
        a->tokens += ps_co_unit(c, u)->tokens;
        if (a->out->units < (a->ahead ? LH_LEASES_MAX : WANT_MAX))
            a->out->unit[a->out->units++] = u;
    }
}

static bool is_free(const struct asking *a, uint64_t unit)
{
    return may_lease_anew(a->c, unit) && !wanted_elsewhere(a->c, unit, a->w);
}

// Counted only as far as it can matter.
static void count_left(struct asking *a)
{
    const struct ps_coordinator *c = a->c;
    uint64_t free_tokens = 0, enough = (uint64_t)(a->need < 1e18 ? 2 * a->need : 2e18);
    uint64_t from = ps_co_under_way(c).from;
    for (uint64_t u = from; u < c->units && free_tokens < enough; u++)
        if (is_free(a, u) && may_train(c, u, a->w)) free_tokens += ps_co_unit(c, u)->tokens;
    uint64_t rest = a->budget - a->sum; // the loop that asks is below the budget
    a->left = a->tokens + (free_tokens < rest ? free_tokens : rest);
}

static bool wants_more(const struct asking *a)
{
    size_t n = a->out->units;
    if (a->held >= HELD_MAX || a->sum >= a->budget) return false;
    if (n < a->m->want && n < WANT_MAX) return true;
    return a->ahead && n < LH_LEASES_MAX && n < a->m->ahead && (double)a->tokens < a->need;
}

static bool may_have(struct asking *a, uint64_t tokens)
{
    if (a->out->units < a->m->want && a->out->units < WANT_MAX) return true;
    if (!a->left) count_left(a);
    return 2 * (a->tokens + tokens) <= a->left;
}

static lh_err take(struct asking *a, uint64_t unit)
{
    uint64_t tokens = ps_co_unit(a->c, unit)->tokens;
    LH_TRY(set_lease(a->c, unit, a->w));
    a->sum += tokens;
    a->tokens += tokens;
    a->held++;
    a->out->unit[a->out->units++] = unit;
    return LH_OK;
}

// The next units of one data epoch for a worker: its region's own, then what may leave another's.
// *over: it gets no more, of later epochs neither.
static lh_err lease_epoch(struct asking *a, uint32_t epoch, bool *over)
{
    const struct ps_coordinator *c = a->c;
    uint64_t count = c->conf.units->count, first = epoch * count;
    *over = true;
    for (int home = 1; home >= 0; home--)
        for (uint64_t place = first; place < first + count; place++) {
            uint64_t u = ps_co_nth(c, place);
            if (!wants_more(a)) return LH_OK;
            if (!is_free(a, u) || is_home(c, u, a->w) != home || !may_train(c, u, a->w)) continue;
            if (!may_have(a, ps_co_unit(c, u)->tokens)) return LH_OK;
            LH_TRY(take(a, u));
        }
    *over = false;
    return LH_OK;
}

// The next units for a worker: those that were recalled for it, then one data epoch after the
// other. *none: nothing more is free for it.
static lh_err lease_free(struct asking *a, bool *none)
{
    const struct ps_coordinator *c = a->c;
    *none = false;
    struct ps_co_span span = ps_co_under_way(c);
    for (uint64_t place = span.from; a->ahead && place < span.to && wants_more(a); place++) {
        uint64_t u = ps_co_nth(c, place);
        if (c->wanted_by[u] == a->w + 1 && is_free(a, u)) LH_TRY(take(a, u));
    }
    bool over = false;
    uint32_t first = (uint32_t)(span.from / c->conf.units->count);
    for (uint32_t e = first; e < c->epochs && !over; e++) LH_TRY(lease_epoch(a, e, &over));
    *none = !over || a->sum >= a->budget;
    return LH_OK;
}

// ---------------------------------------------------------------- levelling

// Counts what every worker has left; units on their way to this one are its own.
static void count_all(const struct asking *a)
{
    struct ps_coordinator *c = a->c;
    for (uint32_t i = 0; i < c->workers; i++)
        c->worker[i].left_tokens = c->worker[i].spare_tokens = 0;
    struct ps_co_span span = ps_co_under_way(c);
    for (uint64_t u = span.from; u < span.to; u++) {
        if (c->lease[u] == CO_FREE || !may_lease(c, u) || c->begun[u] == CO_CLAIMED) continue;
        uint64_t tokens = ps_co_unit(c, u)->tokens;
        uint32_t holder = c->lease[u] - 1;
        bool moves = wanted_elsewhere(c, u, holder);
        struct ps_co_worker *w = &c->worker[moves ? c->wanted_by[u] - 1 : holder];
        w->left_tokens += tokens;
        if (!moves && w->gives && c->begun[u] == CO_WAITS && may_train(c, u, a->w))
            w->spare_tokens += tokens;
    }
}

static double seconds_of(const struct ps_co_worker *w)
{
    return (double)w->left_tokens / (w->tokens_per_s > 0 ? w->tokens_per_s : 1);
}

// The one that will be busy longest, of those that have something to give; NULL: none.
static struct ps_co_worker *busiest(const struct asking *a)
{
    struct ps_co_worker *out = NULL;
    for (uint32_t i = 0; i < a->c->workers; i++) {
        struct ps_co_worker *v = &a->c->worker[i];
        if (i == a->w || !v->live || ps_co_draining(a->c, v) || !v->spare_tokens) continue;
        if (!out || seconds_of(v) > seconds_of(out)) out = v;
    }
    return out;
}

// Recalls what lets the busiest worker and this one end together. The last units go first: those
// that are not read ahead. One of its own region is its own before another's is.
static void level(struct asking *a)
{
    struct ps_coordinator *c = a->c;
    count_all(a);
    struct ps_co_worker *w = &c->worker[a->w], *from = busiest(a);
    if (!from) return;
    double slow = from->tokens_per_s > 0 ? from->tokens_per_s : 1;
    double own = w->tokens_per_s > 0 ? w->tokens_per_s : slow;
    double all = (double)from->left_tokens + (double)w->left_tokens;
    double most = (double)from->left_tokens - all * (slow / (slow + own)), moved = 0;
    uint32_t holder = (uint32_t)(from - c->worker) + 1;
    struct ps_co_span span = ps_co_under_way(c);
    size_t free = a->ahead ? LH_RECALLS_MAX : a->m->want - a->out->units; // units that still fit
    for (int home = 1; home >= 0; home--)
        for (uint64_t place = span.to; place-- > span.from && free;) {
            uint64_t u = ps_co_nth(c, place);
            double tokens = (double)ps_co_unit(c, u)->tokens;
            if (c->lease[u] != holder || !may_lease(c, u) || c->begun[u] != CO_WAITS ||
                wanted_elsewhere(c, u, holder - 1) || is_home(c, u, a->w) != home ||
                !may_train(c, u, a->w) || moved + tokens > most)
                continue;
            c->wanted_by[u] = a->w + 1;
            moved += tokens;
            free--;
        }
}

// ---------------------------------------------------------------- the answer

static lh_err grant(struct asking *a)
{
    bool none = false;
    if (a->ahead) LH_TRY(take_returned(a));
    if (a->ahead) LH_TRY(reconcile(a));
    list_held(a);
    if (!a->open) return LH_OK;
    LH_TRY(lease_free(a, &none));
    bool fits = a->ahead || (a->out->units < a->m->want && a->out->units < WANT_MAX);
    bool dry = (double)a->tokens < a->need || !a->tokens;
    if (none && dry && fits && a->c->conf.ride_out_ns) level(a);
    return LH_OK;
}

lh_err ps_co_grant(struct ps_coordinator *c, uint32_t worker, const Longhaul__V1__LeaseRequest *m,
                   struct ps_co_leased *out)
{
    const struct ps_co_worker *w = &c->worker[worker];
    struct asking a = {.c = c, .w = worker, .m = m, .out = out};
    a.open = c->plan.phase == LH_PHASE_RUN && w->live && !ps_co_draining(c, w);
    a.ahead = w->gives && c->conf.ride_out_ns;
    a.budget = c->conf.budget_tokens ? c->conf.budget_tokens : UINT64_MAX;
    a.need = w->tokens_per_s * ((double)c->conf.ride_out_ns / LH_SECOND);
    a.claimed = bits_of(c, m->claimed, m->n_claimed);
    a.begun = bits_of(c, m->begun, m->n_begun);
    lh_err err =
        a.claimed && a.begun ? grant(&a) : lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    free(a.claimed);
    free(a.begun);
    return err;
}
