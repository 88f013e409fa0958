// Reads the final parameters of a run from the nodes' last checkpoints. See up_weights.h.
//
// A server writes a checkpoint of each shard at the run's end; if that is lost or damaged, any
// worker's copy of the same version will do. The state read must have the digest that the owner
// reported, so the evaluation uses the state of all replicas.
#include <stdlib.h>
#include <string.h>

#include "common/app/node.h"
#include "common/env/env.h"
#include "deploy/up/up.h"
#include "deploy/up/up_watch.h"
#include "deploy/up/up_weights.h"
#include "kernels/storage/checkpoint.h"
#include "kernels/storage/checkpoint_read.h"

struct reader {
    struct dp_up *up;
    struct lh_env *env;
    struct lh_keyring *keys;
    uint8_t job[LH_JOB_BYTES];
};

static LH_MUST lh_err check_state(const struct lk_replica *r, const struct dp_holding *head)
{
    char hex[2 * LH_HASH_BYTES + 1];
    struct lh_hash digest = lk_replica_digest(r);
    lh_hash_hex(&digest, hex);
    if (r->ledger.version == head->version && !strcmp(hex, head->digest)) return LH_OK;
    return lh_fail(
        LH_ERR_CORRUPT, "shard %u: the last checkpoint is of version %llu, the run ended at %llu",
        head->shard, (unsigned long long)r->ledger.version, (unsigned long long)head->version);
}

// Reads one shard from the checkpoints in a folder into its place in theta.
static LH_MUST lh_err read_from(struct reader *q, const char *dir, const struct dp_holding *head,
                                float *theta)
{
    struct lk_replica r;
    const struct lh_manifest *m = &q->up->manifest;
    const struct lk_checkpoint_conf conf = {.env = q->env, .dir = dir, .keys = q->keys};
    lh_err err = lk_replica_create(&r, q->job, m, head->shard, q->keys);
    if (!err) err = lk_checkpoint_load(&conf, &r, NULL, NULL);
    if (!err) err = check_state(&r, head);
    if (!err)
        memcpy(theta + m->shard[head->shard].first, r.theta,
               m->shard[head->shard].values * sizeof *theta);
    lk_replica_free(&r);
    return err;
}

static LH_MUST lh_err read_shard(struct reader *q, uint32_t shard, float *theta)
{
    const struct dp_node *server = NULL;
    const struct dp_holding *head = dp_watch_shard(q->up, shard, &server);
    char dir[DP_PATH_BYTES];
    if (!head) return lh_fail(LH_ERR_NOT_FOUND, "shard %u: no server reported it", shard);
    LH_TRY(dp_path(dir, "%s/checkpoints", server->dir));
    lh_err err = read_from(q, dir, head, theta);
    for (unsigned i = 0; err && i < q->up->nodes; i++) {
        if (q->up->node[i].kind != DP_WORKER) continue;
        LH_TRY(dp_path(dir, "%s/replica", q->up->node[i].dir));
        if (dp_file_exists(dir)) err = read_from(q, dir, head, theta);
    }
    return err;
}

lh_err dp_weights_final(struct dp_up *up, float *theta)
{
    struct reader q = {.up = up};
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/secrets/job.keys", up->dir));
    lh_job_id(LH_DOMAIN_DEFAULT, up->t->run->run, q.job);
    lh_err err = lh_env_real_create(&q.env);
    if (!err) err = lh_keyring_create(&q.keys);
    if (!err) err = lh_keyring_load(q.keys, path);
    for (uint32_t shard = 0; !err && shard < up->t->shards; shard++)
        err = read_shard(&q, shard, theta);
    lh_keyring_destroy(q.keys);
    if (q.env) lh_env_real_destroy(q.env);
    return err;
}
