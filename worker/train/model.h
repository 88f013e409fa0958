// The built-in model: its shape, its tensors in the manifest's order, their initial values.
//
// A decoder-only transformer of the Qwen2 and Llama family: RMSNorm before each half of a layer,
// rotary positions (half-split), grouped keys and values, SwiGLU. In the manifest's "model" object:
//   {"architecture": "transformer", "vocab": 256, "dim": 96, "layers": 4, "heads": 4,
//    "kv_heads": 2, "ffn": 256, "context": 128, "rope_theta": 10000, "rms_eps": 1e-6,
//    "qkv_bias": true, "tied": true}
// Optional: kv_heads (= heads), rope_theta (10000), rms_eps (1e-6), qkv_bias (false), tied (false).
// Any other key is an error: this code would train such a model wrongly.
#ifndef WK_MODEL_H
#define WK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/format/manifest.h"

struct wk_shape {
    uint32_t vocab, dim, layers, heads, kv_heads, ffn, context;
    double rope_theta, rms_eps;
    bool qkv_bias, tied;
};

// LH_ERR_CONFIG names the wrong key.
LH_MUST lh_err wk_shape_parse(const char *json, struct wk_shape *out);
LH_MUST lh_err wk_shape_check(const struct wk_shape *shape);
// Appends the JSON object and a terminating zero, which is not counted in out->len.
LH_MUST lh_err wk_shape_write(const struct wk_shape *shape, struct lh_buf *out);
static inline uint32_t wk_shape_head_dim(const struct wk_shape *s)
{
    return s->dim / s->heads;
}

enum wk_role { WK_MATRIX, WK_RESIDUAL_OUT, WK_NORM, WK_BIAS };
struct wk_param {
    char name[64]; // as in Hugging Face's checkpoints
    enum wk_role role;
    uint64_t rows, cols; // [out, in]; cols 0: a vector of `rows`
    uint64_t offset, len;
};
// In the order: embed_tokens; per layer input_layernorm, q, k, v (weights), q, k, v (biases, if the
// shape has them), o, post_attention_layernorm, gate, up, down; norm; lm_head (if not tied). So
// q|k|v and gate|up are one matrix each for the products.
struct wk_params {
    struct wk_param *at;
    uint32_t count;
    uint32_t per_layer; // tensors of one layer; layer l starts at 1 + l * per_layer
    uint64_t values;
};
LH_MUST lh_err wk_params_list(const struct wk_shape *shape, struct wk_params *out);
void wk_params_free(struct wk_params *p);
struct wk_layer_at { // offsets of a layer's tensors in the flat array; q|k|v and gate|up are one
    uint64_t norm1, qkv, qkv_bias, o, norm2, gate_up, down;
};
struct wk_layer_at wk_params_layer(const struct wk_params *p, const struct wk_shape *shape,
                                   uint32_t layer);
uint64_t wk_params_norm(const struct wk_params *p,
                        const struct wk_shape *shape); // offset of the last norm
uint64_t wk_params_head(const struct wk_params *p,
                        const struct wk_shape *shape); // offset of the head; tied: 0
static inline bool wk_param_decays(const struct wk_param *p)
{
    return p->role == WK_MATRIX || p->role == WK_RESIDUAL_OUT;
}

// Norms 1, biases 0, matrices normal(0, 0.02); the two that write to the residual stream (o, down)
// normal(0, 0.02 / sqrt(2 * layers)), GPT-2's rule. Tensor i uses stream i of lk_normal_fill: the
// same bits on every machine. out[values].
LH_MUST lh_err wk_model_init(const struct wk_shape *shape, uint64_t seed, float *out);
LH_MUST lh_err wk_model_manifest(const struct wk_shape *shape, uint32_t shards,
                                 struct lh_manifest *out);

#endif
