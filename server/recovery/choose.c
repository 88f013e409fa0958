// Choose: picks the state from which a shard recovers (server/docs/0000-protocol.md#rule-17).
//
// 1. The state belongs to the shard's history as far as that is known: it is at the stable point,
// or above it with no later epoch that began below it. 2. It is at or above the stable point, or an
// operator gave that point up. 3. It is *confirmed*: workers of `rebuild.voices` regions (or of all
// the run's regions, if there are fewer) hold the same state, by the digest of all of it; or it is
// the stable point with the digest that workers of several regions proved while the server lived;
// or an operator chose it. This directory's own state needs no confirmation.
//
// The highest such state is the best. A higher state without confirmation delays nothing: its
// authors push again all that lies above the stable point. If no state is confirmed but a worker
// holds one, an operator chooses; status and log list each worker's claims.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/core.h"
#include "server/recovery/choose.h"
#include "server/recovery/rebuilding.h"

// Versions, and epochs, that a log may have gained beyond the last known ones: a quarter of an hour
// at a thousand pushes per second.
static const uint64_t REACH = 1 << 20;
enum { CLAIMS_TOLD = 32 };

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// ---------------------------------------------------------------- the shard's history

// No log can have reached this point: an invented number would win as the highest.
static bool out_of_reach(const struct ps_rebuild *b, const struct lh_point *p)
{
    const struct lh_point *last = b->begun_count ? &b->begun[b->begun_count - 1] : NULL;
    uint64_t version = most(b->stable.version, last ? last->version : 0);
    uint64_t epoch = most(b->epoch, most(b->reserved, b->head.epoch));
    if (b->head_known) version = most(version, b->head.version);
    if (version > UINT64_MAX / 2 || epoch > UINT64_MAX / 2) return true;
    return p->version > version + REACH || p->epoch > epoch + REACH;
}

// The coordinator has another chain at exactly this version.
static bool contradicts_head(const struct ps_rebuild *b, const struct lh_point *p)
{
    return b->head_known && p->epoch == b->head.epoch && p->version == b->head.version &&
           lh_point_named(&b->head.chain) && !lh_hash_equal(&p->chain, &b->head.chain);
}

bool ps_rebuild_impossible(const struct ps_rebuild *b, const struct lh_point *p)
{
    return b->asked && (out_of_reach(b, p) || contradicts_head(b, p));
}

bool ps_rebuild_counts(const struct ps_rebuild *b, const struct lh_point *p)
{
    if (ps_rebuild_impossible(b, p)) return false;
    if (p->version == b->stable.version && b->stable.version)
        return lh_hash_equal(&p->chain, &b->stable.chain);
    if (LH_BUG("rebuild_any_branch")) return true; // planted: the longest one
    if (p->version > b->stable.version && p->epoch < b->stable.epoch)
        return false; // an epoch began below the stable point
    for (size_t i = 0; i < b->begun_count; i++)
        if (b->begun[i].epoch > p->epoch && b->begun[i].version < p->version) return false;
    return true;
}

bool ps_rebuild_enough(const struct ps_rebuild *b, const struct lh_point *p)
{
    return b->shard->server->conf.below_stable || p->version >= b->stable.version ||
           LH_BUG("take_no_stable"); // planted: any worker's state is good enough
}

// ---------------------------------------------------------------- who confirms it

bool ps_state_same(const struct ps_state *a, const struct ps_state *b)
{
    return lh_point_equal(&a->at, &b->at) && lh_hash_equal(&a->digest, &b->digest);
}

static bool offers(const struct ps_offer *o, const struct ps_state *state)
{
    for (uint32_t k = 0; k < o->have_count && !o->lied; k++)
        if (ps_state_same(&o->have[k], state)) return true;
    return false;
}

// Counts the regions with a worker that offers this very state.
static uint32_t voices(const struct ps_rebuild *b, const struct ps_state *state)
{
    const char *seen[LH_WORKERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->offer_count; i++) {
        const struct ps_offer *o = &b->offer[i];
        if (!offers(o, state)) continue;
        uint32_t k = 0;
        while (k < n && strcmp(seen[k], o->region) != 0) k++;
        if (k == n) seen[n++] = o->region;
    }
    return n;
}

static uint32_t wanted_voices(const struct ps_rebuild *b)
{
    uint32_t n = b->shard->server->conf.voices;
    if (n > b->regions) n = b->regions;
    return n ? n : 1;
}

static bool was_chosen(const struct ps_rebuild *b, const struct ps_state *state)
{
    return b->word_bytes && !memcmp(b->word, state->digest.b, b->word_bytes);
}

static bool is_stable(const struct ps_rebuild *b, const struct ps_state *state)
{
    struct ps_state stable = {b->stable, b->stable_digest};
    return b->stable.version && lh_point_named(&b->stable_digest) && ps_state_same(&stable, state);
}

static bool confirmed(const struct ps_rebuild *b, const struct ps_state *state)
{
    return is_stable(b, state) || voices(b, state) >= wanted_voices(b);
}

static bool possible(const struct ps_rebuild *b, const struct ps_state *state)
{
    return ps_rebuild_counts(b, &state->at) && ps_rebuild_enough(b, &state->at);
}

