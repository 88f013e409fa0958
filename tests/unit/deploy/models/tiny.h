// A tiny Llama for these tests: one layer, width 4, with values computed from names and indices.
#ifndef TESTS_TINY_H
#define TESTS_TINY_H

#include "deploy/models/safetensors.h"
#include "tests/unit/deploy/models/folders.h"

enum { TINY_TENSORS = 12, TINY_ROOM = 16 };

// The model, which a test may change before it is written.
struct tiny {
    struct dp_st_tensor t[TINY_ROOM];
    unsigned count;
    const char *config;
};

static const char TINY_CONFIG[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\","
    "\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"vocab_size\":8,\"max_position_embeddings\":16,"
    "\"torch_dtype\":\"bfloat16\",\"rms_norm_eps\":1e-5}";
#define TINY_L "model.layers.0."

static inline struct dp_st_tensor *tiny_add(struct tiny *m, const char *name, enum dp_dtype dtype,
                                            uint64_t rows, uint64_t cols)
{
    LH_ASSERT(m->count < TINY_ROOM);
    m->t[m->count] = (struct dp_st_tensor){
        .name = name, .dtype = dtype, .dims = cols ? 2 : 1, .shape = {rows, cols}};
    return &m->t[m->count++];
}

static inline struct tiny tiny_llama(enum dp_dtype dtype)
{
    struct tiny m = {.config = TINY_CONFIG};
    tiny_add(&m, "lm_head.weight", dtype, 8, 4); // not in the model's order
    tiny_add(&m, "model.norm.weight", DP_DTYPE_F32, 4, 0);
    tiny_add(&m, TINY_L "mlp.down_proj.weight", dtype, 4, 6);
    tiny_add(&m, TINY_L "mlp.gate_proj.weight", dtype, 6, 4);
    tiny_add(&m, TINY_L "mlp.up_proj.weight", dtype, 6, 4);
    tiny_add(&m, TINY_L "input_layernorm.weight", DP_DTYPE_F32, 4, 0);
    tiny_add(&m, TINY_L "post_attention_layernorm.weight", DP_DTYPE_F32, 4, 0);
    tiny_add(&m, TINY_L "self_attn.q_proj.weight", dtype, 4, 4);
    tiny_add(&m, TINY_L "self_attn.k_proj.weight", dtype, 2, 4);
    tiny_add(&m, TINY_L "self_attn.v_proj.weight", dtype, 2, 4);
    tiny_add(&m, TINY_L "self_attn.o_proj.weight", dtype, 4, 4);
    tiny_add(&m, "model.embed_tokens.weight", dtype, 8, 4);
    return m;
}

static inline struct dp_st_tensor *tiny_find(struct tiny *m, const char *name)
{
    for (unsigned i = 0; i < m->count; i++)
        if (!strcmp(m->t[i].name, name)) return &m->t[i];
    LH_ASSERT(false);
    return NULL;
}

// Value i of a tensor: a multiple of 1/8 that bf16 can represent, different for each name.
static inline float tiny_value(const char *name, uint64_t i)
{
    unsigned sum = 0;
    for (const char *c = name; *c; c++) sum = sum * 31 + (unsigned char)*c;
    return (float)((int)((sum + i * 7) % 255) - 127) / 8;
}

static inline void tiny_values(const struct dp_st_tensor *t, struct lh_buf *out)
{
    for (uint64_t i = 0; i < t->values; i++) {
        float value = tiny_value(t->name, i);
        uint8_t *at = lh_buf_grow(out, dp_dtype_bits(t->dtype) / 8);
        if (dp_dtype_trained(t->dtype))
            dp_dtype_from_f32(t->dtype, &value, 1, at);
        else
            memset(at, (int)i + 1, dp_dtype_bits(t->dtype) / 8);
    }
}

// Writes ROOT/DIR/FILE with the tensors [from, to).
static inline void tiny_file(const struct folders *f, struct tiny *m, const char *dir,
                             const char *file, unsigned from, unsigned to)
{
    struct lh_buf b = lh_buf(1 << 20);
    char name[DP_PATH_BYTES];
    for (unsigned i = from; i < to; i++) {
        lh_err err = dp_st_measure("tiny", &m->t[i]);
        LH_ASSERT(!err);
    }
    lh_err err = dp_st_header(m->t + from, to - from, NULL, &b);
    for (unsigned i = from; i < to; i++) tiny_values(&m->t[i], &b);
    if (!err) err = dp_path(name, "%s/%s", dir, file);
    LH_ASSERT(!err && !b.err);
    folders_bytes(f, name, b.data, b.len);
    lh_buf_free(&b);
}

static inline void tiny_config(const struct folders *f, const struct tiny *m, const char *dir)
{
    char name[DP_PATH_BYTES];
    lh_err err = dp_path(name, "%s/config.json", dir);
    LH_ASSERT(!err);
    if (m->config) folders_text(f, name, m->config);
}

static inline void tiny_write(const struct folders *f, struct tiny *m, const char *dir)
{
    tiny_file(f, m, dir, "model.safetensors", 0, m->count);
    tiny_config(f, m, dir);
}

#endif
