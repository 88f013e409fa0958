// Moves: a shard goes to a standby while its server lives (server/docs/0000-protocol.md#rule-22;
// the servers' half is server/recovery/move.c).
//
// Store: move/<shard 4 hex> = epoch u64 and target u64 of the last reserved move; target 0: it is
// over. An operator requests it. From then on, while the target is noted, 1. no other server opens
// an epoch of the shard, takes it over or is noted as its standby in sync; 2. the owner is told to
// write the MOVE record. The move ends when the target reports that it has the record, or that it
// refuses the epoch, or when an operator gives the shard to another server (rebuild.below_stable).
//
// All shards of a server move together, to one standby. A single one can't: a server serves all of
// its shards or stands by for all of them, and a take-over is also all or none (insync.c).
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/net/wire_admin.h"
#include "common/net/wire_member.h"
#include "server/coordinator/balance/override.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/owners/refold.h"
#include "server/coordinator/owners/rights.h"
#include "server/coordinator/silence.h"

static const char KEY[] = "move/";

// ---------------------------------------------------------------- what is stored

static lh_err store_move(struct ps_coordinator *c, uint32_t shard)
{
    struct lh_buf b = lh_buf(32);
    lh_move_write(&c->shard[shard].move, &b);
    return ps_co_put_row(c, KEY, shard, &b);
}

static lh_err read_move(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->move = (struct lh_move){0};
    if (!at) return LH_OK;
    s->move.epoch = lh_get_u64(at);
    s->move.target = lh_get_u64(at);
    return LH_OK;
}

lh_err ps_co_load_moves(struct ps_coordinator *c)
{
    return ps_co_load_rows(c, KEY, read_move);
}

lh_err ps_co_end_move(struct ps_coordinator *c, uint32_t shard)
{
    struct ps_co_shard *s = &c->shard[shard];
    if (!s->move.target) return LH_OK;
    s->move.target = 0;
    s->unwanted = false;
    return store_move(c, shard);
}

// ---------------------------------------------------------------- what the target says

static bool is_target(const struct ps_co_shard *s, uint64_t identity)
{
    return s->move.target && lh_same_directory(s->move.target, identity);
}

// `begins`: the reserved epoch, and its beginning if known.
static lh_err change_hands(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                           uint64_t server, const struct lh_point *begins)
{
    struct ps_co_owner to = {identity, server, 0, begins->epoch};
    LH_TRY(ps_co_end_move(c, shard));
    LH_TRY(ps_co_hand_over(c, shard, &to));
    LH_TRY(ps_co_may_own(c, shard, server));
    LH_TRY(ps_co_adopt_epoch(c, shard, begins));
    ps_co_say(c, LH_INFO, "shard.moved",
              "shard %u: it is server %016" PRIx64 "'s from epoch %" PRIu64 " on", shard, identity,
              begins->epoch);
    return LH_OK;
}

// No message tells where the epoch began. All records of earlier epochs lie below the target's
// head, so the head is used. Without it, a target that loses its log's end would have to give up
// all that was not stable.
lh_err ps_co_moved(struct ps_coordinator *c, uint32_t shard, uint64_t identity, uint64_t server,
                   const struct lh_point *head)
{
    const struct ps_co_shard *s = &c->shard[shard];
    struct lh_point begins = {s->move.epoch, head->version, head->chain};
    if (!is_target(s, identity) || head->epoch < s->move.epoch) return LH_OK;
    return change_hands(c, shard, identity, server, &begins);
}

// The target's log has the record, or it has served in the epoch.
static bool has_moved(const struct ps_co_shard *s, const struct lh_shard_report *r)
{
    return r->moving == s->move.epoch || r->head.at.epoch >= s->move.epoch;
}

