// The outbox. See outbox.h.
#include "worker/push/outbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"

int wk_entry_compare(const struct wk_entry *e, uint64_t incarnation, uint64_t step)
{
    if (e->head.incarnation.number != incarnation)
        return e->head.incarnation.number < incarnation ? -1 : 1;
    return e->head.step < step ? -1 : e->head.step > step;
}

static lh_err path_of(const struct wk_outbox *o, const struct lh_frame *f, char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, o->dir, "%04x-%016" PRIx64 "-%016" PRIx64, o->shard,
                   f->incarnation.number, f->step);
}

static lh_err path_of_unfinished(const struct wk_outbox *o, char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, o->dir, "%04x.tmp", o->shard);
}

bool wk_outbox_named(const char *file, uint32_t *shard, uint64_t *incarnation, uint64_t *step)
{
    return sscanf(file, "%4" SCNx32 "-%16" SCNx64 "-%16" SCNx64, shard, incarnation, step) == 3 &&
           !strchr(file, '.');
}

void wk_outbox_insert(struct wk_outbox *o, struct wk_entry *e)
{
    struct wk_entry **at = &o->first;
    while (*at && wk_entry_compare(*at, e->head.incarnation.number, e->head.step) < 0)
        at = &(*at)->next;
    e->next = *at;
    *at = e;
    o->entries++;
    o->bytes += e->bytes;
    if (e->frame) o->held_bytes += e->bytes;
}

static lh_err entry_new(struct lh_blob *frame, struct wk_entry **out)
{
    struct lh_frame_parts parts;
    struct wk_entry *e = calloc(1, sizeof *e);
    if (!e) return LH_ERR_NO_MEMORY;
    lh_err err = lh_frame_parse(lh_blob_span(frame), &e->head, &parts);
    if (err) {
        free(e);
        return err;
    }
    e->bytes = frame->len;
    e->digest = lh_frame_digest(lh_blob_span(frame), &e->head);
    *out = e;
    return LH_OK;
}

void wk_entry_free(struct wk_entry *e)
{
    lh_blob_release(e->frame);
    lh_buf_free(&e->plain);
    free(e);
}

// ---------------------------------------------------------------- reading

static lh_err read_open(const struct wk_outbox *o, struct lh_file *file, const char *path,
                        struct lh_blob **out)
{
    const struct lh_files_ops *files = o->env->ops->files;
    uint8_t crc[4];
    uint64_t size;
    size_t got, end;
    LH_TRY(files->size(file, &size));
    if (size < sizeof crc) return lh_fail(LH_ERR_CORRUPT, "%s: cut short", path);
    if (size > LH_FRAME_BYTES_MAX + sizeof crc)
        return lh_fail(LH_ERR_TOO_LARGE, "%s: larger than any frame", path);
    *out = lh_blob_new((size_t)size - sizeof crc);
    if (!*out) return LH_ERR_NO_MEMORY;
    LH_TRY(files->read(file, 0, (*out)->data, (*out)->len, &got));
    LH_TRY(files->read(file, (*out)->len, crc, sizeof crc, &end));
    if (got != (*out)->len || end != sizeof crc)
        return lh_fail(LH_ERR_CORRUPT, "%s: cut short", path);
    struct lh_cursor c = lh_cursor(lh_span(crc, sizeof crc));
    if (lh_get_u32(&c) != lh_crc32c(0, (*out)->data, (*out)->len))
        return lh_fail(LH_ERR_CORRUPT, "%s: damaged", path);
    return LH_OK;
}

static lh_err try_to_read(const struct wk_outbox *o, const char *path, bool *opened,
                          struct lh_blob **out)
{
    const struct lh_files_ops *files = o->env->ops->files;
    struct lh_file *file;
    *out = NULL;
    LH_TRY(files->open(o->env, path, LH_OPEN_READ, &file));
    *opened = true;
    lh_err err = read_open(o, file, path, out);
    files->close(file);
    if (err) {
        lh_blob_release(*out);
        *out = NULL;
    }
    return err;
}

// Reads and checks a file's frame; retries a read error once. If the file opens but can't be read,
// only that file is damaged: the recovery writes to the disk, so a failed disk ends the worker
// there. If the file can't be opened, its push may be intact and is not given up: this process may
// lack rights or descriptors.
static lh_err read_frame(const struct wk_outbox *o, const char *path, struct lh_blob **out)
{
    bool opened = false;
    lh_err err = try_to_read(o, path, &opened, out);
    opened = false;
    if (err == LH_ERR_IO) err = try_to_read(o, path, &opened, out);
    if (err != LH_ERR_IO) return err;
    if (opened) return lh_fail(LH_ERR_CORRUPT, "%s", lh_err_text(err));
    return lh_fail(LH_ERR_IO,
                   "%s. The push in it may be intact: check the file's permissions, this process's "
                   "limit of open files, and the disk, and start again",
                   lh_err_text(err));
}

static bool unreadable(lh_err err) // true: the file is damaged, not the disk
{
    return err == LH_ERR_CORRUPT || err == LH_ERR_MALFORMED || err == LH_ERR_VERSION;
}

