// A folder as an object store, such as a mounted remote disk. See objects.h.
//
// An object is a file of the folder. It is written as KEY.tmp and synced, then renamed. put_new()
// uses link(2) instead of rename(2), because link(2) never replaces a file.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/objects/address.h"
#include "common/objects/objects.h"

enum { COPY_BYTES = 1 << 20 };

struct folder {
    struct lh_objects base;
    struct lh_env *env;
    const atomic_bool *stop;
    char path[LH_PATH_BYTES];
};

static LH_MUST lh_err path_of(const struct folder *f, const char *key, const char *behind,
                              char out[LH_PATH_BYTES])
{
    if (!lh_object_key_fits(key)) return lh_fail(LH_ERR_INVALID, "%.40s: no key", key);
    return lh_path(out, LH_PATH_BYTES, f->path, "%s%s", key, behind);
}

// ---------------------------------------------------------------- listing

struct listing {
    struct folder *f;
    const char *prefix;
    lh_object_fn each;
    void *arg;
    lh_err err;
};

static void list_one(void *arg, const char *name)
{
    struct listing *l = arg;
    char path[LH_PATH_BYTES];
    struct lh_file *file;
    uint64_t bytes = 0;
    size_t len = strlen(name);
    const struct lh_files_ops *files = l->f->env->ops->files;
    bool unfinished = len > 4 && !strcmp(name + len - 4, ".tmp");
    if (l->err || unfinished || strncmp(name, l->prefix, strlen(l->prefix)) != 0) return;
    if (!lh_object_key_fits(name)) return; // not our object
    l->err = path_of(l->f, name, "", path);
    if (!l->err) l->err = files->open(l->f->env, path, LH_OPEN_READ, &file);
    if (l->err == LH_ERR_NOT_FOUND)
        l->err = LH_OK; // removed since the listing
    else if (!l->err) {
        l->err = files->size(file, &bytes);
        files->close(file);
        if (!l->err) l->err = l->each(l->arg, name, bytes);
    }
}

static lh_err list(struct lh_objects *s, const char *prefix, lh_object_fn each, void *arg)
{
    struct folder *f = (struct folder *)s;
    struct listing l = {f, prefix, each, arg, LH_OK};
    lh_err err = f->env->ops->files->list(f->env, f->path, list_one, &l);
    if (err == LH_ERR_NOT_FOUND) return LH_OK; // nothing was stored yet
    return err ? err : l.err;
}

// ---------------------------------------------------------------- objects

struct copying {
    struct folder *f;
    struct lh_file *from;
    uint64_t bytes;
};

static lh_err copy(void *arg, struct lh_file *to)
{
    struct copying *c = arg;
    const struct lh_files_ops *files = c->f->env->ops->files;
    size_t got = 0;
    uint8_t *block = malloc(COPY_BYTES);
    if (!block) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a copy");
    lh_err err = LH_OK;
    do {
        if (c->f->stop && atomic_load(c->f->stop))
            err = lh_fail(LH_ERR_CANCELLED, "the copy was stopped");
        if (!err) err = files->read(c->from, c->bytes, block, COPY_BYTES, &got);
        if (!err && got) err = files->write(to, c->bytes, lh_span(block, got));
        if (!err) c->bytes += got;
    } while (!err && got);
    free(block);
    return err;
}

static LH_MUST lh_err copy_file(struct folder *f, const char *from, const char *to, uint64_t *bytes)
{
    struct copying c = {.f = f};
    LH_TRY(f->env->ops->files->open(f->env, from, LH_OPEN_READ, &c.from));
    lh_err err = lh_file_replace_by(f->env, to, copy, &c);
    f->env->ops->files->close(c.from);
    *bytes = c.bytes;
    return err;
}

static lh_err put(struct lh_objects *s, const char *key, const char *path)
{
    struct folder *f = (struct folder *)s;
    char to[LH_PATH_BYTES];
    uint64_t bytes;
    LH_TRY(path_of(f, key, "", to));
    LH_TRY(f->env->ops->files->make_dir(f->env, f->path));
    return copy_file(f, path, to, &bytes);
}

static lh_err put_new(struct lh_objects *s, const char *key, struct lh_span bytes)
{
    struct folder *f = (struct folder *)s;
    char to[LH_PATH_BYTES], fresh[LH_PATH_BYTES];
    LH_TRY(path_of(f, key, "", to));
    LH_TRY(path_of(f, key, ".new.tmp", fresh));
    LH_TRY(f->env->ops->files->make_dir(f->env, f->path));
    LH_TRY(lh_file_replace(f->env, fresh, bytes));
    int failed = link(fresh, to) ? errno : 0;
    LH_TRY(f->env->ops->files->remove(f->env, fresh));
    if (failed == EEXIST) return lh_fail(LH_ERR_EXISTS, "%s is there", to);
    if (failed) return lh_fail_errno(failed, "%s", to);
    return f->env->ops->files->sync_dir(f->env, f->path);
}

static lh_err get(struct lh_objects *s, const char *key, struct lh_buf *out)
{
    struct folder *f = (struct folder *)s;
    char path[LH_PATH_BYTES];
    LH_TRY(path_of(f, key, "", path));
    return lh_file_load(f->env, path, out);
}

static lh_err get_file(struct lh_objects *s, const char *key, uint64_t bytes, const char *path)
{
    struct folder *f = (struct folder *)s;
    char from[LH_PATH_BYTES];
    uint64_t got = 0;
    LH_TRY(path_of(f, key, "", from));
    LH_TRY(copy_file(f, from, path, &got));
    if (got == bytes) return LH_OK;
    return lh_fail(LH_ERR_CORRUPT, "%s has %llu bytes and should have %llu", from,
                   (unsigned long long)got, (unsigned long long)bytes);
}

static lh_err get_range(struct lh_objects *s, const char *key, uint64_t at, void *out, size_t n,
                        size_t *got)
{
    struct folder *f = (struct folder *)s;
    char path[LH_PATH_BYTES];
    struct lh_file *file;
    *got = 0;
    LH_TRY(path_of(f, key, "", path));
    LH_TRY(f->env->ops->files->open(f->env, path, LH_OPEN_READ, &file));
    lh_err err = f->env->ops->files->read(file, at, out, n, got);
    f->env->ops->files->close(file);
    return err;
}

static lh_err drop(struct lh_objects *s, const char *key)
{
    struct folder *f = (struct folder *)s;
    char path[LH_PATH_BYTES];
    LH_TRY(path_of(f, key, "", path));
    lh_err err = f->env->ops->files->remove(f->env, path);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

// Nothing to do: the next copy overwrites the KEY.tmp of one that broke off.
static lh_err tidy(struct lh_objects *s, const char *prefix)
{
    (void)s, (void)prefix;
    return LH_OK;
}

static void close_folder(struct lh_objects *s)
{
    free(s);
}

lh_err lh_objects_folder(const struct lh_objects_conf *conf, struct lh_objects **out)
{
    static const struct lh_objects_ops ops = {.list = list,
                                              .put = put,
                                              .put_new = put_new,
                                              .get = get,
                                              .get_file = get_file,
                                              .get_range = get_range,
                                              .remove = drop,
                                              .tidy = tidy,
                                              .close = close_folder};
    struct folder *f = calloc(1, sizeof *f);
    if (!f) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a store");
    *f = (struct folder){.base.ops = &ops, .env = conf->env, .stop = conf->stop};
    lh_err err = lh_path(f->path, sizeof f->path, "", "%s", conf->address + strlen("file://"));
    if (err)
        free(f);
    else
        *out = &f->base;
    return err;
}
