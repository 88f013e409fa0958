// The transformer's passes on a device. See transformer_gpu.h; transformer.c has the formulas and
// the names of arrays.
//
// Differences: attention's arrays are split by heads, so all heads that read one key head are one
// matrix, and a batch's heads are one batched product. Scores exist only for some sequences at a
// time, and the backward pass computes them again.
//
// 1. Calls only queue work. The first failure is remembered and ends the pass at its single wait;
//    the host reads nothing before that.
// 2. Pinned memory that a copy reads is rewritten only after the previous pass's wait.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/prepare.h"
#include "worker/train/transformer_gpu_parts.h"

// ---- products -----------------------------------------------------------------------------------

// A stored matrix: `rows` of `columns` values, `batch` of them one after another. `parameter` marks
// a parameter.
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
        wk_gpu_also(t, t->conf.gpu->kernels->each(LK_GPU_BF16_OF_FP32, &convert, t->conf.stream));
        device = half;
    }
    return (struct lk_gemm_matrix){device, o->columns, o->rows * o->columns, o->transposed};
}

// c = alpha a b + beta c, for each of the batch's matrices; a and b give c's size.
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
    int err = t->conf.gemm->run(t->gemm, &call, t->conf.stream);
    if (err && !t->err) t->of_products = true;
    wk_gpu_also(t, err);
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

// Some sequences' arrays as operands of a product: a matrix for each key head.
struct some {
    struct lk_gpu_heads h;
    size_t first, batch, queries; // first sequence; key heads; queries of one
};

static struct some some_of(const struct wk_gpu_passes *t, const struct wk_batch *b, size_t first)
{
    size_t left = b->sequences - first;
    size_t n = left < t->score_sequences ? left : t->score_sequences;
    struct lk_gpu_heads h = heads_of(t, n, b->length);
    return (struct some){h, first, n * h.kv_heads, b->length * (h.heads / h.kv_heads)};
}

// Offset of the first sequence in arrays of q's layout, of k's, and with one value per query.
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

static void attention(struct wk_gpu_passes *t, const struct wk_batch *b,
                      struct wk_gpu_activations *k)
{
    for (size_t first = 0; first < b->sequences; first += t->score_sequences) {
        struct some s = some_of(t, b, first);
        product(t, score_scale(t), queries(&s, k->q), turned(keys(&s, k->k)), 0.0f, t->scores);
        wk_gpu_also(t, t->conf.gpu->forward->softmax(&s.h, t->scores, k->log_sum + at_row(&s),
                                                     t->conf.stream));
        product(t, 1.0f, weights(&s, t->scores), keys(&s, k->v), 0.0f, t->split + at_q(&s));
    }
}

// Computes the gradients of q, k and v from dsplit, the gradient of the heads' outputs.
static void attention_gradient(struct wk_gpu_passes *t, const struct wk_batch *b,
                               const struct wk_gpu_activations *k, float *dq, float *dk, float *dv)
{
    for (size_t first = 0; first < b->sequences; first += t->score_sequences) {
        struct some s = some_of(t, b, first);
        product(t, score_scale(t), queries(&s, k->q), turned(keys(&s, k->k)), 0.0f, t->scores);
        product(t, 1.0f, queries(&s, t->dsplit), turned(keys(&s, k->v)), 0.0f, t->dscores);
        wk_gpu_also(t, t->conf.gpu->backward->scores(&s.h, k->log_sum + at_row(&s),
                                                     t->dot + at_row(&s), t->scores, t->dscores,
                                                     t->conf.stream));
        product(t, 1.0f, turned(weights(&s, t->scores)), queries(&s, t->dsplit), 0.0f,
                dv + at_k(&s));
        product(t, score_scale(t), weights(&s, t->dscores), keys(&s, k->k), 0.0f, dq + at_q(&s));
        product(t, score_scale(t), turned(weights(&s, t->dscores)), queries(&s, k->q), 0.0f,
                dk + at_k(&s));
    }
}

// ---- forward ------------------------------------------------------------------------------------

// Sends the batch's ids to the device; with a gradient also the rows of each id.
static lh_err take_batch(struct wk_gpu_passes *t, const struct wk_batch *b, bool gradient)
{
    size_t rows = b->sequences * b->length, most = t->conf.model.rows_max;
    uint32_t *tokens = t->host_ids + 2 * most, *from = tokens + most, *row = from + most + 1;
    LH_TRY(wk_batch_take(&t->conf.model, b, true, t->host_ids, t->host_ids + most));
    if (gradient) t->tokens = lk_gpu_places_of(rows, t->host_ids, t->key, tokens, from, row);
    wk_gpu_also(t, t->conf.gpu->memory->copy_in(t->ids, t->host_ids,
                                                (5 * most + 1) * sizeof *t->ids, t->conf.stream));
    return LH_OK;
}

