// The header of a safetensors file. See safetensors.h.
#include "deploy/models/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/nearest.h"
#include "common/format/json.h"

// jansson uses some hundred bytes per JSON value, so the longest header could take gigabytes. A
// tensor's entry has 5 values and its dimensions.
enum { VALUES_A_TENSOR = 5 + DP_ST_DIMS_MAX };
#define VALUES_MAX ((uint64_t)DP_ST_TENSORS_MAX * VALUES_A_TENSOR)
#define SIZE_LIMIT (UINT64_C(1) << 56) // values of a tensor; its bits fit in 64

static const char METADATA[] = "__metadata__";

// ---------------------------------------------------------------- the header as JSON

lh_err dp_st_length(const char *what, struct lh_span first, uint64_t file_bytes,
                    uint64_t *header_bytes)
{
    struct lh_cursor c = lh_cursor(first);
    uint64_t length = lh_get_u64(&c);
    if (c.failed || file_bytes < DP_ST_LENGTH_BYTES)
        return lh_fail(LH_ERR_MALFORMED,
                       "%s: %" PRIu64 " bytes, too few for a safetensors file: is it cut off?",
                       what, file_bytes);
    if (length > DP_ST_HEADER_BYTES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE,
                       "%s: its header would have %" PRIu64 " bytes, the format allows %d: is it "
                       "a safetensors file?",
                       what, length, DP_ST_HEADER_BYTES_MAX);
    if (length > file_bytes - DP_ST_LENGTH_BYTES)
        return lh_fail(LH_ERR_MALFORMED,
                       "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64
                       ": it is cut off; copy it again",
                       what, length, file_bytes);
    *header_bytes = length;
    return LH_OK;
}

// The most values a JSON text can hold: one after each of [ { , : outside of texts.
static uint64_t count_values(struct lh_span json)
{
    uint64_t count = 1;
    bool in_text = false;
    for (size_t i = 0; i < json.len; i++) {
        char c = (char)json.data[i];
        if (in_text && c == '\\') i++;
        if (c == '"') in_text = !in_text;
        count += !in_text && (c == '[' || c == '{' || c == ',' || c == ':');
    }
    return count;
}

static LH_MUST lh_err load(const char *what, struct lh_span header, json_t **out)
{
    if (!header.len || header.data[0] != '{')
        return lh_fail(LH_ERR_MALFORMED,
                       "%s: its header does not begin with {: is it a "
                       "safetensors file?",
                       what);
    if (count_values(header) > VALUES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE,
                       "%s: its header has more entries than %d tensors need, which is the most "
                       "that a file may hold",
                       what, DP_ST_TENSORS_MAX);
    LH_TRY(lh_json_load(what, header, DP_ST_HEADER_BYTES_MAX, out)); // refuses duplicate keys
    if (json_is_object(*out)) return LH_OK;
    json_decref(*out);
    return lh_fail(LH_ERR_MALFORMED, "%s: its header is no JSON object", what);
}

// ---------------------------------------------------------------- a tensor

lh_err dp_st_measure(const char *what, struct dp_st_tensor *t)
{
    bool none = false;
    t->values = 1;
    for (unsigned i = 0; i < t->dims; i++) none |= t->shape[i] == 0;
    for (unsigned i = 0; i < t->dims && !none; i++) {
        if (t->shape[i] > SIZE_LIMIT / t->values)
            return lh_fail(LH_ERR_TOO_LARGE, "%s: tensor %s: its shape has more than 2^56 values",
                           what, t->name);
        t->values *= t->shape[i];
    }
    if (none) t->values = 0;
    uint64_t bits = t->values * dp_dtype_bits(t->dtype);
    t->bytes = bits / 8;
    if (bits % 8 == 0) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "%s: tensor %s: %" PRIu64 " values of %s end inside a byte",
                   what, t->name, t->values, dp_dtype_name(t->dtype));
}

static LH_MUST lh_err read_dtype(const char *what, const json_t *entry, struct dp_st_tensor *t)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name) return lh_fail(LH_ERR_MALFORMED, "%s: tensor %.200s: no \"dtype\"", what, t->name);
    if (dp_dtype_parse(name, &t->dtype)) return LH_OK;
    struct lh_nearest nearest = lh_nearest(name);
    for (int i = 0; i < DP_DTYPE_COUNT; i++)
        lh_nearest_try(&nearest, dp_dtype_name((enum dp_dtype)i));
    return lh_fail(LH_ERR_UNSUPPORTED,
                   "%s: tensor %.200s: dtype \"%.20s\" is not known%s%s%s; store it as F32, F16 or "
                   "BF16",
                   what, t->name, name, nearest.best ? " (is it " : "",
                   nearest.best ? nearest.best : "", nearest.best ? "?)" : "");
}

