// Shards at any version. See replay.h.
#include "deploy/stored/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/stored/weights_file.h"
#include "deploy/tool/cli.h"
#include "server/wal/wal.h"

static const uint64_t HEAD = (uint64_t)DP_REPLAY_HEAD;

lh_err dp_replay_create(struct dp_replay *r, struct dp_job *job)
{
    *r = (struct dp_replay){.job = job, .to = HEAD};
    r->shard = calloc(job->manifest.shards, sizeof *r->shard);
    return r->shard ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for the shards");
}

void dp_replay_free(struct dp_replay *r)
{
    for (uint32_t i = 0; r->shard && i < r->job->manifest.shards; i++)
        if (r->shard[i].here) lk_replica_free(&r->shard[i].replica);
    free(r->shard);
}

lh_err dp_replay_want(struct dp_replay *r, const char *text)
{
    const char *colon = strchr(text, ':');
    if (!colon) return dp_number("--to", text, 0, HEAD - 1, &r->to);
    char number[24];
    uint64_t shard = 0;
    snprintf(number, sizeof number, "%.*s", (int)(colon - text), text);
    LH_TRY(dp_number("--to", number, 0, r->job->manifest.shards - 1, &shard));
    r->shard[shard].asked = true;
    return dp_number("--to", colon + 1, 0, HEAD - 1, &r->shard[shard].to);
}

static LH_MUST lh_err worker_named(const struct dp_job *j, const char *name, uint64_t *out)
{
    const char *slash = strchr(name, '/');
    char *end, uri[LH_URI_BYTES];
    struct lh_peer peer = {.role = LH_W}, parsed;
    if (!slash) {
        *out = strtoull(name, &end, 16);
        if (strlen(name) == 16 && !*end && *out) return LH_OK;
        return lh_fail(LH_ERR_INVALID,
                       "--without %.80s: want REGION/NAME, or the 16 digits of `log dump`", name);
    }
    snprintf(peer.domain, sizeof peer.domain, "%s", j->domain ? j->domain : LH_DOMAIN_DEFAULT);
    snprintf(peer.run, sizeof peer.run, "%s", j->run);
    snprintf(peer.region, sizeof peer.region, "%.*s", (int)(slash - name), name);
    snprintf(peer.name, sizeof peer.name, "%s", slash + 1);
    lh_peer_uri(&peer, uri);
    if (lh_peer_parse(lh_span_str(uri), &parsed))
        return lh_fail(LH_ERR_INVALID, "--without %.80s: no worker can have that name", name);
    *out = lh_worker_id(&peer);
    return LH_OK;
}

lh_err dp_replay_without(struct dp_replay *r, const char *worker, const char *from)
{
    LH_TRY(worker_named(r->job, worker, &r->without));
    if (from) LH_TRY(dp_number("--from", from, 1, HEAD - 1, &r->without_from));
    r->oldest = true; // its pushes are in newer states
    return LH_OK;
}

// ---------------------------------------------------------------- what a directory has

struct reading {
    struct dp_replay *r;
    const char *dir;
    char log[DP_PATH_BYTES], checkpoints[DP_PATH_BYTES];
    lh_err err;
};

static LH_MUST lh_err meet(struct reading *q, uint32_t shard, struct dp_replayed **out)
{
    struct dp_replay *r = q->r;
    if (shard >= r->job->manifest.shards)
        return lh_fail(LH_ERR_MANIFEST, "%s holds shard %" PRIu32 ", the model has %" PRIu32,
                       q->dir, shard, r->job->manifest.shards);
    struct dp_replayed *s = &r->shard[shard];
    if (s->here && s->dir != q->dir)
        return lh_fail(LH_ERR_INVALID, "shard %" PRIu32 " is in %s and in %s: give one of them",
                       shard, s->dir, q->dir);
    if (!s->here) {
        LH_TRY(lk_replica_create(&s->replica, r->job->id, &r->job->manifest, shard, r->job->keys));
        if (!s->asked) s->to = r->to;
        s->dir = q->dir;
        s->here = true;
    }
    *out = s;
    return LH_OK;
}

static lh_err meet_entry(void *arg, const struct ps_wal_entry *e)
{
    struct reading *q = arg;
    struct dp_replayed *s = NULL;
    if (!e->record) return LH_OK;
    LH_TRY(meet(q, e->shard, &s));
    if (!s->first) s->first = e->record->version;
    s->last = e->record->version;
    if (e->record->epoch > s->epoch) s->epoch = e->record->epoch;
    return LH_OK;
}

