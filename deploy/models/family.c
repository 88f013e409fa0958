// The families of models. See family.h.
//
// Keys, defaults and names are those of transformers 5.23. tests/oracle/models.py compares these
// tables with its classes LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM
// and GPT2LMHeadModel.
#include "deploy/models/family.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

enum { LAYERS_MAX = 1024, PER_LAYER_MAX = 20, OTHERS = 6, CONTEXT_DEFAULT = 2048 };
#define SIZE_MAX_ (UINT64_C(1) << 28) // products of two stay inside 64 bits

// ---------------------------------------------------------------- keys of config.json

struct reading {
    const json_t *config;
    struct dp_family *out;
    const char *prefix; // "model.", "transformer." or ""
    lh_err err;
};

// A whole number from 1 on. `otherwise` is the default; 0 means that the key must be there. null
// counts as absent.
static uint64_t number(struct reading *r, const char *key, uint64_t otherwise)
{
    const json_t *value = json_object_get(r->config, key);
    if (r->err) return 1;
    if (!value || json_is_null(value)) {
        if (!otherwise)
            r->err = lh_fail(LH_ERR_CONFIG,
                             "config.json: \"%s\" is missing, which a model of type "
                             "%.40s needs",
                             key, r->out->type);
        return otherwise ? otherwise : 1;
    }
    if (json_is_integer(value) && json_integer_value(value) >= 1 &&
        (uint64_t)json_integer_value(value) <= SIZE_MAX_)
        return (uint64_t)json_integer_value(value);
    r->err = lh_fail(LH_ERR_CONFIG, "config.json: \"%s\" must be a whole number from 1 on", key);
    return 1;
}

