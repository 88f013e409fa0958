// Members: joining, incarnations, leases of data units (PROTOCOL 8, 19, 20).
//
// A lease saves work; what credits a unit is the first claim in its shard's log. A worker is handed
// all the units that it holds at every call, so a restarted one picks up where it was.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "common/manifest.h"
#include "common/head.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/coordinator.h"

enum {
    UNITS_PER_LEASE = 256,
    HELD_MAX = 8192, // leased to one worker: what it trains, and twice what it may have claimed
};

// ---------------------------------------------------------------- what is stored

static lh_err store_worker(struct ps_coordinator *c, const struct ps_co_worker *w)
{
    char key[64];
    struct lh_buf b = lh_buf(1024);
    snprintf(key, sizeof key, "worker/%016" PRIx64, w->id);
    lh_put_u64(&b, w->id);
    lh_put_u32(&b, w->granted);
    lh_put_str(&b, w->region);
    lh_put_str(&b, w->name);
    for (int i = 0; i < PS_ATTEMPTS; i++) lh_put_u64(&b, w->attempt[i]);
    lh_err err = lh_buf_err(&b);
    if (!err) err = ps_co_put(c, key, lh_buf_span(&b));
    lh_buf_free(&b);
    return err;
}

static uint32_t worker_place(const struct ps_coordinator *c, uint64_t id)
{
    uint32_t i = 0;
    while (i < c->workers && c->worker[i].id != id) i++;
    return i;
}

// Reads a row. A worker that is known already keeps all that the store does not have.
static void load_worker(void *arg, const char *key, struct lh_span value)
{
    (void)key;
    struct ps_coordinator *c = arg;
    struct lh_cursor at = lh_cursor(value);
    uint64_t id = lh_get_u64(&at);
    uint32_t place = worker_place(c, id);
    if (place == LH_WORKERS_MAX) return;
    struct ps_co_worker w = {.id = id, .seen_ns = ps_co_now(c), .live = true};
    if (place < c->workers) w = c->worker[place];
    w.stored = true;
    w.granted = lh_get_u32(&at);
    lh_get_str(&at, w.region, sizeof w.region);
    lh_get_str(&at, w.name, sizeof w.name);
    for (int i = 0; i < PS_ATTEMPTS; i++) w.attempt[i] = lh_get_u64(&at);
    if (at.failed) return;
    c->worker[place] = w;
    if (place == c->workers) c->workers++;
}

static void lease_key(char out[32], uint64_t unit)
{
    snprintf(out, 32, "lease/%010" PRIu64, unit);
}

static lh_err set_lease(struct ps_coordinator *c, uint64_t unit, uint32_t worker)
{
    char key[32];
    lease_key(key, unit);
    c->lease[unit] = worker + 1;
    c->leased_s[unit] = (uint32_t)c->conf.env->ops->wall_s(c->conf.env);
    struct lh_buf b = lh_buf(16);
    lh_put_u64(&b, c->worker[worker].id);
    lh_put_u64(&b, c->leased_s[unit]);
    lh_err err = lh_buf_err(&b);
    if (!err) err = ps_co_put(c, key, lh_buf_span(&b));
    lh_buf_free(&b);
    return err;
}

static void load_lease(void *arg, const char *key, struct lh_span value)
{
    struct ps_coordinator *c = arg;
    uint64_t unit = strtoull(key + strlen("lease/"), NULL, 10);
    struct lh_cursor at = lh_cursor(value);
    uint32_t w = worker_place(c, lh_get_u64(&at));
    if (unit >= c->conf.units->count || w >= c->workers || at.failed) return;
    c->lease[unit] = w + 1;
    uint64_t since = lh_get_u64(&at); // older stores do not say
    c->leased_s[unit] = at.failed ? 0 : (uint32_t)since;
}

lh_err ps_co_load_members(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) c->worker[i].stored = false;
    ps_store_each(c->store, "worker/", load_worker, c);
    while (c->workers && !c->worker[c->workers - 1].stored) { // the last ones that joined
        free(c->worker[--c->workers].final);
        ps_co_forget_copies(&c->worker[c->workers]);
    }
    memset(c->lease, 0, c->conf.units->count * sizeof *c->lease);
    memset(c->leased_s, 0, c->conf.units->count * sizeof *c->leased_s);
    ps_store_each(c->store, "lease/", load_lease, c);
    return LH_OK;
}

