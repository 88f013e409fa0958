// Memory of the transformer's passes on a device. See transformer_gpu.h.
//
// All memory of a pass is taken once, when the passes are made: one block of device memory, and one
// pinned block.
#include <stdlib.h>

#include "common/base/check.h"
#include "kernels/layers.h"
#include "worker/train/transformer_gpu_parts.h"

// Limits on the values of logits, and of scores or their gradient, held at once; at least one row
// of logits and one sequence of scores. A GiB of logits, because fewer rows at a time would leave
// most of a large GPU idle. The budget counts them.
enum { LOGITS_MAX = 1 << 28, SCORES_MAX = 1 << 25 };

// Hands out 256-byte aligned pieces of `base`; if base is NULL, only counts.
struct carver {
    char *base;
    size_t used;
};

static void *carve_bytes(struct carver *c, size_t bytes)
{
    void *piece = c->base == NULL ? NULL : c->base + c->used;
    c->used += (bytes + 255) / 256 * 256;
    return piece;
}

static float *carve(struct carver *c, size_t values)
{
    return carve_bytes(c, values * sizeof(float));
}

static void carve_layer(struct wk_gpu_passes *t, struct carver *c, struct wk_gpu_activations *l)
{
    size_t rows = t->conf.model.rows_max;
    l->x = carve(c, rows * t->dim);
    l->mid = carve(c, rows * t->dim);
    l->n1 = carve(c, rows * t->dim);
    l->q = carve(c, rows * t->dim);
    l->k = carve(c, rows * t->kv);
    l->v = carve(c, rows * t->kv);
    l->a = carve(c, rows * t->dim);
    l->log_sum = carve(c, rows * t->conf.model.shape.heads);
    l->n2 = carve(c, rows * t->dim);
    l->gate_up = carve(c, rows * 2 * t->ffn);
    l->s = carve(c, rows * t->ffn);
    l->inverse_rms1 = carve(c, rows);
    l->inverse_rms2 = carve(c, rows);
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void carve_backward(struct wk_gpu_passes *t, struct carver *c)
{
    size_t rows = t->conf.model.rows_max, slabs = (rows + LK_GPU_SLAB - 1) / LK_GPU_SLAB;
    t->dx = carve(c, rows * t->dim);
    t->dnarrow = carve(c, rows * t->dim);
    t->dwide = carve(c, rows * t->ffn);
    t->dsplit = carve(c, rows * t->dim);
    t->dqkv = carve(c, rows * t->qkv);
    t->dot = carve(c, rows * t->conf.model.shape.heads);
    t->partial = carve(c, slabs * largest(t->dim, t->qkv));
}

static size_t scores_of(const struct wk_gpu_passes *t, size_t sequences)
{
    size_t length = t->conf.model.length_max;
    return sequences * t->conf.model.shape.heads * length * length;
}

// The largest operand of a product that is not a parameter.
static size_t operand_max(const struct wk_gpu_passes *t)
{
    size_t rows = t->conf.model.rows_max, most = rows * largest(t->qkv, 2 * t->ffn);
    most = largest(most, t->logit_rows * t->vocab);
    return largest(most, scores_of(t, t->score_sequences));
}

static size_t carve_all(struct wk_gpu_passes *t, char *base)
{
    struct carver c = {base, 0};
    const struct wk_shape *s = &t->conf.model.shape;
    size_t rows = t->conf.model.rows_max, tables = t->conf.model.length_max * t->head_dim / 2;
    for (uint32_t l = 0; l < s->layers; l++) carve_layer(t, &c, &t->layer[l]);
    t->layer[s->layers].x = carve(&c, rows * t->dim);
    t->normed = carve(&c, rows * t->dim);
    t->inverse_rms = carve(&c, rows);
    t->logits = carve(&c, t->logit_rows * t->vocab);
    t->cosine = carve(&c, 2 * tables);
    t->sine = base ? t->cosine + tables : NULL;
    t->joined = carve(&c, rows * t->qkv);
    t->split = carve(&c, rows * t->dim);
    t->scores = carve(&c, scores_of(t, t->score_sequences));
    t->ids = carve_bytes(&c, (5 * rows + 1) * sizeof *t->ids);
    t->nll = carve_bytes(&c, rows * sizeof *t->nll);
    t->workspace = carve_bytes(&c, t->conf.gemm->workspace_bytes);
    t->dscores = carve(&c, scores_of(t, t->score_sequences));
    carve_backward(t, &c);
    if (t->conf.type == LK_GEMM_BF16) {
        t->half_params = carve_bytes(&c, t->params.values * sizeof *t->half_params);
        t->half_a = carve_bytes(&c, operand_max(t) * sizeof *t->half_a);
        t->half_b = carve_bytes(&c, operand_max(t) * sizeof *t->half_b);
    }
    return c.used;
}

static lh_err no_room(const struct wk_gpu_passes *t, const char *what, size_t bytes, int err)
{
    return lh_fail(LH_ERR_UNSUPPORTED, "training on the GPU: %zu MiB of %s: %s",
                   (bytes + (1 << 20) - 1) >> 20, what, t->conf.gpu->error_text(err));
}

static lh_err take_memory(struct wk_gpu_passes *t)
{
    const struct wk_transformer_conf *m = &t->conf.model;
    const struct lk_gpu_memory *memory = t->conf.gpu->memory;
    size_t rows = m->rows_max, tables = m->length_max * t->head_dim / 2;
    size_t ids = (5 * rows + 1) * sizeof *t->host_ids, nll = rows * sizeof *t->host_nll;
    size_t bytes = nll + 2 * tables * sizeof(float) + ids;
    void *got = NULL;
    t->at = calloc(m->shape.layers, sizeof *t->at);
    t->layer = calloc((size_t)m->shape.layers + 1, sizeof *t->layer);
    t->key = calloc(rows, sizeof *t->key);
    if (!t->at || !t->layer || !t->key) return lh_fail(LH_ERR_NO_MEMORY, "passes on a device");
    int err = memory->pinned_alloc(&got, bytes);
    if (err) return no_room(t, "pinned memory", bytes, err);
    t->host = got;
    t->host_nll = got;
    t->host_tables = (float *)(void *)(t->host + nll);
    t->host_ids = (uint32_t *)(void *)(t->host + nll + 2 * tables * sizeof(float));
    t->bytes = carve_all(t, NULL);
    err = memory->alloc(&got, t->bytes);
    if (err) return no_room(t, "activations and scratch", t->bytes, err);
    t->arena = got;
    carve_all(t, t->arena);
    return LH_OK;
}

static lh_err prepare(struct wk_gpu_passes *t)
{
    const struct wk_transformer_conf *m = &t->conf.model;
    size_t tables = m->length_max * t->head_dim / 2;
    LH_TRY(wk_params_list(&m->shape, &t->params));
    LH_TRY(take_memory(t));
    for (uint32_t l = 0; l < m->shape.layers; l++)
        t->at[l] = wk_params_layer(&t->params, &m->shape, l);
    t->norm_at = wk_params_norm(&t->params, &m->shape);
    t->head_at = wk_params_head(&t->params, &m->shape);
    lk_rope_table(m->length_max, t->head_dim, m->shape.rope_theta, t->host_tables,
                  t->host_tables + tables);
    wk_gpu_also(t, t->conf.gpu->memory->copy_in(t->cosine, t->host_tables,
                                                2 * tables * sizeof(float), t->conf.stream));
    wk_gpu_also(t, t->conf.gpu->streams->wait(t->conf.stream));
    if (t->err)
        return lh_fail(LH_ERR_UNSUPPORTED, "training on the GPU: %s",
                       t->conf.gpu->error_text(t->err));
    int err = t->conf.gemm->create(t->workspace, &t->gemm);
    if (!err) return LH_OK;
    return lh_fail(LH_ERR_UNSUPPORTED, "matrix products on the GPU: %s",
                   t->conf.gemm->error_text(err));
}

// Computes sizes only; does not touch the device. NULL: no memory.
static struct wk_gpu_passes *sized(const struct wk_gpu_passes_conf *conf)
{
    const struct wk_shape *s = &conf->model.shape;
    struct wk_gpu_passes *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->conf = *conf;
    t->dim = s->dim;
    t->head_dim = wk_shape_head_dim(s);
    t->kv = s->kv_heads * t->head_dim;
    t->qkv = t->dim + 2 * t->kv;
    t->ffn = s->ffn;
    t->vocab = s->vocab;
    t->logit_rows = LOGITS_MAX / t->vocab;
    if (t->logit_rows < 1) t->logit_rows = 1;
    if (t->logit_rows > conf->model.rows_max) t->logit_rows = conf->model.rows_max;
    t->score_sequences = SCORES_MAX / scores_of(t, 1);
    if (t->score_sequences < 1) t->score_sequences = 1;
    size_t sequences = conf->model.rows_max / conf->model.length_max;
    if (t->score_sequences > sequences) t->score_sequences = sequences;
    return t;
}

lh_err wk_gpu_passes_measure(const struct wk_gpu_passes_conf *conf, struct wk_gpu_passes_need *out)
{
    LH_TRY(wk_transformer_check(&conf->model));
    struct wk_gpu_passes *t = sized(conf);
    if (!t) return lh_fail(LH_ERR_NO_MEMORY, "passes on a device");
    t->layer = calloc((size_t)conf->model.shape.layers + 1, sizeof *t->layer);
    lh_err err = t->layer ? wk_params_list(&conf->model.shape, &t->params)
                          : lh_fail(LH_ERR_NO_MEMORY, "passes on a device");
    if (!err) {
        bool half = conf->type == LK_GEMM_BF16;
        out->half = half ? t->params.values * sizeof *t->half_params : 0;
        out->work = carve_all(t, NULL) - out->half;
    }
    wk_gpu_passes_destroy(t);
    return err;
}

lh_err wk_gpu_passes_create(const struct wk_gpu_passes_conf *conf, struct wk_gpu_passes **out)
{
    *out = NULL;
    LH_ASSERT(conf->model.backward);
    LH_TRY(wk_transformer_check(&conf->model));
    if (!conf->gpu->forward || !conf->gpu->backward || !conf->gpu->optimizer)
        return lh_fail(LH_ERR_UNSUPPORTED, "training on the GPU: the CUDA plugin has no layers");
    struct wk_gpu_passes *t = sized(conf);
    if (!t) return lh_fail(LH_ERR_NO_MEMORY, "passes on a device");
    lh_err err = prepare(t);
    if (err)
        wk_gpu_passes_destroy(t);
    else
        *out = t;
    return err;
}

void wk_gpu_passes_destroy(struct wk_gpu_passes *t)
{
    if (!t) return;
    if (t->gemm) t->conf.gemm->destroy(t->gemm);
    if (t->arena) t->conf.gpu->memory->release(t->arena);
    if (t->host) t->conf.gpu->memory->pinned_release(t->host);
    wk_params_free(&t->params);
    free(t->at);
    free(t->layer);
    free(t->key);
    free(t);
}

size_t wk_gpu_passes_bytes(const struct wk_gpu_passes *t)
{
    return t->bytes;
}

const char *wk_gpu_passes_products(const struct wk_gpu_passes *t)
{
    return t->conf.gemm->name(t->gemm);
}
