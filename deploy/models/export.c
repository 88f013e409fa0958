// Writes a model. See export.h.
//
// A file's tensors are in the reference's order and its metadata is {"format": "pt"}, so it is byte
// for byte what safetensors.torch.save_file() writes of the same tensors (tests/oracle/models.py
// compares them). Values are converted a block at a time. The index, or the single file, is written
// last, so a reader sees a whole model or none.
#include "deploy/models/export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "deploy/models/import.h"
#include "deploy/models/output.h"

enum { BLOCK_VALUES = 1 << 18, BLOCK_BYTES = BLOCK_VALUES * 8, JSON_BYTES_MAX = 64 << 20 };

struct item {
    struct dp_st_tensor t;
    const struct lh_tensor *trained; // NULL: copied from `like` unchanged
    const struct dp_folder_tensor *copied;
    uint32_t file;
};

struct work {
    struct dp_export *e;
    bool has_like;
    struct dp_folder like;
    struct dp_folder buffers; // from a region
    json_t *config, *record;  // config.json of `like`; import.json
    struct dp_family family;
    struct item *item;
    uint32_t items, files, handed; // handed: items that are buffers of a region
    float *block;
    uint8_t *raw;
};

// ---------------------------------------------------------------- what is written

static LH_MUST lh_err dtype_of(const struct work *w, const struct lh_tensor *t,
                               const struct dp_folder_tensor *was, enum dp_dtype *out)
{
    const json_t *types = json_object_get(w->record, "tensors");
    const char *name = json_string_value(json_object_get(types, t->name));
    *out = DP_DTYPE_F32;
    if (w->e->dtype)
        *out = *w->e->dtype;
    else if (was)
        *out = was->t.dtype;
    else if (name && !dp_dtype_parse(name, out))
        return lh_fail(LH_ERR_MALFORMED, "import.json: tensor %s: dtype \"%.20s\" is not known",
                       t->name, name);
    if (dp_dtype_trained(*out)) return LH_OK;
    return lh_fail(LH_ERR_MANIFEST, "tensor %s had the type %s when it was imported: pass --dtype",
                   t->name, dp_dtype_name(*out));
}

static LH_MUST lh_err add_trained(struct work *w, const struct lh_tensor *t)
{
    const struct dp_folder_tensor *was = w->has_like ? dp_folder_find(&w->like, t->name) : NULL;
    struct item *item = &w->item[w->items++];
    *item = (struct item){.t = {.name = t->name, .dims = (unsigned)t->dims}, .trained = t};
    memcpy(item->t.shape, t->shape, (size_t)t->dims * sizeof *t->shape);
    if (was && !was->t.dims && t->dims == 1 && t->shape[0] == 1) item->t.dims = 0; // a scalar
    if (w->has_like && (!was || was->t.dims != item->t.dims ||
                        memcmp(was->t.shape, t->shape, item->t.dims * sizeof *t->shape) != 0))
        return lh_fail(LH_ERR_MANIFEST,
                       "%s: tensor %s %s: give the folder that the run's model was imported from",
                       w->e->like, t->name, was ? "has another shape" : "is not in it");
    LH_TRY(dtype_of(w, t, was, &item->t.dtype));
    return dp_st_measure(w->e->out, &item->t);
}

