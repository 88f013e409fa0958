// Checkpoints in an object store. See stored.h.
//
//  1. NAME.json is the commit: it is written after the file and removed before it.
// 2. A file without NAME.json is removed only if a newer checkpoint of its channel is stored: a
// newer file may still be uploading.
#include "kernels/storage/stored.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "common/objects/address.h"
#include "kernels/storage/checkpoint_read.h"

enum { HASH_DIGITS = 32, ABOUT_BYTES = 4096 };
static const char SCHEMA[] = "longhaul.stored/1", MARK[] = "json";

// ---------------------------------------------------------------- names

void lk_stored_name(const struct lk_stored *s, char out[LK_STORED_NAME_BYTES])
{
    snprintf(out, LK_STORED_NAME_BYTES, "%04" PRIx32 "-%016" PRIx64 "-%016" PRIx64 ".%s",
             s->name.shard, s->epoch, s->name.version, s->name.weights ? "weights" : "ckpt");
}

static void key_of(const struct lk_stored *s, const char *behind, char out[LH_OBJECT_KEY_BYTES])
{
    char name[LK_STORED_NAME_BYTES];
    lk_stored_name(s, name);
    snprintf(out, LH_OBJECT_KEY_BYTES, "%s.%.*s", name, HASH_DIGITS, behind);
}

// Reads exactly n lower-case hexadecimal digits.
static bool digits(const char **at, int n, uint64_t *out)
{
    static const char hex[] = "0123456789abcdef";
    *out = 0;
    for (int i = 0; i < n; i++, (*at)++) {
        const char *digit = **at ? strchr(hex, **at) : NULL;
        if (!digit) return false;
        *out = *out << 4 | (uint64_t)(digit - hex);
    }
    return true;
}

static bool word(const char **at, const char *text)
{
    size_t n = strlen(text);
    bool is = !strncmp(*at, text, n);
    *at += is ? n : 0;
    return is;
}

// *behind: the part of the key after NAME and the dot. False: not a checkpoint's key.
static bool parse(const char *key, struct lk_stored *out, const char **behind)
{
    uint64_t shard;
    const char *at = key;
    if (!digits(&at, 4, &shard) || !word(&at, "-") || !digits(&at, 16, &out->epoch) ||
        !word(&at, "-") || !digits(&at, 16, &out->name.version) || !word(&at, "."))
        return false;
    out->name.shard = (uint32_t)shard;
    out->name.weights = word(&at, "weights.");
    if (!out->name.weights && !word(&at, "ckpt.")) return false;
    *behind = at;
    return !strcmp(at, MARK) || strlen(at) == HASH_DIGITS;
}

static int by_age(const void *a, const void *b)
{
    const struct lk_stored *x = a, *y = b;
    if (x->name.shard != y->name.shard) return x->name.shard < y->name.shard ? -1 : 1;
    if (x->name.weights != y->name.weights) return x->name.weights ? 1 : -1;
    if (x->epoch != y->epoch) return x->epoch < y->epoch ? -1 : 1;
    return x->name.version < y->name.version ? -1 : x->name.version > y->name.version;
}

// ---------------------------------------------------------------- listing

struct listing {
    struct lk_stored *at;
    size_t count, room;
};

static lh_err list_one(void *arg, const char *key, uint64_t bytes)
{
    struct listing *l = arg;
    struct lk_stored s;
    const char *behind;
    (void)bytes;
    if (!parse(key, &s, &behind) || strcmp(behind, MARK) != 0) return LH_OK;
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct lk_stored *more = reallocarray(l->at, room, sizeof *more);
        if (!more) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a list of checkpoints");
        l->at = more;
        l->room = room;
    }
    l->at[l->count++] = s;
    return LH_OK;
}

lh_err lk_stored_list(struct lh_objects *o, uint32_t shard, struct lk_stored_list *out)
{
    struct listing l = {.at = NULL};
    char prefix[8] = "";
    if (shard != LK_STORED_ALL) snprintf(prefix, sizeof prefix, "%04" PRIx32 "-", shard & 0xffff);
    lh_err err = o->ops->list(o, prefix, list_one, &l);
    if (!err && l.count) qsort(l.at, l.count, sizeof *l.at, by_age);
    *out = (struct lk_stored_list){l.at, err ? 0 : l.count};
    return err;
}

