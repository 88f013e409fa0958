// Shape from JSON, the table of tensors, initial values.
//
// 1. No size of a shape that passed wk_shape_check overflows: every tensor has under 2^31 values a
//    side, and the whole has under 2^40 values.
// 2. Only wk_params_list knows the order of the tensors.
#include "worker/train/model.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/optimizer.h"

// Far above the sizes this trainer can train; they keep products of sizes within 64 bits.
enum { VOCAB_MAX = 1 << 20, DIM_MAX = 1 << 16, LAYERS_MAX = 1 << 9, CONTEXT_MAX = 1 << 20 };

// ---- shape --------------------------------------------------------------------------------------

enum kind { U32, REAL, FLAG };
static const struct field {
    const char *key;
    enum kind kind;
    size_t offset;
    uint32_t max; // U32 only
    bool required;
} fields[] = {
    {"vocab", U32, offsetof(struct wk_shape, vocab), VOCAB_MAX, true},
    {"dim", U32, offsetof(struct wk_shape, dim), DIM_MAX, true},
    {"layers", U32, offsetof(struct wk_shape, layers), LAYERS_MAX, true},
    {"heads", U32, offsetof(struct wk_shape, heads), DIM_MAX, true},
    {"kv_heads", U32, offsetof(struct wk_shape, kv_heads), DIM_MAX, false},
    {"ffn", U32, offsetof(struct wk_shape, ffn), 4 * DIM_MAX, true},
    {"context", U32, offsetof(struct wk_shape, context), CONTEXT_MAX, true},
    {"rope_theta", REAL, offsetof(struct wk_shape, rope_theta), 0, false},
    {"rms_eps", REAL, offsetof(struct wk_shape, rms_eps), 0, false},
    {"qkv_bias", FLAG, offsetof(struct wk_shape, qkv_bias), 0, false},
    {"tied", FLAG, offsetof(struct wk_shape, tied), 0, false},
};

static void *field_of(struct wk_shape *shape, const struct field *f)
{
    return (char *)shape + f->offset;
}

static lh_err parse_field(const struct field *f, const json_t *value, struct wk_shape *out)
{
    void *to = field_of(out, f);
    switch (f->kind) {
    case U32: {
        json_int_t n = json_integer_value(value);
        if (!json_is_integer(value) || n < 1 || n > (json_int_t)f->max)
            return lh_fail(LH_ERR_CONFIG, "model.%s: a whole number from 1 to %" PRIu32 " wanted",
                           f->key, f->max);
        *(uint32_t *)to = (uint32_t)n;
        return LH_OK;
    }
    case REAL:
        if (!json_is_number(value))
            return lh_fail(LH_ERR_CONFIG, "model.%s: a number wanted", f->key);
        *(double *)to = json_number_value(value);
        return LH_OK;
    case FLAG:
        if (!json_is_boolean(value))
            return lh_fail(LH_ERR_CONFIG, "model.%s: true or false wanted", f->key);
        *(bool *)to = json_is_true(value);
        return LH_OK;
    }
    LH_ASSERT(false); // every kind is above
    return LH_ERR_INTERNAL;
}

static const struct field *find_field(const char *key)
{
    for (size_t i = 0; i < LH_COUNT(fields); i++)
        if (strcmp(fields[i].key, key) == 0) return &fields[i];
    return NULL;
}

static lh_err parse_object(json_t *object, struct wk_shape *out)
{
    const char *architecture = json_string_value(json_object_get(object, "architecture"));
    if (architecture == NULL || strcmp(architecture, "transformer") != 0)
        return lh_fail(LH_ERR_CONFIG, "model.architecture: the built-in trainer knows "
                                      "\"transformer\" only");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const struct field *f = find_field(key);
        if (f != NULL)
            LH_TRY(parse_field(f, value, out));
        else if (strcmp(key, "architecture") != 0)
            return lh_fail(LH_ERR_CONFIG, "model.%s: no such key", key);
    }
    for (size_t i = 0; i < LH_COUNT(fields); i++)
        if (fields[i].required && json_object_get(object, fields[i].key) == NULL)
            return lh_fail(LH_ERR_CONFIG, "model.%s is missing", fields[i].key);
    return LH_OK;
}

lh_err wk_shape_parse(const char *json, struct wk_shape *out)
{
    json_error_t at;
    json_t *root = json == NULL ? NULL : json_loads(json, JSON_REJECT_DUPLICATES, &at);
    if (json == NULL) return lh_fail(LH_ERR_CONFIG, "the manifest has no \"model\" object");
    if (!json_is_object(root)) {
        json_decref(root);
        return lh_fail(LH_ERR_CONFIG, "the manifest's \"model\" is not a JSON object");
    }
    *out = (struct wk_shape){.rope_theta = 10000.0, .rms_eps = 1e-6};
    lh_err err = parse_object(root, out);
    json_decref(root);
    if (err != LH_OK) return err;
    if (out->kv_heads == 0) out->kv_heads = out->heads;
    return wk_shape_check(out);
}

