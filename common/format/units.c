// The data's manifest: parse and write. See units.h for the file.
//
// Invariants of parsed units (and of those that may be written):
//   1. unit[i].id == i; unit_tokens of the file is the size of its largest unit.
//   2. A unit lies within the 2^31 - 1 tokens that a token file's header can count.
//   3. No token belongs to two units: it would be credited twice.
//   4. File names are plain names in the manifest's own folder and cannot lead out of it.
//
// A manifest may have a million units. They are parsed one by one, so that the whole document's
// tree is never in memory; the rest of the document is small.
#include "common/format/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/format/json.h"
#include "common/format/units_index.h"

enum {
    UNITS_MAX = 1 << 20, // a trillion tokens in units of a million
    HELDOUT_MAX = 1024,  // languages
    FILE_BYTES_MAX = 512 * 1024 * 1024,
    REST_BYTES_MAX = 4 << 20, // the document without its units
};
LH_STATIC_ASSERT((int)UNITS_MAX <= (int)LH_UNITS_MAX, "the units of one epoch are units of a run");
#define FILE_TOKENS_MAX (uint64_t) INT32_MAX // the .bin header counts in an int32
#define VOCABULARY_MAX (UINT64_C(1) << 31)

static const char schema[] = "longhaul.units/1";

// ---------------------------------------------------------------- checks

// Whether this is a word of letters, digits and "._-", not starting with '.', shorter than `size`:
// safe in a path, in a log line and unescaped in JSON.
static bool good_word(const char *s, size_t size)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t len = strnlen(s, size);
    return len > 0 && len < size && s[0] != '.' && strspn(s, letters) == len && !strstr(s, "..");
}

lh_err lh_unit_check(const struct lh_unit *u, uint64_t i)
{
    if (u->id != i)
        return lh_fail(LH_ERR_INVALID,
                       "units: unit number %" PRIu64 " has id %" PRIu64 "; ids are 0, 1, 2, ...", i,
                       u->id);
    if (!good_word(u->file, sizeof u->file))
        return lh_fail(LH_ERR_INVALID,
                       "units: unit %" PRIu64 ": file must be a plain name of letters, digits and "
                       "._- in the manifest's folder",
                       i);
    if (!good_word(u->language, sizeof u->language) || !good_word(u->home, sizeof u->home))
        return lh_fail(LH_ERR_INVALID,
                       "units: unit %" PRIu64 ": language (up to %zu) and home (up to %zu) are "
                       "letters, digits and ._-",
                       i, sizeof u->language - 1, sizeof u->home - 1);
    if (u->tokens < 1 || u->tokens > FILE_TOKENS_MAX || u->from > FILE_TOKENS_MAX - u->tokens)
        return lh_fail(LH_ERR_INVALID,
                       "units: unit %" PRIu64 ": %" PRIu64 " tokens from %" PRIu64
                       "; at least 1, and all below 2^31",
                       i, u->tokens, u->from);
    return LH_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct lh_unit *const *x = a, *const *y = b;
    int order = strcmp((*x)->file, (*y)->file);
    if (order) return order;
    return ((*x)->from > (*y)->from) - ((*x)->from < (*y)->from);
}

static lh_err check_no_overlap(const struct lh_units *u)
{
    const struct lh_unit **sorted = calloc(u->count, sizeof *sorted);
    if (!sorted)
        return lh_fail(LH_ERR_NO_MEMORY, "units: no memory for %" PRIu64 " of them", u->count);
    for (uint64_t i = 0; i < u->count; i++) sorted[i] = &u->unit[i];
    qsort(sorted, u->count, sizeof *sorted, by_place);
    lh_err err = LH_OK;
    for (uint64_t i = 1; i < u->count && !err; i++) {
        const struct lh_unit *a = sorted[i - 1], *b = sorted[i];
        if (!strcmp(a->file, b->file) && b->from < a->from + a->tokens)
            err = lh_fail(LH_ERR_INVALID,
                          "units: units %" PRIu64 " and %" PRIu64 " share tokens of %s", a->id,
                          b->id, a->file);
    }
    free(sorted);
    return err;
}

