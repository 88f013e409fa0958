// In sync: which standby must hold a shard's records before they are acknowledged, and who owns the
// shard after a take-over (server/docs/0000-protocol.md#rule-21).
//
// A take-over is one change of this row, durable before any answer names it. From then on the
// former owner can't remove its standby, and without that it acknowledges nothing that the new
// owner lacks. The clock only decides when a take-over is tried.
//
// An owner's directory can be lost like any other. If no standby can take over, the same server
// with a new directory, and so another identity, becomes the owner again. It rebuilds the shards
// without a standby in sync from their followers under a new epoch
// (server/docs/0000-protocol.md#rule-17), and the others from their standby's state, which stays
// noted until then (server/docs/0000-protocol.md#rule-21).
#include <inttypes.h>
#include <stdio.h>

#include "common/net/wire_member.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/insync.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/owners/refold.h"
#include "server/coordinator/owners/rights.h"
#include "server/coordinator/silence.h"

// ---------------------------------------------------------------- whose it is

lh_err ps_co_give_up_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                           uint64_t server)
{
    struct ps_co_shard *s = &c->shard[shard];
    bool its = identity == s->owner;
    if (its && !s->standby && !s->move.target) return LH_OK;
    LH_TRY(ps_co_end_move(c, shard));
    LH_TRY(ps_co_set_owner(c, shard, &(struct ps_co_owner){identity, server, 0, 0}));
    if (its)
        ps_co_say(c, LH_ERROR, "standby.given_up",
                  "shard %u: an operator lets its server go on without its standby, or without the "
                  "target of its move; records that only that one held are lost",
                  shard);
    else
        ps_co_say(c, LH_ERROR, "owner.given_up",
                  "shard %u: an operator gives it to another server; records that only the former "
                  "server or its standby held are lost",
                  shard);
    return LH_OK;
}

lh_err ps_co_heard_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                         uint64_t server, uint64_t process, const struct lh_point *head)
{
    struct ps_co_shard *s = &c->shard[shard];
    LH_TRY(ps_co_moved(c, shard, identity, server, head));
    // This store is older than that epoch. Not if a move had reserved it: then it is the target's,
    // by the row above, or the move was given up and this message is late.
    bool later = head->epoch > ps_co_epoch(s) && head->epoch > s->move.epoch;
    if (identity != s->owner && later)
        LH_TRY(ps_co_set_owner(c, shard, &(struct ps_co_owner){identity, server, 0, s->least}));
    LH_TRY(ps_co_check_owner(c, shard, identity));
    if (head->epoch < ps_co_epoch(s))
        return lh_fail(LH_ERR_FENCED,
                       "shard %u has a newer epoch (%" PRIu64 ") than its server's (%" PRIu64
                       "): the server's directory holds a history that was given up; start it "
                       "with an empty one",
                       shard, ps_co_epoch(s), head->epoch);
    LH_TRY(ps_co_check_history(c, shard, process, head));
    if (ps_co_now(c) - s->heard_ns > 2 * ps_co_reported_within(c)) s->back_ns = ps_co_now(c);
    s->heard_ns = ps_co_now(c);
    s->heard_after = c->listener.pauses;
    s->heard_of = c->speaker = server;
    return LH_OK;
}

// ---------------------------------------------------------------- an owner's change

// Has the standby reported more than the owner has compared with its log? The version alone does
// not reveal an owner on an older copy that went on by itself.
static bool said_more(const struct lh_point *held, const struct lh_in_sync_request *m)
{
    return held && !lh_point_equal(held, &m->checked.at);
}

