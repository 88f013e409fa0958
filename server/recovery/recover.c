// Recover: checkpoint + log = state (DESIGN.md#section-8, server/docs/0000-protocol.md#rule-5,
// #rule-17, #rule-18).
//
// Each shard loads its newest good checkpoint and replays the log above it; the surviving records
// are made durable. If bytes were dropped that may have been acknowledged, every shard opens a new
// epoch before it serves. A shard without history, or with an epoch to open, is first settled with
// the coordinator and perhaps its followers (rebuild.c); ps_recovered() comes after that.
//
// No two histories of a shard have the same epoch, although the record that opens an epoch can be
// lost like any other: the coordinator registers each (server/docs/0000-protocol.md#rule-17), and
// DIR/epoch-<shard 4 hex> holds the highest one that this directory requested, durable before the
// request and before the next write to the log. A log with a lower epoch lost history, or its start
// crashed before the record. The file holds numbers (common/env/numbers.h), "LHEP": epoch, token
// (version 1 had no token). DIR/process, "LHPR", is the random number of the last process that
// served this directory; a later process known to the coordinator has records that are missing
// here. A log damaged below its durable position is quarantined (quarantine.c) once every shard has
// a checkpoint of its new state.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env/numbers.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/core.h"
#include "server/push/head.h"
#include "server/recovery/epoch.h"
#include "server/recovery/identity.h"
#include "server/recovery/recover.h"
#include "server/recovery/refold.h"
#include "server/state/disk_full.h"
#include "server/state/fold.h"
#include "server/wal/quarantine.h"

static void skipped(void *arg, const char *file, lh_err err)
{
    struct ps_shard *shard = arg;
    struct lk_checkpoint_name name;
    const char *slash = strrchr(file, '/');
    bool named = lk_checkpoint_name_parse(slash ? slash + 1 : file, &name);
    if (err == LH_ERR_IO && named && name.version > shard->unread) shard->unread = name.version;
    shard->passed |= err != LH_ERR_CORRUPT && err != LH_ERR_UNSEAL;
    lh_logf(shard->server->conf.log, LH_ERROR, "checkpoint.skipped", "%s: %s; using an older one",
            file, lh_err_text(err));
}

// Removing a checkpoint that a killed process left behind may free the needed space. If newer
// checkpoints were skipped, keeps all.
static lh_err prune(const struct ps_shard *shard, const struct lk_checkpoint_conf *conf)
{
    uint64_t *version, oldest;
    size_t count;
    LH_TRY(lk_checkpoint_versions(conf, shard->id, false, &version, &count));
    bool newest = count && version[count - 1] == shard->checkpointed;
    free(version);
    if (!newest) return LH_OK;
    return lk_checkpoint_prune(conf, shard->id, false, shard->server->conf.checkpoint_keep,
                               &oldest);
}

static lh_err load(struct ps_server *s, struct ps_shard *shard)
{
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
    LH_TRY(lk_checkpoint_clean(&conf, shard->id));
    lh_err err = lk_checkpoint_load(&conf, &shard->replica, skipped, shard);
    bool none = err == LH_ERR_NOT_FOUND;
    if (none) err = ps_fold_anew(shard);
    if (err) return err;
    uint64_t version = shard->replica.ledger.version;
    lh_logf(s->conf.log, LH_INFO, "recover.loaded", "shard %u: %s of version %llu", shard->id,
            none ? "the initial parameters" : "checkpoint", (unsigned long long)version);
    if (none) return LH_OK;
    shard->checkpointed = shard->digested = version;
    LH_TRY(prune(shard, &conf));
    // a killed process may have left its name in the page cache only
    return s->conf.env->ops->files->sync_dir(s->conf.env, s->checkpoint_dir);
}

