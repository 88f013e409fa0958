// The transformer's passes on a device. See transformer_gpu.h; the formulas and the names of arrays
// are transformer.c's.
//
// What differs: attention's arrays are split by heads, so that all heads that read one key head
// are one matrix, and all of a batch's are one batched product. Scores of some sequences at a time
// exist, and the backward pass makes them again.
//
// 1. Calls queue and go on. The first one that fails is remembered, and ends the pass at its one
//    wait; until then nothing is read on the host.
// 2. Pinned memory that a copy reads is written only after the wait of the pass before.
#include "worker/train/transformer_gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/prepare.h"
#include "kernels/layers.h"

// The most values of logits, and of scores or their gradient, at once; a row of logits and a
// sequence of scores at least.
enum { LOGITS_MAX = 1 << 24, SCORES_MAX = 1 << 25 };

struct activations { // one layer's, [rows_max][...]; q, k and v are split by heads
    float *x, *n1, *q, *k, *v, *a, *log_sum, *mid, *n2, *gate_up, *s;
    float *inverse_rms1, *inverse_rms2;
};

struct wk_gpu_passes {
    struct wk_gpu_passes_conf conf;
    struct lk_gemm *gemm;
    struct wk_params params;
    size_t dim, qkv, kv, ffn, vocab, head_dim, bytes;
    size_t logit_rows, score_sequences; // most at a time
    struct wk_layer_at *at;             // [layers]
    uint64_t norm_at, head_at;

    char *arena;               // the device's, like all arrays down to `host`
    struct activations *layer; // [layers + 1], itself on the host; of the last only x is used
    float *normed, *inverse_rms, *logits, *cosine, *sine;
    float *joined, *split, *scores; // [rows][qkv], [rows][dim] by heads, some sequences' weights
    float *dx, *dwide, *dnarrow, *dsplit, *dqkv, *dscores, *dot, *partial; // backward only
    uint16_t *half_params, *half_a, *half_b;                               // bf16 only
    uint32_t *ids;
    double *nll;
    void *workspace;

    char *host;         // pinned: what follows
    uint32_t *host_ids; // input, target, tokens, where their rows begin, rows
    double *host_nll;   // [rows_max]
    float *host_tables; // cosine, then sine
    uint64_t *key;      // [rows_max], not pinned
    uint64_t tokens;    // different ones of the batch in hand
    const float *value; // its parameters
    int err;            // the first failing call's since the last wait
};

static void also(struct wk_gpu_passes *t, int err)
{
    if (!t->err) t->err = err;
}

// ---- memory -------------------------------------------------------------------------------------

// Hands out 256-byte aligned pieces of `base`; with base NULL it only counts.
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

static void carve_layer(struct wk_gpu_passes *t, struct carver *c, struct activations *l)
{
    size_t rows = t->conf.model.rows_max;
    bool backward = t->conf.model.backward;
    l->x = carve(c, rows * t->dim);
    l->mid = backward ? carve(c, rows * t->dim) : l->x;
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

// The largest operand of a product that is no parameter.
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
    bool backward = t->conf.model.backward;
    for (uint32_t l = 0; l < s->layers; l++) {
        if (l == 0 || backward)
            carve_layer(t, &c, &t->layer[l]);
        else
            t->layer[l] = t->layer[0];
    }
    t->layer[s->layers].x = backward ? carve(&c, rows * t->dim) : t->layer[0].x;
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
    if (backward) {
        t->dscores = carve(&c, scores_of(t, t->score_sequences));
        carve_backward(t, &c);
    }
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
    also(t, t->conf.gpu->memory->copy_in(t->cosine, t->host_tables, 2 * tables * sizeof(float),
                                         t->conf.stream));
    also(t, t->conf.gpu->streams->wait(t->conf.stream));
    if (t->err)
        return lh_fail(LH_ERR_UNSUPPORTED, "training on the GPU: %s",
                       t->conf.gpu->error_text(t->err));
    int err = t->conf.gemm->create(t->workspace, &t->gemm);
    if (!err) return LH_OK;
    return lh_fail(LH_ERR_UNSUPPORTED, "matrix products on the GPU: %s",
                   t->conf.gemm->error_text(err));
}

