// A folder's files in an object store. See upload.h.
#include "deploy/stored/upload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/format/json.h"
#include "common/objects/address.h"

static const char MARK[] = "stored.json", SCHEMA[] = "longhaul.files/1";

// ---------------------------------------------------------------- up

static LH_MUST lh_err read_mark(struct lh_objects *o, const char *address, json_t **out)
{
    struct lh_buf text = lh_buf(LH_OBJECT_SMALL);
    *out = NULL;
    lh_err err = o->ops->get(o, MARK, &text);
    if (!err) err = lh_json_load(MARK, lh_buf_span(&text), LH_OBJECT_SMALL, out);
    lh_buf_free(&text);
    const char *schema = json_string_value(json_object_get(*out, "schema"));
    if (err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE ||
        (!err && (!schema || strcmp(schema, SCHEMA) != 0)))
        err = lh_fail(LH_ERR_CORRUPT, "%s/%s does not say what was stored", address, MARK);
    if (!err) return LH_OK;
    json_decref(*out);
    *out = NULL;
    return err;
}

static LH_MUST lh_err check_free(const struct dp_upload *u)
{
    json_t *mark;
    lh_err err = read_mark(u->o, u->address, &mark);
    json_decref(mark);
    if (err == LH_ERR_NOT_FOUND) return LH_OK;
    return err ? err
               : lh_fail(LH_ERR_EXISTS, "%s holds files already (%s): take another prefix",
                         u->address, MARK);
}

lh_err dp_upload_begin(struct dp_upload *u, struct lh_env *env, struct lh_objects *o,
                       const char *address)
{
    *u = (struct dp_upload){.o = o, .env = env, .address = address, .files = json_array()};
    if (!u->files) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a list of files");
    return check_free(u);
}

lh_err dp_upload_file(struct dp_upload *u, const char *path, const char *name)
{
    char sha256[LH_OBJECT_HASH_BYTES];
    uint64_t bytes;
    if (!lh_object_key_fits(name) || !strcmp(name, MARK))
        return lh_fail(LH_ERR_INVALID,
                       "%.100s: a store takes names of letters, digits and -._, and not %s", name,
                       MARK);
    LH_TRY(lh_object_hash(u->env, path, sha256, &bytes));
    LH_TRY(check_free(u)); // another upload may have ended meanwhile
    LH_TRY(u->o->ops->put(u->o, name, path));
    json_t *row =
        json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)bytes, "sha256", sha256);
    if (json_array_append_new(u->files, row))
        return lh_fail(LH_ERR_NO_MEMORY, "no memory for a list of files");
    u->bytes += bytes;
    u->count++;
    return LH_OK;
}

// After an answer that was lost the mark is there, and is ours.
static LH_MUST lh_err commit(struct dp_upload *u)
{
    json_t *is, *mark = json_pack("{s:s, s:I, s:O}", "schema", SCHEMA, "time_s",
                                  (json_int_t)u->env->ops->wall_s(u->env), "files", u->files);
    char *text = mark ? json_dumps(mark, JSON_COMPACT) : NULL;
    lh_err err = text ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for %s", MARK);
    if (!err && strlen(text) > LH_OBJECT_SMALL)
        err = lh_fail(LH_ERR_TOO_LARGE, "%s: %u files are more than one address takes", u->address,
                      u->count);
    if (!err) err = u->o->ops->put_new(u->o, MARK, lh_span_str(text));
    if (err == LH_ERR_EXISTS) {
        err = read_mark(u->o, u->address, &is);
        if (!err && !json_equal(is, mark))
            err = lh_fail(LH_ERR_EXISTS,
                          "%s: another upload stored its files there at the same time, and the two "
                          "may be mixed: remove them and take a prefix for each",
                          u->address);
        json_decref(is);
    }
    free(text);
    json_decref(mark);
    return err;
}

lh_err dp_upload_end(struct dp_upload *u, lh_err err)
{
    if (!err) err = commit(u);
    json_decref(u->files);
    u->files = NULL;
    return err;
}

// ---------------------------------------------------------------- down

struct row {
    const char *name, *sha256;
    uint64_t bytes;
};

static LH_MUST lh_err read_row(const char *address, json_t *from, struct row *out)
{
    json_int_t bytes = json_integer_value(json_object_get(from, "bytes"));
    out->name = json_string_value(json_object_get(from, "name"));
    out->sha256 = json_string_value(json_object_get(from, "sha256"));
    out->bytes = (uint64_t)bytes;
    bool fine = out->name && out->sha256 && lh_object_key_fits(out->name) && bytes >= 0 &&
                json_is_integer(json_object_get(from, "bytes")) &&
                strlen(out->sha256) == LH_OBJECT_HASH_BYTES - 1;
    return fine ? LH_OK
                : lh_fail(LH_ERR_CORRUPT, "%s/%s does not say what was stored", address, MARK);
}

static LH_MUST lh_err is_right(struct lh_env *env, const char *path, const struct row *r,
                               bool *right)
{
    char sha256[LH_OBJECT_HASH_BYTES];
    uint64_t bytes;
    LH_TRY(lh_object_hash(env, path, sha256, &bytes));
    *right = bytes == r->bytes && !strcmp(sha256, r->sha256);
    return LH_OK;
}

static LH_MUST lh_err fetch_file(struct lh_env *env, struct lh_objects *o, const char *address,
                                 const char *folder, const struct row *r)
{
    char path[DP_PATH_BYTES], fresh[DP_PATH_BYTES];
    bool right = false;
    LH_TRY(dp_path(path, "%s/%s", folder, r->name));
    LH_TRY(dp_path(fresh, "%s.tmp", path));
    if (dp_file_exists(path)) {
        LH_TRY(is_right(env, path, r, &right));
        return right ? LH_OK : lh_fail(LH_ERR_EXISTS, "%s is there, and is not the store's", path);
    }
    lh_err err = o->ops->get_file(o, r->name, r->bytes, fresh);
    if (err == LH_ERR_NOT_FOUND)
        err = lh_fail(LH_ERR_CORRUPT, "%s/%s is gone from the store", address, r->name);
    if (!err) err = is_right(env, fresh, r, &right);
    if (!err && !right)
        err = lh_fail(LH_ERR_CORRUPT, "%s/%s is not what was stored (sha256)", address, r->name);
    if (!err && rename(fresh, path)) err = lh_fail(LH_ERR_IO, "%s can't be renamed", fresh);
    if (err) unlink(fresh);
    return err;
}

lh_err dp_download(struct lh_env *env, struct lh_objects *o, const char *address,
                   const char *folder, bool (*wanted)(void *arg, const char *name), void *arg,
                   unsigned *count, uint64_t *bytes)
{
    json_t *mark, *from;
    size_t i;
    *count = 0;
    *bytes = 0;
    lh_err err = read_mark(o, address, &mark);
    if (err == LH_ERR_NOT_FOUND)
        return lh_fail(err, "%s holds no whole set of files: there is no %s", address, MARK);
    if (!err) err = dp_make_dirs(folder);
    json_array_foreach(json_object_get(mark, "files"), i, from)
    {
        struct row row;
        if (!err) err = read_row(address, from, &row);
        if (!err && wanted && !wanted(arg, row.name)) continue;
        if (!err) err = fetch_file(env, o, address, folder, &row);
        if (err) break;
        *bytes += row.bytes;
        ++*count;
    }
    json_decref(mark);
    return err;
}