void lk_stored_list_free(struct lk_stored_list *list)
{
    free(list->at);
    *list = (struct lk_stored_list){NULL, 0};
}

// ---------------------------------------------------------------- what is said of one

static LH_MUST lh_err read_about(const char *key, struct lh_span text, struct lk_stored_about *out)
{
    json_t *root = NULL;
    LH_TRY(lh_json_load(key, text, ABOUT_BYTES, &root));
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const char *sha256 = json_string_value(json_object_get(root, "sha256"));
    json_int_t bytes = json_integer_value(json_object_get(root, "bytes"));
    bool fine = schema && sha256 && !strcmp(schema, SCHEMA) && bytes > 0 &&
                strlen(sha256) == LH_OBJECT_HASH_BYTES - 1 &&
                strspn(sha256, "0123456789abcdef") == LH_OBJECT_HASH_BYTES - 1;
    if (fine) {
        out->bytes = (uint64_t)bytes;
        out->time_s = json_integer_value(json_object_get(root, "time_s"));
        snprintf(out->sha256, sizeof out->sha256, "%s", sha256);
    }
    json_decref(root);
    return fine ? LH_OK : lh_fail(LH_ERR_CORRUPT, "%s does not say what was stored", key);
}

lh_err lk_stored_about(struct lh_objects *o, const struct lk_stored *s, struct lk_stored_about *out)
{
    char key[LH_OBJECT_KEY_BYTES];
    struct lh_buf text = lh_buf(ABOUT_BYTES);
    *out = (struct lk_stored_about){.bytes = 0};
    key_of(s, MARK, key);
    lh_err err = o->ops->get(o, key, &text);
    if (!err) err = read_about(key, lh_buf_span(&text), out);
    lh_buf_free(&text);
    return err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE
               ? lh_fail(LH_ERR_CORRUPT, "%s can't be read", key)
               : err;
}

// ---------------------------------------------------------------- put, get

static LH_MUST lh_err commit(struct lh_objects *o, struct lh_env *env, const struct lk_stored *s,
                             const char *sha256, uint64_t bytes)
{
    char key[LH_OBJECT_KEY_BYTES];
    struct lk_stored_about is;
    struct lh_buf text = lh_buf(ABOUT_BYTES);
    key_of(s, MARK, key);
    lh_json_put(&text,
                "{\"schema\": \"%s\", \"bytes\": %" PRIu64 ", \"sha256\": \"%s\", \"time_s\": "
                "%" PRId64 "}\n",
                SCHEMA, bytes, sha256, env->ops->wall_s(env));
    lh_err err = lh_buf_err(&text);
    if (!err) err = o->ops->put_new(o, key, lh_buf_span(&text));
    lh_buf_free(&text);
    if (err != LH_ERR_EXISTS) return err;
    LH_TRY(lk_stored_about(o, s, &is)); // ours, if an answer was lost; or another process was first
    return strcmp(is.sha256, sha256) != 0 ? LH_ERR_EXISTS : LH_OK;
}

lh_err lk_stored_put(struct lh_objects *o, struct lh_env *env, const char *dir,
                     const struct lk_checkpoint_name *name, uint64_t *bytes)
{
    char path[LH_PATH_BYTES], key[LH_OBJECT_KEY_BYTES], sha256[LH_OBJECT_HASH_BYTES];
    struct lk_checkpoint_info info;
    struct lk_stored s = {.name = *name};
    uint64_t size = 0;
    *bytes = 0;
    LH_TRY(lk_checkpoint_path(dir, name, path));
    LH_TRY(lk_checkpoint_peek(env, path, &info));
    s.epoch = info.epoch;
    key_of(&s, MARK, key);
    lh_err err = lh_object_size(o, key, &size);
    if (err != LH_ERR_NOT_FOUND) return err; // it is stored, where there is no error
    LH_TRY(lh_object_hash(env, path, sha256, &size));
    key_of(&s, sha256, key);
    LH_TRY(o->ops->put(o, key, path));
    err = commit(o, env, &s, sha256, size);
    if (err == LH_ERR_EXISTS) return o->ops->remove(o, key);
    if (!err) *bytes = size;
    return err;
}

