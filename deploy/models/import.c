// A model in. See import.h.
//
//   OUT/model.json   the manifest (common/format/manifest.h). Its tensors stand in the family's own
//                    order; of a family that is not known, by name, numbers in it by their value.
//                    So the manifest follows from names and shapes alone, whatever the files are.
//   OUT/weights.bin  the values, fp32, little endian, in the manifest's order: `model.weights`
//   OUT/import.json  {"schema": "longhaul.import/1", "sha256": hex of weights.bin,
//                     "tensors": {name: dtype in the folder}, "left": {name: why}}
//
// Values are converted a block at a time. weights.bin is renamed before model.json, which comes
// last, so a reader that sees model.json sees all of them.
#include "deploy/models/import.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/format/json.h"
#include "deploy/models/output.h"

enum {
    BLOCK_VALUES = 1 << 18,
    NAMED_MAX = 20,
    NOTES_BYTES_MAX = 64 << 20,
    MANIFEST_BYTES_MAX = 64 << 20
};

static const char *const whys[] = {
    [DP_LEFT_ASKED] = "--leave-out", [DP_LEFT_BUFFER] = "a buffer, not a parameter",
    [DP_LEFT_TYPE] = "not a float",  [DP_LEFT_EMPTY] = "no values",
    [DP_LEFT_TIED] = "tied",
};

// ---------------------------------------------------------------- what is trained

static bool matches(const char *const *pattern, const char *name)
{
    for (; pattern && *pattern; pattern++)
        if (!fnmatch(*pattern, name, 0)) return true;
    return false;
}

enum dp_left dp_import_left(const struct dp_family *family, const struct dp_texts *leave_out,
                            const struct dp_st_tensor *t)
{
    for (unsigned i = 0; leave_out && i < leave_out->count; i++)
        if (!fnmatch(leave_out->at[i], t->name, 0)) return DP_LEFT_ASKED;
    if (family->head[0] && !strcmp(family->head, t->name)) return DP_LEFT_TIED;
    if (matches(family->buffers, t->name)) return DP_LEFT_BUFFER;
    if (!t->values) return DP_LEFT_EMPTY;
    if (!dp_dtype_is_float(t->dtype)) return DP_LEFT_TYPE;
    return DP_TRAINED;
}

static LH_MUST lh_err same_values(struct dp_folder *folder, const struct dp_folder_tensor *one,
                                  const struct dp_folder_tensor *other, bool *same)
{
    enum { PIECE = 1 << 20 };
    uint8_t *a = malloc(PIECE), *b = malloc(PIECE);
    lh_err err = a && b ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for two tensors");
    *same = one->t.dtype == other->t.dtype && one->t.bytes == other->t.bytes;
    for (uint64_t at = 0; !err && *same && at < one->t.bytes; at += PIECE) {
        size_t n = one->t.bytes - at < PIECE ? (size_t)(one->t.bytes - at) : PIECE;
        err = dp_folder_bytes(folder, one, at, n, a);
        if (!err) err = dp_folder_bytes(folder, other, at, n, b);
        *same = !err && !memcmp(a, b, n);
    }
    free(a);
    free(b);
    return err;
}