lh_err lh_heldout_check(const struct lh_units *u, uint32_t i)
{
    const struct lh_heldout *h = &u->heldout[i];
    if (!good_word(h->file, sizeof h->file) || !good_word(h->language, sizeof h->language))
        return lh_fail(LH_ERR_INVALID,
                       "units: heldout number %u: file and language are letters, digits and ._-",
                       i);
    if (h->tokens < 1 || h->tokens > FILE_TOKENS_MAX || h->bytes < 1 || h->bytes > INT64_MAX)
        return lh_fail(LH_ERR_INVALID,
                       "units: heldout number %u: tokens must be 1 to 2^31 - 1, bytes at least 1",
                       i);
    for (uint32_t j = 0; j < i; j++)
        if (!strcmp(u->heldout[j].language, h->language))
            return lh_fail(LH_ERR_INVALID, "units: language %s is held out twice", h->language);
    return LH_OK;
}

lh_err lh_units_check_head(const struct lh_units *u)
{
    if (u->token_bytes != 2 && u->token_bytes != 4)
        return lh_fail(LH_ERR_INVALID, "units: a token has 2 or 4 bytes, not %u", u->token_bytes);
    if (u->vocabulary < 1 || u->vocabulary > VOCABULARY_MAX ||
        (u->token_bytes == 2 && u->vocabulary > 65536))
        return lh_fail(LH_ERR_INVALID,
                       "units: a vocabulary of %u; at least 1, at most 65536 with u16 and 2^31 "
                       "with u32",
                       u->vocabulary);
    if (u->count < 1 || u->count > UNITS_MAX || u->heldout_count > HELDOUT_MAX)
        return lh_fail(LH_ERR_INVALID,
                       "units: %" PRIu64 " units and %u heldout files; 1 to %d, and up to %d",
                       u->count, u->heldout_count, UNITS_MAX, HELDOUT_MAX);
    return LH_OK;
}

static lh_err check_all(const struct lh_units *u)
{
    LH_TRY(lh_units_check_head(u));
    for (uint64_t i = 0; i < u->count; i++) LH_TRY(lh_unit_check(&u->unit[i], i));
    for (uint32_t i = 0; i < u->heldout_count; i++) LH_TRY(lh_heldout_check(u, i));
    return check_no_overlap(u);
}

static uint64_t largest_unit(const struct lh_units *u)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < u->count; i++)
        most = u->unit[i].tokens > most ? u->unit[i].tokens : most;
    return most;
}

lh_err lh_units_check_epochs(const struct lh_units *u, uint64_t epochs)
{
    uint64_t most = LH_UNITS_MAX / u->count;
    if (epochs >= 1 && epochs <= most) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "%" PRIu64 " data epochs of %" PRIu64
                   " units: a run has at least one epoch, and "
                   "epochs x units up to %d; with these units up to %" PRIu64
                   " epochs, with larger units more",
                   epochs, u->count, LH_UNITS_MAX, most);
}

// ---------------------------------------------------------------- parse

// Copies a JSON string into a field; refuses a longer one, never cuts it.
static lh_err set_text(char *out, size_t size, const char *text, const char *key)
{
    if (strlen(text) >= size)
        return lh_fail(LH_ERR_TOO_LARGE, "units: %s '%.40s...' is longer than %zu bytes", key, text,
                       size - 1);
    snprintf(out, size, "%s", text);
    return LH_OK;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static lh_err set_sha256(uint8_t out[32], const char *text)
{
    bool good = strlen(text) == 64;
    for (int i = 0; good && i < 32; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        if (good) out[i] = (uint8_t)(high << 4 | low);
    }
    if (good) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "units: sha256 '%.70s' is not 64 digits 0-9a-f", text);
}

static lh_err set_count(uint64_t *out, json_int_t value, const char *key)
{
    if (value < 0) return lh_fail(LH_ERR_INVALID, "units: %s is below 0", key);
    *out = (uint64_t)value;
    return LH_OK;
}

