// The store's file. Layout and rules: ../store.h.
#include <stdlib.h>

#include "common/base/limits.h"
#include "server/coordinator/store/medium.h"

static const uint32_t MAGIC = 0x5453484c; // "LHST"
enum {
    VERSION = 3,
    HEADER_BYTES = 8,
};
static const size_t FILE_BYTES_MAX = (size_t)2 << 30;

// Between begin() and end() of a commit, only write() may use it.
struct file {
    struct ps_medium base;
    struct lh_env *env;
    char dir[LH_PATH_BYTES], path[LH_PATH_BYTES], next_path[LH_PATH_BYTES];
    struct lh_file *lock, *file, *next;
    uint64_t at, appended; // end of the last kept commit; of the last appended one
    uint64_t next_at;
    bool torn; // an attempt may have left bytes after `at`
};

static struct file *of(struct ps_medium *m)
{
    return (struct file *)m;
}

// ---------------------------------------------------------------- bytes

static void put_header(struct lh_buf *b)
{
    lh_put_u32(b, MAGIC);
    lh_put_u16(b, VERSION);
    lh_put_u16(b, 0);
}

// *at: where the commit begins; afterwards, where it ends.
static LH_MUST lh_err write_commit(struct file *f, struct lh_file *to, uint64_t *at,
                                   struct lh_span bytes, struct lh_span then)
{
    const struct lh_files_ops *files = f->env->ops->files;
    LH_TRY(files->write(to, *at, bytes));
    if (then.len) LH_TRY(files->write(to, *at + bytes.len, then));
    *at += bytes.len + then.len;
    return LH_OK;
}

// ---------------------------------------------------------------- start: reading

static lh_err damaged(const struct file *f, uint64_t at)
{
    return lh_fail(LH_ERR_CORRUPT,
                   "%s: damaged at byte %llu, below commits that were acknowledged. Restore this "
                   "file from a copy of any age; it has the members and leases. An old copy may "
                   "wrongly name a standby as in sync: let the servers that own the shards report "
                   "before you start one that stands by. Do not start without the file",
                   f->path, (unsigned long long)at);
}

// A torn commit may follow the last whole one, with any part of it on disk. But a later head after
// it means damage: that commit began after this one was synced. The first commit comes with the
// file and is never torn.
static LH_MUST lh_err check_tail(const struct file *f, struct lh_span bytes, uint64_t number,
                                 uint64_t bad)
{
    if (!number) return damaged(f, bad);
    if (ps_commit_later(bytes, (size_t)f->at, number + 1)) return damaged(f, bad);
    return LH_OK;
}

// Applies whole commits. *last: where the last one begins.
static LH_MUST lh_err replay(struct file *f, struct lh_span bytes, struct ps_replayed *into,
                             uint64_t *last)
{
    struct ps_commit h;
    uint64_t bad;
    for (f->at = HEADER_BYTES;; f->at += PS_COMMIT_HEAD_BYTES + h.bytes) {
        bad = f->at;
        if (!ps_commit_read(bytes, (size_t)f->at, &h)) break;
        if (!h.number || (into->number && h.number != into->number + 1)) break;
        if (!ps_commit_is_whole(bytes, (size_t)f->at, &h, &bad)) break;
        LH_TRY(ps_entries_apply(
            into->rows, lh_span(bytes.data + f->at + PS_COMMIT_HEAD_BYTES, (size_t)h.bytes)));
        *last = f->at;
        into->number = h.number;
        into->marked = !h.entries;
    }
    return check_tail(f, bytes, into->number, bad);
}

static LH_MUST lh_err read_file(struct file *f, struct lh_span bytes, struct ps_replayed *into,
                                uint64_t *last)
{
    struct lh_cursor c = lh_cursor(bytes);
    uint32_t magic = lh_get_u32(&c);
    uint16_t version = lh_get_u16(&c);
    if (c.failed || magic != MAGIC)
        return lh_fail(LH_ERR_CORRUPT, "%s: not a coordinator's store", f->path);
    if (version != VERSION)
        return lh_fail(LH_ERR_VERSION, "%s: a store of version %u, this build reads %d", f->path,
                       version, VERSION);
    return replay(f, bytes, into, last);
}

// ---------------------------------------------------------------- start: what survived is durable

static LH_MUST lh_err make_file(struct file *f, struct ps_replayed *into)
{
    struct lh_buf b = lh_buf(HEADER_BYTES + PS_COMMIT_HEAD_BYTES);
    uint8_t mark[PS_COMMIT_HEAD_BYTES];
    put_header(&b);
    ps_commit_mark(1, mark);
    lh_put(&b, mark, sizeof mark);
    lh_err err = lh_buf_err(&b);
    if (!err) err = lh_file_replace_secret(f->env, f->path, lh_buf_span(&b));
    f->at = b.len;
    into->number = 1;
    into->marked = true;
    lh_buf_free(&b);
    return err;
}

static LH_MUST lh_err open_file(struct file *f)
{
    return f->env->ops->files->open(f->env, f->path, LH_OPEN_WRITE, &f->file);
}

// The last whole commit may be in the page cache only, marked as clean: writes it again in place
// (server/docs/0000-protocol.md#rule-5). Drops the bytes after it.
static LH_MUST lh_err write_again(struct file *f, struct lh_span bytes, uint64_t last)
{
    const struct lh_files_ops *files = f->env->ops->files;
    LH_TRY(open_file(f));
    LH_TRY(files->write(f->file, last, lh_span(bytes.data + last, (size_t)(f->at - last))));
    LH_TRY(files->resize(f->file, f->at));
    LH_TRY(files->sync(f->file));
    lh_err err = files->remove(f->env, f->next_path);
    if (err && err != LH_ERR_NOT_FOUND) return err;
    return files->sync_dir(f->env, f->dir);
}

