// Stable: moves a shard's stable point when workers have proved durable copies on their disks
// (server/docs/0000-protocol.md#rule-13).
//
// A worker's report of a copy is only a claim. 1. The answer to the server's report asks the
// shard's server about it. The server's next report says whether its log has that version with
// exactly this chain, and if so, gives a challenge and the right answer. 2. The answer to a lease
// request challenges the worker. A right answer proves that the worker had that state on its disk
// when it was asked. 3. A point becomes stable when live workers of two regions have proved copies
// of it with one digest. If no other region has proved a copy for too long, one region is enough
// (event stable.single): a region that makes no copies must not block the others for ever.
//
// So no single worker moves a point that another region counts on, and none without the state.
//
// Store: stable/<shard 4 hex> = epoch u64, version u64, chain 32 and digest 32 (zeros: not known)
// of the stable point.
//
// Claims and proofs are lost with the process; every lease request repeats them. Each worker has
// its own, so that a false one displaces no other. The server is asked about them in turn.
#include "server/coordinator/stable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/wire_member.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/stall.h"

static const char POINTS[] = "stable/";
enum { ENOUGH = 2, PATIENCE = 10 }; // regions; multiple of a drain's bound while the run goes on

// ---------------------------------------------------------------- what is stored

lh_err ps_co_store_point(struct ps_coordinator *c, uint32_t shard)
{
    const struct ps_co_shard *s = &c->shard[shard];
    struct lh_buf b = lh_buf(96);
    lh_put_u64(&b, s->stable.epoch);
    lh_put_u64(&b, s->stable.version);
    lh_put(&b, s->stable.chain.b, LH_HASH_BYTES);
    lh_put(&b, s->stable_digest.b, LH_HASH_BYTES);
    return ps_co_put_row(c, POINTS, shard, &b);
}

static lh_err read_point(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->stable = (struct lh_point){0};
    s->stable_digest = (struct lh_hash){{0}};
    if (!at) return LH_OK;
    s->stable.epoch = lh_get_u64(at);
    s->stable.version = lh_get_u64(at);
    lh_get_into(at, s->stable.chain.b, LH_HASH_BYTES);
    lh_get_into(at, s->stable_digest.b, LH_HASH_BYTES);
    return LH_OK;
}

lh_err ps_co_load_points(struct ps_coordinator *c)
{
    return ps_co_load_rows(c, POINTS, read_point);
}

// ---------------------------------------------------------------- which histories are known

// Is the point at or below the server's reported head, and above the stable point?
static bool in_reach(const struct ps_co_shard *s, const struct lh_point *p)
{
    return s->reported && p->version <= s->head.version && p->version > s->stable.version;
}

static bool present(const struct ps_co_shard *s, const struct lh_point *p)
{
    return p->epoch == s->head.epoch && p->epoch == ps_co_epoch(s);
}

static bool counts(const struct ps_co_shard *s, const struct lh_point *p)
{
    return in_reach(s, p) && present(s, p);
}

// ---------------------------------------------------------------- regions

static bool is_first_of_region(const struct ps_coordinator *c, uint32_t worker,
                               bool (*is)(const struct ps_coordinator *,
                                          const struct ps_co_worker *))
{
    for (uint32_t i = 0; i < worker; i++)
        if (is(c, &c->worker[i]) && !strcmp(c->worker[i].region, c->worker[worker].region))
            return false;
    return is(c, &c->worker[worker]);
}

static bool is_known(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return !ps_co_is_expelled(c, w->id);
}

static bool is_live(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return w->live && is_known(c, w);
}

static uint32_t regions(const struct ps_coordinator *c,
                        bool (*is)(const struct ps_coordinator *, const struct ps_co_worker *))
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++) n += is_first_of_region(c, i, is);
    return n;
}

uint32_t ps_co_regions(const struct ps_coordinator *c)
{
    return regions(c, is_known);
}

// ---------------------------------------------------------------- proved copies

static const struct ps_co_proved *proof_of(const struct ps_co_worker *w, uint32_t shard,
                                           const struct ps_co_proved *of)
{
    const struct ps_co_claim *claim = w->claim ? &w->claim[shard] : NULL;
    for (uint32_t i = 0; claim && i < claim->proofs && i < PS_CO_PROVED; i++)
        if (lh_point_equal(&claim->proved[i].at, &of->at) &&
            lh_hash_equal(&claim->proved[i].digest, &of->digest))
            return &claim->proved[i];
    return NULL;
}

