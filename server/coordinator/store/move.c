// Moves between stores. See move.h.
#include "server/coordinator/store/move.h"

#include <stdio.h>

#include "common/base/limits.h"

enum { VALUE_BYTES = 512, LEASE_S = 60 };

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
    LH_TRY(ps_store_each(from, "", copy_row, &copy));
    LH_TRY(copy.err);
    return ps_store_commit(to);
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

// ---------------------------------------------------------------- back into a file

// Takes the lead, so that no coordinator does; *is: its fence.
static LH_MUST lh_err take_lead(struct ps_etcd *etcd, const char *key, int64_t *lease,
                                struct ps_etcd_fence *is)
{
    static const char MINE[] = "longhaul - state to-file";
    const struct ps_etcd_fence none = {key, 0};
    struct lh_buf holder = lh_buf(VALUE_BYTES);
    is->key = key;
    LH_TRY(ps_etcd_grant(etcd, LEASE_S, lease));
    lh_err err = ps_etcd_change(etcd, &none, key, lh_span_str(MINE), *lease, NULL);
    if (!err || err == LH_ERR_CONFLICT) err = ps_etcd_get(etcd, key, &holder, &is->created);
    if (!err && !lh_span_equal(lh_buf_span(&holder), lh_span_str(MINE)))
        err = lh_fail(LH_ERR_BUSY,
                      "%.*s leads: end all coordinators of the run, wait some seconds until its "
                      "lease has expired, and try again",
                      (int)(holder.len < 200 ? holder.len : 200), (const char *)holder.data);
    lh_buf_free(&holder);
    return err;
}

static LH_MUST lh_err is_moved(struct ps_etcd *etcd, const char *base, bool *out)
{
    char key[PS_ETCD_KEY_BYTES];
    struct lh_buf value = lh_buf(VALUE_BYTES);
    int64_t created;
    snprintf(key, sizeof key, "%s/log", base);
    lh_err err = ps_etcd_get(etcd, key, &value, &created);
    if (err == LH_ERR_NOT_FOUND) err = lh_fail(err, "etcd: %s: no coordinator's state", key);
    *out = !err && lh_span_equal(lh_buf_span(&value), lh_span_str(PS_ETCD_LOG_MOVED));
    lh_buf_free(&value);
    return err;
}

static LH_MUST lh_err copy_to_file(struct lh_env *env, const struct ps_etcd_log_conf *from,
                                   const char *dir)
{
    struct ps_store *etcd, *file = NULL;
    LH_TRY(ps_store_open_etcd(from, &etcd));
    lh_err err = env->ops->files->make_dir(env, dir);
    if (!err) err = ps_store_open(env, dir, &file);
    if (!err) err = copy_all(etcd, file);
    ps_store_close(file);
    ps_store_close(etcd);
    return err;
}

// As the leader. `conf->etcd` is taken.
static LH_MUST lh_err move_back(struct lh_env *env, struct ps_etcd *etcd,
                                const struct ps_etcd_log_conf *conf,
                                const struct ps_etcd_fence *lead, const char *dir)
{
    char key[PS_ETCD_KEY_BYTES], drop[PS_ETCD_KEY_BYTES], path[LH_PATH_BYTES];
    snprintf(key, sizeof key, "%s/log", conf->base);
    snprintf(drop, sizeof drop, "%s/log/", conf->base);
    LH_TRY(lh_path(path, sizeof path, dir, "store"));
    LH_TRY(copy_to_file(env, conf, dir));
    lh_err err = ps_etcd_change(etcd, lead, key, lh_span_str(PS_ETCD_LOG_MOVED), 0, drop);
    if (!err) return LH_OK;
    return lh_fail(err, "%s; start no coordinator on %s: remove it and try again", lh_err_text(err),
                   path);
}

lh_err ps_store_move_back(struct lh_env *env, struct ps_etcd *etcd, struct ps_etcd *log,
                          const char *base, const char *dir, bool *before)
{
    struct ps_etcd_log_conf conf = {.etcd = log, .base = base};
    char path[LH_PATH_BYTES], key[PS_ETCD_KEY_BYTES];
    struct ps_etcd_fence lead;
    int64_t lease = 0;
    bool there = false;
    lh_err err = is_moved(etcd, base, before);
    if (!err) err = lh_path(path, sizeof path, dir, "store");
    if (!err) err = is_there(env, path, &there);
    if (!err && there && !*before)
        err = lh_fail(LH_ERR_EXISTS, "%s exists already: rename it if you need it, else remove it",
                      path);
    snprintf(key, sizeof key, "%s/leader", base);
    if (!err && !*before) err = take_lead(etcd, key, &lease, &lead);
    if (err || *before) {
        ps_etcd_destroy(log);
    } else {
        conf.created = lead.created;
        err = move_back(env, etcd, &conf, &lead, dir);
    }
    if (lease) {
        struct lh_err_said said;
        lh_err_take(&said);
        (void)!ps_etcd_revoke(etcd, lease);
        lh_err_give(&said);
    }
    return err;
}