static bool is_trained(const struct work *w, const char *name)
{
    for (uint32_t i = 0; i < w->e->manifest->tensors; i++)
        if (!strcmp(w->e->manifest->tensor[i].name, name)) return true;
    return false;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

// A buffer that a region's loop changed and handed over replaces the older one: running statistics
// from before the training would spoil the written model.
static LH_MUST lh_err choose_copied(struct work *w, const struct dp_folder_tensor **t)
{
    const struct dp_folder_tensor *is = *t;
    const struct dp_folder_tensor *of = dp_folder_find(&w->buffers, is->t.name);
    bool fits = of && of->t.dtype == is->t.dtype && of->t.dims == is->t.dims &&
                !memcmp(of->t.shape, is->t.shape, of->t.dims * sizeof *of->t.shape);
    if (fits) {
        *t = of;
        w->handed++;
        return LH_OK;
    }
    if (!ends_with(is->t.name, ".running_mean") && !ends_with(is->t.name, ".running_var"))
        return LH_OK;
    return lh_fail(LH_ERR_MANIFEST,
                   "%s: %s is from before the training, and would spoil the model. Buffers belong "
                   "to the loop: pass --buffers with the folder of a model that a region saved, or "
                   "with DIR/WORKER/buffers.safetensors, which the Python package writes",
                   w->e->like, is->t.name);
}

// Copies tensors that the run did not train as they were in the folder. A tied head is written
// once, under its other name.
static LH_MUST lh_err add_copied(struct work *w)
{
    for (uint32_t i = 0; w->has_like && i < w->like.tensors; i++) {
        const struct dp_folder_tensor *t = &w->like.tensor[i];
        if (is_trained(w, t->t.name) || !strcmp(t->t.name, w->family.head)) continue;
        LH_TRY(choose_copied(w, &t));
        w->item[w->items++] = (struct item){.t = t->t, .copied = t};
    }
    if (w->handed)
        dp_put(&w->e->notes, "%u buffers are as %s has them\n", w->handed, w->e->buffers);
    if (w->has_like) return LH_OK;
    const char *name;
    json_t *why;
    json_object_foreach(json_object_get(w->record, "left"), name, why)
    {
        dp_put(&w->e->notes, "not written: %s, which the run did not train (%s)%s\n", name,
               json_string_value(why) ? json_string_value(why) : "?",
               json_is_string(why) && !strcmp(json_string_value(why), "tied")
                   ? ""
                   : "; --like FOLDER copies it");
    }
    return LH_OK;
}

// Reads import.json beside the manifest; there is none if the model was not imported.
static LH_MUST lh_err read_record(struct work *w)
{
    char dir[DP_PATH_BYTES];
    if (!w->e->manifest_path) return LH_OK;
    LH_TRY(dp_path(dir, "%s", w->e->manifest_path));
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
    return dp_folder_json(slash ? dir : ".", "import.json", &w->record);
}

static LH_MUST lh_err list_items(struct work *w)
{
    const struct lh_manifest *m = w->e->manifest;
    LH_TRY(read_record(w));
    w->has_like = w->e->like;
    if (w->has_like) {
        LH_TRY(dp_folder_open(&w->like, w->e->like));
        LH_TRY(dp_import_family(&w->like, 0, &w->config, &w->family));
    }
    w->item = calloc((size_t)m->tensors + w->like.tensors + 1, sizeof *w->item);
    if (!w->item) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the list of tensors");
    for (uint32_t i = 0; i < m->tensors; i++) LH_TRY(add_trained(w, &m->tensor[i]));
    if (w->e->buffers) LH_TRY(dp_folder_open(&w->buffers, w->e->buffers));
    return add_copied(w);
}

// ---------------------------------------------------------------- into which file

// As transformers does: in order, each file as full as allowed; a tensor larger than that gets a
// file of its own.
static void assign_files(struct work *w)
{
    uint64_t most = w->e->shard_bytes_max, used = 0;
    uint32_t open = UINT32_MAX;
    for (uint32_t i = 0; i < w->items; i++) {
        struct item *item = &w->item[i];
        if (item->t.bytes > most) {
            item->file = w->files++;
            continue;
        }
        if (open == UINT32_MAX || item->t.bytes > most - used) {
            open = w->files++;
            used = 0;
        }
        item->file = open;
        used += item->t.bytes;
    }
}

static LH_MUST lh_err file_name(const struct work *w, uint32_t file, char out[64])
{
    if (w->files == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", file + 1, w->files);
    return w->files < 100000
               ? LH_OK
               : lh_fail(LH_ERR_INVALID, "--max-shard-size: %" PRIu32 " files, at most 99999",
                         w->files);
}

static LH_MUST lh_err written(const struct work *w, const char *path, const char *name)
{
    return w->e->written ? w->e->written(w->e->written_arg, path, name) : LH_OK;
}

// ---------------------------------------------------------------- the values

static LH_MUST lh_err put_trained(struct work *w, struct dp_output *out, const struct item *item)
{
    const struct lh_tensor *t = item->trained;
    size_t width = dp_dtype_bits(item->t.dtype) / 8;
    for (uint64_t at = 0; at < t->len; at += BLOCK_VALUES) {
        size_t n = t->len - at < BLOCK_VALUES ? (size_t)(t->len - at) : BLOCK_VALUES;
        LH_TRY(w->e->values(w->e->arg, t->offset + at, n, w->block));
        if (!dp_dtype_from_f32(item->t.dtype, w->block, n, w->raw))
            return lh_fail(LH_ERR_TOO_LARGE,
                           "tensor %s: a value is beyond what %s holds; give --dtype F32", t->name,
                           dp_dtype_name(item->t.dtype));
        LH_TRY(dp_output_put(out, lh_span(w->raw, n * width)));
    }
    return LH_OK;
}

static LH_MUST lh_err put_copied(struct work *w, struct dp_output *out, const struct item *item)
{
    for (uint64_t at = 0; at < item->t.bytes; at += BLOCK_BYTES) {
        size_t n = item->t.bytes - at < BLOCK_BYTES ? (size_t)(item->t.bytes - at) : BLOCK_BYTES;
        LH_TRY(dp_folder_bytes(&w->like, item->copied, at, n, w->raw));
        LH_TRY(dp_output_put(out, lh_span(w->raw, n)));
    }
    return LH_OK;
}

static const struct item *item_of(const struct work *w, const char *name)
{
    for (uint32_t i = 0; i < w->items; i++)
        if (w->item[i].t.name == name) return &w->item[i]; // the same pointer, which no other has
    LH_ASSERT(false);
    return NULL;
}

static LH_MUST lh_err put_tensors(struct work *w, struct dp_output *out,
                                  struct dp_st_tensor *tensor, uint32_t tensors)
{
    struct lh_buf header = lh_buf(DP_ST_HEADER_BYTES_MAX + 64);
    json_t *metadata = json_pack("{s:s}", "format", "pt"); // transformers looks for it
    dp_st_sort(tensor, tensors);
    lh_err err = dp_st_header(tensor, tensors, metadata, &header);
    if (!err) err = dp_output_put(out, lh_buf_span(&header));
    json_decref(metadata);
    lh_buf_free(&header);
    for (uint32_t i = 0; !err && i < tensors; i++) {
        const struct item *item = item_of(w, tensor[i].name);
        err = item->trained ? put_trained(w, out, item) : put_copied(w, out, item);
    }
    return err;
}

static LH_MUST lh_err write_file(struct work *w, uint32_t file)
{
    char path[DP_PATH_BYTES], name[64];
    uint32_t tensors = 0;
    struct dp_output out;
    LH_TRY(file_name(w, file, name));
    LH_TRY(dp_path(path, "%s/%s", w->e->out, name));
    struct dp_st_tensor *tensor = calloc((size_t)w->items + 1, sizeof *tensor);
    if (!tensor) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the list of tensors");
    for (uint32_t i = 0; i < w->items; i++) {
        if (w->item[i].file != file) continue;
        tensor[tensors++] = w->item[i].t;
        w->e->bytes += w->item[i].t.bytes;
    }
    lh_err err = dp_output_begin(&out, path);
    if (!err) err = dp_output_end(&out, put_tensors(w, &out, tensor, tensors));
    free(tensor);
    return err ? err : written(w, path, name);
}

// ---------------------------------------------------------------- what stands beside them

static LH_MUST lh_err write_json(const struct work *w, const char *name, json_t *root, size_t flags)
{
    char path[DP_PATH_BYTES];
    struct dp_output out;
    char *text = root ? json_dumps(root, flags) : NULL;
    if (!text) return lh_fail(LH_ERR_NO_MEMORY, "no memory for %s", name);
    lh_err err = dp_path(path, "%s/%s", w->e->out, name);
    if (!err) err = dp_output_begin(&out, path);
    if (!err) {
        err = dp_output_put(&out, lh_span_str(text));
        if (!err) err = dp_output_put(&out, lh_span_str("\n"));
        err = dp_output_end(&out, err);
    }
    free(text);
    return err ? err : written(w, path, name);
}

static LH_MUST lh_err write_index(const struct work *w)
{
    json_t *map = json_object();
    uint64_t values = 0;
    lh_err err = LH_OK;
    for (uint32_t i = 0; !err && i < w->items; i++) {
        char name[64];
        err = file_name(w, w->item[i].file, name);
        json_object_set_new(map, w->item[i].t.name, json_string(name));
        values += w->item[i].t.values;
    }
    json_t *root =
        json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", (json_int_t)values,
                  "total_size", (json_int_t)w->e->bytes, "weight_map", map);
    if (!err)
        err = write_json(w, "model.safetensors.index.json", root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    return err;
}

static LH_MUST lh_err copy_file(const struct work *w, const char *name)
{
    char from[DP_PATH_BYTES], to[DP_PATH_BYTES];
    struct lh_buf bytes = lh_buf(1 << 30);
    LH_TRY(dp_path(from, "%s/%s", w->like.dir, name));
    LH_TRY(dp_path(to, "%s/%s", w->e->out, name));
    lh_err err = dp_file_read(from, &bytes);
    if (!err) err = dp_file_write(to, lh_buf_span(&bytes), 0640);
    lh_buf_free(&bytes);
    if (err == LH_ERR_NOT_FOUND) return LH_OK;
    return err ? err : written(w, to, name);
}

// config.json names the type that transformers loads; --dtype changes it.
static LH_MUST lh_err write_config(const struct work *w)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    static const char *const names[DP_DTYPE_COUNT] = {
        [DP_DTYPE_F16] = "float16",
        [DP_DTYPE_BF16] = "bfloat16",
        [DP_DTYPE_F32] = "float32",
        [DP_DTYPE_F64] = "float64",
    };
    bool any = false;
    if (!w->config) return LH_OK;
    if (!w->e->dtype) return copy_file(w, "config.json");
    for (size_t i = 0; i < LH_COUNT(keys); i++) {
        bool last = i + 1 == LH_COUNT(keys);
        if (!json_object_get(w->config, keys[i]) && (any || !last)) continue;
        any = true;
        json_object_set_new(w->config, keys[i], json_string(names[*w->e->dtype]));
    }
    return write_json(w, "config.json", w->config, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
}

static LH_MUST lh_err write_beside(const struct work *w)
{
    static const char *const files[] = {"generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "spiece.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "chat_template.jinja",
                                        "chat_template.json"};
    LH_TRY(write_config(w));
    for (size_t i = 0; w->has_like && w->like.dir[0] && i < LH_COUNT(files); i++)
        LH_TRY(copy_file(w, files[i]));
    return write_json(w, "longhaul.json", w->e->about, JSON_INDENT(2));
}

// ---------------------------------------------------------------- the whole

static LH_MUST lh_err check_out(const struct dp_export *e)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "longhaul.json"};
    char path[DP_PATH_BYTES];
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        LH_TRY(dp_path(path, "%s/%s", e->out, names[i]));
        if (dp_file_exists(path))
            return lh_fail(LH_ERR_EXISTS, "%s is there already: give another --out", path);
    }
    return LH_OK;
}