static lh_err read_unit(struct lh_unit *u, json_t *row, size_t i)
{
    json_error_t why;
    json_int_t id, from, tokens;
    const char *file, *language, *home, *sha256;
    int may_leave;
    if (json_unpack_ex(row, &why, JSON_STRICT, "{s:I, s:s, s:I, s:I, s:s, s:s, s:s, s:b}", "id",
                       &id, "file", &file, "from", &from, "tokens", &tokens, "language", &language,
                       "home", &home, "sha256", &sha256, "may_leave", &may_leave))
        return lh_fail(LH_ERR_MALFORMED, "units: unit number %zu: %s", i, why.text);
    LH_TRY(set_count(&u->id, id, "id"));
    LH_TRY(set_count(&u->from, from, "from"));
    LH_TRY(set_count(&u->tokens, tokens, "tokens"));
    LH_TRY(set_text(u->file, sizeof u->file, file, "file"));
    LH_TRY(set_text(u->language, sizeof u->language, language, "language"));
    LH_TRY(set_text(u->home, sizeof u->home, home, "home"));
    u->may_leave = may_leave != 0;
    return set_sha256(u->sha256, sha256);
}

static lh_err read_heldout(struct lh_heldout *h, json_t *row, size_t i)
{
    json_error_t why;
    json_int_t tokens, bytes;
    const char *file, *language, *sha256;
    if (json_unpack_ex(row, &why, JSON_STRICT, "{s:s, s:s, s:I, s:I, s:s}", "language", &language,
                       "file", &file, "tokens", &tokens, "bytes", &bytes, "sha256", &sha256))
        return lh_fail(LH_ERR_MALFORMED, "units: heldout number %zu: %s", i, why.text);
    LH_TRY(set_count(&h->tokens, tokens, "tokens"));
    LH_TRY(set_count(&h->bytes, bytes, "bytes"));
    LH_TRY(set_text(h->file, sizeof h->file, file, "file"));
    LH_TRY(set_text(h->language, sizeof h->language, language, "language"));
    return set_sha256(h->sha256, sha256);
}

static lh_err read_heldouts(struct lh_units *u, const json_t *heldout)
{
    size_t count = json_array_size(heldout);
    if (!json_is_array(heldout) || count > HELDOUT_MAX)
        return lh_fail(LH_ERR_MALFORMED, "units: \"heldout\" must be a list of up to %d",
                       HELDOUT_MAX);
    u->heldout = calloc(count + 1, sizeof *u->heldout); // never 0 bytes
    if (!u->heldout) return lh_fail(LH_ERR_NO_MEMORY, "units: no memory for %zu files", count);
    u->heldout_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        LH_TRY(read_heldout(&u->heldout[i], json_array_get(heldout, i), i));
    return LH_OK;
}

// Reads all but the units; *unit_tokens: the largest unit's size according to the document.
static lh_err read_root(struct lh_units *u, json_t *root, uint64_t *unit_tokens)
{
    const char *is = json_string_value(json_object_get(root, "schema")), *dtype;
    if (!is || strcmp(is, schema) != 0)
        return lh_fail(LH_ERR_MALFORMED,
                       "units: schema is '%.40s', this build reads '%s': run `longhaul data "
                       "prepare` again",
                       is ? is : "(none)", schema);
    json_error_t why;
    json_int_t vocabulary, largest;
    json_t *units, *heldout;
    if (json_unpack_ex(root, &why, JSON_STRICT, "{s:s, s:I, s:s, s:I, s:o, s:o}", "schema", &is,
                       "vocabulary", &vocabulary, "dtype", &dtype, "unit_tokens", &largest, "units",
                       &units, "heldout", &heldout))
        return lh_fail(LH_ERR_MALFORMED, "units: %s", why.text);
    bool narrow = !strcmp(dtype, "u16");
    if (!narrow && strcmp(dtype, "u32") != 0)
        return lh_fail(LH_ERR_INVALID, "units: dtype is '%.20s'; u16 or u32", dtype);
    if (vocabulary < 1 || (uint64_t)vocabulary > VOCABULARY_MAX)
        return lh_fail(LH_ERR_INVALID, "units: \"vocabulary\" must be 1 to 2^31");
    if (!json_is_array(units) || json_array_size(units))
        return lh_fail(LH_ERR_MALFORMED, "units: \"units\" must be a list of 1 to %d", UNITS_MAX);
    u->token_bytes = narrow ? 2 : 4;
    u->vocabulary = (uint32_t)vocabulary;
    LH_TRY(set_count(unit_tokens, largest, "unit_tokens"));
    return read_heldouts(u, heldout);
}

