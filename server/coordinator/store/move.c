// The move into another store. See move.h.
#include "server/coordinator/store/move.h"

#include "common/base/limits.h"

struct copy {
    struct ps_store *to; // NULL: rows are only counted
    uint64_t rows;
    lh_err err;
};

static void copy_row(void *arg, const char *key, struct lh_span value)
{
    struct copy *c = arg;
    c->rows++;
    if (c->to && !c->err) c->err = ps_store_put(c->to, key, value);
}

static LH_MUST lh_err has_rows(const struct ps_store *s, bool *out)
{
    struct copy count = {0};
    LH_TRY(ps_store_each(s, "", copy_row, &count));
    *out = count.rows > 0;
    return LH_OK;
}

static LH_MUST lh_err copy_all(const struct ps_store *from, struct ps_store *to)
{
    struct copy copy = {.to = to};
    bool begun;
    LH_TRY(ps_store_each(from, "", copy_row, &copy));
    LH_TRY(copy.err);
    LH_TRY(ps_store_begin(to, &begun));
    if (!begun) return LH_OK;
    lh_err err = ps_store_write(to);
    ps_store_end(to, err);
    return err;
}

static LH_MUST lh_err is_there(struct lh_env *env, const char *path, bool *out)
{
    struct lh_file *file;
    lh_err err = env->ops->files->open(env, path, LH_OPEN_READ, &file);
    *out = !err;
    if (!err) env->ops->files->close(file);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

lh_err ps_store_move(struct lh_env *env, const char *dir, struct ps_store *to, bool *moved)
{
    char path[LH_PATH_BYTES], aside[LH_PATH_BYTES];
    struct ps_store *from = NULL;
    bool there = false, taken = false;
    *moved = false;
    LH_TRY(has_rows(to, &taken));
    LH_TRY(lh_path(path, sizeof path, dir, "store"));
    LH_TRY(lh_path(aside, sizeof aside, dir, "store.moved"));
    LH_TRY(is_there(env, path, &there));
    if (taken || !there) return LH_OK;
    LH_TRY(ps_store_open(env, dir, &from));
    lh_err err = copy_all(from, to);
    ps_store_close(from);
    if (!err) err = env->ops->files->rename(env, path, aside);
    if (!err) err = env->ops->files->sync_dir(env, dir);
    *moved = !err;
    return err;
}
