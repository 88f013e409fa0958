// Cut, third stage: makes the push durable on the disk lane. See cut.c.
#include <string.h>

#include "worker/bugs.h"
#include "worker/privacy/private.h"
#include "worker/push/cut/stages.h"
#include "worker/train/stats.h"

static lh_err seal_frame(struct wk_cut *c, struct lh_span plain, struct lh_blob **out)
{
    const struct lh_frame *f = &c->head;
    struct lh_buf head = lh_buf(LH_FRAME_HEADER_BYTES + LH_CLAIM_BYTES * LH_CLAIMS_MAX);
    lh_frame_write_head(f, &head);
    lh_err err = lh_buf_err(&head);
    struct lh_blob *b = err ? NULL : lh_blob_new(lh_frame_bytes(f));
    if (!err && !b) err = LH_ERR_NO_MEMORY;
    if (!err) {
        struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                          f->shard, LH_SEAL_FRAME};
        memcpy(b->data, head.data, head.len);
        err = lh_seal(c->shard->worker->conf.keys, f->cipher, f->key_id, &context,
                      lh_buf_span(&head), f->nonce, plain, b->data + head.len);
    }
    lh_buf_free(&head);
    if (err)
        lh_blob_release(b);
    else
        *out = b;
    return err;
}

// Writes and syncs copies of the residual as of this cut (server/docs/0000-protocol.md#rule-11) and
// of the optimizer's state.
static lh_err write_snapshot(struct wk_cut *c)
{
    const struct wk_conf *conf = &c->shard->worker->conf;
    LH_TRY(wk_change_snapshot(&c->change));
    if (!c->trainer.len) return LH_OK;
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, conf->dir, "trainer"));
    return lh_file_replace(conf->env, path, lh_buf_span(&c->trainer));
}

// Does everything up to the commit point. A failure before it leaves at most an outbox file whose
// step the slot does not name; the next start deletes it.
static lh_err commit(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    const struct wk_observer *o = s->worker->conf.observer;
    struct lh_blob *frame = NULL;
    if (!c->again) LH_TRY(wk_private_charge(s, c->head.charged));
    LH_TRY(seal_frame(c, lh_buf_span(&c->plain), &frame));
    bool first = LH_BUG("flip_first"); // planted: the residual before the entry it was cut for
    lh_err err = first ? wk_change_write(&c->change) : LH_OK;
    if (!err) err = wk_outbox_write(&s->outbox, frame, &c->entry);
    lh_blob_release(frame);
    if (err) return err;
    LH_FAILPOINT("cut.kept");
    if (!first) err = wk_change_write(&c->change); // the commit point
    if (err) {
        // After any other failure the new slot may be on the disk all the same (commit.h).
        bool undone = err == LH_ERR_DISK_FULL || LH_BUG("erase_unknown");
        if (undone && wk_outbox_erase(&s->outbox, c->entry)) err = LH_ERR_IO;
        return err;
    }
    LH_FAILPOINT("cut.flipped");
    if (o && o->cut && !c->again) o->cut(o->arg, s->id, c->head.incarnation, c->head.step);
    return LH_OK;
}

void wk_cut_commit(struct wk_cut *c)
{
    c->result = commit(c);
    if (!c->result && c->residual_square)
        wk_stats_residual(c->shard, c->shard->slot.residual, c->residual_square);
    if (!c->result && c->snapshot) c->snapshot_result = write_snapshot(c);
    wk_cut_keep_text(c, c->result ? c->result : c->snapshot_result);
    if (c->result) wk_cut_undo(c);
}
