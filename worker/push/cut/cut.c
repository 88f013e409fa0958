// Cut: turns progress into a sealed, durable push (DESIGN.md#section-5 steps 2-7,
// server/docs/0000-protocol.md#rule-1, #rule-9).
//
// A cut begins at a boundary (cut_begin.c): the trainer copies its parameters, and a device begins
// to encode. Training then continues. The encode lane (cut_encode.c) computes delta and feedback
// and encodes, in the residual's memory. The disk lane (cut_commit.c) seals, syncs the outbox entry
// and flips the slot; then the push may be sent (cut_finish.c). So of two shards that are cut
// together, one is encoded while the other is written. The cut can be dropped until the flip, and
// not after it.
#include "worker/push/cut/cut.h"

#include <stdlib.h>

#include "worker/bugs.h"
#include "worker/disk_full.h"
#include "worker/push/cut/stages.h"
#include "worker/push/outcome.h"
#include "worker/push/session.h"
#include "worker/push/view.h"

bool wk_may_cut(const struct wk_shard *s)
{
    if (s->cut || s->disk.timer) return false;
    if (LH_BUG("base_delta")) return wk_bug_may_cut(s);
    return s->ready && !wk_stands_still(s) && !wk_outbox_undecided(&s->outbox) && wk_own_folded(s);
}

void wk_cut_free(struct wk_cut *c)
{
    if (!c) return;
    lh_buf_free(&c->plain);
    wk_change_free(&c->change);
    lh_buf_free(&c->trainer);
    free(c->residual_square);
    if (c->entry) wk_entry_free(c->entry);
    free(c);
}

static void cut_done(void *arg)
{
    struct wk_cut *c = arg;
    struct wk_shard *s = c->shard;
    struct wk_worker *w = s->worker;
    bool holds = c->holds;
    s->cut = NULL;
    wk_disk_slow_end(s);
    lh_err err = wk_cut_finish(s, c);
    if (err && c->text[0]) err = lh_fail(err, "%s", c->text);
    if (!err && s->ended) err = wk_settle_end(s);
    wk_cut_free(c);
    if (w->stopped) return;
    if (err) {
        wk_fatal(w, err);
        return;
    }
    if (holds) wk_external_hold(w->external, false);
    wk_push_soon(s);
    wk_changed(w);
}

static int64_t commit_job(void *arg)
{
    wk_cut_commit(arg);
    return 0;
}

// Passes the encoded payload to the disk lane. After a stop it drops the cut, so that an orderly
// end can write the slot without it (wk_worker_settle()).
static void encoded(void *arg)
{
    struct wk_cut *c = arg;
    struct wk_worker *w = c->shard->worker;
    if (w->stopped) {
        c->shard->cut = NULL;
        wk_cut_free(c);
        return;
    }
    if (c->result) {
        cut_done(c);
        return;
    }
    lh_logf(w->conf.log, LH_DEBUG, "push.encoded", "shard %u: %llx/%llu", c->shard->id,
            (unsigned long long)c->head.incarnation.number, (unsigned long long)c->head.step);
    lh_slow_begin(&c->shard->disk.slow, lh_now(w->conf.env));
    w->conf.env->ops->work(w->conf.env, LH_LANE_DISK, commit_job, cut_done, c);
}

static int64_t encode_job(void *arg)
{
    wk_cut_encode(arg);
    return 0;
}

lh_err wk_cut_start(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    lh_err err = wk_residual_store(s);
    if (err == LH_ERR_DISK_FULL) {
        wk_disk_full_hold(s, lh_err_text(err));
        return LH_OK;
    }
    if (err) return err;
    struct wk_cut *c = calloc(1, sizeof *c);
    if (!c) return LH_ERR_NO_MEMORY;
    err = wk_cut_begin(s, c);
    if (err) {
        wk_cut_free(c);
        return err;
    }
    lh_logf(w->conf.log, LH_DEBUG, "push.cut", "shard %u: %llx/%llu", s->id,
            (unsigned long long)w->incarnation.number, (unsigned long long)s->slot.committed->next);
    s->progress.tokens = s->progress.steps = 0;
    s->cut = c;
    c->holds = w->external != NULL;
    if (c->holds) wk_external_hold(w->external, true);
    w->conf.env->ops->work(w->conf.env, LH_LANE_ENCODE, encode_job, encoded, c);
    return LH_OK;
}