static void meet_checkpoint(void *arg, const char *file)
{
    struct reading *q = arg;
    struct lk_checkpoint_name name;
    struct lk_checkpoint_info info;
    struct dp_replayed *s = NULL;
    char path[DP_PATH_BYTES];
    if (q->err || !lk_checkpoint_name_parse(file, &name) || name.weights) return;
    q->err = meet(q, name.shard, &s);
    if (q->err || dp_path(path, "%s/%s", q->checkpoints, file)) return;
    if (!lk_checkpoint_peek(q->r->job->env, path, &info) && info.epoch > s->epoch)
        s->epoch = info.epoch;
}

// ---------------------------------------------------------------- where to start

static LH_MUST lh_err from_initial(struct dp_replay *r, struct dp_replayed *s)
{
    const float *weights;
    LH_TRY(dp_job_weights(r->job, &weights));
    memcpy(s->replica.theta, weights + s->replica.layout->first,
           s->replica.layout->values * sizeof *weights);
    return LH_OK;
}

// Takes the newest checkpoint at or below the version wanted (the oldest with `oldest`) from which
// the log goes on; passes over bad ones. LH_ERR_NOT_FOUND: none.
static LH_MUST lh_err from_checkpoint(struct reading *q, struct dp_replayed *s)
{
    const struct dp_replay *r = q->r;
    const struct lk_checkpoint_conf conf = {
        .env = r->job->env, .dir = q->checkpoints, .keys = r->job->keys};
    uint32_t shard = s->replica.ledger.shard;
    uint64_t *version;
    size_t count;
    lh_err err = LH_ERR_NOT_FOUND;
    LH_TRY(lk_checkpoint_versions(&conf, shard, false, &version, &count));
    for (size_t i = 0; i < count && err; i++) {
        char path[DP_PATH_BYTES];
        uint64_t v = version[r->oldest ? i : count - 1 - i];
        bool below = s->first && v + 1 < s->first && v != s->to; // the log does not reach it
        if (v > s->to || below) continue;
        err = dp_path(path, "%s/%04" PRIx32 "-%016" PRIx64 ".ckpt", q->checkpoints, shard, v);
        if (!err) err = lk_checkpoint_read(&conf, path, &s->replica);
        if (!err) s->base = v;
        if (err == LH_ERR_CONFIG || err == LH_ERR_MANIFEST || err == LH_ERR_KEY_MISSING) break;
        if (err) fprintf(stderr, "%s; an older one is taken\n", lh_err_text(err));
    }
    free(version);
    return err;
}

static LH_MUST lh_err choose_base(struct reading *q, struct dp_replayed *s)
{
    bool whole = s->first == 1 || (!s->first && s->to == 0);
    if (q->r->oldest && whole && q->r->job->weights_path) return from_initial(q->r, s);
    lh_err err = from_checkpoint(q, s);
    bool none = err && err != LH_ERR_CONFIG && err != LH_ERR_MANIFEST && err != LH_ERR_KEY_MISSING;
    if (!none) return err;
    if (whole) return from_initial(q->r, s);
    return lh_fail(LH_ERR_NOT_FOUND,
                   "shard %" PRIu32 ": version %" PRIu64 " can't be had any more: no checkpoint at "
                   "or below it in %s, and the log begins at version %" PRIu64,
                   s->replica.ledger.shard, s->to == HEAD ? s->last : s->to, q->checkpoints,
                   s->first);
}

// Pushes already in the oldest state can't be taken out.
static LH_MUST lh_err check_without(const struct dp_replay *r, const struct dp_replayed *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    const struct lh_row *row = r->without ? lh_ledger_row(l, r->without) : NULL;
    if (!row || !row->admitted || r->without_from > l->version) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND,
                   "shard %" PRIu32 ": %" PRIu64 " pushes of that worker are in the oldest state "
                   "that is kept, of version %" PRIu64 ", and can't be taken out; --from %" PRIu64
                   " takes out the later ones",
                   l->shard, row->admitted, l->version, l->version + 1);
}

// ---------------------------------------------------------------- folding