// False: config.json says that head and embedding are separate.
static bool may_tie(const json_t *config)
{
    const json_t *of_text =
        json_object_get(json_object_get(config, "text_config"), "tie_word_embeddings");
    const json_t *is = json_object_get(config, "tie_word_embeddings");
    return !json_is_false(is) && !json_is_false(of_text);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

// In a family without a list: finds a head equal to the embedding in all its bytes.
static LH_MUST lh_err find_tied(struct dp_folder *folder, const json_t *config,
                                struct dp_family *family)
{
    for (uint32_t i = 0; config && may_tie(config) && i < folder->tensors; i++) {
        const struct dp_folder_tensor *head = &folder->tensor[i];
        if (!ends_with(head->t.name, "lm_head.weight") || head->t.dims != 2) continue;
        for (uint32_t k = 0; k < folder->tensors; k++) {
            const struct dp_folder_tensor *other = &folder->tensor[k];
            bool same = false;
            if (k != i && strstr(other->t.name, "embed") && other->t.dims == 2 &&
                other->t.shape[0] == head->t.shape[0] && other->t.shape[1] == head->t.shape[1])
                LH_TRY(same_values(folder, head, other, &same));
            if (!same) continue;
            snprintf(family->head, sizeof family->head, "%s", head->t.name);
            snprintf(family->tied_to, sizeof family->tied_to, "%s", other->t.name);
            return LH_OK;
        }
    }
    return LH_OK;
}

static bool has(const void *folder, const char *name)
{
    return dp_folder_find(folder, name) != NULL;
}

lh_err dp_import_family(struct dp_folder *folder, uint32_t context, json_t **config,
                        struct dp_family *family)
{
    *config = NULL;
    *family = (struct dp_family){.type = NULL};
    if (folder->dir[0]) LH_TRY(dp_folder_json(folder->dir, "config.json", config));
    LH_TRY(dp_family_read(*config, has, folder, context, family));
    if (!family->known) return find_tied(folder, *config, family);
    // safetensors writes one of a tensor's two names, and not always the same one
    if (family->head[0] && has(folder, family->head) && !has(folder, family->tied_to))
        return dp_folder_rename(folder, family->head, family->tied_to);
    return LH_OK;
}

// ---------------------------------------------------------------- the choice

struct choice {
    struct dp_import *q;
    struct dp_folder folder;
    json_t *config;
    struct dp_family family;
    const struct dp_folder_tensor **take; // tensors, in the manifest's order
    uint32_t takes;
    unsigned problems, named; // named: of the kind now being listed
};

__attribute__((format(printf, 2, 3))) static void problem(struct choice *c, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->problems++;
    c->named++;
    lh_text_tame(text, strlen(text)); // a name is a stranger's
    if (c->named <= NAMED_MAX) dp_put(&c->q->notes, "%s\n", text);
    if (c->named == NAMED_MAX + 1) dp_put(&c->q->notes, "and others\n");
}

static void shape_text(const uint64_t *shape, unsigned dims, char out[200])
{
    size_t used = 0;
    out[used++] = '[';
    for (unsigned i = 0; i < dims; i++)
        used += (size_t)snprintf(out + used, 200 - used, "%s%" PRIu64, i ? ", " : "", shape[i]);
    snprintf(out + used, 200 - used, "]");
}

static bool same_shape(const struct dp_expected *e, const struct dp_st_tensor *t)
{
    unsigned dims = 0;
    while (e->shape[dims]) dims++;
    return dims == t->dims && !memcmp(e->shape, t->shape, dims * sizeof *e->shape);
}

// Checks a float that the run would train: a manifest must take its type and shape.
static void check_trained(struct choice *c, const struct dp_st_tensor *t)
{
    if (!dp_dtype_trained(t->dtype))
        problem(c,
                "%s: %s are quantised weights, which are not trained: take the model's bf16 or "
                "fp32 weights",
                t->name, dp_dtype_name(t->dtype));
    else if (t->dims > 4)
        problem(
            c,
            "%s: %u dimensions; a run trains tensors of at most 4: --leave-out '%s' keeps it as "
            "it is, where the loop does not train it",
            t->name, t->dims, t->name);
}

static LH_MUST lh_err choose_expected(struct choice *c)
{
    const struct dp_family *f = &c->family;
    char is[200], wanted[200];
    for (uint32_t i = 0; i < f->wants; i++) {
        const struct dp_expected *e = &f->want[i];
        const struct dp_folder_tensor *t = dp_folder_find(&c->folder, e->name);
        unsigned dims = e->shape[1] ? 2 : 1;
        shape_text(e->shape, dims, wanted);
        if (!t) {
            problem(c, "missing: %s %s", e->name, wanted);
            continue;
        }
        if (dp_import_left(f, c->q->leave_out, &t->t) == DP_LEFT_ASKED) continue;
        shape_text(t->t.shape, t->t.dims, is);
        if (!same_shape(e, &t->t))
            problem(c, "mis-shaped: %s is %s, config.json makes it %s", e->name, is, wanted);
        else if (!dp_dtype_is_float(t->t.dtype))
            problem(c, "%s holds %s, a float is wanted", e->name, dp_dtype_name(t->t.dtype));
        else
            check_trained(c, &t->t);
        c->take[c->takes++] = t;
    }
    return LH_OK;
}

static bool is_expected(const struct dp_family *f, const char *name)
{
    for (uint32_t i = 0; i < f->wants; i++)
        if (!strcmp(f->want[i].name, name)) return true;
    return false;
}

// A tensor unknown to the family, and not asked to be left out, may be another model's.
static void find_unexpected(struct choice *c)
{
    c->named = 0;
    for (uint32_t i = 0; i < c->folder.tensors; i++) {
        const struct dp_st_tensor *t = &c->folder.tensor[i].t;
        if (dp_import_left(&c->family, c->q->leave_out, t) != DP_TRAINED) continue;
        if (!is_expected(&c->family, t->name))
            problem(c,
                    "unexpected: %s; a model of type %s has no such tensor (--leave-out '%s' keeps "
                    "it as it is)",
                    t->name, c->family.type, t->name);
    }
}

// Numbers compare by value, so layer 10 comes after layer 9; all else by its bytes.
static int by_number(const void *a, const void *b)
{
    const struct dp_folder_tensor *const *one = a, *const *other = b;
    const char *x = (*one)->t.name, *y = (*other)->t.name;
    for (; *x && *y; x++, y++) {
        size_t m = strspn(x, "0123456789"), n = strspn(y, "0123456789");
        if (m && n && m != n) return m < n ? -1 : 1;
        if (*x != *y) return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
    }
    return *x ? 1 : *y ? -1 : 0;
}

// Part of a name that transformers changes when it loads a model, and what it does. A part that
// begins with a dot may be anywhere, others begin the name. `types`: only these models, with a
// space before and after each.
static const struct renaming {
    const char *part, *why, *types;
} renamings[] = {
    {".gamma", "calls it weight", NULL},
    {".beta", "calls it bias", NULL},
    {".weight_g", "makes a parametrization of it", NULL},
    {".weight_v", "makes a parametrization of it", NULL},
    {".experts.", "merges the experts of a layer into one tensor", NULL},
    {"language_model.", "moves the parts of a model of text and images", NULL},
    {"vision_tower.", "moves the parts of a model of text and images", NULL},
    {"visual.", "moves the parts of a model of text and images", " qwen2_vl qwen2_5_vl "},
    {"embed_out.", "calls it lm_head", " gpt_neox "},
    {".attention.attention.", "gives the layers' parts other names",
     " vit vit_mae vit_msn vivit deit ijepa beit data2vec-vision dinov2 dinov2_with_registers "
     "audio-spectrogram-transformer "},
    {".attention.self.", "gives the layers' parts other names", " swin segformer "},
    {".conv_encoder.", "gives the layers' parts other names",
     " detr conditional_detr deformable_detr maskformer "},
    {".encoder.encoder.", "gives the layers' parts other names", " rt_detr rt_detr_v2 d_fine "},
};
enum { AT_THE_END = 4 }; // renamings whose part ends the name

static bool is_of(const char *types, const char *type)
{
    char word[64];
    return !types ||
           ((size_t)snprintf(word, sizeof word, " %s ", type) < sizeof word && strstr(types, word));
}

static const char *renamed(const char *type, const char *name)
{
    for (size_t i = 0; i < LH_COUNT(renamings); i++) {
        const struct renaming *r = &renamings[i];
        const char *at = strstr(name, r->part), *behind = at ? at + strlen(r->part) : NULL;
        if (!at || !is_of(r->types, type)) continue;
        bool number = *behind >= '0' && *behind <= '9';
        bool fits = i < AT_THE_END                      ? !*behind
                    : r->part[0] != '.'                 ? at == name
                    : strcmp(r->part, ".experts.") == 0 ? number
                                                        : true;
        if (fits) return r->why;
    }
    return NULL;
}

// A loop would not find these by their names, in any region.
static void find_renamed(struct choice *c)
{
    c->named = 0;
    for (uint32_t i = 0; c->family.type && i < c->takes; i++) {
        const char *name = c->take[i]->t.name, *why = renamed(c->family.type, name);
        if (!why) continue;
        problem(c,
                "%s: transformers %s when it loads a model, so that a loop has no parameter of "
                "this name: begin the run in Python, longhaul.save_initial(model, FOLDER)",
                name, why);
        return; // one note covers all
    }
}

static void choose_all(struct choice *c)
{
    for (uint32_t i = 0; i < c->folder.tensors; i++) {
        const struct dp_folder_tensor *t = &c->folder.tensor[i];
        if (dp_import_left(&c->family, c->q->leave_out, &t->t) != DP_TRAINED) continue;
        check_trained(c, &t->t);
        c->take[c->takes++] = t;
    }
    qsort(c->take, c->takes, sizeof *c->take, by_number);
}

// ---------------------------------------------------------------- the tied head

// A head that config.json ties must equal the other tensor: two different ones would be trained as
// one, and one of them lost.
static LH_MUST lh_err check_tied(struct choice *c)
{
    const struct dp_folder_tensor *head = dp_folder_find(&c->folder, c->family.head);
    const struct dp_folder_tensor *other = dp_folder_find(&c->folder, c->family.tied_to);
    if (!c->family.head[0] || !head || !other) return LH_OK;
    bool same;
    lh_err err = same_values(&c->folder, head, other, &same);
    if (!err && !same)
        problem(c,
                "%s differs from %s, but config.json has tie_word_embeddings: set that to false, "
                "or remove %s from the file",
                c->family.head, c->family.tied_to, c->family.head);
    return err;
}

// ---------------------------------------------------------------- what it comes to

static void put_left(struct choice *c, json_t *left)
{
    for (uint32_t i = 0; i < c->folder.tensors; i++) {
        const struct dp_st_tensor *t = &c->folder.tensor[i].t;
        enum dp_left why = dp_import_left(&c->family, c->q->leave_out, t);
        if (why == DP_TRAINED) continue;
        json_object_set_new(left, t->name, json_string(whys[why]));
        char name[200];
        snprintf(name, sizeof name, "%s", t->name);
        lh_text_tame(name, strlen(name));
        dp_put(&c->q->notes, "left out: %s, %s%s%s\n", name, whys[why],
               why == DP_LEFT_TIED   ? " to "
               : why == DP_LEFT_TYPE ? ": "
                                     : "",
               why == DP_LEFT_TIED   ? c->family.tied_to
               : why == DP_LEFT_TYPE ? dp_dtype_name(t->dtype)
                                     : "");
    }
}

static LH_MUST lh_err choose(struct choice *c)
{
    const char *from = c->q->from;
    c->take = calloc((size_t)c->folder.tensors + c->family.wants + 1, sizeof *c->take);
    if (!c->take) return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for its tensors", from);
    if (c->family.known) {
        LH_TRY(choose_expected(c));
        find_unexpected(c);
    } else {
        dp_put(&c->q->notes,
               "no list of tensors is known for %s%s: all floats are taken as they are\n",
               c->family.type ? "models of type " : "a model without config.json",
               c->family.type ? c->family.type : "");
        choose_all(c);
        find_renamed(c);
    }
    LH_TRY(check_tied(c));
    if (c->problems)
        return lh_fail(LH_ERR_MANIFEST, "%s: %u of its tensors do%s not fit, see above", from,
                       c->problems, c->problems == 1 ? "es" : "");
    if (c->family.built_in && c->takes != c->family.wants) {
        c->family.built_in = false;
        c->family.why_not = "some of its tensors are left out";
    }
    if (c->takes) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "%s: no tensor that could be trained", from);
}