// Only a newer checkpoint holds the missing versions: those between the state and the log, or above
// both. A checkpoint that the disk failed to read may be readable at the next start; with a rebuild
// from followers, no retry is needed.
static lh_err gap(const struct ps_shard *shard, uint64_t version)
{
    const struct ps_server *s = shard->server;
    bool unread = shard->unread && !s->conf.rebuild_damaged;
    return lh_fail(unread ? LH_ERR_IO : LH_ERR_CORRUPT,
                   "%s: shard %u goes on at version %llu where %llu is expected: %s", s->conf.dir,
                   shard->id, (unsigned long long)version,
                   (unsigned long long)shard->replica.ledger.version + 1,
                   unread ? "the disk failed to read a newer checkpoint. Start again; if it stays "
                            "so, rebuild the server from its followers (rebuild.damaged: followers)"
                          : "part of its log or its newer checkpoints are missing. Restore the "
                            "directory from a copy, or rebuild the server from its followers "
                            "(rebuild.damaged: followers)");
}

// The log was trimmed below a skipped checkpoint that may be intact. Continuing from here would
// begin another history, which a later start that can read the checkpoint would take for ours.
static lh_err reaches(struct ps_shard *shard)
{
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(shard->server);
    uint64_t *version, newest = 0;
    size_t count;
    if (!shard->passed) return LH_OK;
    LH_TRY(lk_checkpoint_versions(&conf, shard->id, false, &version, &count));
    if (count) newest = version[count - 1];
    free(version);
    return newest > shard->replica.ledger.version ? gap(shard, newest + 1) : LH_OK;
}

// The checkpoint is of a fetched history, and the log should have been quarantined.
static bool of_another(const struct ps_shard *shard, const struct lh_record *r)
{
    const struct lh_ledger *l = &shard->replica.ledger;
    if (r->version == l->version) return !lh_hash_equal(&r->chain, &l->chain);
    return r->version > l->version && r->epoch < l->epoch;
}

static lh_err replay(void *arg, uint32_t id, const struct lh_record *r, struct ps_place place)
{
    struct ps_server *s = arg;
    struct ps_shard *shard = ps_server_shard(s, id);
    s->log.replayed = true;
    if (!shard) // a shard that this server owned before; its records stay in the log
        return LH_OK;
    if (of_another(shard, r)) {
        s->log.given_up = true;
        return LH_OK;
    }
    if (r->version <= shard->replica.ledger.version) {
        if (shard->index_count && shard->index[shard->index_count - 1].version + 1 != r->version)
            shard->index_count = 0;
        ps_chains_add(&shard->chains, r->version, &r->chain);
        return ps_shard_indexed(shard, r->version, place);
    }
    if (r->version != shard->replica.ledger.version + 1) return gap(shard, r->version);
    if (shard->index_count && shard->index[shard->index_count - 1].version + 1 != r->version)
        shard->index_count = 0;
    lh_err err = ps_fold_record(shard, r, (struct lh_span){0}, place);
    s->replay.records++;
    s->replay.bytes += place.bytes;
    s->log.unreliable |= err != LH_OK;
    return err;
}

// ---------------------------------------------------------------- epochs

static const struct lh_numbers PROCESS = {.magic = 0x5250484c, // "LHPR"
                                          .version = 1,
                                          .count = 1,
                                          .remedy = "remove it, and a new epoch begins"};

static lh_err load_process(struct ps_server *s)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, s->conf.dir, "process"));
    lh_err err = lh_numbers_load(s->conf.env, &PROCESS, path, &s->former);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

// Stores the process number durably before serving. If the disk is full, the next start finds
// another process's number and begins a new epoch.
static lh_err store_process(struct ps_server *s)
{
    char path[LH_PATH_BYTES];
    if (!s->conf.coordinator[0] || s->former == s->process) return LH_OK;
    LH_TRY(lh_path(path, sizeof path, s->conf.dir, "process"));
    lh_err err = lh_numbers_store(s->conf.env, &PROCESS, path, &s->process);
    if (!err) s->former = s->process;
    return err == LH_ERR_DISK_FULL ? LH_OK : err;
}