static bool whole(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static LH_MUST lh_err read_shape(const char *what, const json_t *entry, struct dp_st_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t dims = json_array_size(shape);
    if (!json_is_array(shape) || dims > DP_ST_DIMS_MAX)
        return lh_fail(LH_ERR_MALFORMED,
                       "%s: tensor %.200s: \"shape\" must be a list of at most %d dimensions", what,
                       t->name, DP_ST_DIMS_MAX);
    t->dims = (unsigned)dims;
    for (size_t i = 0; i < dims; i++)
        if (!whole(json_array_get(shape, i), &t->shape[i]))
            return lh_fail(LH_ERR_MALFORMED,
                           "%s: tensor %.200s: dimension %zu is no whole number from 0 on", what,
                           t->name, i);
    return dp_st_measure(what, t);
}

static LH_MUST lh_err read_place(const char *what, const json_t *entry, uint64_t data_bytes,
                                 struct dp_st_tensor *t)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t from, to;
    if (json_array_size(offsets) != 2 || !whole(json_array_get(offsets, 0), &from) ||
        !whole(json_array_get(offsets, 1), &to) || from > to)
        return lh_fail(
            LH_ERR_MALFORMED,
            "%s: tensor %.200s: \"data_offsets\" must be [from, to], whole and ascending", what,
            t->name);
    if (to > data_bytes)
        return lh_fail(LH_ERR_MALFORMED,
                       "%s: tensor %.200s ends at byte %" PRIu64 " of %" PRIu64
                       ": the file is cut off; copy it again",
                       what, t->name, to, data_bytes);
    if (to - from != t->bytes)
        return lh_fail(LH_ERR_MALFORMED,
                       "%s: tensor %.200s: its shape and %s need %" PRIu64
                       " bytes, data_offsets give %" PRIu64,
                       what, t->name, dp_dtype_name(t->dtype), t->bytes, to - from);
    t->at = from;
    return LH_OK;
}

static LH_MUST lh_err check_metadata(const char *what, const json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return lh_fail(LH_ERR_MALFORMED, "%s: \"%s\" must be an object of texts", what, METADATA);
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value))
            return lh_fail(LH_ERR_MALFORMED, "%s: \"%s\": the value of \"%.60s\" must be a text",
                           what, METADATA, key);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- all of them

static int by_place(const void *a, const void *b)
{
    const struct dp_st_tensor *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static LH_MUST lh_err check_cover(const char *what, const struct dp_st *st, uint64_t data_bytes)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < st->tensors; i++) {
        const struct dp_st_tensor *t = &st->tensor[i];
        if (t->at < end)
            return lh_fail(LH_ERR_MALFORMED,
                           "%s: tensor %.150s begins at byte %" PRIu64
                           ", inside of tensor %.150s, which ends at %" PRIu64,
                           what, t->name, t->at, st->tensor[i - 1].name, end);
        if (t->at > end)
            return lh_fail(LH_ERR_MALFORMED,
                           "%s: a hole before tensor %.200s: no tensor has bytes %" PRIu64
                           " to %" PRIu64,
                           what, t->name, end, t->at);
        end = t->at + t->bytes;
    }
    if (end == data_bytes) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED,
                   "%s: its tensors end at byte %" PRIu64 " of %" PRIu64
                   ": what follows belongs to none",
                   what, end, data_bytes);
}

static LH_MUST lh_err read_tensors(const char *what, uint64_t data_bytes, struct dp_st *st)
{
    const char *key;
    json_t *entry;
    size_t count = json_object_size(st->root) - (json_object_get(st->root, METADATA) != NULL);
    if (count > DP_ST_TENSORS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%s: %zu tensors, at most %d", what, count,
                       DP_ST_TENSORS_MAX);
    st->tensor = calloc(count + 1, sizeof *st->tensor);
    if (!st->tensor) return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for %zu tensors", what, count);
    json_object_foreach(st->root, key, entry)
    {
        if (!strcmp(key, METADATA)) {
            LH_TRY(check_metadata(what, entry));
            continue;
        }
        struct dp_st_tensor *t = &st->tensor[st->tensors++];
        t->name = key;
        if (!json_is_object(entry))
            return lh_fail(LH_ERR_MALFORMED, "%s: tensor %.200s: its entry is no object", what,
                           key);
        LH_TRY(read_dtype(what, entry, t));
        LH_TRY(read_shape(what, entry, t));
        LH_TRY(read_place(what, entry, data_bytes, t));
    }
    qsort(st->tensor, st->tensors, sizeof *st->tensor, by_place);
    return check_cover(what, st, data_bytes);
}

lh_err dp_st_parse(const char *what, struct lh_span header, uint64_t data_bytes, struct dp_st *out)
{
    *out = (struct dp_st){.data_at = DP_ST_LENGTH_BYTES + header.len};
    LH_TRY(load(what, header, &out->root));
    lh_err err = read_tensors(what, data_bytes, out);
    if (err) dp_st_free(out);
    return err;
}

void dp_st_free(struct dp_st *st)
{
    free(st->tensor);
    json_decref(st->root);
    *st = (struct dp_st){.tensor = NULL};
}

// ---------------------------------------------------------------- writing

static json_t *entry_of(const struct dp_st_tensor *t)
{
    json_t *shape = json_array();
    for (unsigned i = 0; i < t->dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    return json_pack("{s:s s:o s:[I,I]}", "dtype", dp_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)t->at, (json_int_t)(t->at + t->bytes));
}

lh_err dp_st_header(struct dp_st_tensor *tensor, uint32_t tensors, json_t *metadata,
                    struct lh_buf *out)
{
    uint64_t end = 0;
    json_t *root = json_object();
    bool failed = metadata && json_object_set(root, METADATA, metadata);
    for (uint32_t i = 0; i < tensors; i++) {
        tensor[i].at = end;
        end += tensor[i].bytes;
        failed |= json_object_set_new(root, tensor[i].name, entry_of(&tensor[i])) != 0;
    }
    char *text = failed ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the header of %u tensors", tensors);
    size_t len = strlen(text), pad = (8 - len % 8) % 8;
    lh_put_u64(out, len + pad);
    lh_put(out, text, len);
    for (size_t i = 0; i < pad; i++) lh_put_u8(out, ' ');
    free(text);
    return lh_buf_err(out);
}

static int by_width(const void *a, const void *b)
{
    const struct dp_st_tensor *x = a, *y = b;
    if (x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

void dp_st_sort(struct dp_st_tensor *tensor, uint32_t tensors)
{
    qsort(tensor, tensors, sizeof *tensor, by_width);
}
