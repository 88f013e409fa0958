// Settle: settles every shard's history, alone or with others (rebuild.c); then serves all shards.
#include "server/recovery/settle.h"

#include <stdio.h>

#include "server/core.h"
#include "server/push/follow.h"
#include "server/push/insync.h"
#include "server/recovery/rebuild.h"
#include "server/recovery/recover.h"
#include "server/report.h"
#include "server/state/checkpointer.h"
#include "server/wal/quarantine.h"

static LH_MUST lh_err begin_serving(struct ps_server *s)
{
    bool fetched = false, noted = false;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        fetched |= ps_rebuild_fetched(s->shard[i]->rebuild);
        noted |= ps_rebuild_noted(s->shard[i]->rebuild);
    }
    LH_TRY(ps_recovered(s, fetched));
    LH_TRY(ps_insync_start(s, noted));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        ps_rebuild_free(s->shard[i]->rebuild);
        s->shard[i]->rebuild = NULL;
    }
    ps_become(s, PS_SERVING);
    lh_logf(s->conf.log, LH_INFO, "server.serving", "at %s", s->address);
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        ps_checkpointer_start(s->shard[i]);
        // After a move was taken back, streams are still open: this sends them the EPOCH record
        // now. The next record of a quiet shard may take long.
        ps_follow_publish(s->shard[i]);
    }
    ps_report_start(s);
    return LH_OK;
}

static void serve(void *arg)
{
    ps_settle_serve(arg);
}

// Tries again at once if some space was freed.
static LH_MUST lh_err wait_for_room(struct ps_server *s)
{
    char text[256];
    bool room;
    snprintf(text, sizeof text, "%s", lh_err_text(LH_ERR_DISK_FULL));
    LH_TRY(ps_quarantine_remove(s, &room));
    if (!room)
        lh_logf(s->conf.log, LH_ERROR, "rebuild.disk_full",
                "%s; the shards come back when there is space: free some in %s", text, s->conf.dir);
    s->retry_timer = lh_after(s->conf.env, room ? 0 : LH_SECOND, serve, s);
    return LH_OK;
}

void ps_settle_serve(struct ps_server *s)
{
    s->retry_timer = 0;
    if (s->phase != PS_SETTLING) return;
    lh_err err = begin_serving(s);
    if (err == LH_ERR_DISK_FULL) err = wait_for_room(s);
    if (err) ps_fatal(s, err);
}

// Only the coordinator knows whether a log is its shard's last one
// (server/docs/0000-protocol.md#rule-27), so it confirms every served state, except after a move
// (server/docs/0000-protocol.md#rule-22).
static bool unsettled(const struct ps_shard *shard)
{
    if (!shard->server->conf.coordinator[0]) return false; // no coordinator (tests)
    return !ps_shard_reserved(shard) || shard->begun != shard->replica.ledger.move.epoch;
}

lh_err ps_settle(struct ps_server *s)
{
    bool waits = false;
    ps_become(s, PS_SETTLING);
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        if (!unsettled(s->shard[i])) continue;
        LH_TRY(ps_rebuild_begin(s->shard[i]));
        waits = true;
    }
    return waits ? LH_OK : begin_serving(s);
}

lh_err ps_settle_in_room(struct ps_server *s)
{
    lh_err err = ps_settle(s);
    if (err == LH_ERR_DISK_FULL) ps_raise(s, PS_SETTLED);
    return err == LH_ERR_DISK_FULL ? LH_OK : err;
}