static bool flag(const struct reading *r, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(r->config, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static bool text_is(const struct reading *r, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(r->config, key));
    return text && !strcmp(text, wanted);
}

// ---------------------------------------------------------------- the list

__attribute__((format(printf, 4, 5))) static void want(struct reading *r, uint64_t rows,
                                                       uint64_t cols, const char *format, ...)
{
    if (r->err) return;
    struct dp_expected *e = &r->out->want[r->out->wants++];
    e->shape[0] = rows;
    e->shape[1] = cols; // 0 ends a vector's shape
    int used = snprintf(e->name, sizeof e->name, "%s", r->prefix);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(e->name + used, sizeof e->name - (size_t)used, format, args);
    va_end(args);
    LH_ASSERT(used >= 0 && n > 0 && (size_t)(used + n) < sizeof e->name);
}

static LH_MUST lh_err reserve(struct reading *r, uint64_t layers)
{
    if (r->err) return r->err;
    if (layers > LAYERS_MAX)
        return lh_fail(LH_ERR_CONFIG, "config.json: %" PRIu64 " layers, at most %d", layers,
                       LAYERS_MAX);
    r->out->want = calloc(layers * PER_LAYER_MAX + OTHERS, sizeof *r->out->want);
    return r->out->want ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for the list of tensors");
}

// A language model's head: tied, its own, or none if the file holds the model alone.
static void add_head(struct reading *r, bool tied, uint64_t vocab, uint64_t dim,
                     const char *embedding)
{
    struct dp_family *f = r->out;
    if (!r->prefix[0]) return;
    if (tied) {
        snprintf(f->head, sizeof f->head, "lm_head.weight");
        snprintf(f->tied_to, sizeof f->tied_to, "%s%s", r->prefix, embedding);
        return;
    }
    r->prefix = "";
    want(r, vocab, dim, "lm_head.weight");
}

// ---------------------------------------------------------------- Llama, Mistral, Qwen2, Qwen3

struct llama {
    uint64_t vocab, dim, ffn, layers, heads, kv_heads, head_dim;
    bool qkv_bias, o_bias, mlp_bias, qk_norm;
};

// In the built-in trainer's order (worker/train/model.h), so that it can train them.
static void llama_layer(struct reading *r, const struct llama *m, unsigned l)
{
    static const char *const mlp[] = {"gate_proj", "up_proj"};
    uint64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    want(r, m->dim, 0, "layers.%u.input_layernorm.weight", l);
    want(r, q, m->dim, "layers.%u.self_attn.q_proj.weight", l);
    want(r, kv, m->dim, "layers.%u.self_attn.k_proj.weight", l);
    want(r, kv, m->dim, "layers.%u.self_attn.v_proj.weight", l);
    if (m->qkv_bias) {
        want(r, q, 0, "layers.%u.self_attn.q_proj.bias", l);
        want(r, kv, 0, "layers.%u.self_attn.k_proj.bias", l);
        want(r, kv, 0, "layers.%u.self_attn.v_proj.bias", l);
    }
    if (m->qk_norm) {
        want(r, m->head_dim, 0, "layers.%u.self_attn.q_norm.weight", l);
        want(r, m->head_dim, 0, "layers.%u.self_attn.k_norm.weight", l);
    }
    want(r, m->dim, q, "layers.%u.self_attn.o_proj.weight", l);
    if (m->o_bias) want(r, m->dim, 0, "layers.%u.self_attn.o_proj.bias", l);
    want(r, m->dim, 0, "layers.%u.post_attention_layernorm.weight", l);
    for (unsigned i = 0; i < LH_COUNT(mlp); i++) {
        want(r, m->ffn, m->dim, "layers.%u.mlp.%s.weight", l, mlp[i]);
        if (m->mlp_bias) want(r, m->ffn, 0, "layers.%u.mlp.%s.bias", l, mlp[i]);
    }
    want(r, m->dim, m->ffn, "layers.%u.mlp.down_proj.weight", l);
    if (m->mlp_bias) want(r, m->dim, 0, "layers.%u.mlp.down_proj.bias", l);
}

// This type of scaling scales nothing.
static bool is_default(const json_t *rope)
{
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (!type) type = json_string_value(json_object_get(rope, "type"));
    return !json_object_size(rope) || (type && !strcmp(type, "default"));
}

// transformers 5 writes rope_parameters, earlier versions rope_theta and rope_scaling. False: the
// positions are scaled, which the built-in trainer does not do.
static bool read_rope(const struct reading *r, double *theta)
{
    const json_t *p = json_object_get(r->config, "rope_parameters");
    const json_t *scaling = json_object_get(r->config, "rope_scaling");
    const json_t *base = json_object_get(r->config, "rope_theta");
    if (json_is_object(p)) {
        const char *type = json_string_value(json_object_get(p, "rope_type"));
        base = json_object_get(p, "rope_theta");
        if ((type && strcmp(type, "default") != 0) || json_object_get(p, "partial_rotary_factor"))
            return false;
    }
    *theta = json_is_number(base) ? json_number_value(base) : 10000;
    return !scaling || json_is_null(scaling) || is_default(scaling);
}

// Qwen2 and Qwen3 have a window and a switch for it, Mistral only the window.
static bool windowed(const struct reading *r, uint32_t context)
{
    const json_t *window = json_object_get(r->config, "sliding_window");
    bool on = flag(r, "use_sliding_window", !strcmp(r->out->type, "mistral"));
    return on && json_is_integer(window) && json_integer_value(window) < context;
}

// Whether a worker reads the shape back from a manifest.
static bool takes(const struct wk_shape *s)
{
    struct wk_shape again;
    struct lh_buf text = lh_buf(4096);
    bool good = !wk_shape_check(s) && !wk_shape_write(s, &text) &&
                !wk_shape_parse((const char *)text.data, &again);
    lh_buf_free(&text);
    return good;
}

static const char *why_not(const struct reading *r, const struct llama *m, struct wk_shape *s)
{
    const json_t *eps = json_object_get(r->config, "rms_norm_eps");
    if (!r->prefix[0]) return "the file holds no language model's head";
    if (!text_is(r, "hidden_act", "silu")) return "another activation than silu";
    if (m->o_bias || m->mlp_bias || m->qk_norm) return "biases or norms that it does not have";
    if (m->head_dim * m->heads != m->dim) return "heads of another size than hidden_size / heads";
    if (windowed(r, s->context)) return "a sliding window";
    if (!read_rope(r, &s->rope_theta)) return "scaled rotary positions";
    if (json_is_number(eps)) s->rms_eps = json_number_value(eps);
    return takes(s) ? NULL : "sizes that it does not take";
}

static void fill_shape(struct reading *r, const struct llama *m, bool tied, uint32_t context)
{
    struct dp_family *f = r->out;
    uint64_t longest = number(r, "max_position_embeddings", CONTEXT_DEFAULT);
    if (r->err) return;
    f->shape = (struct wk_shape){
        .vocab = (uint32_t)m->vocab,
        .dim = (uint32_t)m->dim,
        .layers = (uint32_t)m->layers,
        .heads = (uint32_t)m->heads,
        .kv_heads = (uint32_t)m->kv_heads,
        .ffn = (uint32_t)m->ffn,
        .context = context                     ? context
                   : longest > CONTEXT_DEFAULT ? CONTEXT_DEFAULT
                                               : (uint32_t)longest,
        .rope_theta = 10000,
        .rms_eps = 1e-6,
        .qkv_bias = m->qkv_bias,
        .tied = tied,
    };
    f->why_not = why_not(r, m, &f->shape);
    f->built_in = !f->why_not;
}

static LH_MUST lh_err read_llama(struct reading *r, uint32_t context)
{
    const char *type = r->out->type;
    bool qwen3 = !strcmp(type, "qwen3"), bias = flag(r, "attention_bias", false);
    struct llama m = {
        .vocab = number(r, "vocab_size", 0),
        .dim = number(r, "hidden_size", 0),
        .ffn = number(r, "intermediate_size", 0),
        .layers = number(r, "num_hidden_layers", 0),
        .heads = number(r, "num_attention_heads", 0),
        .qk_norm = qwen3,
    };
    m.kv_heads = number(r, "num_key_value_heads", m.heads);
    m.head_dim = number(r, "head_dim", qwen3 ? 128 : m.dim / m.heads ? m.dim / m.heads : 1);
    m.qkv_bias = !strcmp(type, "qwen2") || (bias && strcmp(type, "mistral") != 0);
    m.o_bias = bias && (qwen3 || !strcmp(type, "llama"));
    m.mlp_bias = !strcmp(type, "llama") && flag(r, "mlp_bias", false);
    bool tied = flag(r, "tie_word_embeddings", false);
    fill_shape(r, &m, tied, context);
    LH_TRY(reserve(r, m.layers));
    want(r, m.vocab, m.dim, "embed_tokens.weight");
    for (unsigned l = 0; l < m.layers; l++) llama_layer(r, &m, l);
    want(r, m.dim, 0, "norm.weight");
    add_head(r, tied, m.vocab, m.dim, "embed_tokens.weight");
    return r->err;
}

// ---------------------------------------------------------------- GPT-2

static void gpt2_layer(struct reading *r, uint64_t dim, uint64_t inner, unsigned l)
{
    want(r, dim, 0, "h.%u.ln_1.weight", l);
    want(r, dim, 0, "h.%u.ln_1.bias", l);
    want(r, dim, 3 * dim, "h.%u.attn.c_attn.weight", l); // [in, out], unlike all the rest
    want(r, 3 * dim, 0, "h.%u.attn.c_attn.bias", l);
    want(r, dim, dim, "h.%u.attn.c_proj.weight", l);
    want(r, dim, 0, "h.%u.attn.c_proj.bias", l);
    want(r, dim, 0, "h.%u.ln_2.weight", l);
    want(r, dim, 0, "h.%u.ln_2.bias", l);
    want(r, dim, inner, "h.%u.mlp.c_fc.weight", l);
    want(r, inner, 0, "h.%u.mlp.c_fc.bias", l);
    want(r, inner, dim, "h.%u.mlp.c_proj.weight", l);
    want(r, dim, 0, "h.%u.mlp.c_proj.bias", l);
}

static LH_MUST lh_err read_gpt2(struct reading *r, uint32_t context)
{
    (void)context;
    uint64_t vocab = number(r, "vocab_size", 0), dim = number(r, "n_embd", 0);
    uint64_t layers = number(r, "n_layer", 0), positions = number(r, "n_positions", 0);
    uint64_t inner = number(r, "n_inner", 4 * dim);
    r->out->why_not = "another architecture";
    LH_TRY(reserve(r, layers));
    want(r, vocab, dim, "wte.weight");
    want(r, positions, dim, "wpe.weight");
    for (unsigned l = 0; l < layers; l++) gpt2_layer(r, dim, inner, l);
    want(r, dim, 0, "ln_f.weight");
    want(r, dim, 0, "ln_f.bias");
    add_head(r, flag(r, "tie_word_embeddings", true), vocab, dim, "wte.weight");
    return r->err;
}

// ---------------------------------------------------------------- which family

static const char *const llama_buffers[] = {"*.rotary_emb.inv_freq", NULL};
static const char *const other_buffers[] = {"*.running_mean",
                                            "*.running_var",
                                            "*.num_batches_tracked",
                                            "*.inv_freq",
                                            "*.masked_bias",
                                            "final_logits_bias",
                                            NULL};
static const char *const gpt2_buffers[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", NULL};

static const struct family {
    const char *type, *head, *body; // classes of the language model and of the model without a head
    const char *prefix, *embedding;
    const char *const *buffers;
    lh_err (*read)(struct reading *r, uint32_t context);
} families[] = {
    {"llama", "LlamaForCausalLM", "LlamaModel", "model.", "embed_tokens.weight", llama_buffers,
     read_llama},
    {"mistral", "MistralForCausalLM", "MistralModel", "model.", "embed_tokens.weight",
     llama_buffers, read_llama},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2Model", "model.", "embed_tokens.weight", llama_buffers,
     read_llama},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3Model", "model.", "embed_tokens.weight", llama_buffers,
     read_llama},
    {"gpt2", "GPT2LMHeadModel", "GPT2Model", "transformer.", "wte.weight", gpt2_buffers, read_gpt2},
};

