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

// Feeds residual[0..n), the shard's values from `from` on, with the cut of a trainer beside the
// worker; chunk by chunk, because the residual is changed in place.
static lh_err feed_beside(const struct wk_shard *s, const struct wk_whole *whole, float beta,
                          uint64_t from, uint64_t n, float *residual)
{
    struct wk_worker *w = s->worker;
    float delta[WK_CHANNEL_CHUNK];
    lh_err err = LH_OK;
    int64_t since = lh_now(w->conf.env);
    for (uint64_t at = from, end = from + n, stop; !err && at < end; at = stop) {
        stop = (at / WK_CHANNEL_CHUNK + 1) * WK_CHANNEL_CHUNK;
        if (stop > end) stop = end;
        err = beside_delta(s, whole, at, stop - at, delta);
        if (err) break;
        lk_view_feed(beta, residual + (at - from), delta, stop - at);
        memcpy(residual + (at - from), delta, (stop - at) * sizeof *delta);
    }
    if (whole->number) atomic_fetch_add(&w->beside.delta_ns, lh_now(w->conf.env) - since);
    return err;
}

static lh_err read_beside(struct wk_shard *s, const struct wk_whole *whole, float beta, bool *wrong)
{
    lh_err err = show_progress(s, whole);
    if (!err) err = feed_beside(s, whole, beta, 0, s->layout->values, wk_residual_next(s));
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

static lh_err feed(void *arg, uint64_t from, uint64_t n, float *e)
{
    const struct wk_cut *c = arg;
    const struct wk_shard *s = c->shard;
    if (s->worker->conf.beside) return feed_beside(s, &c->whole, s->worker->conf.beta, from, n, e);
    wk_view_delta_at(s, s->worker->conf.beta, from, n, e);
    return LH_OK;
}

// Delta, error feedback and encoding in one pass, where the CPU does all of them.
static lh_err encode_fed(struct wk_cut *c, struct lk_payload_info *info)
{
    struct wk_shard *s = c->shard;
    const struct lk_feed fed = {feed, c};
    lh_err err = s->worker->conf.beside ? show_progress(s, &c->whole) : LH_OK;
    if (!err)
        err = wk_backend_encode_fed(s->worker->conf.backend, &c->codec, s->layout, &fed,
                                    wk_residual_next(s), &c->plain, info);
    c->trainers = err == LH_ERR_CORRUPT;
    return err;
}

static lh_err encode(struct wk_cut *c, struct lk_payload_info *info)
{
    struct wk_shard *s = c->shard;
    struct wk_backend *b = s->worker->conf.backend;
    float beta = s->worker->conf.beta;
    if (wk_view_encodes(s) && wk_cut_is_usual(c))
        return wk_view_encode(s, beta, wk_residual_next(s), &c->plain, info);
    bool may = s->worker->conf.beside || wk_view_has_delta_at(s);
    if (may && wk_backend_feeds(b, &c->codec)) return encode_fed(c, info);
    LH_TRY(wk_cut_read_delta(s, &c->whole, beta, &c->trainers));
    return wk_backend_encode(b, &c->codec, s->layout, wk_residual_next(s), &c->plain, info);
}

// Encodes the payload. Leaves the residual after the push in wk_residual_next().
static lh_err make_payload(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lk_payload_info info;
    if (c->again) return LH_OK;
    if (s->release.open) return make_release(c);
    lh_err err = encode(c, &info);
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