// Checks that the frame has the entry's digest.
static lh_err check_same(const struct wk_entry *e, const struct lh_blob *frame, const char *path)
{
    struct lh_frame head;
    struct lh_frame_parts parts;
    LH_TRY(lh_frame_parse(lh_blob_span(frame), &head, &parts));
    struct lh_digest digest = lh_frame_digest(lh_blob_span(frame), &head);
    if (frame->len == e->bytes && lh_digest_equal(&digest, &e->digest)) return LH_OK;
    return lh_fail(LH_ERR_CORRUPT, "%s: another push than was written", path);
}

lh_err wk_outbox_frame(struct wk_outbox *o, struct wk_entry *e, struct lh_blob **out)
{
    char path[LH_PATH_BYTES];
    *out = lh_blob_share(e->frame);
    if (*out) return LH_OK;
    LH_TRY(path_of(o, &e->head, path));
    lh_err err = read_frame(o, path, out);
    if (!err) err = check_same(e, *out, path);
    if (err) {
        lh_blob_release(*out);
        *out = NULL;
        if (err == LH_ERR_NOT_FOUND) return lh_fail(LH_ERR_CORRUPT, "%s: gone", path);
        bool other = unreadable(err) || err == LH_ERR_TOO_LARGE;
        return other ? lh_fail(LH_ERR_CORRUPT, "%s", lh_err_text(err)) : err;
    }
    if (e->status == WK_UNDECIDED) { // keep it in memory until it is decided
        e->frame = lh_blob_share(*out);
        o->held_bytes += e->bytes;
    }
    return LH_OK;
}

// ---------------------------------------------------------------- at start

struct loading {
    struct wk_outbox *o;
    void (*bad)(void *arg, const char *file, lh_err e);
    void *arg;
    lh_err err;
};

static lh_err load_one(struct wk_outbox *o, const char *name)
{
    char path[LH_PATH_BYTES];
    struct wk_entry *e = NULL;
    struct lh_blob *frame;
    LH_TRY(lh_path(path, sizeof path, o->dir, "%s", name));
    LH_TRY(read_frame(o, path, &frame));
    lh_err err = entry_new(frame, &e);
    if (!err) wk_outbox_insert(o, e);
    lh_blob_release(frame);
    return err;
}

static void load_named(void *arg, const char *name)
{
    struct loading *l = arg;
    uint32_t shard;
    uint64_t incarnation, step;
    if (l->err || !wk_outbox_named(name, &shard, &incarnation, &step) || shard != l->o->shard)
        return;
    lh_err err = load_one(l->o, name);
    if (unreadable(err)) {
        if (l->bad) l->bad(l->arg, name, err);
    } else {
        l->err = err;
    }
}

lh_err wk_outbox_load(struct wk_outbox *o, void (*bad)(void *arg, const char *file, lh_err e),
                      void *arg)
{
    struct loading l = {o, bad, arg, LH_OK};
    LH_TRY(o->env->ops->files->make_dir(o->env, o->dir));
    LH_TRY(o->env->ops->files->list(o->env, o->dir, load_named, &l));
    return l.err;
}

lh_err wk_outbox_set_aside(const struct wk_outbox *o, const char *file)
{
    char from[LH_PATH_BYTES], to[LH_PATH_BYTES];
    LH_TRY(lh_path(from, sizeof from, o->dir, "%s", file));
    LH_TRY(lh_path(to, sizeof to, o->dir, "%s.damaged", file));
    LH_TRY(o->env->ops->files->rename(o->env, from, to));
    return o->env->ops->files->sync_dir(o->env, o->dir);
}

static void free_list(struct wk_entry **list)
{
    for (struct wk_entry *e; (e = *list);) {
        *list = e->next;
        wk_entry_free(e);
    }
}

void wk_outbox_free(struct wk_outbox *o)
{
    free_list(&o->first);
    free_list(&o->leaving);
    free_list(&o->removing);
    o->entries = 0;
    o->bytes = o->held_bytes = 0;
}

// ---------------------------------------------------------------- use

