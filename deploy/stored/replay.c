// Shards at any version. See replay.h.
#include "deploy/stored/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/stored/weights_file.h"
#include "deploy/tool/cli.h"
#include "kernels/storage/checkpoint_read.h"

static const uint64_t HEAD = (uint64_t)PS_REPLAY_HEAD;

static lh_err initial(void *arg, uint64_t first, uint64_t n, float *out)
{
    const struct dp_replay *r = arg;
    const float *weights;
    LH_TRY(dp_job_weights(r->job, &weights));
    memcpy(out, weights + first, n * sizeof *weights);
    return LH_OK;
}

static void skipped(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "%s; an older one is taken\n", text);
}

lh_err dp_replay_create(struct dp_replay *r, struct dp_job *job)
{
    *r = (struct dp_replay){.job = job,
                            .fold = {.checkpoints = {.env = job->env, .keys = job->keys},
                                     .job = job->id,
                                     .manifest = &job->manifest,
                                     .initial = initial,
                                     .skipped = skipped,
                                     .arg = r,
                                     .has_initial = job->weights_path != NULL,
                                     .to = HEAD}};
    LH_TRY(ps_replay_create(&r->fold));
    r->weights_digest = calloc(job->manifest.shards, sizeof *r->weights_digest);
    return r->weights_digest ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for the shards");
}

void dp_replay_free(struct dp_replay *r)
{
    ps_replay_free(&r->fold);
    free(r->weights_digest);
}

lh_err dp_replay_want(struct dp_replay *r, const char *text)
{
    const char *colon = strchr(text, ':');
    if (!colon) return dp_number("--to", text, 0, HEAD - 1, &r->fold.to);
    char number[24];
    uint64_t shard = 0;
    snprintf(number, sizeof number, "%.*s", (int)(colon - text), text);
    LH_TRY(dp_number("--to", number, 0, r->job->manifest.shards - 1, &shard));
    r->fold.shard[shard].asked = true;
    return dp_number("--to", colon + 1, 0, HEAD - 1, &r->fold.shard[shard].to);
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
    LH_TRY(worker_named(r->job, worker, &r->fold.without));
    if (from) LH_TRY(dp_number("--from", from, 1, HEAD - 1, &r->fold.without_from));
    r->fold.oldest = true; // its pushes are in newer states
    return LH_OK;
}

// ---------------------------------------------------------------- weights only

struct reading {
    struct dp_replay *r;
    const char *dir;
    char checkpoints[DP_PATH_BYTES];
    lh_err err;
};

static void meet_weights(void *arg, const char *file)
{
    struct reading *q = arg;
    struct lk_checkpoint_name name;
    struct ps_replayed *s = NULL;
    if (q->err || !lk_checkpoint_name_parse(file, &name) || !name.weights) return;
    q->err = ps_replay_meet(&q->r->fold, q->dir, name.shard, &s);
    if (!q->err && (name.version == s->to || (s->to == HEAD && name.version >= s->last)))
        s->last = name.version;
}

static LH_MUST lh_err read_weights(struct reading *q, uint32_t shard)
{
    struct ps_replayed *s = &q->r->fold.shard[shard];
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
    q->r->weights_digest[shard] = info.digest;
    return LH_OK;
}

static LH_MUST lh_err weights_dir(struct dp_replay *r, const char *dir)
{
    struct reading q = {.r = r, .dir = dir};
    bool any = false;
    LH_TRY(dp_job_checkpoint_dir(dir, q.checkpoints));
    LH_TRY(r->job->env->ops->files->list(r->job->env, q.checkpoints, meet_weights, &q));
    LH_TRY(q.err);
    for (uint32_t i = 0; i < r->job->manifest.shards; i++) {
        if (!r->fold.shard[i].here || r->fold.shard[i].dir != dir) continue;
        LH_TRY(read_weights(&q, i));
        any = true;
    }
    if (any) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND, "%s: no checkpoint of weights only", q.checkpoints);
}

// ---------------------------------------------------------------- a directory

lh_err dp_replay_dir(struct dp_replay *r, const char *dir)
{
    char log[DP_PATH_BYTES], checkpoints[DP_PATH_BYTES];
    if (r->weights_only) return weights_dir(r, dir);
    LH_TRY(dp_job_log_dir(dir, log));
    LH_TRY(dp_job_checkpoint_dir(dir, checkpoints));
    return ps_replay_dir(&r->fold, dir, log, checkpoints);
}

// ---------------------------------------------------------------- what came of it

lh_err dp_replay_rows(const struct dp_replay *r, json_t **out)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < r->job->manifest.shards; i++) {
        const struct ps_replayed *s = &r->fold.shard[i];
        if (!s->here) continue;
        char chain[2 * LH_HASH_BYTES + 1], hex[2 * LH_HASH_BYTES + 1];
        const struct lh_ledger *l = &s->replica.ledger;
        struct lh_hash digest =
            r->weights_only ? r->weights_digest[i] : lk_replica_digest(&s->replica);
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
        if (!r->fold.shard[i].here && used < sizeof missing)
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
        memcpy(theta + m->shard[i].first, r->fold.shard[i].replica.theta,
               m->shard[i].values * sizeof *theta);
        snprintf(key, sizeof key, "shard-%" PRIu32, i);
        snprintf(version, sizeof version, "%" PRIu64, r->fold.shard[i].replica.ledger.version);
        json_object_set_new(about, key, json_string(version));
    }
    if (!err) err = dp_weights_write(path, m, theta, about);
    json_decref(about);
    free(theta);
    return err;
}
