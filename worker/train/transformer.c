// Forward and backward of the transformer.
//
// One layer, x the residual stream [rows][dim]:
//   n1 = rmsnorm(x)          qkv = n1 [Wq|Wk|Wv]^T + b, rotated     a = attention(qkv)
//   mid = x + a Wo^T         n2 = rmsnorm(mid)
//   gu = n2 [Wgate|Wup]^T    s = swiglu(gu)                         next x = mid + s Wdown^T
// then logits = rmsnorm(x) Whead^T, made and consumed CHUNK_VALUES at a time.
//
// 1. Without backward, all layers share one layer's arrays, and x, mid and the next x are one.
// 2. The residual stream's gradient lives in one array, dx, to which each half of a layer adds.
// 3. In the backward pass gu becomes its own gradient, and n1's array is not needed once the
//    weight gradient is taken; the four temporaries below are the rest.
// 4. The backward pass adds to the gradient from the end of the flat array on: head (unless it is
//    the embedding), last norm, last layer, ..., embedding. What it is past it does not touch
//    again.
#include "worker/train/transformer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/layers.h"

// Logits at once: 256 KB stays in the second-level cache. At least ROWS_MIN rows, so that a large
// vocabulary still gives the matrix product something to reuse.
enum { CHUNK_VALUES = 1 << 16, CHUNK_ROWS_MIN = 32 };

struct activations { // one layer's, [rows_max][...]
    float *x, *n1, *qkv, *a, *log_sum, *mid, *n2, *gate_up, *s;
    float *inverse_rms1, *inverse_rms2;
};

struct wk_transformer {
    struct wk_transformer_conf conf;
    struct wk_params params;
    size_t dim, qkv, ffn, vocab, chunk_rows, bytes;
    struct wk_layer_at *at; // [layers]
    uint64_t norm_at, head_at;

    float *arena;
    struct activations *layer; // [layers + 1]; of the last only x is used
    float *normed, *inverse_rms, *logits, *cosine, *sine, *scratch;
    float *dx, *dwide, *dnarrow, *dqkv; // backward only; dwide is also [rows][ffn]
    uint32_t *target, *input;           // a batch's; input is the second half of target's memory
};

// ---- memory -------------------------------------------------------------------------------------

// Hands out 64-byte aligned pieces of `base`; with base NULL it only counts.
struct carver {
    float *base;
    size_t used;
};

static float *carve(struct carver *c, size_t values)
{
    float *piece = c->base == NULL ? NULL : c->base + c->used;
    c->used += (values + 15) / 16 * 16;
    return piece;
}

static struct lk_attention attention_of(const struct wk_transformer *t, size_t sequences,
                                        size_t length)
{
    const struct wk_shape *s = &t->conf.shape;
    return (struct lk_attention){sequences, length, s->heads, s->kv_heads, wk_shape_head_dim(s)};
}

static void carve_layer(struct wk_transformer *t, struct carver *c, struct activations *l)
{
    size_t rows = t->conf.rows_max;
    l->x = carve(c, rows * t->dim);
    l->mid = t->conf.backward ? carve(c, rows * t->dim) : l->x;
    l->n1 = carve(c, rows * t->dim);
    l->qkv = carve(c, rows * t->qkv);
    l->a = carve(c, rows * t->dim);
    l->log_sum = carve(c, rows * t->conf.shape.heads);
    l->n2 = carve(c, rows * t->dim);
    l->gate_up = carve(c, rows * 2 * t->ffn);
    l->s = carve(c, rows * t->ffn);
    l->inverse_rms1 = carve(c, rows);
    l->inverse_rms2 = carve(c, rows);
}