// ---------------------------------------------------------------- the best one

struct lh_point ps_rebuild_own(const struct ps_rebuild *b)
{
    const struct lh_ledger *l = &b->shard->replica.ledger;
    return (struct lh_point){l->epoch, l->version, l->chain};
}

static bool best_of(const struct ps_rebuild *b, bool chosen, struct ps_state *best,
                    uint64_t *worker)
{
    struct ps_state own = {.at = ps_rebuild_own(b)};
    if (lh_hash_equal(&own.at.chain, &b->taken.at.chain)) own.digest = b->taken.digest;
    // Turns of the best state's worker; any state is better than none.
    uint32_t turns = own.at.version ? 0 : UINT32_MAX;
    bool found = !b->unreliable && possible(b, &own) && (!chosen || was_chosen(b, &own));
    *worker = 0;
    *best = found ? own : (struct ps_state){0};
    for (uint32_t i = 0; i < b->offer_count; i++) {
        const struct ps_offer *o = &b->offer[i];
        for (uint32_t k = 0; k < o->have_count && !o->lied; k++) {
            const struct ps_state *have = &o->have[k];
            bool sooner = found && o->turns < turns, later = found && o->turns > turns;
            if (later || have->at.version <= (sooner ? 0 : best->at.version)) continue;
            if (!possible(b, have) || !(chosen ? was_chosen(b, have) : confirmed(b, have)))
                continue;
            *best = *have;
            *worker = o->worker;
            turns = o->turns;
            found = true;
        }
    }
    return found;
}

// The operator's choice comes before a confirmed state, if a worker or this directory holds it. The
// shard does not restart from the initial state while a worker claims a later one.
bool ps_rebuild_choose(const struct ps_rebuild *b, struct ps_state *best, uint64_t *worker)
{
    if (best_of(b, true, best, worker)) return true;
    return best_of(b, false, best, worker) &&
           (*worker || best->at.version || !ps_rebuild_undecided(b));
}

bool ps_rebuild_undecided(const struct ps_rebuild *b)
{
    for (uint32_t i = 0; i < b->offer_count; i++)
        for (uint32_t k = 0; k < b->offer[i].have_count && !b->offer[i].lied; k++)
            if (b->offer[i].have[k].at.version && possible(b, &b->offer[i].have[k])) return true;
    return false;
}

// ---------------------------------------------------------------- what an operator is shown

// The first bytes of a digest, in the form that an operator types.
static void write_digest(const struct ps_state *state, char out[17])
{
    for (int i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", state->digest.b[i]);
}

static json_t *claim_json(const struct ps_rebuild *b, const struct ps_offer *o,
                          const struct ps_state *state)
{
    char digest[17];
    write_digest(state, digest);
    return json_pack("{s:s s:s s:I s:I s:s s:i s:b}", "region", o->region, "worker", o->name,
                     "version", (json_int_t)state->at.version, "epoch", (json_int_t)state->at.epoch,
                     "state", digest, "voices", (int)voices(b, state), "possible",
                     (int)possible(b, state));
}

json_t *ps_rebuild_claims(const struct ps_rebuild *b)
{
    json_t *out = json_array();
    for (uint32_t i = 0; out && i < b->offer_count; i++)
        for (uint32_t k = 0; k < b->offer[i].have_count; k++)
            if (json_array_size(out) < CLAIMS_TOLD)
                json_array_append_new(out, claim_json(b, &b->offer[i], &b->offer[i].have[k]));
    return out;
}

static void tell_claim(const struct ps_rebuild *b, const struct ps_offer *o,
                       const struct ps_state *state)
{
    char digest[17];
    write_digest(state, digest);
    lh_logf(b->shard->server->conf.log, LH_WARN, "rebuild.claim",
            "shard %u: worker %s of %s holds state %s, version %" PRIu64 " of epoch %" PRIu64
            ", confirmed by %u of %u regions%s",
            b->shard->id, o->name, o->region, digest, state->at.version, state->at.epoch,
            voices(b, state), wanted_voices(b),
            possible(b, state) ? "" : "; it belongs to no history of the shard");
}

void ps_rebuild_tell_undecided(struct ps_rebuild *b)
{
    uint32_t claims = 0;
    for (uint32_t i = 0; i < b->offer_count; i++) claims += b->offer[i].have_count;
    if (claims == b->told_claims) return;
    b->told_claims = claims;
    uint32_t told = 0;
    for (uint32_t i = 0; i < b->offer_count; i++)
        for (uint32_t k = 0; k < b->offer[i].have_count && told < CLAIMS_TOLD; k++, told++)
            tell_claim(b, &b->offer[i], &b->offer[i].have[k]);
    lh_logf(b->shard->server->conf.log, LH_ERROR, "rebuild.undecided",
            "shard %u: no state that workers hold is confirmed by %u regions (rebuild.voices): "
            "waiting for more of them, or for an operator, who chooses one of these: longhaul "
            "adopt --shards %u --state STATE",
            b->shard->id, wanted_voices(b), b->shard->id);
}
