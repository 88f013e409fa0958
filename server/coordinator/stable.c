// Stable: which durable copies on workers' disks move a shard's stable point
// (server/docs/0000-protocol.md#rule-13).
//
// A shard's history is known here at the version that its server reported last, and nowhere below.
// So a worker's word of a lower version is a claim: the server is asked about it in the answer to a
// report, and says with the next one whether its log has that version with exactly this chain. A
// server of before that question is not asked: its workers are believed.
//
// Store: stable/<shard 4 hex> = epoch u64, version u64 and chain 32 of the stable point.
//
// Claims are lost with the process, and said again with every lease. Each worker has its own, so
// that a false one takes no other's place, and they are asked about in turn.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/manifest.h"
#include "common/net/head.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/stable.h"

static const char POINTS[] = "stable/";

// ---------------------------------------------------------------- what is stored

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

// ---------------------------------------------------------------- which histories are known

static bool same(const struct lh_point *a, const struct lh_point *b)
{
    return a->epoch == b->epoch && a->version == b->version && lh_hash_equal(&a->chain, &b->chain);
}

// Is it below what the server reported, and above what is stable?
static bool in_reach(const struct ps_co_shard *s, const struct lh_point *p)
{
    return s->reported && p->version <= s->head.version && p->version > s->stable.version;
}

static bool present(const struct ps_co_shard *s, const struct lh_point *p)
{
    return p->epoch == s->head.epoch && p->epoch == ps_co_epoch(s);
}

// The history of the version that the server reported last is known.
static bool is_head(const struct ps_co_shard *s, const struct lh_point *p)
{
    return p->version == s->head.version && lh_point_named(&s->head.chain);
}

// Below the head nothing here contradicts a worker. Only a server of before the question leaves it
// at that: any other is asked first (take).
static bool is_of_history(const struct ps_co_shard *s, const struct lh_point *p)
{
    return !is_head(s, p) || lh_hash_equal(&p->chain, &s->head.chain);
}

// A compare-and-swap on (shard, epoch): the caller has compared.
static lh_err make_stable(struct ps_coordinator *c, uint32_t shard, const struct lh_point *p)
{
    c->shard[shard].stable = *p;
    return ps_co_store_point(c, shard);
}

static void refuse(struct ps_coordinator *c, struct ps_co_worker *w, uint32_t shard,
                   const struct lh_point *p)
{
    lh_log_peer(c->conf.log, LH_WARN, "durable.refused",
                "worker %s of %s: its durable copy of shard %u version %" PRIu64
                " is of another history than the server's; it is not counted on",
                w->name, w->region, shard, p->version);
}

// ---------------------------------------------------------------- what workers say

static lh_err take(struct ps_coordinator *c, struct ps_co_worker *w, uint32_t shard,
                   const struct lh_point *p)
{
    struct ps_co_shard *s = &c->shard[shard];
    w->claim[shard].said = *p;
    if (!in_reach(s, p)) return LH_OK;
    bool known = present(s, p) || LH_BUG("zombie_stable"); // planted: of an abandoned epoch
    bool asks = present(s, p) && s->vouches && !is_head(s, p);
    if (!known || asks) return LH_OK;
    if (is_of_history(s, p)) return make_stable(c, shard, p);
    w->claim[shard].said = (struct lh_point){0};
    refuse(c, w, shard, p);
    return LH_OK;
}

lh_err ps_co_take_durable(struct ps_coordinator *c, struct ps_co_worker *w,
                          const Longhaul__V1__LeaseRequest *m)
{
    uint32_t shards = c->conf.manifest->shards;
    if (!w->claim) w->claim = calloc(shards, sizeof *w->claim);
    if (!w->claim) return lh_fail(LH_ERR_BUSY, "no memory for a worker's copies now");
    for (uint32_t i = 0; i < shards; i++) w->claim[i].said = (struct lh_point){0};
    for (size_t i = 0; i < m->n_durable; i++) {
        struct lh_point p = lh_point_of(m->durable[i]);
        if (m->durable[i]->shard < shards && m->durable[i]->chain.len == LH_HASH_BYTES)
            LH_TRY(take(c, w, m->durable[i]->shard, &p));
    }
    return LH_OK;
}

void ps_co_forget_copies(struct ps_co_worker *w)
{
    free(w->claim);
    w->claim = NULL;
}

// ---------------------------------------------------------------- what the server says of it

static bool listed(const struct lh_point *p, size_t n, Longhaul__V1__Point **list)
{
    for (size_t i = 0; i < n; i++) {
        struct lh_point of = lh_point_of(list[i]);
        if (same(p, &of)) return true;
    }
    return false;
}

size_t ps_co_ask_copies(struct ps_coordinator *c, uint32_t shard, size_t max,
                        Longhaul__V1__Point *out)
{
    struct ps_co_shard *s = &c->shard[shard];
    size_t n = 0;
    uint32_t seen = 0;
    for (; s->vouches && seen < c->workers && n < max; seen++) {
        struct ps_co_worker *w = &c->worker[(s->asked_up_to + seen) % c->workers];
        struct ps_co_claim *claim = w->claim ? &w->claim[shard] : NULL;
        if (!claim || !in_reach(s, &claim->said) || !present(s, &claim->said)) continue;
        struct lh_point *p = &claim->asked;
        *p = claim->said;
        Longhaul__V1__Point point = lh_head_point(shard, p->epoch, p->version, &p->chain);
        bool again = false;
        for (size_t i = 0; i < n && !again; i++)
            again = out[i].version == p->version &&
                    !memcmp(out[i].chain.data, p->chain.b, LH_HASH_BYTES);
        if (!again) out[n++] = point;
    }
    s->asked_up_to = c->workers ? (s->asked_up_to + seen) % c->workers : 0;
    return n;
}

lh_err ps_co_take_answers(struct ps_coordinator *c, uint32_t shard,
                          const Longhaul__V1__ShardReport *r)
{
    struct ps_co_shard *s = &c->shard[shard];
    struct lh_point best = {0};
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_claim *claim = c->worker[i].claim ? &c->worker[i].claim[shard] : NULL;
        if (!claim || !claim->asked.version) continue;
        const struct lh_point p = claim->asked;
        claim->asked = (struct lh_point){0};
        if (listed(&p, r->n_foreign, r->foreign)) {
            if (same(&p, &claim->said)) claim->said = (struct lh_point){0};
            refuse(c, &c->worker[i], shard, &p);
        } else if (p.version > best.version && in_reach(s, &p) && present(s, &p) &&
                   listed(&p, r->n_held, r->held)) {
            best = p;
        }
    }
    return best.version ? make_stable(c, shard, &best) : LH_OK;
}