// The manifest's "model": the built-in trainer's shape, or a note that it is another's.
static LH_MUST lh_err model_text(const struct choice *c, struct lh_buf *out)
{
    if (c->family.built_in) return wk_shape_write(&c->family.shape, out);
    const char *class =
        json_string_value(json_array_get(json_object_get(c->config, "architectures"), 0));
    LH_TRY(lh_json_give(json_pack("{s:s, s:s*}", "architecture", class ? class : "other",
                                  "model_type", c->family.type),
                        out));
    lh_put_u8(out, 0);
    return lh_buf_err(out);
}

static LH_MUST lh_err build_manifest(struct choice *c)
{
    struct lh_buf model = lh_buf(1 << 16);
    const char **names = calloc(c->takes, sizeof *names);
    uint64_t(*shapes)[5] = calloc(c->takes, sizeof *shapes);
    lh_err err = names && shapes ? model_text(c, &model)
                                 : lh_fail(LH_ERR_NO_MEMORY, "no memory for the manifest");
    for (uint32_t i = 0; !err && i < c->takes; i++) {
        const struct dp_st_tensor *t = &c->take[i]->t;
        names[i] = t->name;
        memcpy(shapes[i], t->shape, t->dims * sizeof *t->shape);
        if (!t->dims) shapes[i][0] = 1; // a scalar
    }
    if (!err)
        err = lh_manifest_build(&c->q->manifest, c->takes, names, (const uint64_t(*)[5])shapes,
                                (uint32_t)c->q->shards, (const char *)model.data);
    free(shapes);
    free(names);
    lh_buf_free(&model);
    return err;
}