lh_err wk_shape_check(const struct wk_shape *s)
{
    if (s->vocab < 1 || s->vocab > VOCAB_MAX || s->dim < 1 || s->dim > DIM_MAX || s->layers < 1 ||
        s->layers > LAYERS_MAX || s->heads < 1 || s->kv_heads < 1 || s->ffn < 1 ||
        s->ffn > 4 * DIM_MAX || s->context < 1 || s->context > CONTEXT_MAX)
        return lh_fail(LH_ERR_CONFIG, "model: a size is zero or too large");
    if (s->dim % s->heads != 0 || (s->dim / s->heads) % 2 != 0)
        return lh_fail(LH_ERR_CONFIG,
                       "model: dim %" PRIu32 " does not split into %" PRIu32
                       " heads of an even size",
                       s->dim, s->heads);
    if (s->heads % s->kv_heads != 0)
        return lh_fail(LH_ERR_CONFIG,
                       "model: heads %" PRIu32 " is no multiple of kv_heads %" PRIu32, s->heads,
                       s->kv_heads);
    if (!(s->rope_theta >= 1.0 && s->rope_theta <= 1e12))
        return lh_fail(LH_ERR_CONFIG, "model.rope_theta: from 1 to 1e12 wanted");
    if (!(s->rms_eps > 0.0 && s->rms_eps <= 1.0))
        return lh_fail(LH_ERR_CONFIG, "model.rms_eps: above 0, at most 1 wanted");
    return LH_OK;
}

static json_t *field_value(const struct wk_shape *shape, const struct field *f)
{
    const char *from = (const char *)shape + f->offset;
    switch (f->kind) {
    case U32: return json_integer(*(const uint32_t *)from);
    case REAL: return json_real(*(const double *)from);
    case FLAG: return json_boolean(*(const bool *)from);
    }
    LH_ASSERT(false); // every kind is above
    return NULL;
}

lh_err wk_shape_write(const struct wk_shape *shape, struct lh_buf *out)
{
    json_t *root = json_object();
    bool failed = json_object_set_new(root, "architecture", json_string("transformer")) != 0;
    for (size_t i = 0; i < LH_COUNT(fields); i++)
        failed |= json_object_set_new(root, fields[i].key, field_value(shape, &fields[i])) != 0;
    char *text = failed ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text == NULL) return lh_fail(LH_ERR_NO_MEMORY, "writing the model's shape");
    lh_put(out, text, strlen(text) + 1);
    free(text);
    LH_TRY(lh_buf_err(out));
    out->len--;
    return LH_OK;
}

// ---- tensors ------------------------------------------------------------------------------------

__attribute__((format(printf, 5, 6))) static void
add(struct wk_params *p, enum wk_role role, uint64_t rows, uint64_t cols, const char *name, ...)
{
    struct wk_param *at = &p->at[p->count++];
    uint64_t len = rows * (cols == 0 ? 1 : cols);
    *at = (struct wk_param){.role = role, .rows = rows, .cols = cols, .offset = p->values};
    at->len = len;
    p->values += len;
    va_list list;
    va_start(list, name);
    int n = vsnprintf(at->name, sizeof at->name, name, list);
    va_end(list);
    LH_ASSERT(n > 0 && (size_t)n < sizeof at->name);
}

static void add_layer(struct wk_params *p, const struct wk_shape *s, uint32_t l)
{
    uint64_t d = s->dim, kv = (uint64_t)s->kv_heads * wk_shape_head_dim(s), f = s->ffn;
    add(p, WK_NORM, d, 0, "model.layers.%" PRIu32 ".input_layernorm.weight", l);
    add(p, WK_MATRIX, d, d, "model.layers.%" PRIu32 ".self_attn.q_proj.weight", l);
    add(p, WK_MATRIX, kv, d, "model.layers.%" PRIu32 ".self_attn.k_proj.weight", l);
    add(p, WK_MATRIX, kv, d, "model.layers.%" PRIu32 ".self_attn.v_proj.weight", l);
    if (s->qkv_bias) {
        add(p, WK_BIAS, d, 0, "model.layers.%" PRIu32 ".self_attn.q_proj.bias", l);
        add(p, WK_BIAS, kv, 0, "model.layers.%" PRIu32 ".self_attn.k_proj.bias", l);
        add(p, WK_BIAS, kv, 0, "model.layers.%" PRIu32 ".self_attn.v_proj.bias", l);
    }
    add(p, WK_RESIDUAL_OUT, d, d, "model.layers.%" PRIu32 ".self_attn.o_proj.weight", l);
    add(p, WK_NORM, d, 0, "model.layers.%" PRIu32 ".post_attention_layernorm.weight", l);
    add(p, WK_MATRIX, f, d, "model.layers.%" PRIu32 ".mlp.gate_proj.weight", l);
    add(p, WK_MATRIX, f, d, "model.layers.%" PRIu32 ".mlp.up_proj.weight", l);
    add(p, WK_RESIDUAL_OUT, d, f, "model.layers.%" PRIu32 ".mlp.down_proj.weight", l);
}