// Notes lost history on disk before the log's next segment hides it.
static lh_err scanned(void *arg, bool torn)
{
    struct ps_server *s = arg;
    lh_logf(s->conf.log, LH_INFO, "recover.durable", "%llu records of %llu bytes replayed",
            (unsigned long long)s->replay.records, (unsigned long long)s->replay.bytes);
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        s->log.older |= ps_epoch_given_up(s->shard[i]);
    for (uint32_t i = 0; i < s->conf.shard_count && torn && !LH_BUG("tail_silent"); i++) {
        struct ps_shard *shard = s->shard[i];
        uint64_t epoch = shard->replica.ledger.epoch;
        if (ps_epoch_given_up(shard)) continue; // more than the tail is missing
        LH_TRY(ps_epoch_store(shard, (epoch > shard->begun ? epoch : shard->begun) + 1));
    }
    if (torn) LH_TRY(ps_identity_torn(s));
    LH_FAILPOINT("recover.scanned");
    return LH_OK;
}

// Adds one EPOCH record to the group; the item owns its body.
static lh_err add_epoch(struct ps_item *i)
{
    struct ps_shard *shard = i->shard;
    const struct lh_ledger *l = &shard->replica.ledger;
    lh_put_u64(&i->body, shard->begun);
    lh_put_u64(&i->body, l->version);
    LH_TRY(lh_buf_err(&i->body));
    i->record =
        (struct lh_record){.kind = LH_EPOCH, .epoch = shard->begun, .body = lh_buf_span(&i->body)};
    lh_ledger_next(l, &i->record);
    lh_err refused;
    LH_TRY(ps_head_append(i, &refused));
    return refused;
}

static lh_err commit_epochs(struct ps_server *s, struct ps_item **list)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        if (!ps_epoch_asked_for(shard)) continue;
        struct ps_item *item = ps_item_new(PS_ITEM_EPOCH, shard);
        if (!item) return LH_ERR_NO_MEMORY;
        item->next = *list;
        *list = item;
        LH_TRY(add_epoch(item));
    }
    if (!*list) return LH_OK;
    lh_err err = ps_wal_commit(s->wal);
    if (err == LH_ERR_DISK_FULL) err = ps_wal_commit_small(s->wal, 0); // only a server frees space
    if (err) return err;
    for (struct ps_item *i = *list; i; i = i->next)
        LH_TRY(ps_fold_record(i->shard, &i->record, (struct lh_span){0},
                              ps_wal_committed_place(s->wal, i->place)));
    ps_wal_group_done(s->wal);
    ps_head_committed(s);
    return LH_OK;
}

// Commits one group of EPOCH records, durable before the first hello.
static lh_err open_epochs(struct ps_server *s)
{
    struct ps_item *list = NULL;
    lh_err err = commit_epochs(s, &list);
    if (err == LH_ERR_DISK_FULL) { // tried again when there is space
        lh_err lost = ps_head_take_back(s);
        if (lost) err = lost;
    }
    for (struct ps_item *i; (i = list);) {
        list = i->next;
        ps_item_free(i);
    }
    return err;
}

static lh_err open_log(struct ps_server *s, bool *torn)
{
    struct ps_wal_conf wal = {.env = s->conf.env,
                              .log = s->conf.log,
                              .dir = s->wal_dir,
                              .segment_bytes = s->conf.segment_bytes,
                              .reserve = ps_disk_full_reserve(s),
                              .scanned = scanned};
    memcpy(wal.job, s->conf.job, LH_JOB_BYTES);
    return ps_wal_open(&wal, replay, s, torn, &s->wal);
}

// Keeps the first error text of damage for the end.
static lh_err or_damage(lh_err err, char text[256])
{
    if (err != LH_ERR_CORRUPT) return err;
    if (!text[0]) snprintf(text, 256, "%s", lh_err_text(err));
    return LH_OK;
}

// Loads every shard even if one is damaged. A shard with only damaged checkpoints gets the initial
// parameters: a rebuild that finds no later state continues from them.
static lh_err load_shards(struct ps_server *s)
{
    char text[256] = "";
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        lh_err err = load(s, s->shard[i]);
        LH_TRY(or_damage(err, text));
        if (err) LH_TRY(ps_fold_anew(s->shard[i]));
        LH_TRY(or_damage(ps_epoch_load(s->shard[i]), text));
        LH_TRY(ps_grants_load(s->shard[i]));
    }
    return text[0] ? lh_fail(LH_ERR_CORRUPT, "%s", text) : LH_OK;
}

