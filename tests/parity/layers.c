// The trainer's layers against kernels/layers: to the bit where values are computed one by one, to
// within NEAR where sums have another order. Attention's kernels are compared with fp64, since the
// CPU computes them in one piece with the products; tests/gpu/model.c compares the whole.
#include "tests/parity/device.h"

#include <stdlib.h>

#include "kernels/cuda/prepare.h"
#include "kernels/layers.h"

static const double NEAR = 2e-6;
enum { ARRAYS = 8 };

// A case's arrays: on the host, and their copies on the device.
struct arrays {
    const struct device *dev;
    float *host[ARRAYS], *there[ARRAYS];
    size_t n[ARRAYS];
    int count;
    uint64_t seed;
};

// Adds an array of n gaussian values; returns its number.
static int another(struct arrays *a, size_t n)
{
    int i = a->count++;
    must(i < ARRAYS, "too many arrays");
    a->host[i] = made(CASE_GAUSSIAN, n, a->seed + (uint64_t)i);
    a->there[i] = device_put(a->dev, a->host[i], n * sizeof(float));
    a->n[i] = n;
    return i;
}

// Returns a copy of the device's array i; the caller frees it.
static float *device_has(const struct arrays *a, int i)
{
    float *out = malloc(a->n[i] * sizeof *out);
    must(out != NULL, "no memory");
    device_get(a->dev, out, a->there[i], a->n[i] * sizeof *out);
    return out;
}

static void same(const struct arrays *a, int i, const char *what)
{
    float *is = device_has(a, i);
    must_equal(is, a->host[i], a->n[i] * sizeof *is, "%s, seed %llu", what,
               (unsigned long long)a->seed);
    free(is);
}

static void close_to(const struct arrays *a, int i, const char *what)
{
    float *is = device_has(a, i);
    must_near(is, a->host[i], a->n[i], NEAR, "%s, seed %llu", what, (unsigned long long)a->seed);
    free(is);
}

static void end_arrays(struct arrays *a)
{
    for (int i = 0; i < a->count; i++) {
        free(a->host[i]);
        device_free(a->dev, a->there[i]);
    }
}

static void norms(const struct device *dev, size_t rows, size_t dim, uint64_t seed)
{
    const struct lk_gpu_forward *f = dev->b->forward;
    const struct lk_gpu_backward *b = dev->b->backward;
    struct arrays a = {.dev = dev, .seed = seed};
    int x = another(&a, rows * dim), w = another(&a, dim), y = another(&a, rows * dim);
    int rms = another(&a, rows), dx = another(&a, rows * dim), dw = another(&a, dim);
    size_t slabs = (rows + LK_GPU_SLAB - 1) / LK_GPU_SLAB;
    int partial = another(&a, slabs * dim);
    must_succeed(
        dev,
        f->rmsnorm(rows, dim, 1e-5f, a.there[x], a.there[w], a.there[y], a.there[rms], dev->stream),
        "rmsnorm");
    lk_rmsnorm(rows, dim, 1e-5f, a.host[x], a.host[w], a.host[y], a.host[rms]);
    close_to(&a, y, "rmsnorm");
    close_to(&a, rms, "rmsnorm's inverse");

    // y serves as the output's gradient; dx and dw are added to.
    struct lk_gpu_columns c = {
        rows, dim, a.there[y], a.there[x], a.there[rms], a.there[partial], a.there[dw]};
    must_succeed(dev,
                 b->rmsnorm(rows, dim, a.there[x], a.there[w], a.there[rms], a.there[y], true,
                            a.there[dx], dev->stream),
                 "rmsnorm's gradient");
    must_succeed(dev, b->columns(&c, dev->stream), "columns");
    lk_rmsnorm_grad(rows, dim, a.host[x], a.host[w], a.host[rms], a.host[y], a.host[dx],
                    a.host[dw]);
    close_to(&a, dx, "rmsnorm's gradient, added");
    close_to(&a, dw, "rmsnorm's weight");

    must_succeed(dev,
                 b->rmsnorm(rows, dim, a.there[x], a.there[w], a.there[rms], a.there[y], false,
                            a.there[dx], dev->stream),
                 "rmsnorm's gradient");
    memset(a.host[dx], 0, rows * dim * sizeof(float));
    lk_rmsnorm_grad(rows, dim, a.host[x], a.host[w], a.host[rms], a.host[y], a.host[dx],
                    a.host[dw]);
    close_to(&a, dx, "rmsnorm's gradient, written");

    // A bias's gradient, added to the weight's gradient above.
    c.x = NULL;
    device_free(dev, a.there[dw]);
    a.there[dw] = device_put(dev, a.host[dw], dim * sizeof(float));
    c.out = a.there[dw];
    must_succeed(dev, b->columns(&c, dev->stream), "columns");
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < dim; i++) a.host[dw][i] += a.host[y][r * dim + i];
    close_to(&a, dw, "a bias's gradient");
    end_arrays(&a);
}