static lh_err hear_of_shard(struct ps_coordinator *c, uint64_t identity, uint64_t server,
                            const struct lh_shard_report *r, bool whole)
{
    uint32_t shard = r->head.shard;
    struct ps_co_shard *s = &c->shard[shard];
    if (!is_target(s, identity)) return LH_OK;
    bool early = LH_BUG("flip_early") && s->reported && r->head.at.version >= s->head.version;
    if (whole || early) {
        struct lh_point begins = {.epoch = s->move.epoch};
        if (r->moving == s->move.epoch || early) begins = r->head.at;
        begins.epoch = s->move.epoch;
        return change_hands(c, shard, identity, server, &begins);
    }
    // The target's epochs have passed the reserved one, so it will not serve that one. If its head
    // shows that it did, it has since lost its log's end, with another shard's record.
    if (r->begun <= s->move.epoch) return LH_OK;
    uint64_t epoch = s->move.epoch;
    LH_TRY(ps_co_end_move(c, shard));
    ps_co_say(c, LH_WARN, "move.given_up",
              "shard %u: server %016" PRIx64 " refuses epoch %" PRIu64 ": the shard stays", shard,
              identity, epoch);
    return LH_OK;
}

// The target serves once it has the records of all its shards. Until then no shard changes hands:
// their owner would be fenced over one shard and stop before the other records are sent. If one
// shard does not move, none does: the target must refuse the rest.
lh_err ps_co_hear_target(struct ps_coordinator *c, const struct lh_report_request *m,
                         uint64_t server)
{
    bool whole = true, together = true;
    for (size_t i = 0; i < m->n_shards; i++) {
        const struct ps_co_shard *s = &c->shard[m->shards[i].head.shard];
        bool goes = is_target(s, m->standby), its = lh_same_directory(s->owner, m->standby);
        whole &= goes ? has_moved(s, &m->shards[i]) : its;
    }
    for (size_t i = 0; i < m->n_shards; i++)
        LH_TRY(hear_of_shard(c, m->standby, server, &m->shards[i], whole));
    for (size_t i = 0; i < m->n_shards; i++) {
        const struct ps_co_shard *s = &c->shard[m->shards[i].head.shard];
        together &= is_target(s, m->standby) || lh_same_directory(s->owner, m->standby);
    }
    for (size_t i = 0; i < m->n_shards && !together; i++) {
        struct ps_co_shard *s = &c->shard[m->shards[i].head.shard];
        s->unwanted |= is_target(s, m->standby);
    }
    return LH_OK;
}

bool ps_co_tell_move(const struct ps_co_shard *s, const struct lh_report_request *m,
                     const struct lh_shard_report *r, struct lh_shard_move *out)
{
    *out = (struct lh_shard_move){.shard = r->head.shard, .epoch = s->move.epoch};
    if (m->standing) return s->unwanted && is_target(s, m->standby);
    // its log ends with a finished move that failed; otherwise the target would own the shard
    bool over =
        r->moving && (r->moving < s->move.epoch || (r->moving == s->move.epoch && !s->move.target));
    if (over) out->epoch = r->moving;
    if (!over && !s->unwanted) out->target = s->move.target;
    return over || out->target;
}

// ---------------------------------------------------------------- what operators ask

void ps_co_note_standby(struct ps_coordinator *c, const struct lh_peer *peer,
                        const struct lh_report_request *m, const struct lh_shard_report *r)
{
    struct ps_co_standby *list = c->shard[r->head.shard].standing, *at = list;
    for (struct ps_co_standby *b = list; b < list + PS_CO_STANDBYS; b++) {
        bool same = strcmp(b->name, peer->name) == 0;
        if (same || b->heard_ns < at->heard_ns) at = b;
        if (same) break;
    }
    if (at->process == m->process && m->number < at->number) return;
    at->identity = m->standby;
    at->server = lh_worker_id(peer);
    at->begun = r->begun;
    at->process = m->process;
    at->number = m->number;
    at->head = r->head.at;
    at->heard_ns = ps_co_now(c);
    at->trip = m->trip;
    snprintf(at->name, sizeof at->name, "%s", peer->name);
    snprintf(at->region, sizeof at->region, "%s", peer->region);
}

// The live standby of this name that follows the shard and does not own it; else NULL.
static const struct ps_co_standby *standby_of(const struct ps_coordinator *c, uint32_t shard,
                                              const char *name)
{
    const struct ps_co_standby *list = c->shard[shard].standing;
    for (const struct ps_co_standby *b = list; b < list + PS_CO_STANDBYS; b++)
        if (b->identity && !strcmp(b->name, name) &&
            !lh_same_directory(b->identity, c->shard[shard].owner) &&
            c->listener.ns - b->heard_ns < ps_co_standby_bound(b))
            return b;
    return NULL;
}