static void copy_within(struct wk_gpu_passes *t, float *to, const float *from, size_t values)
{
    if (to != from)
        wk_gpu_also(
            t, t->conf.gpu->memory->copy_within(to, from, values * sizeof *to, t->conf.stream));
}

static void forward_layer(struct wk_gpu_passes *t, uint32_t l, const struct wk_batch *b)
{
    const struct lk_gpu_forward *f = t->conf.gpu->forward;
    const struct wk_shape *s = &t->conf.model.shape;
    const struct wk_layer_at *at = &t->at[l];
    struct wk_gpu_activations *k = &t->layer[l];
    const float *p = t->value, *bias = s->qkv_bias ? p + at->qkv_bias : NULL;
    float eps = (float)s->rms_eps, *next = t->layer[l + 1].x;
    size_t rows = b->sequences * b->length;
    struct lk_gpu_heads h = heads_of(t, b->sequences, b->length);
    lk_gpu_stream stream = t->conf.stream;

    wk_gpu_also(t,
                f->rmsnorm(rows, t->dim, eps, k->x, p + at->norm1, k->n1, k->inverse_rms1, stream));
    linear(t, rows, t->dim, t->qkv, k->n1, at->qkv, 0.0f, t->joined);
    wk_gpu_also(t, f->split(&h, t->joined, bias, t->cosine, t->sine, k->q, k->k, k->v, stream));
    attention(t, b, k);
    wk_gpu_also(t, f->join(&h, t->split, k->a, stream));
    copy_within(t, k->mid, k->x, rows * t->dim);
    linear(t, rows, t->dim, t->dim, k->a, at->o, 1.0f, k->mid);

    wk_gpu_also(
        t, f->rmsnorm(rows, t->dim, eps, k->mid, p + at->norm2, k->n2, k->inverse_rms2, stream));
    linear(t, rows, t->dim, 2 * t->ffn, k->n2, at->gate_up, 0.0f, k->gate_up);
    wk_gpu_also(t, f->swiglu(rows, t->ffn, k->gate_up, k->s, stream));
    copy_within(t, next, k->mid, rows * t->dim);
    linear(t, rows, t->ffn, t->dim, k->s, at->down, 1.0f, next);
}

// Computes `normed`, the input of the head, from the ids.
static void forward(struct wk_gpu_passes *t, const float *params, const struct wk_batch *b)
{
    const struct lk_gpu_forward *f = t->conf.gpu->forward;
    const struct wk_shape *s = &t->conf.model.shape;
    size_t rows = b->sequences * b->length;
    t->value = params;
    if (t->conf.type == LK_GEMM_BF16) {
        struct lk_gpu_arrays convert = {.a = params, .x = t->half_params, .n = t->params.values};
        wk_gpu_also(t, t->conf.gpu->kernels->each(LK_GPU_BF16_OF_FP32, &convert, t->conf.stream));
    }
    wk_gpu_also(t, f->embed(rows, t->dim, t->ids, params, t->layer[0].x, t->conf.stream));
    for (uint32_t l = 0; l < s->layers; l++) forward_layer(t, l, b);
    wk_gpu_also(t, f->rmsnorm(rows, t->dim, (float)s->rms_eps, t->layer[s->layers].x,
                              params + t->norm_at, t->normed, t->inverse_rms, t->conf.stream));
}

// Computes the loss and, with `gradient`, the head's gradient, some rows at a time; dnarrow becomes
// the gradient of `normed`.
static void head(struct wk_gpu_passes *t, size_t rows, float scale, float *gradient)
{
    const uint32_t *target = t->ids + t->conf.model.rows_max;
    for (size_t from = 0; from < rows; from += t->logit_rows) {
        size_t n = rows - from < t->logit_rows ? rows - from : t->logit_rows;
        const float *x = t->normed + from * t->dim;
        linear(t, n, t->dim, t->vocab, x, t->head_at, 0.0f, t->logits);
        wk_gpu_also(t,
                    t->conf.gpu->forward->xent(n, t->vocab, target + from, scale, gradient != NULL,
                                               t->logits, t->nll + from, t->conf.stream));
        if (!gradient) continue;
        linear_input(t, n, t->dim, t->vocab, t->logits, t->head_at, t->dnarrow + from * t->dim);
        linear_weight(t, n, t->dim, t->vocab, t->logits, x, gradient + t->head_at);
    }
    wk_gpu_also(t, t->conf.gpu->memory->copy_out(t->host_nll, t->nll, rows * sizeof *t->nll,
                                                 t->conf.stream));
}