lh_err ps_co_free_leases(struct ps_coordinator *c, uint32_t worker)
{
    for (uint64_t u = 0; u < c->conf.units->count; u++) {
        if (c->lease[u] != worker + 1 || ps_co_credited(c, u)) continue;
        char key[32];
        lease_key(key, u);
        c->lease[u] = CO_FREE;
        LH_TRY(ps_co_remove(c, key));
    }
    return LH_OK;
}

// ---------------------------------------------------------------- join

static lh_err check_join(struct ps_coordinator *c, const Longhaul__V1__JoinRequest *m)
{
    uint32_t version;
    if (!m->wire) return lh_fail(LH_ERR_VERSION, "a join without wire versions");
    LH_TRY(lh_wire_negotiate(m->wire->min, m->wire->max, &version));
    LH_TRY(ps_co_check_run(c, &m->job, &m->manifest));
    if (!lh_span_equal(lh_span(m->units.data, m->units.len),
                       lh_span(c->conf.units->hash.b, LH_HASH_BYTES)))
        return lh_fail(LH_ERR_CONFIG, "the worker has another manifest of data units; give every "
                                      "region the same data.units file");
    return LH_OK;
}

// A join that was answered before and arrives once more, perhaps much later, grants nothing new.
static bool attempted(const struct ps_co_worker *w, uint64_t attempt)
{
    for (int i = 0; i < PS_ATTEMPTS; i++)
        if (attempt && w->attempt[i] == attempt) return true;
    return false;
}

static void note_attempt(struct ps_co_worker *w, uint64_t attempt)
{
    memmove(w->attempt + 1, w->attempt, (PS_ATTEMPTS - 1) * sizeof *w->attempt);
    w->attempt[0] = attempt;
}

// Lives of a worker whose directories are gone are ordered by the number that each replaces: a join
// of an earlier one that arrives late names a number that was replaced meanwhile.
static bool replaces(const struct ps_co_worker *w, const Longhaul__V1__JoinRequest *m)
{
    return !m->over || m->over - 1 == w->granted;
}

// *taken: nothing was granted.
static lh_err join(struct ps_coordinator *c, const struct lh_peer *peer,
                   const Longhaul__V1__JoinRequest *m, struct ps_co_worker **out, bool *taken)
{
    LH_TRY(check_join(c, m));
    uint64_t id = lh_worker_id(peer);
    uint32_t i = worker_place(c, id);
    if (i == LH_WORKERS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "the run has %d workers already", LH_WORKERS_MAX);
    struct ps_co_worker *w = &c->worker[i];
    if (i == c->workers) {
        *w = (struct ps_co_worker){.id = id};
        memcpy(w->region, peer->region, sizeof w->region);
        memcpy(w->name, peer->name, sizeof w->name);
        c->workers++;
    }
    *out = w;
    uint32_t has = (uint32_t)(m->incarnation >> 32);
    bool fresh = m->fresh || has == 0, again = fresh && attempted(w, m->attempt);
    *taken = fresh && !again && !replaces(w, m);
    if (*taken) return LH_OK;
    if (again) {
        // the same fresh start again: the same number
    } else if (fresh) { // its directory is gone: what it held is up for grabs
        if (!LH_BUG("inc_reuse") || !w->granted) w->granted++;
        note_attempt(w, m->attempt);
        ps_co_forget_copies(w);
        LH_TRY(ps_co_free_leases(c, i));
    } else if (has > w->granted) {
        w->granted = has; // this store was restored from an older copy: never go below
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
    return LH_OK;
}

// An epoch is registered before anybody serves in it, so a worker that reads where a shard's server
// is knows the epoch before it greets one (PROTOCOL 27). Not `least`: an epoch that nobody opened
// has decided nothing, and an operator's word takes it back.
static size_t addresses(const struct ps_coordinator *c, Longhaul__V1__ShardAddress *item,
                        Longhaul__V1__ShardAddress **list)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        if (!c->shard[i].address[0]) continue;
        longhaul__v1__shard_address__init(&item[n]);
        item[n].shard = i;
        item[n].address = (char *)c->shard[i].address;
        item[n].epoch = ps_co_epoch(&c->shard[i]);
        list[n] = &item[n];
        n++;
    }
    return n;
}