// Folds a left-out push as if it had been refused: its claims are free, its norm says nothing. What
// follows is chained to that, so it is another history, and the run's digests are of other states.
static LH_MUST lh_err fold_without(const struct dp_replay *r, struct lk_replica *replica,
                                   const struct lh_record *record)
{
    struct lh_record mine = *record;
    struct lh_frame f;
    bool admitted = record->kind == LH_ADMIT && record->version >= r->without_from;
    if (admitted) LH_TRY(lh_frame_parse_head(record->body, &f));
    if (!admitted || f.worker != r->without) {
        lh_ledger_next(&replica->ledger, &mine);
        return record->kind == LH_DIGEST_RECORD ? lh_ledger_apply(&replica->ledger, &mine)
                                                : lk_replica_apply(replica, &mine);
    }
    struct lh_buf stub = lh_buf(LH_SMALL_BYTES);
    lh_frame_write_stub(record->body, &f, &stub);
    lh_err err = lh_buf_err(&stub);
    mine = (struct lh_record){.version = record->version,
                              .epoch = record->epoch,
                              .kind = LH_REFUSE,
                              .reason = LH_ERR_EXPELLED,
                              .body = lh_buf_span(&stub)};
    lh_ledger_next(&replica->ledger, &mine);
    if (!err) err = lh_ledger_apply(&replica->ledger, &mine);
    lh_buf_free(&stub);
    return err;
}

static lh_err fold_entry(void *arg, const struct ps_wal_entry *e)
{
    struct reading *q = arg;
    if (!e->record) return LH_OK;
    struct dp_replayed *s = &q->r->shard[e->shard];
    uint64_t version = s->replica.ledger.version;
    if (e->record->version <= version || e->record->version > s->to) return LH_OK;
    if (e->record->version != version + 1)
        return lh_fail(LH_ERR_CORRUPT,
                       "%s: shard %" PRIu32 " goes on at version %" PRIu64 " where %" PRIu64
                       " is expected: part of its log or its newer checkpoints are missing",
                       q->log, e->shard, e->record->version, version + 1);
    return q->r->without ? fold_without(q->r, &s->replica, e->record)
                         : lk_replica_apply(&s->replica, e->record);
}

static LH_MUST lh_err check_reached(const struct dp_replayed *s)
{
    uint64_t version = s->replica.ledger.version;
    if (s->to == HEAD || version == s->to) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND,
                   "shard %" PRIu32 ": there is no version %" PRIu64 " in %s, it ends at %" PRIu64,
                   s->replica.ledger.shard, s->to, s->dir, version);
}

// ---------------------------------------------------------------- weights only

static void meet_weights(void *arg, const char *file)
{
    struct reading *q = arg;
    struct lk_checkpoint_name name;
    struct dp_replayed *s = NULL;
    if (q->err || !lk_checkpoint_name_parse(file, &name) || !name.weights) return;
    q->err = meet(q, name.shard, &s);
    if (!q->err && (name.version == s->to || (s->to == HEAD && name.version >= s->last)))
        s->last = name.version;
}

static LH_MUST lh_err read_weights(struct reading *q, uint32_t shard)
{
    struct dp_replayed *s = &q->r->shard[shard];
    const struct dp_job *job = q->r->job;
    const struct lk_checkpoint_conf conf = {
        .env = job->env, .dir = q->checkpoints, .keys = job->keys};
    const struct lk_checkpoint_name name = {shard, s->last, true};
    struct lk_checkpoint_info info;
    char path[LH_PATH_BYTES];
    if (!s->last)
        return lh_fail(LH_ERR_NOT_FOUND,
                       "shard %" PRIu32 ": no checkpoint of weights only of version %" PRIu64
                       " in %s",
                       shard, s->to, q->checkpoints);
    LH_TRY(lk_checkpoint_path(q->checkpoints, &name, path));
    LH_TRY(lk_checkpoint_peek(job->env, path, &info));
    LH_TRY(lk_checkpoint_read(&conf, path, &s->replica));
    s->replica.ledger.version = s->base = info.version;
    s->replica.ledger.epoch = info.epoch;
    s->replica.ledger.chain = info.chain;
    s->weights_digest = info.digest;
    return LH_OK;
}