static void swiglus(const struct device *dev, size_t rows, size_t width, uint64_t seed)
{
    struct arrays a = {.dev = dev, .seed = seed};
    int gate_up = another(&a, rows * 2 * width), y = another(&a, rows * width);
    for (size_t i = 0; i < a.n[gate_up]; i++) a.host[gate_up][i] *= i % 7 ? 1.0f : 40.0f;
    device_free(dev, a.there[gate_up]);
    a.there[gate_up] = device_put(dev, a.host[gate_up], a.n[gate_up] * sizeof(float));
    must_succeed(dev,
                 dev->b->forward->swiglu(rows, width, a.there[gate_up], a.there[y], dev->stream),
                 "swiglu");
    lk_swiglu(rows, width, a.host[gate_up], a.host[y]);
    same(&a, y, "swiglu");
    must_succeed(dev,
                 dev->b->backward->swiglu(rows, width, a.there[gate_up], a.there[y],
                                          a.there[gate_up], dev->stream),
                 "swiglu's gradient");
    lk_swiglu_grad(rows, width, a.host[gate_up], a.host[y], a.host[gate_up]);
    same(&a, gate_up, "swiglu's gradient, in place");
    end_arrays(&a);
}

// ---- attention without its products

// Place in q, k or v of value i of a row's slot; *kind tells which of the three.
static size_t place_of(const struct lk_gpu_heads *h, size_t row, size_t slot, size_t i, int *kind)
{
    size_t head = slot, heads = h->heads;
    *kind = slot < h->heads ? 0 : slot < h->heads + h->kv_heads ? 1 : 2;
    if (*kind) {
        head = (slot - h->heads) % h->kv_heads;
        heads = h->kv_heads;
    }
    return ((row / h->length * heads + head) * h->length + row % h->length) * h->head_dim + i;
}

static void splits(const struct device *dev, struct lk_gpu_heads h, bool biased, uint64_t seed)
{
    size_t rows = h.sequences * h.length, slots = h.heads + 2 * h.kv_heads, d = h.head_dim;
    size_t width = slots * d, half = d / 2;
    struct arrays a = {.dev = dev, .seed = seed};
    int qkv = another(&a, rows * width), bias = another(&a, width);
    int cosine = another(&a, h.length * half), sine = another(&a, h.length * half);
    int part[] = {another(&a, rows * h.heads * d), another(&a, rows * h.kv_heads * d),
                  another(&a, rows * h.kv_heads * d)};
    lk_rope_table(h.length, d, 1e4, a.host[cosine], a.host[sine]);
    for (int i = cosine; i <= sine; i++) {
        device_free(dev, a.there[i]);
        a.there[i] = device_put(dev, a.host[i], a.n[i] * sizeof(float));
    }
    must_succeed(dev,
                 dev->b->forward->split(&h, a.there[qkv], biased ? a.there[bias] : NULL,
                                        a.there[cosine], a.there[sine], a.there[part[0]],
                                        a.there[part[1]], a.there[part[2]], dev->stream),
                 "split");
    for (size_t i = 0; biased && i < rows * width; i++) a.host[qkv][i] += a.host[bias][i % width];
    lk_rope(rows, h.length, h.heads + h.kv_heads, d, width, a.host[cosine], a.host[sine], false,
            a.host[qkv]);
    for (size_t i = 0; i < rows * width; i++) {
        int kind;
        size_t at = place_of(&h, i / width, i % width / d, i % d, &kind);
        a.host[part[kind]][at] = a.host[qkv][i];
    }
    for (int i = 0; i < 3; i++) same(&a, part[i], i == 0 ? "q" : i == 1 ? "k" : "v");

    // The gradient rotates the other way; the parts serve as their own gradients.
    must_succeed(dev,
                 dev->b->backward->split(&h, a.there[cosine], a.there[sine], a.there[part[0]],
                                         a.there[part[1]], a.there[part[2]], a.there[qkv],
                                         dev->stream),
                 "split's gradient");
    lk_rope(rows, h.length, h.heads + h.kv_heads, d, width, a.host[cosine], a.host[sine], true,
            a.host[qkv]);
    same(&a, qkv, "split's gradient");
    end_arrays(&a);
}

