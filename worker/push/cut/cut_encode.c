// Cut, second stage: computes and encodes the payload on the encode lane. See cut.c.
#include <math.h>
#include <string.h>

#include "worker/backend.h"
#include "worker/privacy/release.h"
#include "worker/push/cut/stages.h"
#include "worker/push/view.h"

// Reads the memory of a trainer beside the worker. Sets *wrong if the trainer caused the error.
static lh_err read_beside(struct wk_shard *s, const struct wk_whole *whole, float beta, bool *wrong)
{
    struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    uint64_t n = s->layout->values;
    if (!whole->number) {
        memset(s->slot.spare, 0, n * sizeof *s->slot.spare);
    } else {
        int64_t since = lh_now(w->conf.env);
        lh_err err = wk_external_delta(w->external, s->id, 0, n, s->slot.spare);
        atomic_fetch_add(&w->beside.delta_ns, lh_now(w->conf.env) - since);
        *wrong = err != LH_OK;
        if (err) return err;
    }
    if (o && o->kept)
        o->kept(o->arg, s->id, w->incarnation, s->slot.committed->next, s->slot.spare, n);
    lk_view_feed(beta, s->slot.residual, s->slot.spare, n);
    return LH_OK;
}

lh_err wk_cut_read_delta(struct wk_shard *s, const struct wk_whole *whole, float beta, bool *wrong)
{
    *wrong = false;
    if (s->worker->conf.beside) return read_beside(s, whole, beta, wrong);
    return wk_view_delta(s, beta, s->slot.spare);
}

lh_err wk_cut_name_spoiled(const struct wk_shard *s, const float *values)
{
    const struct lh_shard_layout *l = s->layout;
    for (uint32_t i = 0; i < l->extents; i++)
        for (uint64_t k = 0; k < l->extent[i].len; k++)
            if (!isfinite(values[l->extent[i].offset + k]))
                return lh_fail(LH_ERR_NON_FINITE,
                               "parameter %s is not finite (NaN or infinite): a step of the loop "
                               "spoiled it",
                               s->worker->conf.manifest->tensor[l->extent[i].tensor].name);
    return lh_fail(LH_ERR_NON_FINITE, "a value of shard %u is not finite", s->id);
}

// Makes a private region's payload. Values that are not finite become zeros, so that no peer learns
// of them.
static lh_err make_release(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lk_payload_info info;
    LH_TRY(wk_cut_read_delta(s, &c->whole, s->worker->conf.beta, &c->trainers));
    LH_TRY(wk_release_make(s, &c->codec, c->head.charged, s->slot.spare, &c->plain, &info));
    c->head.values = info.values;
    c->head.plain_bytes = (uint32_t)c->plain.len;
    return LH_OK;
}

// Encodes the payload. Leaves the residual after the push in s->slot.spare.
static lh_err make_payload(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lk_payload_info info;
    if (c->again) return LH_OK;
    if (s->release.open) return make_release(c);
    bool there = wk_view_encodes(s) && wk_cut_is_usual(c);
    float beta = s->worker->conf.beta;
    lh_err err = there ? wk_view_encode(s, beta, s->slot.spare, &c->plain, &info)
                       : wk_cut_read_delta(s, &c->whole, beta, &c->trainers);
    if (!err && !there)
        err = wk_backend_encode(s->worker->conf.backend, &c->codec, s->layout, s->slot.spare,
                                &c->plain, &info);
    if (err == LH_ERR_NON_FINITE) {
        c->trainers = c->whole.number != 0;
        err = wk_cut_name_spoiled(s, s->slot.spare);
    }
    if (err) return err;
    c->head.values = info.values;
    c->head.plain_bytes = (uint32_t)c->plain.len;
    return LH_OK;
}

void wk_cut_encode(struct wk_cut *c)
{
    c->result = make_payload(c);
    wk_cut_keep_text(c, c->result);
}