static size_t carve_all(struct wk_transformer *t, float *base)
{
    struct carver c = {base, 0};
    const struct wk_shape *s = &t->conf.shape;
    size_t rows = t->conf.rows_max, length = t->conf.length_max;
    size_t half = wk_shape_head_dim(s) / 2;
    struct lk_attention a = attention_of(t, 1, length);

    for (uint32_t l = 0; l < s->layers; l++) {
        if (l == 0 || t->conf.backward)
            carve_layer(t, &c, &t->layer[l]);
        else
            t->layer[l] = t->layer[0];
    }
    t->layer[s->layers].x = t->conf.backward ? carve(&c, rows * t->dim) : t->layer[0].x;
    t->normed = carve(&c, rows * t->dim);
    t->inverse_rms = carve(&c, rows);
    t->logits = carve(&c, t->chunk_rows * t->vocab);
    t->cosine = carve(&c, length * half);
    t->sine = carve(&c, length * half);
    t->scratch = carve(&c, lk_attention_scratch(&a));
    if (t->conf.backward) {
        t->dx = carve(&c, rows * t->dim);
        t->dnarrow = carve(&c, rows * t->dim);
        t->dwide = carve(&c, rows * t->ffn);
        t->dqkv = carve(&c, rows * t->qkv);
    }
    return c.used;
}

static void place_tensors(struct wk_transformer *t)
{
    const struct wk_shape *s = &t->conf.shape;
    for (uint32_t l = 0; l < s->layers; l++) t->at[l] = wk_params_layer(&t->params, s, l);
    t->norm_at = wk_params_norm(&t->params, s);
    t->head_at = wk_params_head(&t->params, s);
}

lh_err wk_transformer_check(const struct wk_transformer_conf *c)
{
    LH_TRY(wk_shape_check(&c->shape));
    if (c->length_max < 1 || c->length_max > c->shape.context)
        return lh_fail(LH_ERR_CONFIG, "sequence of %zu tokens: from 1 to the context, %" PRIu32,
                       c->length_max, c->shape.context);
    if (c->rows_max < c->length_max || c->rows_max > 1u << 24)
        return lh_fail(LH_ERR_CONFIG, "%zu tokens at once: from one sequence, %zu, to 2^24",
                       c->rows_max, c->length_max);
    return LH_OK;
}

static lh_err allocate(struct wk_transformer *t)
{
    const struct wk_shape *s = &t->conf.shape;
    LH_TRY(wk_params_list(s, &t->params));
    t->at = calloc(s->layers, sizeof *t->at);
    t->layer = calloc((size_t)s->layers + 1, sizeof *t->layer);
    t->target = calloc(t->conf.rows_max, 2 * sizeof *t->target);
    if (t->at == NULL || t->layer == NULL || t->target == NULL)
        return lh_fail(LH_ERR_NO_MEMORY, "transformer of %" PRIu32 " layers", s->layers);
    t->input = t->target + t->conf.rows_max;
    t->bytes = carve_all(t, NULL) * sizeof *t->arena;
    t->arena = aligned_alloc(64, t->bytes);
    if (t->arena == NULL) return lh_fail(LH_ERR_NO_MEMORY, "%zu bytes of activations", t->bytes);
    carve_all(t, t->arena);
    return LH_OK;
}

lh_err wk_transformer_create(const struct wk_transformer_conf *conf, struct wk_transformer **out)
{
    const struct wk_shape *s = &conf->shape;
    LH_TRY(wk_transformer_check(conf));
    struct wk_transformer *t = calloc(1, sizeof *t);
    if (t == NULL) return lh_fail(LH_ERR_NO_MEMORY, "transformer");
    t->conf = *conf;
    t->dim = s->dim;
    t->qkv = ((size_t)s->heads + 2 * (size_t)s->kv_heads) * wk_shape_head_dim(s);
    t->ffn = s->ffn;
    t->vocab = s->vocab;
    t->chunk_rows = CHUNK_VALUES / t->vocab;
    if (t->chunk_rows < CHUNK_ROWS_MIN) t->chunk_rows = CHUNK_ROWS_MIN;

    lh_err err = allocate(t);
    if (err != LH_OK) {
        wk_transformer_destroy(t);
        return err;
    }
    place_tensors(t);
    lk_blas_one_thread();
    lk_rope_table(conf->length_max, wk_shape_head_dim(s), s->rope_theta, t->cosine, t->sine);
    *out = t;
    return LH_OK;
}

void wk_transformer_destroy(struct wk_transformer *t)
{
    if (t == NULL) return;
    wk_params_free(&t->params);
    free(t->at);
    free(t->layer);
    free(t->target);
    free(t->arena);
    free(t);
}

const struct wk_transformer_conf *wk_transformer_made_for(const struct wk_transformer *t)
{
    return &t->conf;
}