// Counts the regions with a live worker that has proved this very state.
static uint32_t regions_with(const struct ps_coordinator *c, uint32_t shard,
                             const struct ps_co_proved *p)
{
    const char *seen[LH_WORKERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (!is_live(c, w) || !proof_of(w, shard, p)) continue;
        uint32_t k = 0;
        while (k < n && strcmp(seen[k], w->region) != 0) k++;
        if (k == n) seen[n++] = w->region;
    }
    return n;
}

// The newest copy that this many regions have proved; NULL: none above the stable point.
static const struct ps_co_proved *newest(const struct ps_coordinator *c, uint32_t shard,
                                         uint32_t enough)
{
    const struct ps_co_proved *best = NULL;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_claim *claim = c->worker[i].claim ? &c->worker[i].claim[shard] : NULL;
        for (uint32_t k = 0; claim && k < claim->proofs && k < PS_CO_PROVED; k++) {
            const struct ps_co_proved *p = &claim->proved[k];
            if (!counts(&c->shard[shard], &p->at)) continue;
            if (best && p->at.version <= best->at.version) continue;
            if (regions_with(c, shard, p) >= enough) best = p;
        }
    }
    return best;
}

// A compare-and-swap on (shard, epoch); the caller has compared.
static lh_err make_stable(struct ps_coordinator *c, uint32_t shard, const struct ps_co_proved *p)
{
    struct ps_co_shard *s = &c->shard[shard];
    uint32_t by = regions_with(c, shard, p), known = ps_co_regions(c);
    bool several = by >= ENOUGH || known == 1, single = by < ENOUGH && known > 1;
    s->stable = p->at;
    s->stable_digest = several ? p->digest : (struct lh_hash){{0}};
    s->lone_ns = 0;
    if (single && !s->single)
        ps_co_say(c, LH_WARN, "stable.single",
                  "shard %u: version %" PRIu64
                  " is stable by a copy in one region only, because no other live region has "
                  "proved a copy: if that region's disk is lost, so is this version",
                  shard, p->at.version);
    s->single = single;
    return ps_co_store_point(c, shard);
}

// One region's copy has waited long enough for another region's. Silent regions may come back with
// outboxes that they trimmed by the stable point, so a worker that merely outlives them for a
// moment must not move it. When the run closes, they push nothing more.
static bool waited(struct ps_coordinator *c, struct ps_co_shard *s)
{
    int64_t bound = ps_co_drain_bound(c), now = c->listener.ns;
    bool closes = c->plan.phase >= LH_PHASE_CLOSE, alone = regions(c, is_live) < ENOUGH;
    if (alone && (closes || !bound)) return true;
    if (!s->lone_ns) s->lone_ns = now;
    return bound && now - s->lone_ns >= bound * (closes ? 1 : PATIENCE);
}

static lh_err look(struct ps_coordinator *c, uint32_t shard)
{
    struct ps_co_shard *s = &c->shard[shard];
    const struct ps_co_proved *p = newest(c, shard, ps_co_regions(c) < ENOUGH ? 1 : ENOUGH);
    if (p) return make_stable(c, shard, p);
    p = newest(c, shard, 1);
    if (p && waited(c, s)) return make_stable(c, shard, p);
    if (!p) s->lone_ns = 0;
    return LH_OK;
}

static void refuse(struct ps_coordinator *c, struct ps_co_worker *w, uint32_t shard,
                   const struct lh_point *p, const char *why)
{
    struct ps_co_claim *claim = &w->claim[shard];
    claim->refused = *p;
    if (lh_point_equal(&claim->said, p)) claim->said = (struct lh_point){0};
    lh_log_peer(c->conf.log, LH_WARN, "durable.refused",
                "worker %s of %s: its durable copy of shard %u version %" PRIu64
                " %s; it is not counted on",
                w->name, w->region, shard, p->version, why);
}

// ---------------------------------------------------------------- what workers say

static bool is_proved(const struct ps_co_claim *claim, const struct lh_point *p)
{
    for (uint32_t i = 0; i < claim->proofs && i < PS_CO_PROVED; i++)
        if (lh_point_equal(&claim->proved[i].at, p)) return true;
    return false;
}

static lh_err take_possession(struct ps_coordinator *c, struct ps_co_worker *w,
                              const struct lh_possession *m)
{
    struct ps_co_claim *claim = &w->claim[m->shard];
    struct ps_co_proved p = {.at = claim->vouched};
    bool asked = p.at.version && m->version == p.at.version && m->epoch == p.at.epoch &&
                 lh_hash_equal(&m->challenge, &claim->challenge);
    if (!asked || is_proved(claim, &p.at)) return LH_OK;
    if (!lh_hash_equal(&m->answer, &claim->answer)) {
        refuse(c, w, m->shard, &p.at,
               "differs from the server's state: the worker does not hold that state");
        claim->vouched = (struct lh_point){0};
        return LH_OK;
    }
    p.digest = m->digest;
    claim->proved[claim->proofs++ % PS_CO_PROVED] = p;
    return look(c, m->shard);
}