static const struct family *find(const json_t *config, const char *type)
{
    const json_t *classes = json_object_get(config, "architectures");
    const char *class = json_string_value(json_array_get(classes, 0));
    for (size_t i = 0; type && i < LH_COUNT(families); i++) {
        const struct family *f = &families[i];
        if (strcmp(f->type, type) != 0) continue;
        return !class || !strcmp(class, f->head) || !strcmp(class, f->body) ? f : NULL;
    }
    return NULL;
}

lh_err dp_family_read(const json_t *config, bool (*has)(const void *arg, const char *name),
                      const void *arg, uint32_t context, struct dp_family *out)
{
    *out = (struct dp_family){.type = json_string_value(json_object_get(config, "model_type"))};
    if (json_is_object(json_object_get(config, "quantization_config")))
        return lh_fail(LH_ERR_UNSUPPORTED,
                       "config.json: quantization_config: quantised weights are not trained; take "
                       "the model's bf16 or fp32 weights");
    const struct family *f = find(config, out->type);
    out->why_not = "another architecture";
    out->buffers = other_buffers;
    if (!f) return LH_OK;
    struct reading r = {.config = config, .out = out};
    r.prefix = has(arg, f->embedding) ? "" : f->prefix; // a file of the model alone has none
    out->buffers = f->buffers;
    out->known = true;
    lh_err err = f->read(&r, context);
    if (err) dp_family_free(out);
    return err;
}

void dp_family_free(struct dp_family *f)
{
    free(f->want);
    *f = (struct dp_family){.type = NULL};
}