size_t wk_transformer_bytes(const struct wk_transformer *t)
{
    return t->bytes;
}

// ---- forward ------------------------------------------------------------------------------------

lh_err wk_batch_take(const struct wk_transformer_conf *conf, const struct wk_batch *b,
                     bool with_targets, uint32_t *input, uint32_t *target)
{
    if (b->sequences == 0 || b->length == 0 || b->length > conf->length_max ||
        b->sequences > conf->rows_max / b->length)
        return lh_fail(LH_ERR_INVALID, "batch of %zu sequences of %zu tokens: room for %zu of %zu",
                       b->sequences, b->length, conf->rows_max / conf->length_max,
                       conf->length_max);
    for (size_t s = 0; s < b->sequences; s++) {
        const uint32_t *ids = b->ids + s * b->stride;
        for (size_t i = 0; i < b->length + (with_targets ? 1 : 0); i++)
            if (ids[i] >= conf->shape.vocab)
                return lh_fail(LH_ERR_INVALID,
                               "token id %" PRIu32
                               " at %zu of sequence %zu: the vocabulary has %" PRIu32,
                               ids[i], i, s, conf->shape.vocab);
        memcpy(input + s * b->length, ids, b->length * sizeof *ids);
        if (with_targets) memcpy(target + s * b->length, ids + 1, b->length * sizeof *ids);
    }
    return LH_OK;
}

static lh_err take_batch(struct wk_transformer *t, const struct wk_batch *b, bool with_targets)
{
    return wk_batch_take(&t->conf, b, with_targets, t->input, t->target);
}

static void forward_layer(struct wk_transformer *t, const float *params, uint32_t l, size_t rows,
                          const struct lk_attention *shape)
{
    const struct wk_shape *s = &t->conf.shape;
    const struct wk_layer_at *at = &t->at[l];
    struct activations *k = &t->layer[l];
    float eps = (float)s->rms_eps, *next = t->layer[l + 1].x;
    const float *bias = s->qkv_bias ? params + at->qkv_bias : NULL;

    lk_rmsnorm(rows, t->dim, eps, k->x, params + at->norm1, k->n1, k->inverse_rms1);
    lk_linear(rows, t->dim, t->qkv, k->n1, params + at->qkv, bias, 0.0f, k->qkv);
    lk_rope(rows, shape->length, (size_t)s->heads + s->kv_heads, wk_shape_head_dim(s), t->qkv,
            t->cosine, t->sine, false, k->qkv);
    lk_attention(shape, k->qkv, k->a, k->log_sum, t->scratch);
    if (k->mid != k->x) memcpy(k->mid, k->x, rows * t->dim * sizeof *k->x);
    lk_linear(rows, t->dim, t->dim, k->a, params + at->o, NULL, 1.0f, k->mid);

    lk_rmsnorm(rows, t->dim, eps, k->mid, params + at->norm2, k->n2, k->inverse_rms2);
    lk_linear(rows, t->dim, 2 * t->ffn, k->n2, params + at->gate_up, NULL, 0.0f, k->gate_up);
    lk_swiglu(rows, t->ffn, k->gate_up, k->s);
    if (next != k->mid) memcpy(next, k->mid, rows * t->dim * sizeof *next);
    lk_linear(rows, t->ffn, t->dim, k->s, params + at->down, NULL, 1.0f, next);
}

// From ids to `normed`, the input of the head.
static void forward(struct wk_transformer *t, const float *params, const struct wk_batch *b)
{
    size_t rows = b->sequences * b->length;
    uint32_t layers = t->conf.shape.layers;
    struct lk_attention shape = attention_of(t, b->sequences, b->length);
    lk_embed(rows, t->dim, t->input, params, t->layer[0].x);
    for (uint32_t l = 0; l < layers; l++) forward_layer(t, params, l, rows, &shape);
    lk_rmsnorm(rows, t->dim, (float)t->conf.shape.rms_eps, t->layer[layers].x, params + t->norm_at,
               t->normed, t->inverse_rms);
}

static size_t chunk_of(const struct wk_transformer *t, size_t from, size_t rows)
{
    return rows - from < t->chunk_rows ? rows - from : t->chunk_rows;
}