// Waits for all queued work and adds up the losses in row order.
static lh_err end_pass(struct wk_gpu_passes *t, size_t rows, double *nll_sum)
{
    wk_gpu_also(t, t->conf.gpu->streams->wait(t->conf.stream));
    int err = t->err;
    const char *why = t->of_products ? t->conf.gemm->error_text(err) : t->conf.gpu->error_text(err);
    t->err = 0;
    t->of_products = false;
    if (err) return lh_fail(LH_ERR_IO, "passes of the model: %s", why);
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

// Computes a norm weight's gradient from dnarrow, then the gradient of its input in dx.
static void norm_gradient(struct wk_gpu_passes *t, size_t rows, const float *x, uint64_t at,
                          const float *inverse_rms, bool add, float *gradient)
{
    const struct lk_gpu_backward *b = t->conf.gpu->backward;
    const struct lk_gpu_columns c = {rows,        t->dim,     t->dnarrow,   x,
                                     inverse_rms, t->partial, gradient + at};
    wk_gpu_also(t, b->columns(&c, t->conf.stream));
    wk_gpu_also(t, b->rmsnorm(rows, t->dim, x, t->value + at, inverse_rms, t->dnarrow, add, t->dx,
                              t->conf.stream));
}

static void backward_layer(struct wk_gpu_passes *t, uint32_t l, const struct wk_batch *b, float *g)
{
    const struct lk_gpu_backward *back = t->conf.gpu->backward;
    const struct wk_layer_at *at = &t->at[l];
    const struct wk_gpu_activations *k = &t->layer[l];
    size_t rows = b->sequences * b->length;
    struct lk_gpu_heads h = heads_of(t, b->sequences, b->length);
    lk_gpu_stream stream = t->conf.stream;
    float *dq = t->joined, *dk = dq + rows * t->dim, *dv = dk + rows * t->kv;

    linear_weight(t, rows, t->ffn, t->dim, t->dx, k->s, g + at->down);
    linear_input(t, rows, t->ffn, t->dim, t->dx, at->down, t->dwide);
    wk_gpu_also(t, back->swiglu(rows, t->ffn, k->gate_up, t->dwide, k->gate_up, stream));
    linear_weight(t, rows, t->dim, 2 * t->ffn, k->gate_up, k->n2, g + at->gate_up);
    linear_input(t, rows, t->dim, 2 * t->ffn, k->gate_up, at->gate_up, t->dnarrow);
    norm_gradient(t, rows, k->mid, at->norm2, k->inverse_rms2, true, g);

    linear_weight(t, rows, t->dim, t->dim, t->dx, k->a, g + at->o);
    linear_input(t, rows, t->dim, t->dim, t->dx, at->o, t->dnarrow);
    wk_gpu_also(t, back->join(&h, k->a, t->dnarrow, t->dsplit, t->dot, stream));
    attention_gradient(t, b, k, dq, dk, dv);
    wk_gpu_also(t, back->split(&h, t->cosine, t->sine, dq, dk, dv, t->dqkv, stream));
    if (t->conf.model.shape.qkv_bias) {
        const struct lk_gpu_columns bias = {.rows = rows,
                                            .width = t->qkv,
                                            .dy = t->dqkv,
                                            .partial = t->partial,
                                            .out = g + at->qkv_bias};
        wk_gpu_also(t, back->columns(&bias, stream));
    }
    linear_weight(t, rows, t->dim, t->qkv, t->dqkv, k->n1, g + at->qkv);
    linear_input(t, rows, t->dim, t->qkv, t->dqkv, at->qkv, t->dnarrow);
    norm_gradient(t, rows, k->x, at->norm1, k->inverse_rms1, true, g);
}

static void tell_final(const struct wk_gpu_passes *t, const struct wk_final *final, uint64_t from)
{
    if (final && !t->err) final->hook(final->arg, from);
}

lh_err wk_gpu_passes_gradient(struct wk_gpu_passes *t, const float *params,
                              const struct wk_batch *batch, float scale, float *gradient,
                              const struct wk_final *final, double *nll_sum)
{
    size_t rows = batch->sequences * batch->length, most = t->conf.model.rows_max;
    uint32_t layers = t->conf.model.shape.layers;
    LH_TRY(take_batch(t, batch, true));
    forward(t, params, batch);
    head(t, rows, scale, gradient);
    if (!t->conf.model.shape.tied) tell_final(t, final, t->head_at);
    norm_gradient(t, rows, t->layer[layers].x, t->norm_at, t->inverse_rms, false, gradient);
    tell_final(t, final, t->norm_at);
    for (uint32_t l = layers; l-- > 0;) {
        backward_layer(t, l, batch, gradient);
        tell_final(t, final, t->at[l].norm1);
    }
    const struct lk_gpu_places places = {t->tokens, t->ids + 2 * most, t->ids + 3 * most,
                                         t->ids + 4 * most + 1};
    wk_gpu_also(t, t->conf.gpu->backward->embed(t->dim, &places, t->dx, gradient, t->conf.stream));
    tell_final(t, final, 0);
    return end_pass(t, rows, nll_sum);
}