static lh_err change(struct ps_coordinator *c, const struct lh_in_sync_request *m,
                     const struct lh_peer *peer)
{
    uint64_t server = lh_worker_id(peer);
    LH_TRY(ps_co_check_run(c, m->wire, &m->run));
    if (m->shard >= c->conf.manifest->shards)
        return lh_fail(LH_ERR_MALFORMED, "a standby of a shard that does not exist");
    if (!m->has_head || m->head.at.epoch != m->epoch || !m->has_checked)
        return lh_fail(LH_ERR_MALFORMED, "a standby's change without the owner's point");
    LH_TRY(ps_co_speaks_as_owner(c, m->shard, peer, m->owner));
    LH_TRY(ps_co_check_reach(c, m->shard, m->epoch, m->head.at.version));
    struct ps_co_shard *s = &c->shard[m->shard];
    const struct lh_point head = m->head.at;
    LH_TRY(ps_co_heard_owner(c, m->shard, m->owner, server, m->process, &head));
    if (m->expect != s->changes) return LH_OK; // only asks, or is late
    if (s->move.target && m->standby && !lh_same_directory(m->standby, s->move.target))
        return lh_fail(LH_ERR_BUSY, "shard %u moves to another standby: only that one can join it",
                       m->shard);
    if (m->standby && m->standby == s->gone)
        return lh_fail(LH_ERR_BUSY,
                       "shard %u: the directory of standby %016" PRIx64
                       " may lack records that it confirmed: it now has another name",
                       m->shard, m->standby);
    if (m->standby && ps_co_refold_goes(c, m->shard))
        return lh_fail(LH_ERR_BUSY, "shard %u is being taken back: no standby joins it meanwhile",
                       m->shard);
    const struct lh_point *held = ps_co_held(s);
    if (s->standby != m->standby && held && held->epoch == head.epoch &&
        held->version > head.version)
        return lh_fail(LH_ERR_BUSY,
                       "shard %u: its standby said that it holds version %" PRIu64
                       ", and the owner says %" PRIu64 ": it is not struck out by a server that "
                       "has less",
                       m->shard, held->version, head.version);
    if (s->standby != m->standby && said_more(held, m))
        return LH_OK; // the owner gets it and checks
    LH_TRY(ps_co_set_standby(c, m->shard, m->standby));
    ps_co_say(c, LH_INFO, m->standby ? "standby.in_sync" : "standby.none",
              "shard %u: %s %016" PRIx64, m->shard,
              m->standby ? "acknowledged records are also on standby" : "no standby is in sync",
              m->standby);
    return LH_OK;
}

void ps_co_on_insync(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_in_sync_request *m = request;
    lh_err err = change(c, m, lh_request_peer(rq));
    if (err) {
        ps_co_refused_server(c, lh_request_peer(rq), "standby.refused", err);
        ps_co_refuse(c, rq, err);
        return;
    }
    const struct ps_co_shard *s = &c->shard[m->shard];
    const struct lh_point *held = ps_co_held(s);
    struct lh_in_sync_reply out = {.wire = lh_versions_ours(),
                                   .standby = s->standby,
                                   .changes = s->changes,
                                   .has_held = held != NULL};
    if (held) out.held = (struct lh_shard_point){m->shard, true, *held};
    ps_co_answer(c, rq, LH_MESSAGE(in_sync_reply, &out));
}

// ---------------------------------------------------------------- a standby's report

// Silence before a pause of this process counts, but decides nothing until the rest after the pause
// is over: the server's messages may be queued behind the report being read
// (server/docs/0000-protocol.md#rule-28).
static bool silent(struct ps_coordinator *c, const struct ps_co_shard *s)
{
    int64_t ns = ps_co_now(c) - s->heard_ns;
    bool old = lh_listener_rests(&c->listener) && s->heard_after != c->listener.pauses;
    return ns >= ps_co_owner_bound(c, s) && !old && !ps_co_owes(c, s->heard_of);
}

// The owner's own server reports with another directory: the old directory is gone. Either no other
// server holds its acknowledged records, or a standby holds them that can't take over, because it
// is in sync for some of the server's shards only; then the owner fetches that standby's state.
static bool came_back(struct ps_coordinator *c, const struct ps_co_shard *s, uint64_t server)
{
    bool same = s->owner && server && server == s->server;
    bool its = !s->standby || s->held_by == s->standby;
    return same && its && !s->move.target && silent(c, s);
}

static bool may_take(struct ps_coordinator *c, const struct ps_co_shard *s, uint64_t identity,
                     uint64_t server)
{
    if (s->owner == identity || came_back(c, s, server)) return true;
    bool in_sync = s->standby == identity || LH_BUG("take_any");
    return in_sync && c->conf.take_over_ns && silent(c, s);
}