lh_err wk_transformer_logits(struct wk_transformer *t, const float *params,
                             const struct wk_batch *batch, float *logits)
{
    LH_TRY(take_batch(t, batch, false));
    forward(t, params, batch);
    lk_linear(batch->sequences * batch->length, t->dim, t->vocab, t->normed, params + t->head_at,
              NULL, 0.0f, logits);
    return LH_OK;
}

lh_err wk_transformer_loss(struct wk_transformer *t, const float *params,
                           const struct wk_batch *batch, double *nll_sum)
{
    LH_TRY(take_batch(t, batch, true));
    forward(t, params, batch);
    size_t rows = batch->sequences * batch->length;
    double nll = 0.0;
    for (size_t from = 0; from < rows; from += t->chunk_rows) {
        size_t n = chunk_of(t, from, rows);
        lk_linear(n, t->dim, t->vocab, t->normed + from * t->dim, params + t->head_at, NULL, 0.0f,
                  t->logits);
        nll += lk_xent(n, t->vocab, t->target + from, t->logits);
    }
    *nll_sum = nll;
    return LH_OK;
}

// ---- backward -----------------------------------------------------------------------------------

// Loss and the gradient of the head, chunk by chunk; dnarrow becomes the gradient of `normed`.
static double head_grad(struct wk_transformer *t, const float *params, size_t rows, size_t padding,
                        float scale, float *gradient)
{
    const size_t counted = rows - padding;
    double nll = 0.0;
    for (size_t from = 0; from < rows; from += t->chunk_rows) {
        size_t n = chunk_of(t, from, rows);
        const float *x = t->normed + from * t->dim, *w = params + t->head_at;
        lk_linear(n, t->dim, t->vocab, x, w, NULL, 0.0f, t->logits);
        size_t real = from >= counted ? 0 : counted - from < n ? counted - from : n;
        nll += lk_xent_grad(real, t->vocab, t->target + from, scale, t->logits);
        memset(t->logits + real * t->vocab, 0, (n - real) * t->vocab * sizeof *t->logits);
        lk_linear_input_grad(n, t->dim, t->vocab, t->logits, w, t->dnarrow + from * t->dim);
        lk_linear_weight_grad(n, t->dim, t->vocab, t->logits, x, gradient + t->head_at, NULL);
    }
    return nll;
}

static void backward_layer(struct wk_transformer *t, const float *params, uint32_t l, size_t rows,
                           const struct lk_attention *shape, float *gradient)
{
    const struct wk_shape *s = &t->conf.shape;
    const struct wk_layer_at *at = &t->at[l];
    struct activations *k = &t->layer[l];
    float *dbias = s->qkv_bias ? gradient + at->qkv_bias : NULL;

    lk_linear_weight_grad(rows, t->ffn, t->dim, t->dx, k->s, gradient + at->down, NULL);
    lk_linear_input_grad(rows, t->ffn, t->dim, t->dx, params + at->down, t->dwide);
    lk_swiglu_grad(rows, t->ffn, k->gate_up, t->dwide, k->gate_up);
    lk_linear_weight_grad(rows, t->dim, 2 * t->ffn, k->gate_up, k->n2, gradient + at->gate_up,
                          NULL);
    lk_linear_input_grad(rows, t->dim, 2 * t->ffn, k->gate_up, params + at->gate_up, t->dnarrow);
    lk_rmsnorm_grad(rows, t->dim, k->mid, params + at->norm2, k->inverse_rms2, t->dnarrow, t->dx,
                    gradient + at->norm2);

    lk_linear_weight_grad(rows, t->dim, t->dim, t->dx, k->a, gradient + at->o, NULL);
    lk_linear_input_grad(rows, t->dim, t->dim, t->dx, params + at->o, t->dnarrow);
    lk_attention_grad(shape, k->qkv, k->a, k->log_sum, t->dnarrow, t->dqkv, t->scratch);
    lk_rope(rows, shape->length, (size_t)s->heads + s->kv_heads, wk_shape_head_dim(s), t->qkv,
            t->cosine, t->sine, true, t->dqkv);
    lk_linear_weight_grad(rows, t->dim, t->qkv, t->dqkv, k->n1, gradient + at->qkv, dbias);
    lk_linear_input_grad(rows, t->dim, t->qkv, t->dqkv, params + at->qkv, t->dnarrow);
    lk_rmsnorm_grad(rows, t->dim, k->x, params + at->norm1, k->inverse_rms1, t->dnarrow, t->dx,
                    gradient + at->norm1);
}

