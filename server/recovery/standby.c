// Standby: a server that follows another one's shards record by record, and takes them over when it
// falls silent (server/docs/0000-protocol.md#rule-21; the owner's half is insync.c, the stream of
// each shard owner_stream.c).
//
// Which server owns the shards, and that they are to be taken over, the coordinator answers to its
// reports. A take-over opens an epoch (rebuild.c) and serves.
//
// DIR/standby (common/env/numbers.h) holds the number that names the directory. It changes when the
// directory may lack what it confirmed under that name, but for its upper half: that stays, and is
// what a MOVE record means (common/format/ledger.h). A second number (version 1 had none) is 1 from
// the moment such a loss is found until the name has changed: the coordinator hears of it first,
// under the old name, and a start that is killed before finds a log without the torn tail.
#include <inttypes.h>
#include <string.h>

#include "common/env/numbers.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/server.h"

static const struct lh_numbers IDENTITY = {.magic = 0x4253484c, // "LHSB"
                                           .version = 2,
                                           .count = {1, 2},
                                           .remedy =
                                               "remove it, and this directory is a new standby's"};

static lh_err identity_path(struct ps_server *s, char out[LH_PATH_SIZE])
{
    return lh_path(out, LH_PATH_SIZE, s->conf.dir, "standby");
}

static lh_err new_identity(struct ps_server *s)
{
    char path[LH_PATH_SIZE];
    uint64_t old = s->standby.identity, fresh = lh_random_u64(s->conf.env) | 1;
    uint64_t identity = old ? (old & ~(uint64_t)UINT32_MAX) | (fresh & UINT32_MAX) : fresh;
    LH_TRY(identity_path(s, path));
    LH_TRY(lh_numbers_store(s->conf.env, &IDENTITY, path, (uint64_t[]){identity, 0}));
    s->standby.identity = identity;
    return LH_OK;
}

lh_err ps_standby_torn(struct ps_server *s)
{
    char path[LH_PATH_SIZE];
    uint64_t number[2];
    if (!s->conf.standby) return LH_OK;
    LH_TRY(identity_path(s, path));
    lh_err err = lh_numbers_load(s->conf.env, &IDENTITY, path, number);
    if (err == LH_ERR_NOT_FOUND) return LH_OK;
    number[1] = 1;
    return err ? err : lh_numbers_store(s->conf.env, &IDENTITY, path, number);
}

static lh_err load_identity(struct ps_server *s)
{
    char path[LH_PATH_SIZE];
    uint64_t number[2] = {0};
    LH_TRY(identity_path(s, path));
    lh_err err = lh_numbers_load(s->conf.env, &IDENTITY, path, number);
    s->standby.identity = number[0];
    s->standby.lost = number[1] || s->torn || s->damaged;
    if (!err && !s->standby.identity)
        err = lh_fail(LH_ERR_CORRUPT, "%s names nobody; %s", path, IDENTITY.remedy);
    return err == LH_ERR_NOT_FOUND ? new_identity(s) : err;
}

// ---------------------------------------------------------------- the coordinator's word

bool ps_at_rest(const struct ps_server *s)
{
    // A mark is in no list; what is queued while there is no log (its disk is full) waits for one.
    bool rest = !s->committing && (!s->queue || !s->wal) && !s->group;
    if (s->wal) rest &= !ps_wal_group_bytes(s->wal);
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        rest &= !s->shard[i]->keep && !ps_digest_busy(s->shard[i]);
    return rest;
}

void ps_standby_moved(struct ps_server *s)
{
    if (s->standby.taking || !ps_moved_here(s)) return;
    s->standby.taking = true;
    ps_owner_stream_look_again(s->shard[0]->copy); // not from inside a group's end
}

void ps_standby_folded(struct ps_server *s)
{
    ps_standby_moved(s);
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (s->shard[i]->copy) ps_owner_stream_folded(s->shard[i]->copy);
}