lh_err lk_stored_get(struct lh_objects *o, struct lh_env *env, const struct lk_stored *s,
                     const char *path)
{
    char key[LH_OBJECT_KEY_BYTES], sha256[LH_OBJECT_HASH_BYTES];
    struct lk_stored_about about;
    uint64_t bytes = 0;
    LH_TRY(lk_stored_about(o, s, &about));
    key_of(s, about.sha256, key);
    lh_err err = o->ops->get_file(o, key, about.bytes, path);
    if (err == LH_ERR_NOT_FOUND)
        err = lh_fail(LH_ERR_CORRUPT, "%s is gone, though it was stored", key);
    if (!err) err = lh_object_hash(env, path, sha256, &bytes);
    if (!err && strcmp(sha256, about.sha256) != 0)
        err = lh_fail(LH_ERR_CORRUPT, "%s is damaged in the store: its SHA-256 differs", key);
    if (!err) return LH_OK;
    struct lh_err_said said;
    lh_err_take(&said);
    (void)env->ops->files->remove(env, path) /* it may not have been made */;
    lh_err_give(&said);
    return err;
}

// ---------------------------------------------------------------- prune

// Collects the keys of files to remove during the listing.
struct pruning {
    const struct lk_stored_list *list;
    size_t keep; // index of the oldest one kept
    char (*key)[LH_OBJECT_KEY_BYTES];
    size_t keys, room;
};

static bool stays(const struct pruning *p, const struct lk_stored *s)
{
    const struct lk_stored *newest = &p->list->at[p->list->count - 1];
    if (by_age(s, newest) > 0) return true; // it may still be uploading
    for (size_t i = p->keep; i < p->list->count; i++)
        if (!by_age(s, &p->list->at[i])) return true;
    return false;
}

static lh_err note_file(void *arg, const char *key, uint64_t bytes)
{
    struct pruning *p = arg;
    struct lk_stored s;
    const char *behind;
    (void)bytes;
    if (!parse(key, &s, &behind) || !strcmp(behind, MARK)) return LH_OK;
    if (s.name.weights != p->list->at[0].name.weights || stays(p, &s)) return LH_OK;
    if (p->keys == p->room) {
        size_t room = p->room ? 2 * p->room : 16;
        void *more = reallocarray(p->key, room, sizeof *p->key);
        if (!more) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a list of files");
        p->key = more;
        p->room = room;
    }
    snprintf(p->key[p->keys++], LH_OBJECT_KEY_BYTES, "%s", key);
    return LH_OK;
}

static LH_MUST lh_err prune(struct lh_objects *o, const struct lk_stored_list *list, unsigned keep,
                            void (*removed)(void *arg, const struct lk_stored *s), void *arg)
{
    struct pruning p = {.list = list, .keep = list->count > keep ? list->count - keep : 0};
    char key[LH_OBJECT_KEY_BYTES], prefix[8];
    lh_err err = LH_OK;
    for (size_t i = 0; !err && i < p.keep; i++) {
        key_of(&list->at[i], MARK, key);
        err = o->ops->remove(o, key);
        if (!err && removed) removed(arg, &list->at[i]);
    }
    snprintf(prefix, sizeof prefix, "%04" PRIx32 "-", list->at[0].name.shard & 0xffff);
    if (!err) err = o->ops->list(o, prefix, note_file, &p);
    for (size_t i = 0; !err && i < p.keys; i++) err = o->ops->remove(o, p.key[i]);
    free(p.key);
    return err;
}

lh_err lk_stored_prune(struct lh_objects *o, uint32_t shard, bool weights, unsigned keep,
                       void (*removed)(void *arg, const struct lk_stored *s), void *arg)
{
    struct lk_stored_list all;
    LH_ASSERT(keep > 0);
    lh_err err = lk_stored_list(o, shard, &all);
    size_t from = 0, to;
    while (from < all.count && all.at[from].name.weights != weights) from++;
    for (to = from; to < all.count && all.at[to].name.weights == weights;) to++;
    const struct lk_stored_list of = {all.at + from, to - from};
    if (!err && of.count) err = prune(o, &of, keep, removed, arg);
    lk_stored_list_free(&all);
    return err;
}