void ps_co_on_join(void *self, struct lh_request *rq, const ProtobufCMessage *message)
{
    struct ps_coordinator *c = self;
    const struct lh_peer *peer = lh_request_peer(rq);
    struct ps_co_worker *w = NULL;
    bool taken = false;
    lh_err err = join(c, peer, (const Longhaul__V1__JoinRequest *)message, &w, &taken);
    if (err) {
        lh_log_peer(c->conf.log, LH_WARN, "join.refused", "worker %s of %s: %s", peer->name,
                    peer->region, lh_err_text(err));
        ps_co_refuse(c, rq, err);
        return;
    }
    ps_co_say(c, LH_INFO, taken ? "join.taken" : "worker.joined", "%s of %s, incarnation %u",
              w->name, w->region, w->granted);
    w->live = true; // said now: the next tick would say that it is back
    uint32_t shards = c->conf.manifest->shards;
    Longhaul__V1__ShardAddress *item = calloc(shards, sizeof *item),
                               **list = calloc(shards, sizeof *list);
    if (!item || !list) {
        ps_co_refuse(c, rq, lh_fail(LH_ERR_BUSY, "out of memory"));
    } else {
        Longhaul__V1__JoinReply out = LONGHAUL__V1__JOIN_REPLY__INIT;
        Longhaul__V1__Wire wire = lh_head_wire();
        out.wire = &wire;
        out.worker = w->id;
        out.granted = w->granted;
        out.taken = taken;
        out.n_shards = addresses(c, item, list);
        out.shards = list;
        ps_co_answer(c, rq, &out.base);
    }
    free(item);
    free(list);
    ps_co_tick(c);
}

// ---------------------------------------------------------------- lease

// A bit for each unit of the list, however long that is. Gives; NULL: no memory.
static uint8_t *bits_of(const struct ps_coordinator *c, const uint64_t *list, size_t n)
{
    uint8_t *bits = calloc(c->conf.units->count / 8 + 1, 1);
    for (size_t i = 0; bits && i < n; i++)
        if (list[i] < c->conf.units->count) bits[list[i] / 8] |= (uint8_t)(1u << (list[i] % 8));
    return bits;
}

// Tokens that are credited, or leased and on their way to be.
static uint64_t committed_tokens(const struct ps_coordinator *c)
{
    uint64_t sum = 0;
    for (uint64_t u = 0; u < c->conf.units->count; u++)
        if (c->lease[u] != CO_FREE || ps_co_credited(c, u)) sum += c->conf.units->unit[u].tokens;
    return sum;
}

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

// The next unit for a region: its own first, then what may leave another's.
static uint64_t pick(const struct ps_coordinator *c, const char *region)
{
    uint64_t other = UINT64_MAX;
    for (uint64_t u = 0; u < c->conf.units->count; u++) {
        if (!may_lease_anew(c, u)) continue;
        const struct lh_unit *unit = &c->conf.units->unit[u];
        if (strcmp(unit->home, region) == 0) return u;
        if (unit->may_leave && other == UINT64_MAX) other = u;
    }
    return other;
}

static lh_err grant(struct ps_coordinator *c, uint32_t w, const Longhaul__V1__LeaseRequest *m,
                    uint64_t *units, size_t *count)
{
    size_t n = 0, held = 0;
    uint8_t *claimed = bits_of(c, m->claimed, m->n_claimed);
    if (!claimed) return lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    for (uint64_t u = 0; u < c->conf.units->count; u++) {
        if (c->lease[u] != w + 1 || !may_lease(c, u)) continue;
        held++;
        if (n < UNITS_PER_LEASE && !(claimed[u / 8] >> (u % 8) & 1)) units[n++] = u;
    }
    free(claimed);
    bool open =
        c->plan.phase == LH_PHASE_RUN && c->worker[w].live && !ps_co_draining(c, &c->worker[w]);
    uint64_t budget = c->conf.budget_tokens ? c->conf.budget_tokens : UINT64_MAX;
    uint64_t sum = open ? committed_tokens(c) : 0;
    while (open && n < m->want && n < UNITS_PER_LEASE && held < HELD_MAX && sum < budget) {
        uint64_t u = pick(c, c->worker[w].region);
        if (u == UINT64_MAX) break;
        LH_TRY(set_lease(c, u, w));
        sum += c->conf.units->unit[u].tokens;
        units[n++] = u;
        held++;
    }
    *count = n;
    return LH_OK;
}

