// The model's manifest: tensors, their chunks, the shards made of them. See manifest.h.
//
// Invariants of a built manifest:
//   1. tensor[i].offset is the sum of the lengths before it: the flat order has no gaps.
//   2. Shard s holds the chunks [C*s/S, C*(s+1)/S) of C in all, so counts differ by one at most.
//   3. The extents of all shards, one after another, are the flat order: every value is in exactly
//      one, each starts where a chunk starts, and no extent spans two tensors.
// Parse and write are inverse; a parsed manifest passed the same checks as a built one.
#include "common/format/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"

enum {
    TENSORS_MAX = 65536, // a 70 B model has under a thousand
    SHARDS_MAX = 65536,
    DIMS_MAX = 4,
    MODEL_JSON_MAX = 64 * 1024,
    FILE_BYTES_MAX = 32 * 1024 * 1024, // 65536 tensors of 256 bytes each, twice
};
// 17.6 T values: chunks * shards stays below 2^64 for any layout within these limits.
#define VALUES_MAX (UINT64_C(1) << 44)
LH_STATIC_ASSERT(((UINT64_C(1) << 44) / LH_CHUNK + TENSORS_MAX) < UINT64_MAX / SHARDS_MAX,
                 "the first chunk of a shard is computed without overflow");

static const char schema[] = "longhaul.manifest/1";

static uint64_t chunks_of(uint64_t values)
{
    return (values + LH_CHUNK - 1) / LH_CHUNK;
}

// ---------------------------------------------------------------- checks

// Names go into files, logs and error texts unescaped, so their alphabet is narrow.
static bool good_name(const char *name)
{
    size_t len = strnlen(name, sizeof((struct lh_tensor *)0)->name);
    if (len == 0 || len == sizeof((struct lh_tensor *)0)->name) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:") ==
           len;
}

