// A peer's process. See peer.h.
//
// Jobs on the compute lane, one after the other: wait for a part, compute it. The region's thread
// makes the optimizer's step, between the reduction and the next step.
#include "worker/ranks/peer.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "worker/ranks/peers_step.h"
#include "worker/train/passes.h"

struct wk_peer {
    struct wk_peer_conf conf;
    struct wk_params params;
    struct wk_passes passes;
    struct wk_peers *peers;
    struct wk_reduce_state state;
    uint64_t steps; // optimizer steps taken; used by the region's thread and share()
    struct wk_peers_step step;
    _Atomic bool closed;
    _Atomic uint64_t parts, sequences, applied;
    _Atomic uint64_t digest; // digest of the parameters after the last step
    // results of the last job
    bool over;
    lh_err err;
    char text[WK_PEERS_TEXT_BYTES];
};

// ---------------------------------------------------------------- the compute lane

static void tell_final(void *arg, uint64_t from)
{
    wk_peers_final(((struct wk_peer *)arg)->peers, from);
}

static LH_MUST lh_err compute(struct wk_peer *p, const struct wk_peers_task *task)
{
    struct wk_share share = {0};
    LH_TRY(wk_peers_step_get(task->payload, &p->step));
    p->step.step.values = p->state.values;
    if (!lh_hash_equal(&p->step.manifest, &p->conf.manifest))
        return lh_fail(LH_ERR_MANIFEST, "the leader has another model");
    if (p->step.step.length > p->conf.length)
        return lh_fail(LH_ERR_CONFIG, "the leader's sequences are longer than %u", p->conf.length);
    struct wk_part part = wk_reduce_part(p->step.step.sequences, task->part, task->parts);
    LH_TRY(wk_reduce_clear(&p->state));
    const struct wk_final final = {tell_final, p};
    LH_TRY(wk_passes_run(&p->passes, p->state.value, &p->step.step, part, true, p->state.gradient,
                         &final, &share));
    if (p->conf.device) LH_TRY(wk_device_settle(p->conf.device));
    wk_figures_put(wk_reduce_figures(&p->state), task->part, &share);
    atomic_fetch_add(&p->parts, 1);
    atomic_fetch_add(&p->sequences, part.count);
    return LH_OK;
}

static int64_t job(void *arg)
{
    struct wk_peer *p = arg;
    struct wk_peers_task task;
    if (atomic_load(&p->closed)) return 0;
    if (wk_peers_wait(p->peers, &task) == WK_PEERS_ENDED) {
        p->over = true;
        p->err = task.err;
        snprintf(p->text, sizeof p->text, "%s", task.text);
        return 0;
    }
    lh_err err = compute(p, &task);
    if (err) lh_logf(p->conf.peers.log, LH_ERROR, "rank.part", "%s", lh_err_text(err));
    wk_peers_computed(p->peers, !err);
    return 0;
}

static void done(void *arg)
{
    struct wk_peer *p = arg;
    if (atomic_load(&p->closed)) return;
    if (!p->over) {
        p->conf.peers.env->ops->work(p->conf.peers.env, LH_LANE_COMPUTE, job, done, p);
        return;
    }
    if (p->err) lh_logf(p->conf.peers.log, LH_ERROR, "rank.stop", "%s", p->text);
    p->conf.ended(p->conf.arg, p->err, p->text);
}

// ---------------------------------------------------------------- the region's thread

// Makes the optimizer's step.
static lh_err apply(void *arg)
{
    struct wk_peer *p = arg;
    const struct wk_update *u = &p->step.update;
    double norm;
    if (u->step != p->steps + 1)
        return lh_fail(LH_ERR_INTERNAL, "step %" PRIu64 " after step %" PRIu64, u->step, p->steps);
    LH_TRY(wk_reduce_norm(&p->state, u->step, NULL, &norm));
    LH_TRY(wk_reduce_update(&p->state, u, norm, NULL, NULL));
    p->steps++;
    atomic_fetch_add(&p->applied, 1);
    atomic_store(&p->digest, wk_peers_digest_of(&p->state));
    return LH_OK;
}

// ---------------------------------------------------------------- life

static LH_MUST lh_err allocate(struct wk_peer *p)
{
    LH_TRY(wk_params_list(&p->conf.shape, &p->params));
    p->passes.batch = p->conf.batch;
    p->passes.device = p->conf.device;
    p->state = (struct wk_reduce_state){
        .values = p->params.values,
        .steps = &p->steps,
        .params = &p->params,
        .device = p->conf.device,
    };
    LH_TRY(wk_reduce_allocate(&p->state));
    if (p->conf.device) return LH_OK;
    const struct wk_transformer_conf transformer = {p->conf.shape, p->conf.length,
                                                    (size_t)p->conf.batch * p->conf.length, true};
    return wk_transformer_create(&transformer, &p->passes.transformer);
}

static void free_peer(struct wk_peer *p)
{
    wk_transformer_destroy(p->passes.transformer);
    wk_params_free(&p->params);
    wk_peers_step_free(&p->step);
    wk_reduce_free(&p->state);
    free(p);
}

lh_err wk_peer_start(const struct wk_peer_conf *conf, struct wk_peer **out)
{
    struct wk_peer *p = calloc(1, sizeof *p);
    lh_err err = p ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "rank %u", conf->peers.rank);
    if (p) p->conf = *conf;
    if (!err) err = allocate(p);
    if (err) {
        wk_comm_destroy(conf->peers.comm);
        if (p) free_peer(p);
        return err;
    }
    struct wk_peers_conf peers = conf->peers;
    peers.state = p->state;
    peers.apply = apply;
    peers.arg = p;
    err = wk_peers_start(&peers, &p->peers);
    if (err) {
        free_peer(p);
        return err;
    }
    p->conf.peers.env->ops->work(p->conf.peers.env, LH_LANE_COMPUTE, job, done, p);
    *out = p;
    return LH_OK;
}

lh_err wk_peer_status(const struct wk_peer *p, struct lh_buf *out)
{
    char digest[32];
    struct wk_peers_status is;
    wk_peers_status(p->peers, &is);
    snprintf(digest, sizeof digest, "%016" PRIx64, atomic_load(&p->digest));
    json_t *root = json_pack(
        "{s:s s:i s:s s:s s:I s:I s:I s:I s:s}", "role", "rank", "rank", (int)p->conf.peers.rank,
        "backend", p->conf.device ? "cuda" : "cpu", "state", is.members ? "training" : "waiting",
        "step", (json_int_t)atomic_load(&p->parts), "sequences",
        (json_int_t)atomic_load(&p->sequences), "applied", (json_int_t)atomic_load(&p->applied),
        "epochs", (json_int_t)is.epochs, "digest", digest);
    return lh_json_give(root, out);
}

void wk_peer_close(struct wk_peer *p)
{
    atomic_store(&p->closed, true);
    wk_peers_leave(p->peers);
}

bool wk_peer_stop(struct wk_peer *p)
{
    if (!p) return true;
    if (!wk_peers_stop(p->peers, false)) return false; // See peers.h.
    free_peer(p);
    return true;
}
