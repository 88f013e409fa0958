// Restore and prune. See checkpoint_restore.h.
//
// A restored checkpoint is the fold state at a version (replay.h): a server that starts on it has
// no log yet and goes on from there. Unless the state is the whole history of a stopped server,
// records above it may have been acknowledged or followed: then DIR/epoch-<shard> (layout:
// server/recovery/recover.c) says that an epoch above all that were seen was begun, and the server
// opens it before it serves (server/docs/0000-protocol.md#rule-17, #rule-18).
#include "deploy/stored/checkpoint_restore.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/stored/replay.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/recovery/epoch.h"
#include "server/wal/wal.h"

// ---------------------------------------------------------------- restore

struct restoring {
    const struct dp_restore *q;
    struct dp_replay replay;
    struct lh_signer *signer;
    char checkpoints[DP_PATH_BYTES];
    uint64_t epoch; // the lowest epoch that may be opened
};

static LH_MUST lh_err check_empty(const char *dir)
{
    struct dirent *entry;
    DIR *d = opendir(dir);
    bool empty = true;
    if (!d && errno == ENOENT) return LH_OK;
    if (!d) return lh_fail_errno(errno, "%s", dir);
    while ((entry = readdir(d)))
        empty &= !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    closedir(d);
    return empty ? LH_OK
                 : lh_fail(LH_ERR_EXISTS,
                           "%s is not empty: nothing is restored over what may be "
                           "somebody's state",
                           dir);
}

// "0,1,5": keeps[i] for each shard; NULL: all that are here.
static LH_MUST lh_err parse_shards(const struct restoring *r, const char *text, bool *keeps)
{
    uint32_t shards = r->q->job->manifest.shards;
    for (uint32_t i = 0; i < shards; i++) keeps[i] = !text && r->replay.fold.shard[i].here;
    for (const char *at = text; at && *at;) {
        char number[24];
        size_t n = strcspn(at, ",");
        uint64_t shard = 0;
        snprintf(number, sizeof number, "%.*s", (int)n, at);
        LH_TRY(dp_number("--shards", number, 0, shards - 1, &shard));
        if (!r->replay.fold.shard[shard].here)
            return lh_fail(LH_ERR_NOT_FOUND, "shard %" PRIu64 " is in none of these directories",
                           shard);
        keeps[shard] = true;
        at += n + (at[n] == ',');
    }
    return LH_OK;
}

// Whether the state is all that its server ever said: its directory as a whole, nothing torn.
static bool is_all(const struct restoring *r, const struct ps_replayed *s)
{
    char log[DP_PATH_BYTES];
    if (dp_path(log, "%s/log", s->dir) || !dp_file_exists(log) || s->torn) return false;
    return s->replica.ledger.version >= s->last && !r->epoch;
}