// ---------------------------------------------------------------- the values

struct pour {
    struct dp_output out;
    EVP_MD_CTX *sum;
    uint8_t *raw;
    float *block;
};

static LH_MUST lh_err check_finite(const struct dp_st_tensor *t, uint64_t at, const float *v,
                                   size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return lh_fail(LH_ERR_NON_FINITE,
                           "tensor %s: value %" PRIu64 " is %s; a run trains finite values only",
                           t->name, at + i,
                           isnan(v[i]) ? "not a number" : "infinite, or too large for fp32");
    return LH_OK;
}

static LH_MUST lh_err pour_tensor(struct choice *c, struct pour *p,
                                  const struct dp_folder_tensor *t)
{
    size_t width = dp_dtype_bits(t->t.dtype) / 8;
    for (uint64_t at = 0; at < t->t.values; at += BLOCK_VALUES) {
        size_t n = t->t.values - at < BLOCK_VALUES ? (size_t)(t->t.values - at) : BLOCK_VALUES;
        LH_TRY(dp_folder_bytes(&c->folder, t, at * width, n * width, p->raw));
        dp_dtype_to_f32(t->t.dtype, p->raw, n, p->block);
        LH_TRY(check_finite(&t->t, at, p->block, n));
        struct lh_span bytes = lh_span(p->block, n * sizeof *p->block);
        if (EVP_DigestUpdate(p->sum, bytes.data, bytes.len) != 1)
            return lh_fail(LH_ERR_INTERNAL, "SHA-256 failed");
        LH_TRY(dp_output_put(&p->out, bytes));
    }
    return LH_OK;
}