static int by_name(const void *a, const void *b)
{
    const struct lh_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static lh_err check_names_differ(const struct lh_manifest *m)
{
    const struct lh_tensor **sorted = calloc(m->tensors, sizeof *sorted);
    if (!sorted) return lh_fail(LH_ERR_NO_MEMORY, "manifest: no memory for %u names", m->tensors);
    for (uint32_t i = 0; i < m->tensors; i++) sorted[i] = &m->tensor[i];
    qsort(sorted, m->tensors, sizeof *sorted, by_name);
    lh_err err = LH_OK;
    for (uint32_t i = 1; i < m->tensors && !err; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            err = lh_fail(LH_ERR_INVALID, "manifest: two tensors are named '%s'", sorted[i]->name);
    free(sorted);
    return err;
}

// shape[5] of positive dimensions, ended by 0.
static lh_err set_tensor(struct lh_tensor *t, const char *name, const uint64_t *shape,
                         uint64_t offset)
{
    if (!name || !good_name(name))
        return lh_fail(LH_ERR_INVALID,
                       "manifest: tensor name '%.40s' is empty, longer than %zu bytes, or has "
                       "characters other than letters, digits and ._-/:",
                       name ? name : "", sizeof t->name - 1);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->offset = offset;
    t->len = 1;
    while (t->dims < DIMS_MAX && shape[t->dims]) {
        uint64_t n = shape[t->dims];
        if (n > VALUES_MAX || t->len > VALUES_MAX / n)
            return lh_fail(LH_ERR_TOO_LARGE, "manifest: tensor %s has more than 2^44 values", name);
        t->shape[t->dims++] = n;
        t->len *= n;
    }
    if (t->dims == 0 || shape[t->dims])
        return lh_fail(LH_ERR_INVALID,
                       "manifest: tensor %s needs 1 to %d dimensions, each at least 1", name,
                       DIMS_MAX);
    if (t->len > VALUES_MAX - offset)
        return lh_fail(LH_ERR_TOO_LARGE, "manifest: more than 2^44 values up to tensor %s", name);
    return LH_OK;
}

// ---------------------------------------------------------------- layout

static uint64_t count_chunks(const struct lh_manifest *m)
{
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < m->tensors; i++) chunks += chunks_of(m->tensor[i].len);
    return chunks;
}

// The walk through tensors and chunks, with its position.
struct walk {
    uint32_t tensor;
    uint64_t in_tensor; // values of this tensor already laid out, a multiple of LH_CHUNK
};

// Assigns the next `chunks` chunks to shard `s` and writes its extents from `next` on.
static struct lh_extent *lay_shard(const struct lh_manifest *m, struct lh_shard_layout *s,
                                   uint64_t chunks, struct walk *at, struct lh_extent *next)
{
    s->extent = next;
    s->chunks = chunks;
    s->first = m->tensor[at->tensor].offset + at->in_tensor;
    while (chunks) {
        const struct lh_tensor *t = &m->tensor[at->tensor];
        uint64_t left = t->len - at->in_tensor;
        bool ends = chunks_of(left) <= chunks;
        uint64_t len = ends ? left : chunks * LH_CHUNK;
        *next++ = (struct lh_extent){.tensor = at->tensor, .offset = s->values, .len = len};
        s->extents++;
        s->values += len;
        chunks -= chunks_of(len);
        at->in_tensor += len;
        if (ends) *at = (struct walk){.tensor = at->tensor + 1};
    }
    return next;
}

static lh_err lay_out(struct lh_manifest *m, uint32_t shards)
{
    uint64_t chunks = count_chunks(m);
    if (shards < 1 || shards > SHARDS_MAX || shards > chunks)
        return lh_fail(LH_ERR_INVALID,
                       "manifest: %u shards; at least 1, at most %d and at most one for each of "
                       "the model's %" PRIu64 " chunks of %d values",
                       shards, SHARDS_MAX, chunks, LH_CHUNK);
    m->shard = calloc(shards, sizeof *m->shard);
    // A shard boundary inside a tensor splits it: at most one more extent per shard.
    struct lh_extent *next = calloc((size_t)m->tensors + shards, sizeof *next);
    if (!m->shard || !next) {
        free(next);
        return lh_fail(LH_ERR_NO_MEMORY, "manifest: no memory for %u shards", shards);
    }
    m->shards = shards;
    m->shard[0].extent = next; // owns the array of all extents
    struct walk at = {0};
    for (uint32_t s = 0; s < shards; s++) {
        uint64_t from = chunks * s / shards, to = chunks * (s + UINT64_C(1)) / shards;
        m->shard[s].shard = s;
        next = lay_shard(m, &m->shard[s], to - from, &at, next);
    }
    LH_ASSERT(at.tensor == m->tensors);
    return LH_OK;
}

static lh_err set_hash(struct lh_manifest *m)
{
    static const char domain[] = "longhaul manifest 1";
    struct lh_buf b = lh_buf(FILE_BYTES_MAX);
    lh_put(&b, domain, sizeof domain - 1);
    lh_put_u32(&b, LH_CHUNK);
    lh_put_u32(&b, m->shards);
    lh_put_u32(&b, m->tensors);
    for (uint32_t i = 0; i < m->tensors; i++) {
        const struct lh_tensor *t = &m->tensor[i];
        lh_put_str(&b, t->name);
        lh_put_u8(&b, (uint8_t)t->dims);
        for (int d = 0; d < t->dims; d++) lh_put_u64(&b, t->shape[d]);
    }
    struct lh_span all = lh_buf_span(&b);
    lh_err err = lh_buf_err(&b);
    if (!err) m->hash = lh_hash_of(lh_span(NULL, 0), &all, 1);
    lh_buf_free(&b);
    return err;
}

// Stores the object in compact form, so that writing and parsing again gives the same bytes.
static lh_err set_model(struct lh_manifest *m, const char *text)
{
    if (!text) return LH_OK;
    json_error_t where;
    json_t *model =
        strlen(text) > MODEL_JSON_MAX ? NULL : json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (json_is_object(model)) m->model_json = json_dumps(model, JSON_COMPACT);
    json_decref(model);
    if (!m->model_json || strlen(m->model_json) > MODEL_JSON_MAX)
        return lh_fail(LH_ERR_INVALID,
                       "manifest: \"model\" must be a JSON object of at most %d bytes",
                       MODEL_JSON_MAX);
    return LH_OK;
}

lh_err lh_manifest_build(struct lh_manifest *m, uint32_t tensors, const char *const *names,
                         const uint64_t (*shapes)[5], uint32_t shards, const char *model_json)
{
    lh_err err;
    *m = (struct lh_manifest){0};
    if (tensors < 1 || tensors > TENSORS_MAX)
        return lh_fail(LH_ERR_INVALID, "manifest: %u tensors; at least 1, at most %d", tensors,
                       TENSORS_MAX);
    m->tensor = calloc(tensors, sizeof *m->tensor);
    if (!m->tensor) return lh_fail(LH_ERR_NO_MEMORY, "manifest: no memory for %u tensors", tensors);
    m->tensors = tensors;
    for (uint32_t i = 0; i < tensors; i++) {
        LH_TRY_TO(out_free, err, set_tensor(&m->tensor[i], names[i], shapes[i], m->values));
        m->values += m->tensor[i].len;
    }
    LH_TRY_TO(out_free, err, check_names_differ(m));
    LH_TRY_TO(out_free, err, lay_out(m, shards));
    LH_TRY_TO(out_free, err, set_model(m, model_json));
    LH_TRY_TO(out_free, err, set_hash(m));
    return LH_OK;
out_free:
    lh_manifest_free(m);
    return err;
}

void lh_manifest_free(struct lh_manifest *m)
{
    if (m->shard) free(m->shard[0].extent);
    free(m->shard);
    free(m->tensor);
    free(m->model_json);
    *m = (struct lh_manifest){0};
}

// ---------------------------------------------------------------- file

// The file's parts in the shape lh_manifest_build takes; names borrow from the JSON.
struct parts {
    uint32_t tensors;
    const char **names;
    uint64_t (*shapes)[5];
    char *model;
};

static void free_parts(struct parts *p)
{
    free(p->names);
    free(p->shapes);
    free(p->model);
}

static lh_err read_tensor(const json_t *row, size_t i, const char **name, uint64_t *shape)
{
    const json_t *text = json_object_get(row, "name"), *list = json_object_get(row, "shape");
    if (json_object_size(row) != 2 || !json_is_string(text) || !json_is_array(list))
        return lh_fail(LH_ERR_MALFORMED,
                       "manifest: tensor %zu must be {\"name\": text, \"shape\": [...]}", i);
    size_t dims = json_array_size(list);
    if (dims < 1 || dims > DIMS_MAX)
        return lh_fail(LH_ERR_INVALID, "manifest: tensor %zu has %zu dimensions; 1 to %d", i, dims,
                       DIMS_MAX);
    for (size_t d = 0; d < dims; d++) {
        const json_t *n = json_array_get(list, d);
        if (!json_is_integer(n) || json_integer_value(n) < 1)
            return lh_fail(LH_ERR_INVALID,
                           "manifest: tensor %zu: dimension %zu must be a positive integer", i, d);
        shape[d] = (uint64_t)json_integer_value(n);
    }
    *name = json_string_value(text);
    return LH_OK;
}

static lh_err read_tensors(const json_t *list, struct parts *p)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count < 1 || count > TENSORS_MAX)
        return lh_fail(LH_ERR_MALFORMED, "manifest: \"tensors\" must be a list of 1 to %d",
                       TENSORS_MAX);
    p->tensors = (uint32_t)count;
    p->names = calloc(count, sizeof *p->names);
    p->shapes = calloc(count, sizeof *p->shapes);
    if (!p->names || !p->shapes)
        return lh_fail(LH_ERR_NO_MEMORY, "manifest: no memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        LH_TRY(read_tensor(json_array_get(list, i), i, &p->names[i], p->shapes[i]));
    return LH_OK;
}

