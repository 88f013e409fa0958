// Recover: checkpoint + log = state (DESIGN 8, PROTOCOL 5, 18).
//
// Each shard loads its newest good checkpoint, the log is replayed above it, what survived is made
// durable, and if bytes had to be cut that may have been acknowledged every shard opens a new epoch
// before it serves.
//
// No two histories of a shard have the same epoch, although the record that opens one can be lost
// like any other: DIR/epoch-<shard 4 hex> holds the highest that was ever begun, durable before the
// log is written to again. A log below it lost history, or its start crashed before the record.
//   magic "LHEP" u32, version u16 (1), 0 u16, epoch u64, CRC-32C of all before u32
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

static void skipped(void *arg, const char *file, lh_err err)
{
    struct ps_server *s = arg;
    lh_logf(s->conf.log, LH_ERROR, "checkpoint.skipped", "%s: %s; an older one is taken", file,
            lh_err_text(err));
}

static lh_err load(struct ps_server *s, struct ps_shard *shard)
{
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
    lh_err err = lk_checkpoint_load(&conf, &shard->replica, skipped, s);
    if (err == LH_ERR_NOT_FOUND) return LH_OK; // from the initial parameters
    if (err) return err;
    shard->checkpointed = shard->digested = shard->replica.ledger.version;
    return LH_OK;
}

static lh_err replay(void *arg, uint32_t id, const struct lh_record *r, struct ps_place place)
{
    struct ps_server *s = arg;
    struct ps_shard *shard = ps_server_shard(s, id);
    if (!shard) // a shard that this server owned before: its records stay where they are
        return LH_OK;
    if (r->version <= shard->replica.ledger.version) {
        if (shard->indexed && shard->index[shard->indexed - 1].version + 1 != r->version)
            shard->indexed = 0;
        return ps_shard_indexed(shard, r->version, place);
    }
    if (r->version != shard->replica.ledger.version + 1)
        return lh_fail(LH_ERR_CORRUPT,
                       "%s: shard %u goes on at version %llu where %llu is expected: "
                       "part of its log or its newer checkpoints are missing",
                       s->conf.dir, id, (unsigned long long)r->version,
                       (unsigned long long)shard->replica.ledger.version + 1);
    if (shard->indexed && shard->index[shard->indexed - 1].version + 1 != r->version)
        shard->indexed = 0;
    return ps_shard_fold(shard, r, (struct lh_span){0}, 0, place);
}

// ---------------------------------------------------------------- epochs

static const uint32_t EPOCH_MAGIC = 0x5045484c; // "LHEP"

static lh_err epoch_path(const struct ps_shard *shard, char out[LH_PATH_SIZE])
{
    return lh_path(out, LH_PATH_SIZE, shard->server->conf.dir, "epoch-%04x", shard->id);
}