lh_err wk_params_list(const struct wk_shape *s, struct wk_params *out)
{
    LH_TRY(wk_shape_check(s));
    uint32_t per_layer = s->qkv_bias ? 12 : 9, tied = s->tied ? 1 : 0;
    uint32_t count = 3 - tied + s->layers * per_layer;
    *out = (struct wk_params){.at = calloc(count, sizeof *out->at), .per_layer = per_layer};
    if (out->at == NULL) return lh_fail(LH_ERR_NO_MEMORY, "table of %" PRIu32 " tensors", count);

    add(out, WK_MATRIX, s->vocab, s->dim, "model.embed_tokens.weight");
    for (uint32_t l = 0; l < s->layers; l++) add_layer(out, s, l);
    add(out, WK_NORM, s->dim, 0, "model.norm.weight");
    if (!s->tied) add(out, WK_MATRIX, s->vocab, s->dim, "lm_head.weight");
    LH_ASSERT(out->count == count);
    return LH_OK;
}

void wk_params_free(struct wk_params *p)
{
    free(p->at);
    *p = (struct wk_params){0};
}

struct wk_layer_at wk_params_layer(const struct wk_params *p, const struct wk_shape *shape,
                                   uint32_t layer)
{
    uint32_t bias = shape->qkv_bias ? 3 : 0;
    const struct wk_param *of = &p->at[1 + layer * p->per_layer];
    return (struct wk_layer_at){
        .norm1 = of[0].offset,
        .qkv = of[1].offset,
        .qkv_bias = of[4].offset,
        .o = of[4 + bias].offset,
        .norm2 = of[5 + bias].offset,
        .gate_up = of[6 + bias].offset,
        .down = of[8 + bias].offset,
    };
}

uint64_t wk_params_norm(const struct wk_params *p, const struct wk_shape *shape)
{
    return p->at[1 + shape->layers * p->per_layer].offset;
}

uint64_t wk_params_head(const struct wk_params *p, const struct wk_shape *shape)
{
    return shape->tied ? 0 : p->at[2 + shape->layers * p->per_layer].offset;
}

lh_err wk_model_init(const struct wk_shape *shape, uint64_t seed, float *out)
{
    struct wk_params p;
    LH_TRY(wk_params_list(shape, &p));
    for (uint32_t i = 0; i < p.count; i++) {
        const struct wk_param *t = &p.at[i];
        float *to = out + t->offset;
        double std = t->role == WK_RESIDUAL_OUT ? 0.02 / sqrt(2.0 * shape->layers) : 0.02;
        if (wk_param_decays(t))
            lk_normal_fill(seed, i, std, t->len, to);
        else
            for (uint64_t j = 0; j < t->len; j++) to[j] = t->role == WK_NORM ? 1.0f : 0.0f;
    }
    wk_params_free(&p);
    return LH_OK;
}

lh_err wk_model_manifest(const struct wk_shape *shape, uint32_t shards, struct lh_manifest *out)
{
    struct wk_params p;
    struct lh_buf json = lh_buf(4096);
    LH_TRY(wk_params_list(shape, &p));
    const char **names = calloc(p.count, sizeof *names);
    uint64_t(*shapes)[5] = calloc(p.count, sizeof *shapes);
    lh_err err = LH_OK;
    if (names == NULL || shapes == NULL)
        LH_TRY_TO(out, err, lh_fail(LH_ERR_NO_MEMORY, "manifest of %" PRIu32 " tensors", p.count));
    for (uint32_t i = 0; i < p.count; i++) {
        names[i] = p.at[i].name;
        shapes[i][0] = p.at[i].rows;
        shapes[i][1] = p.at[i].cols; // 0 ends a vector's shape
    }
    LH_TRY_TO(out, err, wk_shape_write(shape, &json));
    err = lh_manifest_build(out, p.count, names, (const uint64_t(*)[5])shapes, shards,
                            (const char *)json.data);
out:
    free(shapes);
    free(names);
    lh_buf_free(&json);
    wk_params_free(&p);
    return err;
}
