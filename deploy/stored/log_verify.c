// Whether a server's log is whole, and fits its checkpoints. See log_verify.h.
//
// ps_wal_look() checks what a start would: checksums, the sequence of entries, durable positions.
// This file checks what the entries hold: each shard's versions follow one another, each record's
// chain is the hash of it and the one before, epochs only rise, a checkpoint bridges each gap, and
// a checkpoint inside the log's range is of this very history.
#include "deploy/stored/log_verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/stored/replay.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/wal/wal.h"

// A point of a shard's history named by a checkpoint.
struct point {
    uint32_t shard;
    uint64_t version, epoch;
    struct lh_hash chain;
    bool met; // found a record of that version
};

struct history {
    uint32_t shard;
    uint64_t first, last, epoch, records;
    struct lh_hash chain;
};

struct verify {
    struct dp_job *job;
    struct ps_wal_found found;
    struct point *point;
    struct history *shard;
    size_t points, shards;
    const char *checkpoints;
    lh_err err;
};

// ---------------------------------------------------------------- checkpoints

static void note_checkpoint(void *arg, const char *file)
{
    struct verify *v = arg;
    struct lk_checkpoint_name name;
    struct lk_checkpoint_info info;
    char path[DP_PATH_BYTES];
    if (v->err || !lk_checkpoint_name_parse(file, &name) || name.weights) return;
    v->err = dp_path(path, "%s/%s", v->checkpoints, file);
    // `checkpoint verify` reports a damaged one: no start depends on it alone
    if (v->err || lk_checkpoint_peek(v->job->env, path, &info)) return;
    struct point *grown = realloc(v->point, (v->points + 1) * sizeof *grown);
    if (!grown) {
        v->err = lh_fail(LH_ERR_NO_MEMORY, "no memory for the checkpoints");
        return;
    }
    v->point = grown;
    v->point[v->points++] = (struct point){info.shard, info.version, info.epoch, info.chain, false};
}

static struct point *point_at(struct verify *v, uint32_t shard, uint64_t version)
{
    for (size_t i = 0; i < v->points; i++)
        if (v->point[i].shard == shard && v->point[i].version == version) return &v->point[i];
    return NULL;
}

// ---------------------------------------------------------------- records

static LH_MUST lh_err wrong(const struct ps_wal_entry *e, const char *what)
{
    return lh_fail(LH_ERR_CORRUPT,
                   "segment %016" PRIx64 " byte %" PRIu64 ": shard %" PRIu32 " version %" PRIu64
                   ": %s",
                   e->segment, e->at, e->shard, e->record->version, what);
}

// Checks a shard's first record, or its first behind a gap: it must follow a checkpoint's point, or
// the empty log of a known run.
static LH_MUST lh_err begin(struct verify *v, struct history *h, const struct ps_wal_entry *e)
{
    const struct lh_record *r = e->record;
    const struct dp_job *job = v->job;
    struct point *p = point_at(v, e->shard, r->version - 1);
    struct lh_hash chain;
    if (p) {
        chain = lh_record_chain(&p->chain, r);
        if (!lh_hash_equal(&chain, &r->chain)) return wrong(e, "does not follow the checkpoint");
    } else if (r->version == 1 && job->has_id && job->has_manifest) {
        struct lh_ledger empty;
        if (e->shard >= job->manifest.shards) return wrong(e, "the model has no such shard");
        LH_TRY(
            lh_ledger_create(&empty, job->id, &job->manifest.hash, e->shard, job->manifest.shards));
        chain = lh_record_chain(&empty.chain, r);
        lh_ledger_free(&empty);
        if (!lh_hash_equal(&chain, &r->chain)) return wrong(e, "is no beginning of this run's log");
    } else if (h->records) {
        return wrong(e, "does not follow the one before, and no checkpoint is between them");
    }
    return LH_OK;
}

static LH_MUST lh_err history_of(struct verify *v, uint32_t shard, struct history **out)
{
    for (size_t i = 0; i < v->shards; i++)
        if (v->shard[i].shard == shard) {
            *out = &v->shard[i];
            return LH_OK;
        }
    struct history *grown = realloc(v->shard, (v->shards + 1) * sizeof *grown);
    if (!grown) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the shards");
    v->shard = grown;
    *out = &v->shard[v->shards++];
    **out = (struct history){.shard = shard};
    return LH_OK;
}

static lh_err check_entry(void *arg, const struct ps_wal_entry *e)
{
    struct verify *v = arg;
    const struct lh_record *r = e->record;
    struct history *h = NULL;
    if (!r) return LH_OK;
    LH_TRY(history_of(v, e->shard, &h));
    if (!h->records || r->version != h->last + 1) {
        LH_TRY(begin(v, h, e));
    } else {
        struct lh_hash chain = lh_record_chain(&h->chain, r);
        if (!lh_hash_equal(&chain, &r->chain)) return wrong(e, "does not follow the one before");
        if (r->kind == LH_EPOCH ? r->epoch <= h->epoch : r->epoch != h->epoch)
            return wrong(e, "its epoch does not follow");
    }
    struct point *p = point_at(v, e->shard, r->version);
    if (p && (p->epoch != r->epoch || !lh_hash_equal(&p->chain, &r->chain)))
        return wrong(e, "the checkpoint of this version is of another history");
    if (p) p->met = true;
    if (!h->records++) h->first = r->version;
    h->last = r->version;
    h->epoch = r->epoch;
    h->chain = r->chain;
    return LH_OK;
}