static void joins(const struct device *dev, struct lk_gpu_heads h, uint64_t seed)
{
    size_t rows = h.sequences * h.length, d = h.head_dim, width = h.heads * d;
    struct arrays a = {.dev = dev, .seed = seed};
    int split = another(&a, rows * width), out = another(&a, rows * width);
    int dsplit = another(&a, rows * width), dot = another(&a, rows * h.heads);
    int dout = another(&a, rows * width);
    must_succeed(dev, dev->b->forward->join(&h, a.there[split], a.there[out], dev->stream), "join");
    must_succeed(dev,
                 dev->b->backward->join(&h, a.there[out], a.there[dout], a.there[dsplit],
                                        a.there[dot], dev->stream),
                 "join's gradient");
    memset(a.host[dot], 0, a.n[dot] * sizeof(float));
    for (size_t i = 0; i < rows * width; i++) {
        int kind;
        size_t at = place_of(&h, i / width, i % width / d, i % d, &kind);
        a.host[out][i] = a.host[split][at];
        a.host[dsplit][at] = a.host[dout][i];
        a.host[dot][at / d] += a.host[out][i] * a.host[dout][i];
    }
    same(&a, out, "join");
    same(&a, dsplit, "join's gradient");
    close_to(&a, dot, "products of out and dout");
    end_arrays(&a);
}

static void softmaxes(const struct device *dev, struct lk_gpu_heads h, uint64_t seed)
{
    size_t rows = h.sequences * h.heads * h.length, n = rows * h.length;
    struct arrays a = {.dev = dev, .seed = seed};
    int s = another(&a, n), p = another(&a, n), dp = another(&a, n), log_sum = another(&a, rows);
    int dot = another(&a, rows);
    memcpy(a.host[p], a.host[s], n * sizeof(float)); // scores that are turned into weights again
    device_free(dev, a.there[p]);
    a.there[p] = device_put(dev, a.host[p], n * sizeof(float));
    must_succeed(dev, dev->b->forward->softmax(&h, a.there[s], a.there[log_sum], dev->stream),
                 "softmax");
    must_succeed(dev,
                 dev->b->backward->scores(&h, a.there[log_sum], a.there[dot], a.there[p],
                                          a.there[dp], dev->stream),
                 "scores' gradient");
    for (size_t r = 0; r < rows; r++) {
        float *of = a.host[s] + r * h.length, *d = a.host[dp] + r * h.length;
        double sum = 0;
        for (size_t i = 0; i <= r % h.length; i++) sum += exp((double)of[i]);
        a.host[log_sum][r] = (float)log(sum);
        for (size_t i = 0; i < h.length; i++) {
            double weight = i <= r % h.length ? exp((double)of[i]) / sum : 0;
            d[i] = (float)(weight * ((double)d[i] - (double)a.host[dot][r]));
            a.host[p][r * h.length + i] = of[i] = (float)weight;
        }
    }
    close_to(&a, s, "softmax");
    close_to(&a, log_sum, "softmax's logarithm");
    close_to(&a, p, "weights made a second time");
    close_to(&a, dp, "scores' gradient");
    end_arrays(&a);
}

// A NaN as devices make them stays a NaN in weights and losses, so that the step is refused.
static void nans(const struct device *dev)
{
    const uint32_t bits = 0x7fffffff, target[] = {0};
    const struct lk_gpu_heads h = {1, 2, 1, 1, 2};
    float x[4] = {0}, log_sum, is[4];
    double nll;
    memcpy(&x[3], &bits, sizeof bits);
    float *there = device_put(dev, x, sizeof x), *log_there = device_room(dev, 2 * sizeof log_sum);
    uint32_t *target_there = device_put(dev, target, sizeof target);
    double *nll_there = device_room(dev, sizeof nll);
    must_succeed(dev, dev->b->forward->softmax(&h, there, log_there, dev->stream), "softmax");
    device_get(dev, is, there, sizeof is);
    must(is[0] == 1.0f && isnan(is[2]) && isnan(is[3]), "weights of a NaN: %g %g %g", (double)is[0],
         (double)is[2], (double)is[3]);
    device_free(dev, there);
    there = device_put(dev, x, sizeof x);
    must_succeed(
        dev, dev->b->forward->xent(1, 4, target_there, 1.0f, true, there, nll_there, dev->stream),
        "xent");
    device_get(dev, &nll, nll_there, sizeof nll);
    device_get(dev, is, there, sizeof is);
    must(isnan(nll) && isnan(is[3]), "loss of a NaN: %g, gradient %g", nll, (double)is[3]);
    device_free(dev, there);
    device_free(dev, log_there);
    device_free(dev, target_there);
    device_free(dev, nll_there);
}

// ---- the ends

static uint32_t *some_ids(size_t rows, uint32_t below, uint64_t seed)
{
    uint32_t *id = malloc(rows * sizeof *id);
    must(id != NULL, "no memory");
    for (size_t i = 0; i < rows; i++) id[i] = case_random(&seed) % below;
    return id;
}