// ---------------------------------------------------------------- the list of units

static size_t skip_blanks(struct lh_span text, size_t at)
{
    while (at < text.len && memchr(" \t\r\n", text.data[at], 4)) at++;
    return at;
}

// The position after the string that begins at `at`; the text's end if the string does not end.
static size_t skip_string(struct lh_span text, size_t at)
{
    for (at++; at < text.len && text.data[at] != '"'; at++)
        if (text.data[at] == '\\') at++;
    return at < text.len ? at + 1 : text.len;
}

// The position after the object or list that begins at `at`; the text's end if it does not end.
static size_t skip_value(struct lh_span text, size_t at)
{
    for (int depth = 0; at < text.len;) {
        uint8_t c = text.data[at];
        if (c == '"') {
            at = skip_string(text, at);
            continue;
        }
        at++;
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && --depth == 0) return at;
    }
    return text.len;
}

static size_t list_after_key(struct lh_span text, size_t at)
{
    at = skip_blanks(text, at);
    if (at == text.len || text.data[at] != ':') return text.len;
    at = skip_blanks(text, at + 1);
    return at < text.len && text.data[at] == '[' ? at : text.len;
}

// The list of the document's top-level key "units". Empty: none.
static struct lh_span list_of(struct lh_span text)
{
    static const char key[] = "\"units\"";
    for (size_t at = 0, depth = 0; at < text.len;) {
        uint8_t c = text.data[at];
        size_t end = c == '"' ? skip_string(text, at) : at + 1;
        bool is_key = depth == 1 && end - at == sizeof key - 1 &&
                      memcmp(text.data + at, key, sizeof key - 1) == 0;
        size_t list = is_key ? list_after_key(text, end) : text.len;
        if (list < text.len) return lh_span(text.data + list, skip_value(text, list) - list);
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && depth) depth--;
        at = end;
    }
    return lh_span(text.data, 0);
}

static lh_err put_unit(struct lh_span text, uint64_t i, lh_unit_sink *put, void *arg)
{
    json_error_t why;
    json_t *row = json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, &why);
    struct lh_unit unit = {0};
    if (!row) return lh_fail(LH_ERR_MALFORMED, "units: unit number %" PRIu64 ": %s", i, why.text);
    lh_err err = read_unit(&unit, row, i);
    json_decref(row);
    if (!err) err = lh_unit_check(&unit, i);
    return err ? err : put(arg, &unit);
}

static lh_err read_list(struct lh_span list, uint64_t *count, lh_unit_sink *put, void *arg)
{
    size_t at = skip_blanks(list, 1);
    bool more = true; // another object must follow
    for (*count = 0; more && *count < UNITS_MAX && at < list.len && list.data[at] == '{';) {
        size_t end = skip_value(list, at);
        LH_TRY(put_unit(lh_span(list.data + at, end - at), (*count)++, put, arg));
        at = skip_blanks(list, end);
        more = at < list.len && list.data[at] == ',';
        if (more) at = skip_blanks(list, at + 1);
    }
    if (!more && at + 1 == list.len && list.data[at] == ']') return LH_OK;
    return lh_fail(LH_ERR_MALFORMED,
                   "units: \"units\" must be a list of 1 to %d objects; what follows unit number "
                   "%" PRIu64 " is none",
                   UNITS_MAX, *count);
}

lh_err lh_units_scan(struct lh_units *u, struct lh_span json, lh_unit_sink *put, void *arg,
                     uint64_t *unit_tokens)
{
    struct lh_buf rest = lh_buf(REST_BYTES_MAX);
    struct lh_span list = list_of(json);
    json_t *root = NULL;
    *u = (struct lh_units){0};
    if (json.len > FILE_BYTES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "units: %zu bytes; at most %d", json.len, FILE_BYTES_MAX);
    size_t before = list.len ? (size_t)(list.data - json.data) : json.len;
    lh_put(&rest, json.data, before);
    if (list.len) lh_put(&rest, "[]", 2);
    if (list.len) lh_put(&rest, list.data + list.len, json.len - before - list.len);
    lh_err err = lh_buf_err(&rest);
    if (!err) err = lh_json_load("units", lh_buf_span(&rest), REST_BYTES_MAX, &root);
    if (!err) err = read_root(u, root, unit_tokens);
    if (!err) err = read_list(list, &u->count, put, arg);
    json_decref(root);
    lh_buf_free(&rest);
    if (!err) u->hash = lh_hash_of(lh_span(NULL, 0), &json, 1);
    return err;
}

