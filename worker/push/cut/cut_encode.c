// Cut, second stage: computes and encodes the payload on the encode lane. See cut.c.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend.h"
#include "worker/privacy/release.h"
#include "worker/push/cut/stages.h"
#include "worker/push/view.h"

// The progress of a trainer beside the worker; zeros without a cut of it.
static lh_err beside_delta(const struct wk_shard *s, const struct wk_whole *whole, uint64_t from,
                           uint64_t n, float *out)
{
    if (whole->number) return wk_external_delta(s->worker->external, s->id, from, n, out);
    memset(out, 0, n * sizeof *out);
    return LH_OK;
}

static lh_err show_progress(const struct wk_shard *s, const struct wk_whole *whole)
{
    const struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    uint64_t n = s->layout->values;
    if (!o || !o->kept) return LH_OK;
    float *delta = malloc(n * sizeof *delta);
    if (!delta) return LH_ERR_NO_MEMORY;
    lh_err err = beside_delta(s, whole, 0, n, delta);
    if (!err) o->kept(o->arg, s->id, w->incarnation, s->slot.committed->next, delta, n);
    free(delta);
    return err;
}

// Chunk by chunk, because the residual is changed in place.
static lh_err feed(const struct wk_shard *s, const struct wk_whole *whole, float beta,
                   float *residual)
{
    float delta[WK_CHANNEL_CHUNK];
    for (uint64_t at = 0, n; at < s->layout->values; at += n) {
        n = s->layout->values - at < WK_CHANNEL_CHUNK ? s->layout->values - at : WK_CHANNEL_CHUNK;
        LH_TRY(beside_delta(s, whole, at, n, delta));
        lk_view_feed(beta, residual + at, delta, n);
        memcpy(residual + at, delta, n * sizeof *delta);
    }
    return LH_OK;
}

// Reads the memory of a trainer beside the worker. Sets *wrong if the trainer caused the error.
static lh_err read_beside(struct wk_shard *s, const struct wk_whole *whole, float beta, bool *wrong)
{
    struct wk_worker *w = s->worker;
    int64_t since = lh_now(w->conf.env);
    lh_err err = show_progress(s, whole);
    if (!err) err = feed(s, whole, beta, wk_residual_next(s));
    if (whole->number) atomic_fetch_add(&w->beside.delta_ns, lh_now(w->conf.env) - since);
    *wrong = err == LH_ERR_CORRUPT;
    return err;
}

lh_err wk_cut_read_delta(struct wk_shard *s, const struct wk_whole *whole, float beta, bool *wrong)
{
    *wrong = false;
    if (s->worker->conf.beside) return read_beside(s, whole, beta, wrong);
    return wk_view_delta(s, beta, wk_residual_next(s));
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
    LH_TRY(wk_release_make(s, &c->codec, c->head.charged, wk_residual_next(s), &c->plain, &info));
    c->head.values = info.values;
    c->head.plain_bytes = (uint32_t)c->plain.len;
    return LH_OK;
}

// Encodes the payload. Leaves the residual after the push in wk_residual_next().
static lh_err make_payload(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lk_payload_info info;
    if (c->again) return LH_OK;
    if (s->release.open) return make_release(c);
    bool there = wk_view_encodes(s) && wk_cut_is_usual(c);
    float beta = s->worker->conf.beta;
    lh_err err = there ? wk_view_encode(s, beta, wk_residual_next(s), &c->plain, &info)
                       : wk_cut_read_delta(s, &c->whole, beta, &c->trainers);
    if (!err && !there)
        err = wk_backend_encode(s->worker->conf.backend, &c->codec, s->layout, wk_residual_next(s),
                                &c->plain, &info);
    if (err == LH_ERR_NON_FINITE) {
        c->trainers = c->whole.number != 0;
        err = wk_cut_name_spoiled(s, s->slot.residual);
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
    if (c->result) wk_cut_undo(c);
}