static lh_err read_disk(struct ps_server *s, bool *torn)
{
    LH_TRY(lh_path(s->wal_dir, sizeof s->wal_dir, s->conf.dir, "log"));
    LH_TRY(s->conf.env->ops->files->make_dir(s->conf.env, s->checkpoint_dir));
    LH_TRY(load_process(s));
    LH_TRY(ps_refold_start(s));
    LH_TRY(load_shards(s));
    LH_TRY(open_log(s, torn));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) LH_TRY(reaches(s->shard[i]));
    return LH_OK;
}

// Renames the damaged checkpoints (those above the loaded one), so that trimming does not count
// them.
static lh_err set_checkpoints_aside(struct ps_shard *shard)
{
    struct ps_server *s = shard->server;
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
    char from[LH_PATH_BYTES], to[LH_PATH_BYTES];
    uint64_t *version;
    size_t count;
    if (shard->passed) return LH_OK;
    lh_err err = lk_checkpoint_versions(&conf, shard->id, false, &version, &count);
    if (err) return err;
    for (size_t i = 0; i < count && !err; i++) {
        if (version[i] <= shard->checkpointed) continue;
        struct lk_checkpoint_name name = {shard->id, version[i], false};
        err = lk_checkpoint_path(conf.dir, &name, from);
        if (!err)
            err = lh_path(to, sizeof to, conf.dir, "%04x-%016llx.damaged", shard->id,
                          (unsigned long long)version[i]);
        if (!err) err = s->conf.env->ops->files->rename(s->conf.env, from, to);
    }
    free(version);
    return err;
}

// Disk full: removes quarantined files for the next start; this start still fails.
static lh_err fail_without_room(struct ps_server *s)
{
    char lacks[256];
    bool removed;
    snprintf(lacks, sizeof lacks, "%s", lh_err_text(LH_ERR_DISK_FULL));
    LH_TRY(ps_quarantine_remove(s, &removed));
    return lh_fail(LH_ERR_DISK_FULL, "%s%s", lacks,
                   removed ? "; the abandoned log was removed, so start the server again" : "");
}

lh_err ps_recover(struct ps_server *s)
{
    bool torn = false;
    lh_err err = read_disk(s, &torn);
    if (err == LH_ERR_DISK_FULL) return fail_without_room(s);
    bool mends = s->conf.rebuild_damaged || s->conf.standby; // a standby fetches from its owner
    if (!err && s->log.older) {
        mends |= s->conf.below_stable;
        err = lh_fail(LH_ERR_CORRUPT,
                      "%s is an older copy, of another history, or its log lost its end, as an "
                      "earlier start found. Nothing is served from it. Start the server on the "
                      "newer directory, if there is one, or with rebuild.damaged: followers, to "
                      "restore the shards from their followers",
                      s->conf.dir);
    }
    s->log.torn = torn;
    s->log.damaged = err == LH_ERR_CORRUPT && mends && s->conf.coordinator[0];
    if (err && !s->log.damaged) return err;
    if (s->log.damaged) snprintf(s->log.damage, sizeof s->log.damage, "%s", lh_err_text(err));
    if (s->log.damaged && !s->conf.standby)
        lh_logf(s->conf.log, LH_ERROR, "log.damaged",
                "%s; the shards are rebuilt from their followers (rebuild.damaged)",
                lh_err_text(err));
    if (torn)
        lh_logf(s->conf.log, LH_WARN, "log.torn",
                "bytes at the log's end were dropped that may have "
                "been acknowledged: a new epoch begins");
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        if (s->log.damaged) shard->token = 0; // the epoch that it opened is not the remaining one
        bool whole = shard->index_count &&
                     shard->index[shard->index_count - 1].version == shard->replica.ledger.version;
        // The log ends below the checkpoint, so it lost its tail; or it is damaged, and not open.
        if (!whole || s->log.damaged) shard->index_count = 0;
        if (LH_BUG("drop_dedupe")) shard->replica.ledger.rows = 0;
        LH_TRY(set_checkpoints_aside(shard));
    }
    if (!s->log.given_up || s->log.damaged) return LH_OK;
    lh_logf(s->conf.log, LH_WARN, "log.given_up",
            "the log belongs to a history that another one replaced: it is set aside");
    return ps_start_over(s);
}