// A log that begins above version 1 needs a checkpoint to stand on.
static LH_MUST lh_err check_founded(struct verify *v)
{
    for (size_t i = 0; i < v->shards; i++) {
        const struct history *h = &v->shard[i];
        bool founded = h->first == 1;
        for (size_t k = 0; k < v->points; k++)
            founded |= v->point[k].shard == h->shard && v->point[k].version + 1 >= h->first;
        if (!founded)
            return lh_fail(LH_ERR_CORRUPT,
                           "shard %" PRIu32 ": the log begins at version %" PRIu64
                           ", and no checkpoint in %s reaches it",
                           h->shard, h->first, v->checkpoints);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- all of it

static LH_MUST lh_err fold_all(struct dp_job *job, const char *dir)
{
    struct dp_replay r;
    lh_err err = dp_replay_create(&r, job);
    r.fold.oldest = true;
    if (!err) err = dp_replay_dir(&r, dir);
    dp_replay_free(&r);
    return err;
}

static void show_text(const struct verify *v, const char *log, const char *state, bool folded)
{
    const struct ps_wal_found *f = &v->found;
    printf("%s: %s\n", log, state);
    printf("  %" PRIu64 " segments, %" PRIu64 " entries, %" PRIu64 " records, generation %" PRIu64
           ", durable to entry %" PRIu64 "\n",
           f->segments, f->entries, f->records, f->generation, f->durable);
    for (size_t i = 0; i < v->shards; i++) {
        const struct history *h = &v->shard[i];
        printf("  shard %" PRIu32 ": versions %" PRIu64 " to %" PRIu64 ", epoch %" PRIu64 "%s\n",
               h->shard, h->first, h->last, h->epoch, folded ? ", folded" : "");
    }
    for (size_t i = 0; i < v->points; i++)
        printf("  checkpoint of shard %" PRIu32 " at version %" PRIu64 "%s\n", v->point[i].shard,
               v->point[i].version,
               v->point[i].met ? ": of this history" : ": no record of that version is in the log");
    if (f->torn)
        printf("  segment %016" PRIx64 " byte %" PRIu64 ": bytes of no whole entry\n",
               f->torn_segment, f->torn_at);
}

static void show_json(const struct verify *v, const char *log, const char *state, bool folded)
{
    const struct ps_wal_found *f = &v->found;
    json_t *shards = json_array();
    for (size_t i = 0; i < v->shards; i++) {
        const struct history *h = &v->shard[i];
        json_array_append_new(shards,
                              json_pack("{s:I s:I s:I s:I s:I s:b}", "shard", (json_int_t)h->shard,
                                        "first", (json_int_t)h->first, "last", (json_int_t)h->last,
                                        "epoch", (json_int_t)h->epoch, "records",
                                        (json_int_t)h->records, "folded", folded));
    }
    json_t *o =
        json_pack("{s:s s:s s:I s:I s:I s:I s:I s:o}", "log", log, "state", state, "segments",
                  (json_int_t)f->segments, "entries", (json_int_t)f->entries, "records",
                  (json_int_t)f->records, "generation", (json_int_t)f->generation, "durable",
                  (json_int_t)f->durable, "shards", shards);
    if (f->torn) {
        char segment[24];
        snprintf(segment, sizeof segment, "%016" PRIx64, f->torn_segment);
        json_object_set_new(
            o, "torn", json_pack("{s:s s:I}", "segment", segment, "byte", (json_int_t)f->torn_at));
    }
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(o);
}

static LH_MUST lh_err verify(struct verify *v, const char *log, const char *dir, bool deep)
{
    struct lh_env *env = v->job->env;
    LH_TRY(env->ops->files->list(env, v->checkpoints, note_checkpoint, v));
    LH_TRY(v->err);
    LH_TRY(ps_wal_look(env, log, v->job->has_id ? v->job->id : NULL, check_entry, v, &v->found));
    if (!v->found.segments) return dp_job_no_log(log);
    LH_TRY(check_founded(v));
    return deep ? fold_all(v->job, dir) : LH_OK;
}

lh_err dp_log_verify(struct dp_job *job, const char *dir, bool deep, bool json)
{
    char log[DP_PATH_BYTES], checkpoints[DP_PATH_BYTES];
    struct verify v = {.job = job, .checkpoints = checkpoints};
    LH_TRY(dp_job_log_dir(dir, log));
    LH_TRY(dp_job_checkpoint_dir(dir, checkpoints));
    lh_err err = verify(&v, log, dir, deep);
    bool running = !err && v.found.torn && dp_job_running(job->env, dir);
    const char *state = err            ? "damaged"
                        : v.found.torn ? running ? "being written" : "torn"
                                       : "whole";
    if (!err || err == LH_ERR_CORRUPT) {
        if (json)
            show_json(&v, log, state, deep && !err);
        else
            show_text(&v, log, state, deep && !err);
    }
    if (!err && v.found.torn && !running)
        err = lh_fail(LH_ERR_CONFLICT,
                      "torn at segment %016" PRIx64 " byte %" PRIu64
                      ": a start drops what stands there, which may have been acknowledged, and "
                      "opens a new epoch",
                      v.found.torn_segment, v.found.torn_at);
    free(v.point);
    free(v.shard);
    return err;
}