static lh_err check_known_keys(const json_t *root)
{
    static const char *const known[] = {"schema", "model", "chunk", "shards", "tensors"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < LH_COUNT(known); i++) found |= !strcmp(key, known[i]);
        if (!found) return lh_fail(LH_ERR_MALFORMED, "manifest: unknown key \"%.60s\"", key);
    }
    return LH_OK;
}

static lh_err read_root(struct lh_manifest *m, const json_t *root)
{
    const char *is = json_string_value(json_object_get(root, "schema"));
    if (!is || strcmp(is, schema) != 0)
        return lh_fail(LH_ERR_MALFORMED,
                       "manifest: schema is '%.40s', this build reads '%s': write it again with "
                       "this version",
                       is ? is : "(none)", schema);
    LH_TRY(check_known_keys(root));
    if (json_integer_value(json_object_get(root, "chunk")) != LH_CHUNK)
        return lh_fail(LH_ERR_INVALID, "manifest: \"chunk\" must be %d", LH_CHUNK);
    json_int_t shards = json_integer_value(json_object_get(root, "shards"));
    if (shards < 1 || shards > SHARDS_MAX)
        return lh_fail(LH_ERR_INVALID, "manifest: \"shards\" must be 1 to %d", SHARDS_MAX);
    struct parts p = {0};
    lh_err err;
    LH_TRY_TO(out, err, read_tensors(json_object_get(root, "tensors"), &p));
    const json_t *model = json_object_get(root, "model");
    // A model that is no object becomes "", which lh_manifest_build() refuses.
    if (model) p.model = json_is_object(model) ? json_dumps(model, JSON_COMPACT) : strdup("");
    if (model && !p.model) {
        err = lh_fail(LH_ERR_NO_MEMORY, "manifest: no memory for \"model\"");
        goto out;
    }
    err = lh_manifest_build(m, p.tensors, p.names, (const uint64_t(*)[5])p.shapes, (uint32_t)shards,
                            p.model);
out:
    free_parts(&p);
    return err;
}

lh_err lh_manifest_parse(struct lh_manifest *m, struct lh_span json)
{
    *m = (struct lh_manifest){0};
    json_t *root;
    LH_TRY(lh_json_load("manifest", json, FILE_BYTES_MAX, &root));
    lh_err err = read_root(m, root);
    json_decref(root);
    return err;
}

lh_err lh_manifest_write(const struct lh_manifest *m, struct lh_buf *out)
{
    lh_json_put(out, "{\"schema\": \"%s\",\n", schema);
    if (m->model_json) {
        lh_put(out, " \"model\": ", strlen(" \"model\": "));
        lh_put(out, m->model_json, strlen(m->model_json));
        lh_put(out, ",\n", 2);
    }
    lh_json_put(out, " \"chunk\": %d, \"shards\": %u, \"tensors\": [", LH_CHUNK, m->shards);
    for (uint32_t i = 0; i < m->tensors; i++) {
        const struct lh_tensor *t = &m->tensor[i];
        lh_json_put(out, "%s\n  {\"name\": \"%s\", \"shape\": [", i ? "," : "", t->name);
        for (int d = 0; d < t->dims; d++)
            lh_json_put(out, "%s%" PRIu64, d ? ", " : "", t->shape[d]);
        lh_json_put(out, "]}");
    }
    lh_json_put(out, "]}\n");
    return lh_buf_err(out);
}