lh_err wk_gpu_passes_create(const struct wk_gpu_passes_conf *conf, struct wk_gpu_passes **out)
{
    const struct wk_shape *s = &conf->model.shape;
    *out = NULL;
    LH_TRY(wk_transformer_check(&conf->model));
    if (!conf->gpu->forward || !conf->gpu->backward || !conf->gpu->optimizer)
        return lh_fail(LH_ERR_UNSUPPORTED, "training on the GPU: the CUDA plugin has no layers");
    struct wk_gpu_passes *t = calloc(1, sizeof *t);
    if (!t) return lh_fail(LH_ERR_NO_MEMORY, "passes on a device");
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

// ---- products -----------------------------------------------------------------------------------

// A matrix as it is stored: `rows` of `columns` values, `batch` of them one after another; a
// parameter, or not.
struct operand {
    const float *at;
    size_t rows, columns, batch;
    bool transposed, parameter;
};

static struct operand plain(const float *at, size_t rows, size_t columns)
{
    return (struct operand){at, rows, columns, 1, false, false};
}

static struct operand turned(struct operand o)
{
    o.transposed = true;
    return o;
}

static struct operand weight(const struct wk_gpu_passes *t, uint64_t at, size_t rows,
                             size_t columns)
{
    return (struct operand){t->value + at, rows, columns, 1, false, true};
}

static struct lk_gemm_matrix matrix_of(struct wk_gpu_passes *t, const struct operand *o,
                                       uint16_t *half)
{
    const void *device = o->at;
    if (t->conf.type == LK_GEMM_BF16 && o->parameter) {
        device = t->half_params + (o->at - t->value);
    } else if (t->conf.type == LK_GEMM_BF16) {
        struct lk_gpu_arrays convert = {
            .a = o->at, .x = half, .n = o->rows * o->columns * o->batch};
        also(t, t->conf.gpu->kernels->each(LK_GPU_BF16_OF_FP32, &convert, t->conf.stream));
        device = half;
    }
    return (struct lk_gemm_matrix){device, o->columns, o->rows * o->columns, o->transposed};
}

// c = alpha a b + beta c, for each of the batch's matrices; c is as large as a and b make it.
static void product(struct wk_gpu_passes *t, float alpha, struct operand a, struct operand b,
                    float beta, float *c)
{
    struct lk_gemm_call call = {
        .m = a.transposed ? a.columns : a.rows,
        .n = b.transposed ? b.rows : b.columns,
        .k = a.transposed ? a.rows : a.columns,
        .batch = a.batch,
        .type = t->conf.type,
        .alpha = alpha,
        .beta = beta,
        .a = matrix_of(t, &a, t->half_a),
        .b = matrix_of(t, &b, t->half_b),
        .device_c = c,
    };
    LH_ASSERT(call.k == (b.transposed ? b.columns : b.rows) && a.batch == b.batch);
    call.c_stride = call.n;
    call.c_step = call.m * call.n;
    also(t, t->conf.gemm->run(t->gemm, &call, t->conf.stream));
}

// y[rows][out] = x[rows][in] w[out][in]^T + keep * y
static void linear(struct wk_gpu_passes *t, size_t rows, size_t in, size_t out, const float *x,
                   uint64_t w, float keep, float *y)
{
    product(t, 1.0f, plain(x, rows, in), turned(weight(t, w, out, in)), keep, y);
}

// dx[rows][in] = dy[rows][out] w[out][in]
static void linear_input(struct wk_gpu_passes *t, size_t rows, size_t in, size_t out,
                         const float *dy, uint64_t w, float *dx)
{
    product(t, 1.0f, plain(dy, rows, out), weight(t, w, out, in), 0.0f, dx);
}

// dw[out][in] += dy^T x
static void linear_weight(struct wk_gpu_passes *t, size_t rows, size_t in, size_t out,
                          const float *dy, const float *x, float *dw)
{
    product(t, 1.0f, turned(plain(dy, rows, out)), plain(x, rows, in), 1.0f, dw);
}

// ---- attention ----------------------------------------------------------------------------------

static struct lk_gpu_heads heads_of(const struct wk_gpu_passes *t, size_t sequences, size_t length)
{
    const struct wk_shape *s = &t->conf.model.shape;
    return (struct lk_gpu_heads){sequences, length, s->heads, s->kv_heads, (uint32_t)t->head_dim};
}

// Arrays of some sequences, as a product takes them: a matrix for each key head.
struct some {
    struct lk_gpu_heads h;
    size_t first, batch, queries; // sequences before; key heads; queries of one
};

static struct some some_of(const struct wk_gpu_passes *t, const struct wk_batch *b, size_t first)
{
    size_t left = b->sequences - first;
    size_t n = left < t->score_sequences ? left : t->score_sequences;
    struct lk_gpu_heads h = heads_of(t, n, b->length);
    return (struct some){h, first, n * h.kv_heads, b->length * (h.heads / h.kv_heads)};
}

// Place of the first sequence's values in an array of q's layout, of k's, and of a value a query.
static size_t at_q(const struct some *s)
{
    return s->first * s->h.length * s->h.heads * s->h.head_dim;
}

static size_t at_k(const struct some *s)
{
    return s->first * s->h.length * s->h.kv_heads * s->h.head_dim;
}

static size_t at_row(const struct some *s)
{
    return s->first * s->h.length * s->h.heads;
}

static struct operand queries(const struct some *s, const float *of)
{
    return (struct operand){of + at_q(s), s->queries, s->h.head_dim, s->batch, false, false};
}

static struct operand keys(const struct some *s, const float *of)
{
    return (struct operand){of + at_k(s), s->h.length, s->h.head_dim, s->batch, false, false};
}

static struct operand weights(const struct some *s, const float *of)
{
    return (struct operand){of, s->queries, s->h.length, s->batch, false, false};
}

static float score_scale(const struct wk_gpu_passes *t)
{
    return 1.0f / sqrtf((float)t->head_dim);
}

static void attention(struct wk_gpu_passes *t, const struct wk_batch *b, struct activations *k)
{
    for (size_t first = 0; first < b->sequences; first += t->score_sequences) {
        struct some s = some_of(t, b, first);
        product(t, score_scale(t), queries(&s, k->q), turned(keys(&s, k->k)), 0.0f, t->scores);
        also(t, t->conf.gpu->forward->softmax(&s.h, t->scores, k->log_sum + at_row(&s),
                                              t->conf.stream));
        product(t, 1.0f, weights(&s, t->scores), keys(&s, k->v), 0.0f, t->split + at_q(&s));
    }
}

// From dsplit, the gradient of the heads' outputs, to those of q, k and v in `joined`, one after
// another.
static void attention_gradient(struct wk_gpu_passes *t, const struct wk_batch *b,
                               const struct activations *k, float *dq, float *dk, float *dv)
{
    for (size_t first = 0; first < b->sequences; first += t->score_sequences) {
        struct some s = some_of(t, b, first);
        product(t, score_scale(t), queries(&s, k->q), turned(keys(&s, k->k)), 0.0f, t->scores);
        product(t, 1.0f, queries(&s, t->dsplit), turned(keys(&s, k->v)), 0.0f, t->dscores);
        also(t, t->conf.gpu->backward->scores(&s.h, k->log_sum + at_row(&s), t->dot + at_row(&s),
                                              t->scores, t->dscores, t->conf.stream));
        product(t, 1.0f, turned(weights(&s, t->scores)), queries(&s, t->dsplit), 0.0f,
                dv + at_k(&s));
        product(t, score_scale(t), weights(&s, t->dscores), keys(&s, k->k), 0.0f, dq + at_q(&s));
        product(t, score_scale(t), turned(weights(&s, t->dscores)), queries(&s, k->q), 0.0f,
                dk + at_k(&s));
    }
}

// ---- forward ------------------------------------------------------------------------------------

// The batch's ids to the device, and with a gradient the rows of each of them.
static lh_err take_batch(struct wk_gpu_passes *t, const struct wk_batch *b, bool gradient)
{
    size_t rows = b->sequences * b->length, most = t->conf.model.rows_max;
    uint32_t *tokens = t->host_ids + 2 * most, *from = tokens + most, *row = from + most + 1;
    LH_TRY(wk_batch_take(&t->conf.model, b, true, t->host_ids, t->host_ids + most));
    if (gradient) t->tokens = lk_gpu_places_of(rows, t->host_ids, t->key, tokens, from, row);
    also(t, t->conf.gpu->memory->copy_in(t->ids, t->host_ids, (5 * most + 1) * sizeof *t->ids,
                                         t->conf.stream));
    return LH_OK;
}

static void copy_within(struct wk_gpu_passes *t, float *to, const float *from, size_t values)
{
    if (to != from)
        also(t, t->conf.gpu->memory->copy_within(to, from, values * sizeof *to, t->conf.stream));
}

static void forward_layer(struct wk_gpu_passes *t, uint32_t l, const struct wk_batch *b)
{
    const struct lk_gpu_forward *f = t->conf.gpu->forward;
    const struct wk_shape *s = &t->conf.model.shape;
    const struct wk_layer_at *at = &t->at[l];
    struct activations *k = &t->layer[l];
    const float *p = t->value, *bias = s->qkv_bias ? p + at->qkv_bias : NULL;
    float eps = (float)s->rms_eps, *next = t->layer[l + 1].x;
    size_t rows = b->sequences * b->length;
    struct lk_gpu_heads h = heads_of(t, b->sequences, b->length);
    lk_gpu_stream stream = t->conf.stream;

    also(t, f->rmsnorm(rows, t->dim, eps, k->x, p + at->norm1, k->n1, k->inverse_rms1, stream));
    linear(t, rows, t->dim, t->qkv, k->n1, at->qkv, 0.0f, t->joined);
    also(t, f->split(&h, t->joined, bias, t->cosine, t->sine, k->q, k->k, k->v, stream));
    attention(t, b, k);
    also(t, f->join(&h, t->split, k->a, stream));
    copy_within(t, k->mid, k->x, rows * t->dim);
    linear(t, rows, t->dim, t->dim, k->a, at->o, 1.0f, k->mid);

    also(t, f->rmsnorm(rows, t->dim, eps, k->mid, p + at->norm2, k->n2, k->inverse_rms2, stream));
    linear(t, rows, t->dim, 2 * t->ffn, k->n2, at->gate_up, 0.0f, k->gate_up);
    also(t, f->swiglu(rows, t->ffn, k->gate_up, k->s, stream));
    copy_within(t, next, k->mid, rows * t->dim);
    linear(t, rows, t->ffn, t->dim, k->s, at->down, 1.0f, next);
}

// From ids to `normed`, the input of the head.
static void forward(struct wk_gpu_passes *t, const float *params, const struct wk_batch *b)
{
    const struct lk_gpu_forward *f = t->conf.gpu->forward;
    const struct wk_shape *s = &t->conf.model.shape;
    size_t rows = b->sequences * b->length;
    t->value = params;
    if (t->conf.type == LK_GEMM_BF16) {
        struct lk_gpu_arrays convert = {.a = params, .x = t->half_params, .n = t->params.values};
        also(t, t->conf.gpu->kernels->each(LK_GPU_BF16_OF_FP32, &convert, t->conf.stream));
    }
    also(t, f->embed(rows, t->dim, t->ids, params, t->layer[0].x, t->conf.stream));
    for (uint32_t l = 0; l < s->layers; l++) forward_layer(t, l, b);
    also(t, f->rmsnorm(rows, t->dim, (float)s->rms_eps, t->layer[s->layers].x, params + t->norm_at,
                       t->normed, t->inverse_rms, t->conf.stream));
}

// Loss, and with `gradient` the head's, some rows at a time; dnarrow becomes that of `normed`.
static void head(struct wk_gpu_passes *t, size_t rows, float scale, float *gradient)
{
    const uint32_t *target = t->ids + t->conf.model.rows_max;
    for (size_t from = 0; from < rows; from += t->logit_rows) {
        size_t n = rows - from < t->logit_rows ? rows - from : t->logit_rows;
        const float *x = t->normed + from * t->dim;
        linear(t, n, t->dim, t->vocab, x, t->head_at, 0.0f, t->logits);
        also(t, t->conf.gpu->forward->xent(n, t->vocab, target + from, scale, gradient != NULL,
                                           t->logits, t->nll + from, t->conf.stream));
        if (!gradient) continue;
        linear_input(t, n, t->dim, t->vocab, t->logits, t->head_at, t->dnarrow + from * t->dim);
        linear_weight(t, n, t->dim, t->vocab, t->logits, x, gradient + t->head_at);
    }
    also(t,
         t->conf.gpu->memory->copy_out(t->host_nll, t->nll, rows * sizeof *t->nll, t->conf.stream));
}

// Waits for all that was queued, and adds the losses up in the order of the rows.
static lh_err end_pass(struct wk_gpu_passes *t, size_t rows, double *nll_sum)
{
    also(t, t->conf.gpu->streams->wait(t->conf.stream));
    int err = t->err;
    t->err = 0;
    if (err) return lh_fail(LH_ERR_IO, "passes of the model: %s", t->conf.gpu->error_text(err));
    *nll_sum = 0.0;
    for (size_t r = 0; r < rows; r++) *nll_sum += t->host_nll[r];
    return LH_OK;
}

lh_err wk_gpu_passes_loss(struct wk_gpu_passes *t, const float *params,
                          const struct wk_batch *batch, double *nll_sum)
{
    size_t rows = batch->sequences * batch->length;
    LH_TRY(take_batch(t, batch, false));
    forward(t, params, batch);
    head(t, rows, 0.0f, NULL);
    return end_pass(t, rows, nll_sum);
}

// ---- backward -----------------------------------------------------------------------------------

// A norm's weight's gradient from dnarrow, then what goes on into dx.
static void norm_gradient(struct wk_gpu_passes *t, size_t rows, const float *x, uint64_t at,
                          const float *inverse_rms, bool add, float *gradient)
{
    const struct lk_gpu_backward *b = t->conf.gpu->backward;
    const struct lk_gpu_columns c = {rows,        t->dim,     t->dnarrow,   x,
                                     inverse_rms, t->partial, gradient + at};
    also(t, b->columns(&c, t->conf.stream));
    also(t, b->rmsnorm(rows, t->dim, x, t->value + at, inverse_rms, t->dnarrow, add, t->dx,
                       t->conf.stream));
}

static void backward_layer(struct wk_gpu_passes *t, uint32_t l, const struct wk_batch *b, float *g)
{
    const struct lk_gpu_backward *back = t->conf.gpu->backward;
    const struct wk_layer_at *at = &t->at[l];
    const struct activations *k = &t->layer[l];
    size_t rows = b->sequences * b->length;
    struct lk_gpu_heads h = heads_of(t, b->sequences, b->length);
    lk_gpu_stream stream = t->conf.stream;
    float *dq = t->joined, *dk = dq + rows * t->dim, *dv = dk + rows * t->kv;

    linear_weight(t, rows, t->ffn, t->dim, t->dx, k->s, g + at->down);
    linear_input(t, rows, t->ffn, t->dim, t->dx, at->down, t->dwide);
    also(t, back->swiglu(rows, t->ffn, k->gate_up, t->dwide, k->gate_up, stream));
    linear_weight(t, rows, t->dim, 2 * t->ffn, k->gate_up, k->n2, g + at->gate_up);
    linear_input(t, rows, t->dim, 2 * t->ffn, k->gate_up, at->gate_up, t->dnarrow);
    norm_gradient(t, rows, k->mid, at->norm2, k->inverse_rms2, true, g);

    linear_weight(t, rows, t->dim, t->dim, t->dx, k->a, g + at->o);
    linear_input(t, rows, t->dim, t->dim, t->dx, at->o, t->dnarrow);
    also(t, back->join(&h, k->a, t->dnarrow, t->dsplit, t->dot, stream));
    attention_gradient(t, b, k, dq, dk, dv);
    also(t, back->split(&h, t->cosine, t->sine, dq, dk, dv, t->dqkv, stream));
    if (t->conf.model.shape.qkv_bias) {
        const struct lk_gpu_columns bias = {.rows = rows,
                                            .width = t->qkv,
                                            .dy = t->dqkv,
                                            .partial = t->partial,
                                            .out = g + at->qkv_bias};
        also(t, back->columns(&bias, stream));
    }
    linear_weight(t, rows, t->dim, t->qkv, t->dqkv, k->n1, g + at->qkv);
    linear_input(t, rows, t->dim, t->qkv, t->dqkv, at->qkv, t->dnarrow);
    norm_gradient(t, rows, k->x, at->norm1, k->inverse_rms1, true, g);
}

lh_err wk_gpu_passes_gradient(struct wk_gpu_passes *t, const float *params,
                              const struct wk_batch *batch, float scale, float *gradient,
                              double *nll_sum)
{
    LH_ASSERT(t->conf.model.backward);
    size_t rows = batch->sequences * batch->length, most = t->conf.model.rows_max;
    uint32_t layers = t->conf.model.shape.layers;
    LH_TRY(take_batch(t, batch, true));
    forward(t, params, batch);
    head(t, rows, scale, gradient);
    norm_gradient(t, rows, t->layer[layers].x, t->norm_at, t->inverse_rms, false, gradient);
    for (uint32_t l = layers; l-- > 0;) backward_layer(t, l, batch, gradient);
    const struct lk_gpu_places places = {t->tokens, t->ids + 2 * most, t->ids + 3 * most,
                                         t->ids + 4 * most + 1};
    also(t, t->conf.gpu->backward->embed(t->dim, &places, t->dx, gradient, t->conf.stream));
    return end_pass(t, rows, nll_sum);
}
