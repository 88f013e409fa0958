// A rank's process. See rank.h.
//
// Jobs on the compute lane, one after the other, each short: take a seat, or wait a moment for a
// task and compute it. All calls on the seat run there, because the lane's thread holds its mutex.
#include "worker/ranks/rank.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "worker/train/passes.h"

static const int64_t seat_retry_ns = 200 * LH_MS;

struct wk_rank {
    struct wk_rank_conf conf;
    struct wk_passes passes;
    struct wk_seat *seat; // used by the lane
    _Atomic bool closed;
    _Atomic uint64_t tasks;
    _Atomic uint64_t sequences;
    bool seated, said_waiting; // used by the loop, as of the last job
    lh_err result;
    char text[256]; // an error's text belongs to its thread
};

static lh_err compute(struct wk_rank *r)
{
    struct wk_task task;
    struct wk_share share = {0};
    LH_TRY(wk_seat_wait(r->seat, &task));
    memset(task.gradient, 0, task.step.values * sizeof *task.gradient);
    lh_err err = wk_passes_run(&r->passes, task.params, &task.step, task.part, true, task.gradient,
                               NULL, &share);
    wk_seat_give(r->seat, err ? NULL : &share);
    atomic_fetch_add(&r->tasks, 1);
    atomic_fetch_add(&r->sequences, task.part.count);
    return LH_OK; // the leader will find an uncomputable task itself
}

static void leave(struct wk_rank *r)
{
    if (r->seat) wk_seat_leave(r->seat);
    r->seat = NULL;
}

static int64_t job(void *arg)
{
    struct wk_rank *r = arg;
    bool closed = atomic_load(&r->closed);
    lh_err err = LH_OK;
    if (!closed && !r->seat) err = wk_seat_take(&r->conf.shm, r->conf.rank, &r->seat);
    bool none = err != LH_OK;
    if (!closed && !err) err = compute(r);
    if (closed || (err && err != LH_ERR_DEADLINE)) leave(r);
    r->result = err;
    snprintf(r->text, sizeof r->text, "%s", err ? lh_err_text(err) : "");
    return none ? seat_retry_ns : 0;
}

static void tell(struct wk_rank *r, bool seated)
{
    if (seated && !r->seated)
        lh_logf(r->conf.log, LH_INFO, "rank.seated", "rank %u of %s", r->conf.rank,
                r->conf.shm.name);
    if (!seated && (r->seated || !r->said_waiting))
        lh_logf(r->conf.log, LH_INFO, "rank.waiting", "%s; trying again", r->text);
    r->said_waiting |= !seated;
    r->seated = seated;
}

static void done(void *arg)
{
    struct wk_rank *r = arg;
    lh_err err = r->result;
    if (atomic_load(&r->closed)) return;
    bool retry = err == LH_ERR_UNAVAILABLE || err == LH_ERR_BUSY || err == LH_ERR_DEADLINE;
    if (err && !retry) {
        atomic_store(&r->closed, true);
        bool over = err == LH_ERR_CANCELLED;
        if (!over) lh_logf(r->conf.log, LH_ERROR, "rank.stop", "%s", r->text);
        r->conf.ended(r->conf.arg, over ? LH_OK : err, r->text);
        return;
    }
    tell(r, r->seat != NULL);
    r->conf.env->ops->work(r->conf.env, LH_LANE_COMPUTE, job, done, r);
}

lh_err wk_rank_start(const struct wk_rank_conf *conf, struct wk_rank **out)
{
    struct wk_rank *r = calloc(1, sizeof *r);
    if (!r) return lh_fail(LH_ERR_NO_MEMORY, "rank %u", conf->rank);
    r->conf = *conf;
    r->passes.batch = conf->batch;
    const struct wk_transformer_conf transformer = {conf->shape, conf->shm.length,
                                                    (size_t)conf->batch * conf->shm.length, true};
    lh_err err = wk_transformer_create(&transformer, &r->passes.transformer);
    if (err) {
        free(r);
        return err;
    }
    conf->env->ops->work(conf->env, LH_LANE_COMPUTE, job, done, r);
    *out = r;
    return LH_OK;
}

lh_err wk_rank_status(const struct wk_rank *r, struct lh_buf *out)
{
    json_t *root =
        json_pack("{s:s s:i s:s s:I s:I}", "role", "rank", "rank", (int)r->conf.rank, "state",
                  r->seated ? "training" : "waiting", "step", (json_int_t)atomic_load(&r->tasks),
                  "sequences", (json_int_t)atomic_load(&r->sequences));
    return lh_json_give(root, out);
}

void wk_rank_close(struct wk_rank *r)
{
    atomic_store(&r->closed, true);
    r->conf.env->ops->work(r->conf.env, LH_LANE_COMPUTE, job, done, r); // leaves the seat
}

void wk_rank_stop(struct wk_rank *r)
{
    if (!r) return;
    LH_ASSERT(!r->seat);
    wk_transformer_destroy(r->passes.transformer);
    free(r);
}
