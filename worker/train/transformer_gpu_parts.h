// The struct wk_gpu_passes, shared by transformer_gpu.c, which queues the passes, and
// transformer_gpu_memory.c, which allocates and frees their memory; private to them.
#ifndef WK_TRANSFORMER_GPU_PARTS_H
#define WK_TRANSFORMER_GPU_PARTS_H

#include "worker/train/transformer_gpu.h"

struct wk_gpu_activations { // one layer's, [rows_max][...]; q, k and v are split by heads
    float *x, *n1, *q, *k, *v, *a, *log_sum, *mid, *n2, *gate_up, *s;
    float *inverse_rms1, *inverse_rms2;
};

struct wk_gpu_passes {
    struct wk_gpu_passes_conf conf;
    struct lk_gemm *gemm;
    struct wk_params params;
    size_t dim, qkv, kv, ffn, vocab, head_dim, bytes;
    size_t logit_rows, score_sequences; // limits at a time
    struct wk_layer_at *at;             // [layers]
    uint64_t norm_at, head_at;

    char *arena;                      // on the device, like all arrays down to `host`
    struct wk_gpu_activations *layer; // [layers + 1], on the host; only x of the last is used
    float *normed, *inverse_rms, *logits, *cosine, *sine;
    float *joined, *split, *scores; // [rows][qkv], [rows][dim] by heads, some sequences' weights
    float *dx, *dwide, *dnarrow, *dsplit, *dqkv, *dscores, *dot, *partial;
    uint16_t *half_params, *half_a, *half_b; // bf16 only
    uint32_t *ids;
    double *nll;
    void *workspace;

    char *host;         // pinned: holds the next three
    uint32_t *host_ids; // input, target, tokens, where their rows begin, rows
    double *host_nll;   // [rows_max]
    float *host_tables; // cosine, then sine
    uint64_t *key;      // [rows_max], not pinned
    uint64_t tokens;    // distinct ids of the current batch
    const float *value; // parameters of the current pass
    int err;            // first error since the last wait
    bool of_products;   // `err` belongs to the table of products
};

// Remembers the first error since the last wait.
static inline void wk_gpu_also(struct wk_gpu_passes *t, int err)
{
    if (!t->err) t->err = err;
}

#endif