static LH_MUST lh_err make_claims(struct ps_coordinator *c, struct ps_co_worker *w)
{
    if (!w->claim) w->claim = calloc(c->conf.manifest->shards, sizeof *w->claim);
    return w->claim ? LH_OK : lh_fail(LH_ERR_BUSY, "no memory for a worker's copies now");
}

lh_err ps_co_take_durable(struct ps_coordinator *c, struct ps_co_worker *w,
                          const struct lh_lease_request *m)
{
    uint32_t shards = c->conf.manifest->shards;
    LH_TRY(make_claims(c, w));
    for (uint32_t i = 0; i < shards; i++) w->claim[i].said = (struct lh_point){0};
    for (size_t i = 0; i < m->n_durable; i++) {
        const struct lh_shard_point *p = &m->durable[i];
        if (p->shard >= shards || !p->chained) continue;
        struct ps_co_claim *claim = &w->claim[p->shard];
        if (!lh_point_equal(&claim->refused, &p->at)) claim->said = p->at;
    }
    for (size_t i = 0; i < m->n_possessions; i++) {
        const struct lh_possession *p = &m->possessions[i];
        if (p->shard < shards) LH_TRY(take_possession(c, w, p));
    }
    return LH_OK;
}

size_t ps_co_challenges(const struct ps_coordinator *c, const struct ps_co_worker *w,
                        struct lh_challenge *out)
{
    size_t n = 0;
    for (uint32_t i = 0; w->claim && i < c->conf.manifest->shards; i++) {
        struct ps_co_claim *claim = &w->claim[i];
        const struct lh_point *p = &claim->vouched;
        if (!p->version || !counts(&c->shard[i], p) || is_proved(claim, p)) continue;
        out[n++] = (struct lh_challenge){i, p->epoch, p->version, claim->challenge};
    }
    return n;
}

void ps_co_forget_copies(struct ps_co_worker *w)
{
    free(w->claim);
    w->claim = NULL;
}

// ---------------------------------------------------------------- what the server says of it

size_t ps_co_ask_copies(struct ps_coordinator *c, uint32_t shard, size_t max,
                        struct lh_shard_point *out)
{
    struct ps_co_shard *s = &c->shard[shard];
    size_t n = 0;
    uint32_t seen = 0;
    for (; seen < c->workers && n < max; seen++) {
        struct ps_co_worker *w = &c->worker[(s->asked_up_to + seen) % c->workers];
        struct ps_co_claim *claim = w->claim ? &w->claim[shard] : NULL;
        if (!claim || !counts(s, &claim->said)) continue;
        if (lh_point_equal(&claim->said, &claim->vouched) || is_proved(claim, &claim->said))
            continue;
        struct lh_point *p = &claim->asked;
        *p = claim->said;
        bool again = false;
        for (size_t i = 0; i < n && !again; i++)
            again = out[i].at.version == p->version && lh_hash_equal(&out[i].at.chain, &p->chain);
        if (!again) out[n++] = (struct lh_shard_point){shard, true, *p};
    }
    s->asked_up_to = c->workers ? (s->asked_up_to + seen) % c->workers : 0;
    return n;
}

static bool is_foreign(const struct lh_point *p, const struct lh_shard_report *r)
{
    for (size_t i = 0; i < r->n_foreign; i++)
        if (lh_point_equal(p, &r->foreign[i].at)) return true;
    return false;
}

static void take_vouched(struct ps_co_claim *claim, const struct lh_point *p,
                         const struct lh_shard_report *r)
{
    for (size_t i = 0; i < r->n_held; i++) {
        const struct lh_vouched *v = &r->held[i];
        if (!lh_point_equal(p, &v->of.at)) continue;
        claim->vouched = v->of.at;
        claim->challenge = v->challenge;
        claim->answer = v->answer;
        return;
    }
}

lh_err ps_co_take_answers(struct ps_coordinator *c, uint32_t shard, const struct lh_shard_report *r)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_claim *claim = c->worker[i].claim ? &c->worker[i].claim[shard] : NULL;
        if (!claim || !claim->asked.version) continue;
        const struct lh_point p = claim->asked;
        claim->asked = (struct lh_point){0};
        if (is_foreign(&p, r))
            refuse(c, &c->worker[i], shard, &p, "belongs to another history than the server's");
        else
            take_vouched(claim, &p, r);
    }
    return look(c, shard);
}
