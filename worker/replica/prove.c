// Prove: possession of a durable copy (server/docs/0000-protocol.md#rule-13).
//
// Reads the copy back from the disk, separate from the replica in use, so that unreadable data
// proves nothing. This takes memory for one more state, as does making the copy. Every lease
// request repeats the answer until another copy is asked about, because a restarted coordinator has
// lost it.
#include "worker/replica/prove.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/state/possession.h"
#include "kernels/storage/checkpoint_read.h"
#include "worker/member.h"
#include "worker/replica/durable_copy.h"

struct wk_proving {
    struct wk_shard *shard;
    struct lh_hash challenge;
    struct wk_proof proof;
    lh_err result;
};

static lh_err read_copy(struct wk_proving *p)
{
    const struct wk_shard *s = p->shard;
    const struct wk_worker *w = s->worker;
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(w);
    struct lk_checkpoint_name name = {s->id, p->proof.version, false};
    struct lk_checkpoint_info info;
    struct lk_replica scratch;
    char path[LH_PATH_BYTES];
    LH_TRY(lk_checkpoint_path(conf.dir, &name, path));
    LH_TRY(lk_checkpoint_peek(conf.env, path, &info));
    if (info.epoch != p->proof.epoch)
        return lh_fail(LH_ERR_NOT_FOUND, "%s is of epoch %" PRIu64, path, info.epoch);
    LH_TRY(lk_replica_create(&scratch, w->conf.job, w->conf.manifest, s->id, w->conf.keys));
    lh_err err = lk_checkpoint_read(&conf, path, &scratch);
    if (!err) p->proof.answer = lk_possession(&scratch, &p->challenge);
    p->proof.digest = info.digest;
    lk_replica_free(&scratch);
    return err;
}

static int64_t prove_job(void *arg)
{
    struct wk_proving *p = arg;
    p->result = read_copy(p);
    return 0;
}

// A missing or unreadable copy is not proved; a later one will be.
static void prove_done(void *arg)
{
    struct wk_proving *p = arg;
    struct wk_shard *s = p->shard;
    struct wk_worker *w = s->worker;
    s->copies.proving = NULL;
    if (!p->result) s->copies.proof = p->proof;
    if (p->result && p->result != LH_ERR_NOT_FOUND && !w->stopped)
        lh_logf(w->conf.log, LH_WARN, "copy.unproved",
                "shard %u: the durable copy of version %" PRIu64 " can't be read: %s", s->id,
                p->proof.version, lh_err_text(p->result));
    wk_prove_free(p);
    if (!w->stopped) wk_lease_soon(w);
}

static bool answered(const struct wk_shard *s, const struct lh_challenge *m)
{
    const struct wk_proof *p = &s->copies.proof;
    return p->version == m->version && p->epoch == m->epoch &&
           lh_hash_equal(&p->challenge, &m->challenge);
}

static void start(struct wk_shard *s, const struct lh_challenge *m)
{
    struct lh_env *env = s->worker->conf.env;
    struct wk_proving *p = calloc(1, sizeof *p);
    if (!p) return; // the coordinator asks again
    p->shard = s;
    p->challenge = m->challenge;
    p->proof = (struct wk_proof){.epoch = m->epoch, .version = m->version};
    p->proof.challenge = p->challenge;
    s->copies.proving = p;
    env->ops->work(env, LH_LANE_COPY, prove_job, prove_done, p);
}

void wk_prove(struct wk_worker *w, size_t n, const struct lh_challenge *list)
{
    for (size_t i = 0; i < n; i++) {
        const struct lh_challenge *m = &list[i];
        if (m->shard >= w->shards || !m->version) continue;
        struct wk_shard *s = &w->shard[m->shard];
        if (!s->copies.proving && !answered(s, m)) start(s, m);
    }
}

size_t wk_prove_tell(const struct wk_worker *w, struct lh_possession *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_proof *p = &w->shard[i].copies.proof;
        if (p->version)
            out[n++] =
                (struct lh_possession){i, p->epoch, p->version, p->challenge, p->answer, p->digest};
    }
    return n;
}

void wk_prove_free(struct wk_proving *p)
{
    free(p);
}