lh_err lh_units_check(const struct lh_units *u, uint64_t unit_tokens)
{
    LH_TRY(check_all(u));
    if (unit_tokens == largest_unit(u)) return LH_OK;
    return lh_fail(LH_ERR_INVALID,
                   "units: \"unit_tokens\" is not the size of the largest unit, %" PRIu64,
                   largest_unit(u));
}

struct growing {
    struct lh_unit *unit;
    uint64_t count, cap;
};

static lh_err append(void *arg, const struct lh_unit *unit)
{
    struct growing *g = arg;
    if (g->count == g->cap) {
        uint64_t cap = 2 * g->cap + 16;
        struct lh_unit *grown = realloc(g->unit, cap * sizeof *grown);
        if (!grown)
            return lh_fail(LH_ERR_NO_MEMORY, "units: no memory for %" PRIu64 " of them", cap);
        g->unit = grown;
        g->cap = cap;
    }
    g->unit[g->count++] = *unit;
    return LH_OK;
}

lh_err lh_units_parse(struct lh_units *u, struct lh_span json)
{
    struct growing g = {0};
    uint64_t unit_tokens = 0;
    lh_err err = lh_units_scan(u, json, append, &g, &unit_tokens);
    u->unit = g.unit;
    u->count = g.count;
    if (!err) err = lh_units_check(u, unit_tokens);
    if (err) lh_units_free(u);
    return err;
}

void lh_units_free(struct lh_units *u)
{
    free(u->unit);
    free(u->heldout);
    *u = (struct lh_units){0};
}

// ---------------------------------------------------------------- write

static void put_sha256(struct lh_buf *out, const uint8_t sha256[32])
{
    struct lh_hash h;
    char hex[2 * LH_HASH_BYTES + 1];
    memcpy(h.b, sha256, sizeof h.b);
    lh_hash_hex(&h, hex);
    lh_json_put(out, ", \"sha256\": \"%s\"", hex);
}

lh_err lh_units_write(const struct lh_units *u, struct lh_buf *out)
{
    LH_TRY(check_all(u));
    lh_json_put(out,
                "{\"schema\": \"%s\", \"vocabulary\": %u, \"dtype\": \"u%u\", \"unit_tokens\": "
                "%" PRIu64 ",\n \"units\": [",
                schema, u->vocabulary, 8 * u->token_bytes, largest_unit(u));
    for (uint64_t i = 0; i < u->count; i++) {
        const struct lh_unit *x = &u->unit[i];
        lh_json_put(out,
                    "%s\n  {\"id\": %" PRIu64 ", \"file\": \"%s\", \"from\": %" PRIu64
                    ", \"tokens\": %" PRIu64 ", \"language\": \"%s\", \"home\": \"%s\"",
                    i ? "," : "", x->id, x->file, x->from, x->tokens, x->language, x->home);
        put_sha256(out, x->sha256);
        lh_json_put(out, ", \"may_leave\": %s}", x->may_leave ? "true" : "false");
    }
    lh_json_put(out, "],\n \"heldout\": [");
    for (uint32_t i = 0; i < u->heldout_count; i++) {
        const struct lh_heldout *x = &u->heldout[i];
        lh_json_put(out,
                    "%s\n  {\"language\": \"%s\", \"file\": \"%s\", \"tokens\": %" PRIu64
                    ", \"bytes\": %" PRIu64,
                    i ? "," : "", x->language, x->file, x->tokens, x->bytes);
        put_sha256(out, x->sha256);
        lh_json_put(out, "}");
    }
    lh_json_put(out, "]}\n");
    return lh_buf_err(out);
}
