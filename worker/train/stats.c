// Reports training figures besides the loss: norms of every tensor, held-out losses.
//
// Norms: at an interval of rounds, one log line per tensor, event tensor.norms, each a JSON object:
//   {"round", "step", "tensor", "weight", "gradient", "update", "residual"}
// These are Euclidean norms of the tensor's parameters, of one step's gradient before clipping, of
// that step's change, and of the residual at the last measured cuts (the disk lane computes it, so
// training does not wait). Held-out losses: event eval.loss, and "eval" in the status.
#include "worker/train/stats.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/optimizer.h"

lh_err wk_stats_open(struct wk_worker *w)
{
    if (!w->conf.norms_rounds) return LH_OK;
    w->norms = calloc(w->conf.manifest->tensors, sizeof *w->norms);
    if (!w->norms) return LH_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        s->progress.residual_square =
            calloc(s->layout->extents, sizeof *s->progress.residual_square);
        if (!s->progress.residual_square) return LH_ERR_NO_MEMORY;
    }
    return LH_OK;
}

void wk_stats_residual(const struct wk_shard *s, const float *residual, double *square)
{
    for (uint32_t i = 0; i < s->layout->extents; i++) {
        const struct lh_extent *e = &s->layout->extent[i];
        square[i] = lk_sum_squares(e->len, residual + e->offset);
    }
}

void wk_stats_ask(struct wk_worker *w)
{
    bool due = w->norms && w->count.rounds >= w->norms_round;
    w->in.norms = due ? w->norms : NULL;
}

// ---------------------------------------------------------------- lines

// Takes the object.
static void say(struct wk_worker *w, const char *event, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) lh_log_data(w->conf.log, LH_INFO, event, text);
    free(text);
    json_decref(object);
}

static double residual_norm(const struct wk_worker *w, uint32_t tensor)
{
    double sum = 0;
    for (uint32_t i = 0; i < w->shards; i++)
        for (uint32_t k = 0; k < w->shard[i].layout->extents; k++)
            if (w->shard[i].layout->extent[k].tensor == tensor)
                sum += w->shard[i].progress.residual_square[k];
    return sqrt(sum);
}

static void say_norms(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->conf.manifest->tensors; i++) {
        const struct wk_tensor_norms *n = &w->norms[i];
        say(w, "tensor.norms",
            json_pack("{s:I s:I s:s s:f s:f s:f s:f}", "round", (json_int_t)w->count.rounds, "step",
                      (json_int_t)w->count.steps, "tensor", w->conf.manifest->tensor[i].name,
                      "weight", n->weight, "gradient", n->gradient, "update", n->update, "residual",
                      residual_norm(w, i)));
    }
    w->norms_round = w->count.rounds + w->conf.norms_rounds;
    w->in.norms = NULL;
}

json_t *wk_stats_eval(const struct wk_worker *w)
{
    const struct wk_evaluated *e = &w->evaluated;
    json_t *by = json_object();
    for (uint32_t i = 0; i < e->languages; i++)
        json_object_set_new(by, e->by[i].language, json_real(e->by[i].loss));
    return json_pack("{s:I s:I s:f s:o s:f s:f}", "tokens", (json_int_t)e->tokens, "credited",
                     (json_int_t)w->evaluated_credited, "loss", e->loss, "by_language", by,
                     "took_s", (double)e->took_ns / (double)LH_SECOND, "share", e->share);
}

void wk_stats_tell(struct wk_worker *w)
{
    if (w->in.norms) say_norms(w);
    if (!w->out.evaluated) return;
    w->evaluated = *w->out.evaluated;
    w->evaluated_credited = w->in.credited;
    w->out.evaluated = NULL;
    say(w, "eval.loss", wk_stats_eval(w));
}

void wk_stats_close(struct wk_worker *w)
{
    free(w->norms);
    for (uint32_t i = 0; w->shard && i < w->shards; i++) free(w->shard[i].progress.residual_square);
}