static lh_err load_epoch(struct ps_shard *shard)
{
    char path[LH_PATH_SIZE];
    struct lh_buf b = lh_buf(64);
    LH_TRY(epoch_path(shard, path));
    lh_err err = lh_file_load(shard->server->conf.env, path, &b);
    if (!err) {
        struct lh_cursor c = lh_cursor(lh_buf_span(&b));
        uint32_t magic = lh_get_u32(&c), version = lh_get_u16(&c);
        (void)lh_get_u16(&c);
        shard->begun = lh_get_u64(&c);
        uint32_t crc = lh_get_u32(&c);
        if (c.failed || lh_left(&c) || magic != EPOCH_MAGIC || version != 1 ||
            crc != lh_crc32c(0, b.data, b.len - 4))
            err = lh_fail(LH_ERR_CORRUPT, "%s is damaged; restore this file from a copy", path);
    }
    lh_buf_free(&b);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

static lh_err store_epoch(const struct ps_shard *shard)
{
    char path[LH_PATH_SIZE];
    struct lh_buf b = lh_buf(64);
    lh_put_u32(&b, EPOCH_MAGIC);
    lh_put_u16(&b, 1);
    lh_put_u16(&b, 0);
    lh_put_u64(&b, shard->begun);
    if (!b.err) lh_put_u32(&b, lh_crc32c(0, b.data, b.len));
    lh_err err = lh_buf_err(&b);
    if (!err) err = epoch_path(shard, path);
    if (!err) err = lh_file_replace(shard->server->conf.env, path, lh_buf_span(&b));
    lh_buf_free(&b);
    return err;
}

static bool ended(const struct ps_shard *shard)
{
    return shard->replica.ledger.plan.phase == LH_PHASE_END;
}

// History was lost: says so on the disk before the log's next segment hides it.
static lh_err scanned(void *arg, bool torn)
{
    struct ps_server *s = arg;
    for (uint32_t i = 0; i < s->conf.shard_count && torn && !LH_BUG("tail_silent"); i++) {
        struct ps_shard *shard = s->shard[i];
        uint64_t epoch = shard->replica.ledger.epoch;
        if (ended(shard)) continue; // nothing was acknowledged after that record
        shard->begun = (epoch > shard->begun ? epoch : shard->begun) + 1;
        LH_TRY(store_epoch(shard));
    }
    return LH_OK;
}

static bool epoch_due(const struct ps_shard *shard)
{
    return shard->begun > shard->replica.ledger.epoch && !ended(shard);
}

// One group of EPOCH records, durable before the first greeting.
static lh_err open_epochs(struct ps_server *s)
{
    struct lh_record r[LH_SHARDS_MAX > 256 ? 256 : LH_SHARDS_MAX];
    struct ps_place place[256];
    if (s->conf.shard_count > LH_COUNT(r)) return lh_fail(LH_ERR_TOO_LARGE, "too many shards");
    struct lh_buf body[256];
    bool opens[256];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct lh_ledger *l = &s->shard[i]->replica.ledger;
        if (!(opens[i] = epoch_due(s->shard[i]))) continue;
        n++;
        body[i] = lh_buf(16);
        r[i] = (struct lh_record){.kind = LH_EPOCH, .epoch = s->shard[i]->begun};
        lh_put_u64(&body[i], s->shard[i]->begun);
        lh_put_u64(&body[i], l->version);
        LH_TRY(lh_buf_err(&body[i]));
        r[i].body = lh_buf_span(&body[i]);
        lh_ledger_next(l, &r[i]);
        LH_TRY(ps_wal_add(s->wal, s->shard[i]->id, &r[i], &place[i]));
    }
    if (!n) return LH_OK;
    LH_TRY(ps_wal_commit(s->wal));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        if (!opens[i]) continue;
        LH_TRY(ps_shard_fold(s->shard[i], &r[i], (struct lh_span){0}, 0,
                             ps_wal_committed_place(s->wal, place[i])));
        lh_buf_free(&body[i]);
    }
    ps_wal_group_done(s->wal);
    return LH_OK;
}

static void forget_rows(struct lh_ledger *l) // planted bug: dedupe is not rebuilt
{
    l->rows = 0;
}

lh_err ps_recover(struct ps_server *s)
{
    char dir[LH_PATH_SIZE];
    bool torn = false;
    LH_TRY(lh_path(dir, sizeof dir, s->conf.dir, "checkpoints"));
    LH_TRY(s->conf.env->ops->files->make_dir(s->conf.env, dir));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        LH_TRY(load(s, s->shard[i]));
        LH_TRY(load_epoch(s->shard[i]));
    }
    struct ps_wal_conf wal = {.env = s->conf.env,
                              .log = s->conf.log,
                              .dir = s->wal_dir,
                              .segment_bytes = s->conf.segment_bytes,
                              .scanned = scanned};
    memcpy(wal.job, s->conf.job, LH_JOB);
    LH_TRY(lh_path(s->wal_dir, sizeof s->wal_dir, s->conf.dir, "log"));
    LH_TRY(ps_wal_open(&wal, replay, s, &torn, &s->wal));
    if (torn) {
        lh_logf(s->conf.log, LH_WARN, "log.torn",
                "bytes at the log's end were cut that may have "
                "been acknowledged: a new epoch begins");
    }
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        bool whole = shard->indexed &&
                     shard->index[shard->indexed - 1].version == shard->replica.ledger.version;
        if (!whole) shard->indexed = 0; // the log ends below the checkpoint: its tail was cut
        if (LH_BUG("drop_dedupe")) forget_rows(&shard->replica.ledger);
    }
    LH_TRY(open_epochs(s));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        LH_TRY(lh_ledger_copy(&shard->head, &shard->replica.ledger));
        lh_logf(s->conf.log, LH_INFO, "shard.ready", "shard %u at version %llu, epoch %llu",
                shard->id, (unsigned long long)shard->head.version,
                (unsigned long long)shard->head.epoch);
    }
    return LH_OK;
}
