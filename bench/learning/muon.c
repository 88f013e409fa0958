// Muon in place of AdamW for the matrices of the layers. See learning.h.
//
// Sources: momentum and orthogonalization as in Muon (K. Jordan and others, 2024, "Muon: An
// optimizer for hidden layers in neural networks"); the factor 0.2 * sqrt(max(rows, columns)),
// with which an update's root mean square is about AdamW's and its rate and weight decay can be
// shared, as in Moonlight (arXiv 2502.16982). DiLoCo with it is MuLoCo (arXiv 2505.23725).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/learning/learning.h"
#include "common/base/check.h"
#include "kernels/layers.h"
#include "worker/train/update.h"

static const float MOMENTUM = 0.95f;
enum { STEPS = 5 };

static float *room(size_t n)
{
    float *x = calloc(n, sizeof *x);
    LH_ASSERT(x);
    return x;
}

// to[columns][rows] = from[rows][columns]
static void transpose(size_t rows, size_t columns, const float *from, float *to)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

// x[k][n], k <= n: a x + (b A + c A A) x with A = x x', whose polynomial of the singular values
// takes those from 0 to 1 towards 1, quickly and not exactly.
static void newton_schulz(size_t k, size_t n, float *x)
{
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    float *gram = room(k * k), *poly = room(k * k), *old = room(k * n);
    float scale = 1 / ((float)sqrt(lk_sum_squares(k * n, x)) + 1e-7f);
    for (size_t i = 0; i < k * n; i++) x[i] *= scale;
    for (uint32_t s = 0; s < STEPS; s++) {
        memcpy(old, x, k * n * sizeof *x);
        lk_gemm(k, k, n, 1, (struct lk_matrix){x, n, false}, (struct lk_matrix){x, n, true}, 0,
                gram, k);
        memcpy(poly, gram, k * k * sizeof *gram);
        lk_gemm(k, k, k, c, (struct lk_matrix){gram, k, false}, (struct lk_matrix){gram, k, false},
                b, poly, k);
        lk_gemm(k, n, k, 1, (struct lk_matrix){poly, k, false}, (struct lk_matrix){old, n, false},
                a, x, n);
    }
    free(gram);
    free(poly);
    free(old);
}

void learn_orthogonal(size_t rows, size_t columns, float *x)
{
    if (rows <= columns) {
        newton_schulz(rows, columns, x);
        return;
    }
    float *turned = room(rows * columns);
    transpose(rows, columns, x, turned);
    newton_schulz(columns, rows, turned);
    transpose(columns, rows, turned, x);
    free(turned);
}

static void one_matrix(const struct wk_update *u, const struct wk_param *p, float scale,
                       const struct wk_update_arrays *a)
{
    const float *g = a->gradient + p->offset;
    float *m = a->m + p->offset, *value = a->value + p->offset, *x = room(p->len);
    for (size_t i = 0; i < p->len; i++) {
        m[i] = MOMENTUM * m[i] + (1 - MOMENTUM) * scale * g[i];
        x[i] = MOMENTUM * m[i] + (1 - MOMENTUM) * scale * g[i]; // Nesterov's
    }
    learn_orthogonal(p->rows, p->cols, x);
    float step = (float)(u->rate * 0.2 * sqrt((double)(p->rows > p->cols ? p->rows : p->cols)));
    float kept = (float)(1 - u->rate * u->weight_decay);
    for (size_t i = 0; i < p->len; i++) value[i] = kept * value[i] - step * x[i];
    free(x);
}

// A matrix of a layer, not the embedding, which is also the head (the shape is tied).
static bool is_muons(const struct wk_params *params, uint32_t i)
{
    return i > 0 && params->at[i].cols > 0;
}

void learn_muon(const struct wk_update *u, const struct wk_params *params, double norm,
                const struct wk_update_arrays *a, struct wk_tensor_norms *norms)
{
    struct wk_params rest = *params;
    rest.at = calloc(params->count, sizeof *rest.at);
    LH_ASSERT(rest.at && !norms); // the bench asks for no norms
    rest.count = 0;
    for (uint32_t i = 0; i < params->count; i++)
        if (is_muons(params, i))
            one_matrix(u, &params->at[i], lk_clip_scale(norm, u->clip), a);
        else
            rest.at[rest.count++] = params->at[i];
    wk_update_apply(u, &rest, norm, a, NULL);
    free(rest.at);
}

int learn_print_orthogonal(const char *shape)
{
    size_t rows = 0, columns = 0, got = 0;
    int end = 0;
    if (sscanf(shape, "%4zux%4zu%n", &rows, &columns, &end) != 2 || shape[end] || !rows ||
        !columns) {
        fprintf(stderr, "bench_learning: --orthogonal %s: give ROWSxCOLUMNS\n", shape);
        return 2;
    }
    float *x = room(rows * columns);
    while (got < rows * columns && scanf("%f", &x[got]) == 1) got++;
    if (got == rows * columns) learn_orthogonal(rows, columns, x);
    for (size_t i = 0; got == rows * columns && i < got; i++)
        printf("%.9g%c", (double)x[i], (i + 1) % columns ? ' ' : '\n');
    if (got < rows * columns)
        fprintf(stderr, "bench_learning: --orthogonal %s: %zu values came\n", shape, got);
    free(x);
    return got == rows * columns ? 0 : 2;
}
