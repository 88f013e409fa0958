// Move: a server's shards go to its standby while both live (server/docs/0000-protocol.md#rule-22).
//
// The coordinator reserves an epoch for the target, durably, and tells the owner with the answer to
// its report. When the target is near the owner's log gets its last records, in one group: DIGEST,
// so that the target holds the same state or stops, and MOVE(epoch, target). From then on the owner
// decides nothing (ps_shard_frozen: the log says so, also to its next life), but goes on to serve
// followers. The target gets the record by its stream; when its own log holds it durably, for every
// one of its shards, it opens the reserved epoch and serves. The coordinator hears of it
// afterwards.
//
// The reserved epoch is served by the process that the record came to, and by no other: a start
// that finds the record in its log can't tell whether the directory is an older copy, and much was
// served in that epoch since. It asks the coordinator, and begins a later epoch
// (server/docs/0000-protocol.md#rule-18).
//
// A move is given up by its target alone: it makes durable that it refuses the reserved epoch, and
// says so; then the owner opens a later one. That is asked of it where the owner has to open an
// epoch anyway (a torn tail). Until the target has answered nobody else opens one.
#include "longhaul/v1/member.pb-c.h"
#include "server/core.h"
#include "server/push/group_commit.h"
#include "server/recovery/move.h"
#include "server/recovery/recover.h"
#include "server/recovery/settle.h"
#include "server/report.h"

static const int64_t LOOK_AGAIN = 20 * LH_MS;

// ---------------------------------------------------------------- the owner

// The move is given up: the shard goes on here, in a later epoch than the one that it reserved.
static void take_back(void *arg)
{
    struct ps_server *s = arg;
    s->move_timer = 0;
    if (s->phase != PS_SERVING) return;
    if (!ps_at_rest(s)) {
        s->move_timer = lh_after(s->conf.env, LOOK_AGAIN, take_back, s);
        return;
    }
    ps_report_forget(s); // said of the epoch that ends here: refused, once the next one is opened
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        uint64_t given_up = shard->replica.ledger.move.epoch;
        if (given_up) shard->least_epoch = given_up + 1;
    }
    lh_err err = ps_settle_in_room(s);
    if (err) ps_fatal(s, err);
}

static void told_owner(struct ps_server *s, struct ps_shard *shard,
                       const Longhaul__V1__ShardMove *m)
{
    if (m->target) {
        shard->wish = (struct lh_move){m->epoch, m->target};
        return;
    }
    if (shard->replica.ledger.move.epoch != m->epoch || s->move_timer) return;
    lh_logf(s->conf.log, LH_WARN, "move.given_up",
            "shard %u: its target refused epoch %llu; it goes on here", shard->id,
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
        LH_TRY(ps_epoch_store(shard, shard->replica.ledger.move.epoch)); // tried again: disk full
        lh_logf(s->conf.log, LH_INFO, "shard.moved",
                "shard %u was moved here, from version %llu on in epoch %llu", shard->id,
                (unsigned long long)shard->replica.ledger.version,
                (unsigned long long)shard->replica.ledger.move.epoch);
    }
    return LH_OK;
}

// It may serve, or have served, in the reserved epochs.
static bool all_here(const struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (!ps_shard_moved_here(s->shard[i]) ||
            s->shard[i]->begun > s->shard[i]->replica.ledger.move.epoch)
            return false;
    return true;
}

// The coordinator wants the move given up. Too late once the records of all shards are here: then
// it says so. Where one of them was here, and is lost again with the log's end, so is all that may
// have been served: these records come before it.
static lh_err refuse(struct ps_shard *s, uint64_t epoch)
{
    bool here = ps_shard_moved_here(s) && s->replica.ledger.move.epoch == epoch;
    bool late = here && all_here(s->server);
    if (late || s->begun > epoch) return LH_OK;
    return ps_epoch_store(s, epoch + 1);
}

// ---------------------------------------------------------------- the coordinator's word

void ps_move_told(struct ps_server *s, const Longhaul__V1__ReportReply *m)
{
    lh_err err = LH_OK;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) s->shard[i]->wish = (struct lh_move){0};
    for (size_t i = 0; i < m->n_moves && !err; i++) {
        struct ps_shard *shard = ps_server_shard(s, m->moves[i]->shard);
        if (shard && s->phase == PS_SERVING) told_owner(s, shard, m->moves[i]);
        if (shard && s->phase == PS_STANDBY && !m->moves[i]->target)
            err = refuse(shard, m->moves[i]->epoch);
    }
    if (err && err != LH_ERR_DISK_FULL) ps_fatal(s, err);
    if (s->phase == PS_SERVING) ps_raise(s, PS_WISHED);
}