lh_err ps_standby_write(struct ps_server *s)
{
    if (s->standby.unwritten) LH_TRY(ps_start_over(s));
    s->standby.unwritten = false;
    ps_group_commit_kick(s); // records of other shards may have waited for the log
    return LH_OK;
}

// What is here is served, when its history is settled.
static lh_err own(struct ps_server *s)
{
    if (s->damaged && !s->conf.rebuild_damaged) return lh_fail(LH_ERR_CORRUPT, "%s", s->damage);
    LH_TRY(ps_standby_write(s));
    LH_TRY(ps_move_take(s));
    s->standby.standing = s->standby.taking = false;
    lh_err err = ps_settle(s);
    if (err == LH_ERR_DISK_FULL) ps_server_serve(s); // when there is room
    return err == LH_ERR_DISK_FULL ? LH_OK : err;
}

// Nothing comes from the former owner any more; what came is durable, then the shards are served.
void ps_standby_take_over(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count && !LH_BUG("old_epoch"); i++)
        if (s->shard[i]->copy) ps_owner_stream_hang_up(s->shard[i]->copy);
    if (!ps_at_rest(s)) {
        ps_owner_stream_look_again(s->shard[0]->copy);
        return;
    }
    for (uint32_t i = 0; i < s->conf.shard_count && !LH_BUG("old_epoch"); i++)
        ps_owner_stream_close(s->shard[i]->copy);
    lh_err err = own(s);
    if (err == LH_ERR_DISK_FULL)
        ps_owner_stream_look_again(s->shard[0]->copy);
    else if (err)
        ps_fatal(s, err);
    else if (s->serving)
        ps_report_now(s); // the shards were moved, and nobody knows yet
}

// What is here can't be believed: everything is fetched anew.
static lh_err begin_anew(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        // what was served here in that epoch may be lost: nothing is served in it a second time
        if (shard->begun) LH_TRY(ps_epoch_store(shard, shard->begun + 1));
        LH_TRY(ps_shard_anew(shard));
    }
    LH_TRY(ps_start_over(s));
    s->damaged = s->unreliable = false;
    return LH_OK;
}

static lh_err stand_by(struct ps_server *s)
{
    if (s->standby.lost) LH_TRY(new_identity(s));
    s->standby.lost = false;
    if (s->damaged) LH_TRY(begin_anew(s));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) LH_TRY(ps_owner_stream_begin(s->shard[i]));
    lh_logf(s->conf.log, LH_INFO, "standby.begun", "stands by as %016" PRIx64, s->standby.identity);
    return LH_OK;
}

static void take_owner(struct ps_server *s, const Longhaul__V1__ShardAddress *m)
{
    struct ps_shard *shard = ps_server_shard(s, m->shard);
    if (shard && shard->copy && strcmp(m->address, s->address))
        ps_owner_stream_owner(shard->copy, m->address);
}

void ps_standby_told(struct ps_server *s, const Longhaul__V1__ReportReply *m)
{
    for (size_t i = 0; i < m->n_turns; i++) {
        struct ps_shard *shard = ps_server_shard(s, m->turns[i]->shard);
        if (shard && shard->least_epoch < m->turns[i]->epoch)
            shard->least_epoch = m->turns[i]->epoch;
    }
    if (m->n_turns) {
        s->standby.taking = true;
        ps_standby_take_over(s);
        return;
    }
    lh_err err = s->shard[0]->copy ? LH_OK : stand_by(s);
    for (size_t i = 0; i < m->n_owners && !err; i++) take_owner(s, m->owners[i]);
    if (err == LH_ERR_DISK_FULL)
        lh_logf(s->conf.log, LH_ERROR, "standby.disk_full", "%s; it stands by when there is room",
                lh_err_text(err));
    else if (err)
        ps_fatal(s, err);
}

lh_err ps_standby_begin(struct ps_server *s)
{
    LH_TRY(load_identity(s));
    s->standby.standing = true;
    ps_move_found(s);
    ps_report_start(s);
    return LH_OK;
}