// The shard's owner must not own other shards that this standby does not follow.
static LH_MUST lh_err check_together(const struct ps_coordinator *c, uint32_t shard,
                                     const char *name)
{
    const struct ps_co_shard *s = &c->shard[shard];
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (c->shard[i].reported && c->shard[i].process == s->process && !standby_of(c, i, name))
            return lh_fail(LH_ERR_INVALID,
                           "the server at %s owns shards %u and %u, and %s follows only one of "
                           "them: give it the same `shards`",
                           s->address, shard, i, name);
    return LH_OK;
}

static LH_MUST lh_err check_move(const struct ps_coordinator *c, uint32_t shard, const char *name)
{
    const struct ps_co_shard *s = &c->shard[shard];
    uint64_t target = standby_of(c, shard, name)->identity;
    if (!s->reported)
        return lh_fail(LH_ERR_BUSY, "the server of shard %u has not reported yet; try again",
                       shard);
    if (s->phase == LH_PHASE_END)
        return lh_fail(LH_ERR_INVALID, "shard %u has ended: its log takes no record", shard);
    if (ps_co_refold_goes(c, shard))
        return lh_fail(LH_ERR_BUSY, "shard %u is being taken back (longhaul refold, rewind)",
                       shard);
    if (s->move.target && !is_target(s, target))
        return lh_fail(LH_ERR_INVALID, "shard %u is being moved to another server already", shard);
    if (s->standby && !lh_same_directory(s->standby, target))
        return lh_fail(LH_ERR_INVALID,
                       "shard %u: another standby than %s is in sync; stop that one first", shard,
                       name);
    return check_together(c, shard, name);
}

static LH_MUST lh_err reserve(struct ps_coordinator *c, uint32_t shard, const char *name)
{
    struct ps_co_shard *s = &c->shard[shard];
    uint64_t last = ps_co_epoch(s);
    const struct ps_co_standby *target = standby_of(c, shard, name);
    if (s->move.target) return LH_OK; // requested again
    if (last < s->head.epoch) last = s->head.epoch;
    if (last < s->move.epoch) last = s->move.epoch;
    if (last < target->begun) last = target->begun;
    LH_TRY(ps_co_may_own(c, shard, target->server));
    s->move = (struct lh_move){last + 1, target->identity};
    LH_TRY(store_move(c, shard));
    ps_co_say(c, LH_INFO, "move.reserved",
              "shard %u: epoch %" PRIu64 " is reserved for %s, %016" PRIx64, shard, s->move.epoch,
              name, s->move.target);
    return LH_OK;
}

lh_err ps_co_move(struct ps_coordinator *c, const char *name, uint32_t *shards)
{
    *shards = 0;
    (void)ps_co_now(c);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        if (!standby_of(c, i, name)) continue;
        LH_TRY(check_move(c, i, name));
        ++*shards;
    }
    if (!*shards)
        return lh_fail(LH_ERR_NOT_FOUND,
                       "no server %.64s stands by for a shard: start it with role: standby and the "
                       "same `shards`, and wait until it follows",
                       name);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (standby_of(c, i, name)) LH_TRY(reserve(c, i, name));
    return LH_OK;
}

void ps_co_on_move(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_move_request *m = request;
    struct lh_move_reply out = {0};
    bool by_hand = ps_co_is_override(m);
    lh_err err = by_hand ? ps_co_override(c, m, &out.units) : ps_co_move(c, m->server, &out.shards);
    ps_co_audit(c, "audit.move", lh_request_peer(rq), "%.64s%.64s %.64s: %s",
                by_hand ? m->balancer : "shards to ", by_hand ? "" : m->server,
                by_hand ? m->to : "", err ? lh_err_text(err) : "taken");
    if (err) {
        ps_co_refuse(c, rq, err);
        return;
    }
    if (!by_hand)
        ps_co_say(c, LH_INFO, "move.asked", "%u shards to %.64s, requested by %s", out.shards,
                  m->server, lh_request_peer(rq)->name);
    ps_co_answer(c, rq, LH_MESSAGE(move_reply, &out));
}