// Keeps other exports out of the folder while this one writes there. *fd: to be closed.
static LH_MUST lh_err hold_out(const struct dp_export *e, int *fd)
{
    *fd = -1;
    LH_TRY(dp_make_dirs(e->out));
    *fd = open(e->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return lh_fail_errno(errno, "%s", e->out);
    // A file system without such locks has none.
    if (flock(*fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return lh_fail(LH_ERR_BUSY, "another export writes to %s: give another --out", e->out);
    return check_out(e);
}

static LH_MUST lh_err write_all(struct work *w)
{
    w->block = malloc(BLOCK_VALUES * sizeof *w->block);
    w->raw = malloc(BLOCK_BYTES);
    if (!w->block || !w->raw) return lh_fail(LH_ERR_NO_MEMORY, "no memory to convert parameters");
    LH_TRY(write_beside(w));
    assign_files(w);
    for (uint32_t i = 0; i < w->files; i++) LH_TRY(write_file(w, i));
    w->e->files = w->files;
    return w->files > 1 ? write_index(w) : LH_OK;
}

static void drop_about(const struct dp_export *e)
{
    char path[DP_PATH_BYTES];
    if (!dp_path(path, "%s/longhaul.json", e->out)) unlink(path);
}

lh_err dp_export(struct dp_export *e)
{
    struct work w = {.e = e, .like = {.fd = -1}, .buffers = {.fd = -1}};
    e->notes = lh_buf(JSON_BYTES_MAX);
    e->bytes = 0;
    int held = -1;
    lh_err err = check_out(e);
    if (!err) err = list_items(&w);
    if (!err) err = hold_out(e, &held);
    if (!err && (err = write_all(&w)))
        drop_about(e); // the same folder can be used again, when there is space
    dp_family_free(&w.family);
    json_decref(w.config);
    json_decref(w.record);
    dp_folder_close(&w.like);
    dp_folder_close(&w.buffers);
    if (held >= 0) close(held);
    free(w.item);
    free(w.block);
    free(w.raw);
    return err;
}
