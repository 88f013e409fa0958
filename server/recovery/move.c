// Move: a server's shards go to its standby while both live (server/docs/0000-protocol.md#rule-22).
//
// The coordinator durably reserves an epoch for the target and tells the owner in the answer to its
// report. When the target is nearly caught up, the owner's log gets its last records, in one group:
// DIGEST, so that the target either holds the same state or stops, and MOVE(epoch, target). From
// then on the owner decides nothing (ps_shard_frozen; the log tells the next process too), but
// still serves followers. The target gets the record in its stream. When its own log holds the MOVE
// of every shard durably, it opens the reserved epochs and serves, then reports that to the
// coordinator.
//
// Only the process that received the record serves the reserved epoch. A start that finds the
// record in its log can't tell whether the directory is an older copy and that epoch was already
// served. It asks the coordinator and begins a later epoch (server/docs/0000-protocol.md#rule-18).
//
// Only the target can give up a move: it durably refuses the reserved epoch and reports that; then
// the owner opens a later one. The coordinator asks for that if the owner must open an epoch anyway
// (a torn tail). Until the target has answered, no other server opens one.
#include "common/net/wire_member.h"
#include "server/core.h"
#include "server/push/group_commit.h"
#include "server/recovery/epoch.h"
#include "server/recovery/move.h"
#include "server/recovery/settle.h"
#include "server/report.h"

static const int64_t LOOK_AGAIN = 20 * LH_MS;

// ---------------------------------------------------------------- the owner

// The move was given up: this server keeps the shard, in an epoch after the reserved one.
static void take_back(void *arg)
{
    struct ps_server *s = arg;
    s->move_timer = 0;
    if (s->phase != PS_SERVING) return;
    if (!ps_at_rest(s)) {
        s->move_timer = lh_after(s->conf.env, LOOK_AGAIN, take_back, s);
        return;
    }
    ps_report_forget(s); // the next epoch's server would refuse reports of this one
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        uint64_t given_up = shard->replica.ledger.move.epoch;
        if (given_up) shard->least_epoch = given_up + 1;
    }
    lh_err err = ps_settle_in_room(s);
    if (err) ps_fatal(s, err);
}

static void told_owner(struct ps_server *s, struct ps_shard *shard, const struct lh_shard_move *m)
{
    if (m->target) {
        shard->wish = (struct lh_move){m->epoch, m->target};
        return;
    }
    if (shard->replica.ledger.move.epoch != m->epoch || s->move_timer) return;
    lh_logf(s->conf.log, LH_WARN, "move.given_up",
            "shard %u: its target refused epoch %llu; the shard stays here", shard->id,
            (unsigned long long)m->epoch);
    s->move_timer = lh_after(s->conf.env, 0, take_back, s);
}

// ---------------------------------------------------------------- the target

bool ps_moved_here(const struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (!ps_shard_reserved(s->shard[i])) return false;
    return s->phase == PS_STANDBY;
}

void ps_move_found(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        if (!ps_shard_moved_here(shard)) continue;
        uint64_t epoch = shard->replica.ledger.move.epoch;
        if (shard->least_epoch <= epoch) shard->least_epoch = epoch + 1;
        lh_logf(s->conf.log, LH_WARN, "move.found",
                "shard %u was moved here in epoch %llu, and an earlier process may have served it: "
                "it waits for coordinator %s, and is served in a later epoch",
                shard->id, (unsigned long long)epoch, s->conf.coordinator);
    }
}

lh_err ps_move_take(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        if (!ps_shard_reserved(shard)) continue;
        LH_TRY(ps_epoch_store(shard, shard->replica.ledger.move.epoch)); // disk full: tried again
        lh_logf(s->conf.log, LH_INFO, "shard.moved",
                "shard %u was moved here, from version %llu on in epoch %llu", shard->id,
                (unsigned long long)shard->replica.ledger.version,
                (unsigned long long)shard->replica.ledger.move.epoch);
    }
    return LH_OK;
}

// This server may serve, or have served, the reserved epochs.
static bool all_here(const struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (!ps_shard_moved_here(s->shard[i]) ||
            s->shard[i]->begun > s->shard[i]->replica.ledger.move.epoch)
            return false;
    return true;
}

// The coordinator wants the move given up. If the MOVE records of all shards are here, it is too
// late, and this server reports that. If one record was here but was lost with the log's end,
// nothing was served: MOVE precedes every served record.
static lh_err refuse(struct ps_shard *s, uint64_t epoch)
{
    bool here = ps_shard_moved_here(s) && s->replica.ledger.move.epoch == epoch;
    bool late = here && all_here(s->server);
    if (late || s->begun > epoch) return LH_OK;
    return ps_epoch_store(s, epoch + 1);
}

// ---------------------------------------------------------------- the coordinator's word

void ps_move_told(struct ps_server *s, const struct lh_report_reply *m)
{
    lh_err err = LH_OK;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) s->shard[i]->wish = (struct lh_move){0};
    for (size_t i = 0; i < m->n_moves && !err; i++) {
        struct ps_shard *shard = ps_server_shard(s, m->moves[i].shard);
        if (shard && s->phase == PS_SERVING) told_owner(s, shard, &m->moves[i]);
        if (shard && s->phase == PS_STANDBY && !m->moves[i].target)
            err = refuse(shard, m->moves[i].epoch);
    }
    if (err && err != LH_ERR_DISK_FULL) ps_fatal(s, err);
    if (s->phase == PS_SERVING) ps_raise(s, PS_WISHED);
}