lh_err wk_outbox_erase(const struct wk_outbox *o, const struct wk_entry *e)
{
    char path[LH_PATH_BYTES];
    LH_TRY(path_of(o, &e->head, path));
    lh_err err = o->env->ops->files->remove(o->env, path);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

// Removes an entry that met a full disk. Its file may be complete, and a start under a later
// incarnation would take it for a push of this step; an unfinished file would use up disk space.
static lh_err unwrite(const struct wk_outbox *o, const struct wk_entry *e, lh_err why)
{
    char text[512], unfinished[LH_PATH_BYTES];
    snprintf(text, sizeof text, "%s", lh_err_text(why));
    LH_TRY(path_of_unfinished(o, unfinished));
    lh_err err = o->env->ops->files->remove(o->env, unfinished);
    if (!err || err == LH_ERR_NOT_FOUND) err = wk_outbox_erase(o, e);
    if (err == LH_ERR_DISK_FULL) err = lh_fail(LH_ERR_IO, "%s; it can't be removed either", text);
    return err ? err : lh_fail(why, "%s", text);
}

static lh_err write_file(const struct wk_outbox *o, const char *path, const struct lh_blob *frame)
{
    const struct lh_files_ops *files = o->env->ops->files;
    struct lh_file *file;
    struct lh_buf crc = lh_buf(4);
    LH_TRY(files->open(o->env, path,
                       LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE | LH_OPEN_DIRECT, &file));
    lh_put_u32(&crc, lh_crc32c(0, frame->data, frame->len));
    lh_err err = lh_buf_err(&crc);
    if (!err) err = files->write(file, 0, lh_blob_span(frame));
    if (!err) err = files->write(file, frame->len, lh_buf_span(&crc));
    if (!err) err = files->sync(file);
    files->close(file);
    lh_buf_free(&crc);
    return err;
}

// Writes under a temporary name until the file is whole and durable (invariant 5). One sync of the
// folder covers both names.
static lh_err write_whole(const struct wk_outbox *o, const struct wk_entry *e,
                          const struct lh_blob *frame)
{
    const struct lh_files_ops *files = o->env->ops->files;
    char path[LH_PATH_BYTES], unfinished[LH_PATH_BYTES];
    LH_TRY(path_of(o, &e->head, path));
    LH_TRY(path_of_unfinished(o, unfinished));
    LH_TRY(write_file(o, unfinished, frame));
    LH_TRY(files->rename(o->env, unfinished, path));
    return files->sync_dir(o->env, o->dir);
}

lh_err wk_outbox_write(const struct wk_outbox *o, struct lh_blob *frame, struct wk_entry **out)
{
    struct wk_entry *e = NULL;
    LH_TRY(entry_new(frame, &e));
    lh_err err = write_whole(o, e, frame);
    if (err == LH_ERR_DISK_FULL) err = unwrite(o, e, err);
    if (err) {
        wk_entry_free(e);
        return err;
    }
    e->frame = lh_blob_share(frame);
    *out = e;
    return LH_OK;
}

static void unlist(struct wk_outbox *o, const struct wk_entry *e)
{
    struct wk_entry **at = &o->first;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    o->entries--;
    o->bytes -= e->bytes;
    if (e->frame) o->held_bytes -= e->bytes;
}

// Frees the frame of an admitted and folded entry. A sender holds its own reference.
static void settle(struct wk_outbox *o, struct wk_entry *e)
{
    if (!e->frame || e->status != WK_ADMITTED || !e->version) return;
    o->held_bytes -= e->bytes;
    lh_blob_release(e->frame);
    e->frame = NULL;
}

void wk_outbox_admitted(struct wk_outbox *o, struct wk_entry *e)
{
    e->status = WK_ADMITTED;
    settle(o, e);
}

void wk_outbox_folded(struct wk_outbox *o, struct wk_entry *e, uint64_t version)
{
    e->version = version;
    if (version) lh_buf_free(&e->plain);
    settle(o, e);
}

lh_err wk_outbox_drop(struct wk_outbox *o, struct wk_entry *e)
{
    LH_TRY(wk_outbox_erase(o, e));
    LH_TRY(o->env->ops->files->sync_dir(o->env, o->dir));
    unlist(o, e);
    wk_entry_free(e);
    return LH_OK;
}

void wk_outbox_leave(struct wk_outbox *o, struct wk_entry *e)
{
    unlist(o, e);
    lh_buf_free(&e->plain);
    lh_blob_release(e->frame);
    e->frame = NULL;
    e->next = NULL;
    struct wk_entry **end = &o->leaving;
    while (*end) end = &(*end)->next;
    *end = e;
}

bool wk_outbox_begin_removal(struct wk_outbox *o)
{
    if (o->removing || !o->leaving) return false;
    o->removing = o->leaving;
    o->leaving = NULL;
    return true;
}

lh_err wk_outbox_remove(const struct wk_outbox *o)
{
    for (const struct wk_entry *e = o->removing; e; e = e->next) LH_TRY(wk_outbox_erase(o, e));
    return LH_OK;
}

void wk_outbox_end_removal(struct wk_outbox *o, bool removed)
{
    if (removed) {
        free_list(&o->removing);
        return;
    }
    struct wk_entry **end = &o->removing; // these wait again, ahead of newer ones
    while (*end) end = &(*end)->next;
    *end = o->leaving;
    o->leaving = o->removing;
    o->removing = NULL;
}

struct wk_entry *wk_outbox_find(const struct wk_outbox *o, uint64_t incarnation, uint64_t step)
{
    for (struct wk_entry *e = o->first; e; e = e->next)
        if (wk_entry_compare(e, incarnation, step) == 0) return e;
    return NULL;
}

struct wk_entry *wk_outbox_undecided(const struct wk_outbox *o)
{
    for (struct wk_entry *e = o->first; e; e = e->next)
        if (e->status == WK_UNDECIDED) return e;
    return NULL;
}