static lh_err take_over(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                        uint64_t server)
{
    struct ps_co_shard *s = &c->shard[shard];
    if (s->owner == identity) return LH_OK;
    bool took = s->standby == identity;
    char bound[80];
    double silent_s = (double)(ps_co_now(c) - s->heard_ns) / LH_SECOND;
    (void)ps_co_bound_text(bound, ps_co_owner_bound(c, s), &s->trip);
    // For a server that came back, the standby stays noted: only it holds acknowledged records.
    struct ps_co_owner to = {identity, server, took ? 0 : s->standby, 0};
    to.least = (s->head.epoch > ps_co_epoch(s) ? s->head.epoch : ps_co_epoch(s)) + 1;
    if (s->move.target && to.least <= s->move.epoch) to.least = s->move.epoch + 1;
    LH_TRY(ps_co_end_move(c, shard));
    LH_TRY(ps_co_hand_over(c, shard, &to));
    LH_TRY(ps_co_may_own(c, shard, server));
    if (took)
        ps_co_say(c, LH_WARN, "shard.taken_over",
                  "shard %u: its server has been silent for %.1f s, %s; its standby %016" PRIx64
                  " takes it over",
                  shard, silent_s, bound, identity);
    else
        ps_co_say(c, LH_WARN, "shard.came_back",
                  "shard %u: the server that has it came back with another directory (%016" PRIx64
                  "); it rebuilds the shard from %s",
                  shard, identity, s->standby ? "what its standby holds" : "its followers");
    return LH_OK;
}

// A server came back without its directory while its shard is moving to another server: only that
// server can say whether it has the shard by now.
static void look_for_former(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                            uint64_t server)
{
    struct ps_co_shard *s = &c->shard[shard];
    bool came = s->owner && identity != s->owner && server && server == s->server;
    s->unwanted |= came && s->move.target;
}

// A standby takes over all its shards or none. If it is in sync for some only, and their owner
// can't go on with its log, the owner fetches their state from it.
static void note_held(struct ps_coordinator *c, const struct lh_report_request *m)
{
    bool lacks = false;
    for (size_t i = 0; i < m->n_shards; i++) {
        const struct ps_co_shard *s = &c->shard[m->shards[i].head.shard];
        lacks |= s->standby != m->standby && s->owner != m->standby;
    }
    for (size_t i = 0; i < m->n_shards; i++) {
        struct ps_co_shard *s = &c->shard[m->shards[i].head.shard];
        if (s->standby != m->standby) continue;
        s->held_by = lacks ? m->standby : 0;
        snprintf(s->held_at, sizeof s->held_at, "%s", m->address);
    }
}

lh_err ps_co_turns(struct ps_coordinator *c, const struct lh_report_request *m, uint64_t server,
                   bool *serves)
{
    *serves = m->n_shards > 0;
    for (size_t i = 0; i < m->n_shards; i++) {
        const struct lh_shard_point *head = &m->shards[i].head;
        if (!m->shards[i].has_head || head->shard >= c->conf.manifest->shards || !m->standby)
            return lh_fail(LH_ERR_MALFORMED, "a standby of a shard that does not exist");
        if (m->lost) LH_TRY(ps_co_strike_out(c, head->shard, m->standby));
    }
    LH_TRY(ps_co_hear_target(c, m, server));
    for (size_t i = 0; i < m->n_shards; i++) {
        uint32_t shard = m->shards[i].head.shard;
        look_for_former(c, shard, m->standby, server);
        if (!may_take(c, &c->shard[shard], m->standby, server)) *serves = false;
    }
    note_held(c, m);
    for (size_t i = 0; i < m->n_shards && m->lost && !*serves; i++)
        LH_TRY(ps_co_note_gone(c, m->shards[i].head.shard, m->standby));
    for (size_t i = 0; i < m->n_shards && *serves; i++)
        LH_TRY(take_over(c, m->shards[i].head.shard, m->standby, server));
    return LH_OK;
}