static void take_final(struct ps_coordinator *c, struct ps_co_worker *w,
                       const Longhaul__V1__LeaseRequest *m)
{
    uint32_t shards = c->conf.manifest->shards;
    if (!w->final) w->final = calloc(shards, sizeof *w->final);
    for (size_t i = 0; w->final && i < m->n_final; i++) {
        const Longhaul__V1__Point *p = m->final[i];
        if (p->shard >= shards || p->chain.len != LH_HASH_BYTES) continue;
        w->final[p->shard] = (struct ps_co_point){p->epoch, p->version, {{0}}};
        memcpy(w->final[p->shard].chain.b, p->chain.data, LH_HASH_BYTES);
    }
}

static void send_lease(struct ps_coordinator *c, struct lh_request *rq,
                       const struct ps_co_worker *w, uint64_t *units, size_t count)
{
    uint32_t shards = c->conf.manifest->shards;
    Longhaul__V1__ShardAddress *item = calloc(shards, sizeof *item),
                               **list = calloc(shards, sizeof *list);
    Longhaul__V1__Point *point = calloc(shards, sizeof *point),
                        **points = calloc(shards, sizeof *points);
    if (!item || !list || !point || !points) {
        ps_co_refuse(c, rq, lh_fail(LH_ERR_BUSY, "out of memory"));
    } else {
        Longhaul__V1__LeaseReply out = LONGHAUL__V1__LEASE_REPLY__INIT;
        out.n_units = count;
        out.units = units;
        bool drain = c->plan.phase == LH_PHASE_RUN && ps_co_draining(c, w);
        out.phase = drain ? LH_PHASE_DRAIN : c->plan.phase;
        out.start = out.phase >= LH_PHASE_RUN;
        out.local_steps = ps_co_local_steps(c, w);
        out.n_shards = addresses(c, item, list);
        out.shards = list;
        for (uint32_t i = 0; i < shards; i++) {
            const struct ps_co_point *p = &c->shard[i].stable;
            point[i] = lh_head_point(i, p->epoch, p->version, &p->chain);
            if (p->version) points[out.n_stable++] = &point[i];
        }
        out.stable = points;
        ps_co_answer(c, rq, &out.base);
    }
    free(item);
    free(list);
    free(point);
    free(points);
}

void ps_co_on_lease(void *self, struct lh_request *rq, const ProtobufCMessage *message)
{
    struct ps_coordinator *c = self;
    const Longhaul__V1__LeaseRequest *m = (const Longhaul__V1__LeaseRequest *)message;
    uint32_t i = worker_place(c, lh_worker_id(lh_request_peer(rq)));
    if (i == c->workers || (uint32_t)(m->incarnation >> 32) != c->worker[i].granted) {
        Longhaul__V1__LeaseReply out = LONGHAUL__V1__LEASE_REPLY__INIT;
        out.unknown = true;
        ps_co_answer(c, rq, &out.base);
        return;
    }
    struct ps_co_worker *w = &c->worker[i];
    w->joined = true;
    w->seen_ns = ps_co_now(c);
    c->speaker = w->id;
    w->incarnation = m->incarnation;
    w->tokens_per_s = isfinite(m->tokens_per_s) && m->tokens_per_s > 0 ? m->tokens_per_s : 0;
    w->tokens = m->tokens;
    w->drained = m->drained;
    w->done = m->done;
    if (m->done) take_final(c, w, m);
    ps_co_tick(c);
    uint64_t units[UNITS_PER_LEASE];
    size_t count = 0;
    lh_err err = ps_co_take_durable(c, w, m);
    if (!err) err = grant(c, i, m, units, &count);
    if (err) {
        ps_co_refuse(c, rq, err);
        return;
    }
    send_lease(c, rq, w, units, count);
}