// ---------------------------------------------------------------- after it is settled

static lh_err checkpoint(struct ps_shard *shard)
{
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(shard->server);
    struct lk_checkpoint c;
    LH_TRY(lk_checkpoint_take(&conf, &shard->replica, &c));
    lh_err err = lk_checkpoint_write(&c);
    lk_checkpoint_free(&c);
    if (!err) err = lk_checkpoint_drop_above(&conf, shard->id, shard->replica.ledger.version);
    if (err) return err; // the shard still rests on its previous files
    shard->checkpointed = shard->replica.ledger.version;
    shard->weighed = 0;
    shard->digested = 0; // a DIGEST record comes soon, for followers to compare
    shard->index_count = 0;
    return LH_OK;
}

static lh_err set_log_aside(struct ps_server *s)
{
    bool torn;
    if (!s->log.aside) {
        ps_wal_close(s->wal);
        s->wal = NULL;
        LH_TRY(ps_quarantine_log(s));
    }
    s->log.aside = true; // the old log is moved, even if the disk is full for a new one
    LH_TRY(open_log(s, &torn));
    s->log.aside = false;
    return LH_OK;
}

static lh_err start_over(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count && !s->log.aside; i++)
        LH_TRY(checkpoint(s->shard[i]));
    return set_log_aside(s);
}

lh_err ps_start_over(struct ps_server *s)
{
    bool room = false;
    lh_err err = start_over(s);
    if (err == LH_ERR_DISK_FULL) LH_TRY(ps_quarantine_remove(s, &room));
    return room ? start_over(s) : err;
}

// Installs the state fetched from followers: durable before any record follows it.
static lh_err install(struct ps_server *s, bool fetched)
{
    if ((!fetched && !s->log.damaged) || s->log.installed) return LH_OK;
    for (uint32_t i = 0; i < s->conf.shard_count && !s->log.aside; i++)
        LH_TRY(checkpoint(s->shard[i]));
    if (s->log.damaged || s->log.replayed) LH_TRY(set_log_aside(s));
    s->log.installed = true; // the EPOCH record may have to wait for disk space
    return LH_OK;
}

// After a lost tail or a rebuild, the log continues above a single checkpoint: makes another one
// due, so that a start does not depend on one.
static lh_err look_for_another(struct ps_shard *shard)
{
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(shard->server);
    uint64_t first =
        shard->index_count ? shard->index[0].version : shard->replica.ledger.version + 1;
    uint64_t *version;
    size_t count, enough = 0;
    LH_TRY(lk_checkpoint_versions(&conf, shard->id, false, &version, &count));
    for (size_t i = 0; i < count; i++) enough += version[i] + 1 >= first;
    free(version);
    shard->kept = count >= shard->server->conf.checkpoint_keep;
    shard->alone = first > 1 && enough < shard->server->conf.checkpoint_keep;
    return LH_OK;
}

lh_err ps_recovered(struct ps_server *s, bool fetched)
{
    LH_TRY(install(s, fetched));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) LH_TRY(ps_head_settle(s->shard[i]));
    LH_TRY(open_epochs(s));
    LH_TRY(ps_refold_done(s));
    LH_TRY(store_process(s));
    s->log.installed = s->log.damaged = s->log.unreliable = false;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        LH_TRY(look_for_another(shard));
        lh_logf(s->conf.log, LH_INFO, "shard.ready", "shard %u at version %llu, epoch %llu",
                shard->id, (unsigned long long)shard->head->version,
                (unsigned long long)shard->head->epoch);
    }
    LH_FAILPOINT("recover.ready");
    return LH_OK;
}