// The lock is a separate file, because the store's file is replaced repeatedly.
static LH_MUST lh_err take_lock(struct file *f)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, f->dir, "store.lock"));
    return f->env->ops->files->open(f->env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_LOCK,
                                    &f->lock);
}

static LH_MUST lh_err start(struct file *f, struct lh_buf *bytes, struct ps_replayed *into)
{
    uint64_t last = 0;
    LH_TRY(take_lock(f));
    lh_err err = lh_file_load(f->env, f->path, bytes);
    if (err && err != LH_ERR_NOT_FOUND) return err;
    bool first = err == LH_ERR_NOT_FOUND;
    into->rows = ps_rows_create(bytes->len / (4 * PS_ENTRY_BYTES));
    if (!into->rows) return LH_ERR_NO_MEMORY;
    if (!first) {
        LH_TRY(read_file(f, lh_buf_span(bytes), into, &last));
        return write_again(f, lh_buf_span(bytes), last);
    }
    LH_TRY(make_file(f, into));
    return open_file(f);
}

// ---------------------------------------------------------------- commits

static lh_err append(struct ps_medium *m, uint64_t number, struct lh_span bytes)
{
    struct file *f = of(m);
    const struct lh_files_ops *files = f->env->ops->files;
    (void)number;  // its head has it
    if (f->torn) { // a shorter commit would leave the old one's rest after it
        LH_TRY(files->resize(f->file, f->at));
        LH_TRY(files->sync(f->file));
        f->torn = false;
    }
    LH_FAILPOINT("store.write");
    f->appended = f->at;
    LH_TRY(write_commit(f, f->file, &f->appended, bytes, lh_span(NULL, 0)));
    LH_FAILPOINT("store.sync");
    if (!LH_BUG("store_unsynced")) LH_TRY(files->sync(f->file));
    LH_FAILPOINT("store.committed");
    return LH_OK;
}

static void end(struct ps_medium *m, bool kept)
{
    struct file *f = of(m);
    if (kept)
        f->at = f->appended;
    else
        f->torn = true;
    f->appended = f->at;
}

static uint64_t bytes_of(const struct ps_medium *m)
{
    return ((const struct file *)m)->at;
}

// ---------------------------------------------------------------- the next file

static lh_err next_begin(struct ps_medium *m)
{
    struct file *f = of(m);
    const struct lh_files_ops *files = f->env->ops->files;
    unsigned flags = LH_OPEN_SECRET | LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE;
    struct lh_buf b = lh_buf(HEADER_BYTES);
    put_header(&b);
    lh_err err = lh_buf_err(&b);
    if (!err) err = files->open(f->env, f->next_path, flags, &f->next);
    if (!err) err = files->write(f->next, 0, lh_buf_span(&b));
    f->next_at = HEADER_BYTES;
    lh_buf_free(&b);
    return err;
}

static lh_err next_append(struct ps_medium *m, uint64_t number, struct lh_span bytes,
                          struct lh_span then)
{
    struct file *f = of(m);
    (void)number;
    LH_TRY(write_commit(f, f->next, &f->next_at, bytes, then));
    return f->env->ops->files->sync(f->next);
}

static lh_err next_replace(struct ps_medium *m)
{
    struct file *f = of(m);
    const struct lh_files_ops *files = f->env->ops->files;
    LH_TRY(files->rename(f->env, f->next_path, f->path));
    files->close(f->file);
    f->file = f->next;
    f->next = NULL;
    f->appended = f->next_at;
    lh_err err = files->sync_dir(f->env, f->dir);
    return err == LH_ERR_DISK_FULL ? LH_ERR_IO : err; // the old file is obsolete
}

static lh_err next_drop(struct ps_medium *m)
{
    struct file *f = of(m);
    if (!f->next) return LH_OK;
    f->env->ops->files->close(f->next);
    f->next = NULL;
    lh_err err = f->env->ops->files->remove(f->env, f->next_path);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

// ---------------------------------------------------------------- life

static void stop(struct ps_medium *m)
{
    (void)m; // a disk's writes end by themselves
}

static void close_file(struct ps_medium *m)
{
    struct file *f = of(m);
    if (f->next) f->env->ops->files->close(f->next);
    if (f->file) f->env->ops->files->close(f->file);
    if (f->lock) f->env->ops->files->close(f->lock);
    free(f);
}

static const struct ps_medium_ops ops = {
    .marks = true,
    .append = append,
    .next_begin = next_begin,
    .next_append = next_append,
    .next_replace = next_replace,
    .next_drop = next_drop,
    .end = end,
    .bytes = bytes_of,
    .stop = stop,
    .close = close_file,
};

lh_err ps_file_open(struct lh_env *env, const char *dir, struct ps_replayed *into,
                    struct ps_medium **out)
{
    struct file *f = calloc(1, sizeof *f);
    if (!f) return LH_ERR_NO_MEMORY;
    f->base.ops = &ops;
    f->env = env;
    struct lh_buf bytes = lh_buf(FILE_BYTES_MAX);
    lh_err err = lh_path(f->dir, sizeof f->dir, dir, "%s", "");
    if (!err) err = lh_path(f->path, sizeof f->path, dir, "store");
    if (!err) err = lh_path(f->next_path, sizeof f->next_path, dir, "store.next");
    if (!err) err = start(f, &bytes, into);
    lh_buf_free(&bytes);
    if (err) {
        close_file(&f->base);
        return err;
    }
    f->appended = f->at;
    *out = &f->base;
    return LH_OK;
}