static LH_MUST lh_err pour_all(struct choice *c, struct pour *p)
{
    uint8_t sum[EVP_MAX_MD_SIZE];
    if (!p->raw || !p->block || !p->sum || EVP_DigestInit(p->sum, EVP_sha256()) != 1)
        return lh_fail(LH_ERR_NO_MEMORY, "no memory to convert the parameters");
    for (uint32_t i = 0; i < c->takes; i++) LH_TRY(pour_tensor(c, p, c->take[i]));
    if (EVP_DigestFinal(p->sum, sum, NULL) != 1) return lh_fail(LH_ERR_INTERNAL, "SHA-256 failed");
    for (size_t i = 0; i < 32; i++) snprintf(c->q->sha256 + 2 * i, 3, "%02x", sum[i]);
    return LH_OK;
}

static LH_MUST lh_err write_values(struct choice *c)
{
    char path[DP_PATH_BYTES];
    struct pour p = {.sum = EVP_MD_CTX_new(),
                     .raw = malloc(BLOCK_VALUES * sizeof(double)),
                     .block = malloc(BLOCK_VALUES * sizeof(float))};
    lh_err err = dp_path(path, "%s/weights.bin", c->q->out);
    if (!err) err = dp_output_begin(&p.out, path);
    if (!err) err = dp_output_end(&p.out, pour_all(c, &p));
    EVP_MD_CTX_free(p.sum);
    free(p.raw);
    free(p.block);
    return err;
}

