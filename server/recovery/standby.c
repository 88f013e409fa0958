// Standby: a server that follows another server's shards record by record and takes them over when
// that server falls silent (server/docs/0000-protocol.md#rule-21; the owner's half is insync.c,
// each shard's stream owner_stream.c).
//
// The coordinator's answers to reports name the shards' owner and tell the standby to take over. A
// take-over opens an epoch (rebuild.c) and serves.
#include <inttypes.h>
#include <string.h>

#include "common/net/wire_member.h"
#include "server/core.h"
#include "server/push/group_commit.h"
#include "server/recovery/epoch.h"
#include "server/recovery/identity.h"
#include "server/recovery/move.h"
#include "server/recovery/owner_stream.h"
#include "server/recovery/recover.h"
#include "server/recovery/settle.h"
#include "server/recovery/standby.h"
#include "server/report.h"
#include "server/state/fold.h"

static const int64_t LOOK_AGAIN = 20 * LH_MS;

// ---------------------------------------------------------------- the coordinator's word

// Serves the shards in their present state, once their history is settled.
static lh_err own(struct ps_server *s)
{
    if (s->log.damaged && !s->conf.rebuild_damaged)
        return lh_fail(LH_ERR_CORRUPT, "%s", s->log.damage);
    LH_TRY(ps_owner_stream_write(s));
    LH_TRY(ps_move_take(s));
    s->standby.taking = false;
    ps_report_forget(s); // answers to its standby reports no longer matter
    return ps_settle_in_room(s);
}

static void take_over(struct ps_server *s);

static void on_take_over(void *arg)
{
    struct ps_server *s = arg;
    s->take_over_timer = 0;
    if (s->phase != PS_STOPPED && s->standby.taking) take_over(s);
}

static void look_again(struct ps_server *s)
{
    if (!s->take_over_timer)
        s->take_over_timer = lh_after(s->conf.env, LOOK_AGAIN, on_take_over, s);
}

// Stops the former owner's streams; once the received records are durable, serves the shards.
// Called again while work is under way.
static void take_over(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count && !LH_BUG("old_epoch"); i++)
        if (s->shard[i]->owner_stream) ps_owner_stream_hang_up(s->shard[i]->owner_stream);
    if (!ps_at_rest(s)) {
        look_again(s);
        return;
    }
    for (uint32_t i = 0; i < s->conf.shard_count && !LH_BUG("old_epoch"); i++)
        ps_owner_stream_close(s->shard[i]->owner_stream);
    lh_err err = own(s);
    if (err == LH_ERR_DISK_FULL)
        look_again(s);
    else if (err)
        ps_fatal(s, err);
    else if (s->phase == PS_SERVING)
        ps_report_now(s); // the shards were moved, and the coordinator does not know yet
}

// If the log now gives this standby every shard, takes over. Confirms durable versions.
void ps_standby_durable(struct ps_server *s)
{
    if (!s->standby.taking && ps_moved_here(s)) {
        s->standby.taking = true;
        look_again(s);
    }
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (s->shard[i]->owner_stream) ps_owner_stream_durable(s->shard[i]->owner_stream);
}

// The state here is not trusted: fetches everything anew.
static lh_err begin_anew(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        // Records served here in that epoch may be lost, so the epoch is not served again. Storing
        // also replaces an unreadable file, or the next start would begin anew because of it.
        LH_TRY(ps_epoch_store(shard, shard->begun + 1));
        LH_TRY(ps_fold_anew(shard));
    }
    LH_TRY(ps_start_over(s));
    s->log.damaged = s->log.unreliable = false;
    return LH_OK;
}

static lh_err stand_by(struct ps_server *s)
{
    if (s->standby.lost) LH_TRY(ps_identity_renew(s));
    s->standby.lost = false;
    if (s->log.damaged) LH_TRY(begin_anew(s));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) LH_TRY(ps_owner_stream_begin(s->shard[i]));
    lh_logf(s->conf.log, LH_INFO, "standby.begun", "stands by as %016" PRIx64, s->standby.identity);
    return LH_OK;
}

// Another server's epoch is registered. A standby that lost its own log may receive an old MOVE
// record to this directory again; that record no longer reserves anything
// (server/docs/0000-protocol.md#rule-22).
static void take_owner(struct ps_server *s, const struct lh_shard_address *m)
{
    struct ps_shard *shard = ps_server_shard(s, m->shard);
    if (shard && m->epoch && shard->least_epoch <= m->epoch) shard->least_epoch = m->epoch + 1;
    if (shard && shard->owner_stream && strcmp(m->address, s->address))
        ps_owner_stream_owner(shard->owner_stream, m->address);
}

void ps_standby_told(struct ps_server *s, const struct lh_report_reply *m)
{
    for (size_t i = 0; i < m->n_turns; i++) {
        struct ps_shard *shard = ps_server_shard(s, m->turns[i].shard);
        if (shard && shard->least_epoch < m->turns[i].epoch) shard->least_epoch = m->turns[i].epoch;
    }
    if (m->n_turns) {
        s->standby.taking = true;
        take_over(s);
        return;
    }
    lh_err err = s->shard[0]->owner_stream ? LH_OK : stand_by(s);
    for (size_t i = 0; i < m->n_owners && !err; i++) take_owner(s, &m->owners[i]);
    if (err == LH_ERR_DISK_FULL)
        lh_logf(s->conf.log, LH_ERROR, "standby.disk_full", "%s; it stands by when there is space",
                lh_err_text(err));
    else if (err)
        ps_fatal(s, err);
}

lh_err ps_standby_begin(struct ps_server *s)
{
    LH_TRY(ps_identity_load(s));
    ps_become(s, PS_STANDBY);
    ps_move_found(s);
    ps_report_start(s);
    return LH_OK;
}