static LH_MUST lh_err begun_in(struct lh_env *env, const char *dir, uint32_t shard, uint64_t *epoch)
{
    uint64_t begun = 0, token;
    lh_err err = ps_epoch_read(env, dir, shard, &begun, &token);
    if (begun > *epoch) *epoch = begun;
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

// The shard's checkpoint, and the epoch to open where there must be one. An epoch-<shard> that the
// old server left comes along: it may have begun one without a record.
static LH_MUST lh_err restore_shard(const struct restoring *r, uint32_t shard)
{
    const struct ps_replayed *s = &r->replay.fold.shard[shard];
    struct dp_job *job = r->q->job;
    const struct lk_checkpoint_conf conf = {.env = job->env,
                                            .dir = r->checkpoints,
                                            .keys = job->keys,
                                            .cipher = LH_CIPHER_XCHACHA20,
                                            .key_id = lh_keyring_first(job->keys),
                                            .signer = r->signer};
    struct lk_checkpoint c;
    bool all = is_all(r, s);
    uint64_t begun = s->epoch;
    LH_TRY(begun_in(job->env, s->dir, shard, &begun));
    if (!all) begun = begun + 1 > r->epoch ? begun + 1 : r->epoch;
    if (begun > s->replica.ledger.epoch)
        LH_TRY(ps_epoch_write(job->env, r->q->into, shard, begun, 0));
    LH_TRY(lk_checkpoint_take(&conf, &s->replica, &c));
    lh_err err = lk_checkpoint_write(&c);
    lk_checkpoint_free(&c);
    if (err) return err;
    printf("%s: shard %" PRIu32 " at version %" PRIu64 ", epoch %" PRIu64 "%s\n", r->q->into, shard,
           s->replica.ledger.version, begun, all ? "" : " will be opened at its start");
    return LH_OK;
}

static LH_MUST lh_err write_dir(struct restoring *r)
{
    const struct dp_restore *q = r->q;
    uint32_t shards = q->job->manifest.shards;
    bool *keeps = calloc(shards, sizeof *keeps);
    if (!keeps) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the shards");
    lh_err err = parse_shards(r, q->shards, keeps);
    if (!err) err = check_empty(q->into);
    if (!err) err = dp_path(r->checkpoints, "%s/checkpoints", q->into);
    if (!err) err = dp_make_dirs(r->checkpoints);
    if (!err && q->sign_key) err = lh_signer_load(q->sign_key, &r->signer);
    for (uint32_t i = 0; i < shards && !err; i++)
        if (keeps[i]) err = restore_shard(r, i);
    free(keeps);
    return err;
}

lh_err dp_checkpoint_restore(const struct dp_restore *q)
{
    struct restoring r = {.q = q};
    for (unsigned i = 0; i < q->from->count; i++)
        if (dp_job_running(q->job->env, q->from->at[i]))
            return lh_fail(LH_ERR_BUSY,
                           "a server runs on %s: stop it first, or give its folder of checkpoints",
                           q->from->at[i]);
    LH_TRY(dp_number("--epoch", q->epoch, 1, UINT32_MAX, &r.epoch));
    lh_err err = dp_replay_create(&r.replay, q->job);
    for (unsigned i = 0; !err && i < q->to.count; i++) err = dp_replay_want(&r.replay, q->to.at[i]);
    for (unsigned i = 0; !err && i < q->from->count; i++)
        err = dp_replay_dir(&r.replay, q->from->at[i]);
    if (!err) err = q->into ? write_dir(&r) : dp_replay_export(&r.replay, q->export);
    lh_signer_destroy(r.signer);
    dp_replay_free(&r.replay);
    return err;
}

// ---------------------------------------------------------------- prune

struct pruning {
    struct dp_job *job;
    struct lk_checkpoint_conf conf;
    uint64_t *first; // first version of each shard's records in the log; 0: none
};

static lh_err note_first(void *arg, const struct ps_wal_entry *e)
{
    struct pruning *p = arg;
    if (e->record && e->shard < p->job->manifest.shards && !p->first[e->shard])
        p->first[e->shard] = e->record->version;
    return LH_OK;
}

static LH_MUST lh_err prune_channel(struct pruning *p, uint32_t shard, bool weights, unsigned keep)
{
    uint64_t *version;
    size_t count;
    unsigned kept = 0;
    struct lk_replica r;
    LH_TRY(lk_checkpoint_versions(&p->conf, shard, weights, &version, &count));
    lh_err err = lk_replica_create(&r, p->job->id, &p->job->manifest, shard, p->job->keys);
    while (!err && count) {
        struct lk_checkpoint_name name = {shard, version[--count], weights};
        char path[LH_PATH_BYTES];
        err = lk_checkpoint_path(p->conf.dir, &name, path);
        if (err) break;
        lh_err bad = kept < keep ? lk_checkpoint_read(&p->conf, path, &r) : LH_OK;
        if (bad == LH_ERR_KEY_MISSING || bad == LH_ERR_CONFIG || bad == LH_ERR_MANIFEST) {
            err = bad;
        } else if (bad) {
            printf("%s: stays, it is no good: %s\n", path, lh_err_text(bad));
        } else if (kept < keep) {
            // one that the log does not reach is no start, and so none that the others rely on
            kept += weights || !p->first[shard] || name.version + 1 >= p->first[shard];
        } else {
            err = p->conf.env->ops->files->remove(p->conf.env, path);
            if (!err) printf("%s: removed\n", path);
        }
    }
    lk_replica_free(&r);
    free(version);
    return err;
}

lh_err dp_checkpoint_prune(struct dp_job *job, const char *dir, unsigned keep)
{
    char log[DP_PATH_BYTES], checkpoints[DP_PATH_BYTES];
    struct ps_wal_found found;
    struct pruning p = {.job = job};
    if (dp_job_running(job->env, dir))
        return lh_fail(LH_ERR_BUSY, "a server runs on %s and prunes by itself", dir);
    LH_TRY(dp_job_log_dir(dir, log));
    LH_TRY(dp_job_checkpoint_dir(dir, checkpoints));
    p.conf = (struct lk_checkpoint_conf){.env = job->env, .dir = checkpoints, .keys = job->keys};
    p.first = calloc(job->manifest.shards, sizeof *p.first);
    if (!p.first) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the shards");
    lh_err err = ps_wal_look(job->env, log, job->id, note_first, &p, &found);
    for (uint32_t i = 0; !err && i < job->manifest.shards; i++) {
        err = prune_channel(&p, i, false, keep);
        if (!err) err = prune_channel(&p, i, true, keep);
    }
    free(p.first);
    return err;
}