static void embeddings(const struct device *dev, size_t rows, size_t dim, uint32_t vocab,
                       uint64_t seed)
{
    struct arrays a = {.dev = dev, .seed = seed};
    int table = another(&a, vocab * dim), x = another(&a, rows * dim);
    int dx = another(&a, rows * dim);
    uint32_t *id = some_ids(rows, vocab, seed), *token = calloc(3 * rows + 1, sizeof *token);
    uint64_t *key = malloc(rows * sizeof *key);
    must(token && key, "no memory");
    uint32_t *from = token + rows, *row = from + rows + 1;
    uint32_t *id_there = device_put(dev, id, rows * sizeof *id);
    must_succeed(
        dev, dev->b->forward->embed(rows, dim, id_there, a.there[table], a.there[x], dev->stream),
        "embed");
    lk_embed(rows, dim, id, a.host[table], a.host[x]);
    same(&a, x, "embed");
    uint64_t tokens = lk_gpu_places_of(rows, id, key, token, from, row);
    uint32_t *there = device_put(dev, token, (3 * rows + 1) * sizeof *token);
    const struct lk_gpu_places places = {tokens, there, there + rows, there + 2 * rows + 1};
    must_succeed(dev,
                 dev->b->backward->embed(dim, &places, a.there[dx], a.there[table], dev->stream),
                 "embed's gradient");
    lk_embed_grad(rows, dim, id, a.host[dx], a.host[table]);
    same(&a, table, "embed's gradient");
    free(id);
    free(token);
    free(key);
    device_free(dev, id_there);
    device_free(dev, there);
    end_arrays(&a);
}

static void entropies(const struct device *dev, size_t rows, uint32_t vocab, uint64_t seed)
{
    struct arrays a = {.dev = dev, .seed = seed};
    int logits = another(&a, rows * vocab);
    uint32_t *target = some_ids(rows, vocab, seed);
    uint32_t *target_there = device_put(dev, target, rows * sizeof *target);
    double *nll_there = device_room(dev, rows * sizeof *nll_there);
    double *nll = malloc(rows * sizeof *nll);
    must(nll != NULL, "no memory");
    for (int gradient = 0; gradient < 2; gradient++) {
        must_succeed(dev,
                     dev->b->forward->xent(rows, vocab, target_there, 0.3f, gradient,
                                           a.there[logits], nll_there, dev->stream),
                     "xent");
        device_get(dev, nll, nll_there, rows * sizeof *nll);
        for (size_t r = 0; r < rows; r++) {
            float *row = a.host[logits] + r * vocab, *again = malloc(vocab * sizeof *again);
            must(again != NULL, "no memory");
            memcpy(again, row, vocab * sizeof *again);
            float should = (float)(gradient ? lk_xent_grad(1, vocab, target + r, 0.3f, row)
                                            : lk_xent(1, vocab, target + r, again));
            float is = (float)nll[r];
            must_near(&is, &should, 1, NEAR, "xent of row %zu, seed %llu", r,
                      (unsigned long long)seed);
            free(again);
        }
        if (gradient)
            close_to(&a, logits, "xent's gradient");
        else
            same(&a, logits, "logits without gradient");
    }
    free(target);
    free(nll);
    device_free(dev, target_there);
    device_free(dev, nll_there);
    end_arrays(&a);
}

void parity_layers(void)
{
    static const struct lk_gpu_heads heads[] = {
        {1, 1, 1, 1, 2}, {2, 5, 4, 2, 6}, {3, 33, 2, 2, 8}, {2, 40, 6, 1, 34}};
    struct device dev = device_create();
    nans(&dev);
    for (uint64_t seed = 1; seed <= seeds_of(4); seed++) {
        simt_seed(seed);
        norms(&dev, 1, 2, seed);
        norms(&dev, 9, 33, seed);
        norms(&dev, 2 * LK_GPU_SLAB + 3, 300, seed);
        swiglus(&dev, 5, 7, seed);
        swiglus(&dev, 3, 300, seed);
        swiglus(&dev, 20, 1000, seed); // enough exponentials to tell one rounding from two
        embeddings(&dev, 1, 3, 1, seed);
        embeddings(&dev, 50, 300, 9, seed);
        entropies(&dev, 3, 1, seed);
        entropies(&dev, 4, 50, seed);
        entropies(&dev, 2, 1000, seed);
        for (size_t i = 0; i < LH_COUNT(heads); i++) {
            splits(&dev, heads[i], i % 2 != 0, seed);
            joins(&dev, heads[i], seed);
            softmaxes(&dev, heads[i], seed);
        }
    }
    device_destroy(&dev);
}