static void tell_final(const struct wk_final *final, uint64_t from)
{
    if (final && final->hook) final->hook(final->arg, from);
}

static lh_err gradient_of(struct wk_transformer *t, const float *params,
                          const struct wk_batch *batch, size_t padding, float scale,
                          float *gradient, const struct wk_final *final, double *nll_sum)
{
    LH_ASSERT(t->conf.backward);
    LH_TRY(take_batch(t, batch, true));
    forward(t, params, batch);

    size_t rows = batch->sequences * batch->length;
    uint32_t layers = t->conf.shape.layers;
    struct lk_attention shape = attention_of(t, batch->sequences, batch->length);
    *nll_sum = head_grad(t, params, rows, padding, scale, gradient);
    if (!t->conf.shape.tied) tell_final(final, t->head_at);
    memset(t->dx, 0, rows * t->dim * sizeof *t->dx);
    lk_rmsnorm_grad(rows, t->dim, t->layer[layers].x, params + t->norm_at, t->inverse_rms,
                    t->dnarrow, t->dx, gradient + t->norm_at);
    tell_final(final, t->norm_at);
    for (uint32_t l = layers; l-- > 0;) {
        backward_layer(t, params, l, rows, &shape, gradient);
        tell_final(final, t->at[l].norm1);
    }
    lk_embed_grad(rows, t->dim, t->input, t->dx, gradient);
    tell_final(final, 0);
    return LH_OK;
}

lh_err wk_transformer_gradient(struct wk_transformer *t, const float *params,
                               const struct wk_batch *batch, float scale, float *gradient,
                               const struct wk_final *final, double *nll_sum)
{
    return gradient_of(t, params, batch, 0, scale, gradient, final, nll_sum);
}

lh_err wk_transformer_record(struct wk_transformer *t, const float *params, const uint32_t *ids,
                             size_t length, size_t padding, float scale, float *gradient,
                             double *nll_sum)
{
    const struct wk_batch batch = {ids, 1, length, length + 1};
    LH_ASSERT(padding <= length);
    return gradient_of(t, params, &batch, padding, scale, gradient, NULL, nll_sum);
}

// ---- evaluation ---------------------------------------------------------------------------------

enum { EVAL_ROWS = 1024 };

bool wk_text_window(const struct wk_transformer_conf *conf, const uint32_t *ids, size_t count,
                    size_t *at, struct wk_batch *out)
{
    size_t sequence = conf->length_max, batch = conf->rows_max / sequence;
    if (*at + 1 >= count) return false;
    size_t left = count - 1 - *at, windows = left / sequence;
    *out = (struct wk_batch){ids + *at, windows < batch ? windows : batch, sequence, sequence};
    if (windows == 0) *out = (struct wk_batch){ids + *at, 1, left, left};
    *at += out->sequences * out->length;
    return true;
}

lh_err wk_eval(const struct wk_shape *shape, const float *params, const uint32_t *ids, size_t count,
               size_t sequence, double *nll_sum, uint64_t *tokens)
{
    if (count < 2) return lh_fail(LH_ERR_INVALID, "evaluation of %zu tokens: 2 at least", count);
    size_t batch = sequence < EVAL_ROWS ? EVAL_ROWS / (sequence == 0 ? 1 : sequence) : 1;
    struct wk_transformer_conf conf = {*shape, sequence, batch * sequence, false};
    struct wk_transformer *t;
    LH_TRY(wk_transformer_create(&conf, &t));
    struct wk_batch window;
    lh_err err = LH_OK;
    *tokens = count - 1;
    *nll_sum = 0.0;
    for (size_t at = 0; !err && wk_text_window(&conf, ids, count, &at, &window);) {
        double nll = 0.0;
        err = wk_transformer_loss(t, params, &window, &nll);
        *nll_sum += nll;
    }
    wk_transformer_destroy(t);
    return err;
}