static LH_MUST lh_err weights_dir(struct reading *q)
{
    struct dp_replay *r = q->r;
    bool any = false;
    LH_TRY(dp_job_checkpoint_dir(q->dir, q->checkpoints));
    LH_TRY(r->job->env->ops->files->list(r->job->env, q->checkpoints, meet_weights, q));
    LH_TRY(q->err);
    for (uint32_t i = 0; i < r->job->manifest.shards; i++) {
        if (!r->shard[i].here || r->shard[i].dir != q->dir) continue;
        LH_TRY(read_weights(q, i));
        any = true;
    }
    if (any) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND, "%s: no checkpoint of weights only", q->checkpoints);
}

// ---------------------------------------------------------------- a directory

lh_err dp_replay_dir(struct dp_replay *r, const char *dir)
{
    struct reading q = {.r = r, .dir = dir};
    struct dp_job *job = r->job;
    struct ps_wal_found found;
    const struct lh_files_ops *files = job->env->ops->files;
    if (r->weights_only) return weights_dir(&q);
    LH_TRY(dp_job_log_dir(dir, q.log));
    LH_TRY(dp_job_checkpoint_dir(dir, q.checkpoints));
    LH_TRY(files->list(job->env, q.checkpoints, meet_checkpoint, &q));
    LH_TRY(q.err);
    LH_TRY(ps_wal_look(job->env, q.log, job->id, meet_entry, &q, &found));
    bool any = false;
    for (uint32_t i = 0; i < job->manifest.shards; i++) {
        if (!r->shard[i].here || r->shard[i].dir != dir) continue;
        LH_TRY(choose_base(&q, &r->shard[i]));
        LH_TRY(check_without(r, &r->shard[i]));
        r->shard[i].torn = found.torn;
        any = true;
    }
    if (!any) return lh_fail(LH_ERR_NOT_FOUND, "%s: neither records nor checkpoints", dir);
    LH_TRY(ps_wal_look(job->env, q.log, job->id, fold_entry, &q, &found));
    for (uint32_t i = 0; i < job->manifest.shards; i++)
        if (r->shard[i].here && r->shard[i].dir == dir) LH_TRY(check_reached(&r->shard[i]));
    return LH_OK;
}

// ---------------------------------------------------------------- what came of it

lh_err dp_replay_rows(const struct dp_replay *r, json_t **out)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < r->job->manifest.shards; i++) {
        const struct dp_replayed *s = &r->shard[i];
        if (!s->here) continue;
        char chain[2 * LH_HASH_BYTES + 1], hex[2 * LH_HASH_BYTES + 1];
        const struct lh_ledger *l = &s->replica.ledger;
        struct lh_hash digest =
            r->weights_only ? s->weights_digest : lk_replica_digest(&s->replica);
        lh_hash_hex(&l->chain, chain);
        lh_hash_hex(&digest, hex);
        json_array_append_new(
            rows, json_pack("{s:I s:I s:I s:I s:I s:s s:s}", "shard", (json_int_t)i, "version",
                            (json_int_t)l->version, "epoch", (json_int_t)l->epoch, "from",
                            (json_int_t)s->base, "records", (json_int_t)(l->version - s->base),
                            "chain", chain, "digest", hex));
    }
    *out = rows;
    return rows ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for the rows");
}

lh_err dp_replay_complete(const struct dp_replay *r)
{
    char missing[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < r->job->manifest.shards; i++)
        if (!r->shard[i].here && used < sizeof missing)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%" PRIu32,
                                     used ? ", " : "", i);
    if (!used) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND,
                   "shards %s of the model are not here: give the directories of their servers too",
                   missing);
}

lh_err dp_replay_export(const struct dp_replay *r, const char *path)
{
    const struct lh_manifest *m = &r->job->manifest;
    LH_TRY(dp_replay_complete(r));
    json_t *about = json_pack("{s:s s:s}", "format", "longhaul", "run", r->job->run);
    float *theta = malloc(m->values * sizeof *theta + 1);
    lh_err err = theta && about ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for %s", path);
    for (uint32_t i = 0; !err && i < m->shards; i++) {
        char key[24], version[24];
        memcpy(theta + m->shard[i].first, r->shard[i].replica.theta,
               m->shard[i].values * sizeof *theta);
        snprintf(key, sizeof key, "shard-%" PRIu32, i);
        snprintf(version, sizeof version, "%" PRIu64, r->shard[i].replica.ledger.version);
        json_object_set_new(about, key, json_string(version));
    }
    if (!err) err = dp_weights_write(path, m, theta, about);
    json_decref(about);
    free(theta);
    return err;
}
