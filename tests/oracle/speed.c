// Measures the trainer's steps on one core, beside a ceiling measured in the same run.
//
//   oracle_speed [STEPS [HEADS KV_HEADS]]      main job's size; prints one JSON object
//
// Flops of a token: 6 per matrix parameter (forward 2, backward 4), and attention's
// 6 * length * dim per layer (causal half; the backward pass's recomputation is not counted).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/layers.h"
#include "kernels/optimizer.h"
#include "worker/train/transformer.h"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Flops per second of a 512^3 product.
static double ceiling(void)
{
    enum { N = 512, TIMES = 8 };
    float *a = calloc(3 * N * N, sizeof *a);
    if (a == NULL) abort();
    for (size_t i = 0; i < 2 * N * N; i++) a[i] = (float)(i % 7);
    struct lk_matrix x = {a, N, false}, y = {a + N * N, N, true};
    double best = 0.0;
    for (int i = 0; i < TIMES; i++) {
        double from = now_s();
        lk_gemm(N, N, N, 1.0f, x, y, 0.0f, a + 2 * N * N, N);
        double rate = 2.0 * N * N * N / (now_s() - from);
        best = rate > best ? rate : best;
    }
    free(a);
    return best;
}

int main(int argc, char **argv)
{
    enum { LENGTH = 128, SEQUENCES = 4, ROWS = LENGTH * SEQUENCES };
    struct wk_shape s = {256, 96, 4, 4, 2, 256, LENGTH, 1e4, 1e-6, true, true};
    long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
    if (argc > 3) {
        s.heads = (uint32_t)strtoul(argv[2], NULL, 10);
        s.kv_heads = (uint32_t)strtoul(argv[3], NULL, 10);
    }
    struct wk_transformer_conf conf = {s, LENGTH, ROWS, true};
    struct wk_transformer *t;
    struct wk_params p;
    if (wk_transformer_create(&conf, &t) != LH_OK || wk_params_list(&s, &p) != LH_OK) return 1;
    float *value = calloc(4 * p.values, sizeof *value);
    if (value == NULL || wk_model_init(&s, 1, value) != LH_OK) return 1;
    float *gradient = value + p.values, *m = gradient + p.values, *v = m + p.values;
    uint32_t ids[ROWS + SEQUENCES];
    for (size_t i = 0; i < ROWS + SEQUENCES; i++) ids[i] = (uint32_t)(i * i % 251);
    struct wk_batch batch = {ids, SEQUENCES, LENGTH, LENGTH + 1};

    double best = 1e30, nll = 0.0, start = now_s();
    for (long i = 0; i < steps; i++) {
        double from = now_s();
        memset(gradient, 0, p.values * sizeof *gradient);
        if (wk_transformer_gradient(t, value, &batch, 1.0f / ROWS, gradient, NULL, &nll) != LH_OK)
            return 1;
        double norm = lk_sum_squares(p.values, gradient);
        struct lk_adamw c = {1e-4, 0.9, 0.95, 1e-8, (uint64_t)i + 1, lk_clip_scale(norm, 1.0)};
        lk_adamw(&c, 0.1, p.values, gradient, m, v, value);
        double took = now_s() - from;
        best = took < best ? took : best;
    }
    double mean = (now_s() - start) / (double)steps, top = ceiling();
    double flops = 6.0 * (double)p.values + 6.0 * LENGTH * s.dim * s.layers;
    printf("{\"parameters\": %zu, \"heads\": %u, \"kv_heads\": %u, \"tokens_a_step\": %d, "
           "\"steps\": %ld, \"clock\": \"cpu time of one thread\", \"tokens_per_s\": %.0f, "
           "\"best_step_tokens_per_s\": %.0f, \"gflops\": %.1f, \"sgemm_512_gflops\": %.1f, "
           "\"part_of_sgemm\": %.3f, \"loss\": %.4f, \"scratch_bytes\": %zu}\n",
           (size_t)p.values, s.heads, s.kv_heads, ROWS, steps, ROWS / mean, ROWS / best,
           flops * ROWS / mean / 1e9, top / 1e9, flops * ROWS / mean / top, nll / ROWS,
           wk_transformer_bytes(t));
    free(value);
    wk_params_free(&p);
    wk_transformer_destroy(t);
    return 0;
}