// ---------------------------------------------------------------- the folder that is made

static LH_MUST lh_err write_file(const char *dir, const char *name, const struct lh_buf *text)
{
    char path[DP_PATH_BYTES];
    struct dp_output out;
    LH_TRY(lh_buf_err(text));
    LH_TRY(dp_path(path, "%s/%s", dir, name));
    LH_TRY(dp_output_begin(&out, path));
    return dp_output_end(&out, dp_output_put(&out, lh_buf_span(text)));
}

static LH_MUST lh_err write_record(struct choice *c)
{
    struct lh_buf text = lh_buf(MANIFEST_BYTES_MAX);
    json_t *types = json_object(), *left = json_object();
    for (uint32_t i = 0; i < c->takes; i++)
        json_object_set_new(types, c->take[i]->t.name,
                            json_string(dp_dtype_name(c->take[i]->t.dtype)));
    put_left(c, left);
    lh_err err = lh_json_give(json_pack("{s:s, s:s, s:o, s:o}", "schema", "longhaul.import/1",
                                        "sha256", c->q->sha256, "tensors", types, "left", left),
                              &text);
    lh_put_u8(&text, '\n');
    if (!err) err = write_file(c->q->out, "import.json", &text);
    lh_buf_free(&text);
    return err;
}

static LH_MUST lh_err write_manifest(struct choice *c)
{
    struct lh_buf text = lh_buf(MANIFEST_BYTES_MAX);
    lh_err err = lh_manifest_write(&c->q->manifest, &text);
    if (!err) err = write_file(c->q->out, "model.json", &text);
    lh_buf_free(&text);
    return err;
}

static LH_MUST lh_err check_out(const char *out)
{
    static const char *const names[] = {"model.json", "weights.bin"};
    char path[DP_PATH_BYTES];
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        LH_TRY(dp_path(path, "%s/%s", out, names[i]));
        if (dp_file_exists(path))
            return lh_fail(LH_ERR_EXISTS, "%s is there already: give another --out", path);
    }
    return dp_make_dirs(out);
}

lh_err dp_import(struct dp_import *q)
{
    struct choice c = {.q = q};
    q->notes = lh_buf(NOTES_BYTES_MAX);
    lh_err err = dp_folder_open(&c.folder, q->from);
    if (!err) err = dp_import_family(&c.folder, q->context, &c.config, &c.family);
    if (!err) err = choose(&c);
    if (!err) err = build_manifest(&c);
    if (!err) err = check_out(q->out);
    if (!err) err = write_values(&c);
    if (!err) err = write_record(&c);
    if (!err) err = write_manifest(&c);
    q->built_in = c.family.built_in;
    if (!err && !q->built_in)
        dp_put(&q->notes, "the built-in trainer cannot train it: %s\n", c.family.why_not);
    dp_family_free(&c.family);
    json_decref(c.config);
    free(c.take);
    dp_folder_close(&c.folder);
    return err;
}

void dp_import_free(struct dp_import *q)
{
    lh_manifest_free(&q->manifest);
    lh_buf_free(&q->notes);
}
