// The outbox. See outbox.h.
#include "worker/outbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

int wk_entry_compare(const struct wk_entry *e, uint64_t incarnation, uint64_t step)
{
    if (e->head.incarnation.number != incarnation)
        return e->head.incarnation.number < incarnation ? -1 : 1;
    return e->head.step < step ? -1 : e->head.step > step;
}

static lh_err path_of(const struct wk_outbox *o, const struct lh_frame *f, char out[LH_PATH_SIZE])
{
    return lh_path(out, LH_PATH_SIZE, o->dir, "%04x-%016" PRIx64 "-%016" PRIx64, o->shard,
                   f->incarnation.number, f->step);
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
    o->bytes += e->frame->len;
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
    e->frame = lh_blob_share(frame);
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

// ---------------------------------------------------------------- reading at start

struct loading {
    struct wk_outbox *o;
    void (*bad)(void *arg, const char *file, lh_err e);
    void *arg;
    lh_err err;
};

static lh_err load_one(struct wk_outbox *o, const char *name)
{
    char path[LH_PATH_SIZE];
    struct lh_buf file = lh_buf(LH_FRAME_BYTES_MAX + 4);
    struct wk_entry *e = NULL;
    struct lh_blob *frame = NULL;
    lh_err err = lh_path(path, sizeof path, o->dir, "%s", name);
    if (!err) err = lh_file_load(o->env, path, &file);
    if (!err && file.len < 4) err = lh_fail(LH_ERR_CORRUPT, "%s: cut short", path);
    if (!err) {
        struct lh_cursor end = lh_cursor(lh_span(file.data + file.len - 4, 4));
        if (lh_get_u32(&end) != lh_crc32c(0, file.data, file.len - 4))
            err = lh_fail(LH_ERR_CORRUPT, "%s: damaged", path);
    }
    if (!err && !(frame = lh_blob_copy(lh_span(file.data, file.len - 4)))) err = LH_ERR_NO_MEMORY;
    if (!err) err = entry_new(frame, &e);
    if (!err) wk_outbox_insert(o, e);
    lh_blob_release(frame);
    lh_buf_free(&file);
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
    if (err == LH_ERR_CORRUPT || err == LH_ERR_MALFORMED || err == LH_ERR_VERSION) {
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
    o->bytes = 0;
}

// ---------------------------------------------------------------- use

lh_err wk_outbox_write(const struct wk_outbox *o, struct lh_blob *frame, struct wk_entry **out)
{
    const struct lh_files_ops *files = o->env->ops->files;
    struct lh_buf crc = lh_buf(4);
    struct lh_file *file = NULL;
    struct wk_entry *e = NULL;
    char path[LH_PATH_SIZE];
    lh_err err;
    LH_TRY(entry_new(frame, &e));
    lh_put_u32(&crc, lh_crc32c(0, frame->data, frame->len));
    LH_TRY_TO(fail, err, lh_buf_err(&crc));
    LH_TRY_TO(fail, err, path_of(o, &e->head, path));
    LH_TRY_TO(fail, err,
              files->open(o->env, path,
                          LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE | LH_OPEN_DIRECT,
                          &file));
    LH_TRY_TO(fail, err, files->write(file, 0, lh_blob_span(frame)));
    LH_TRY_TO(fail, err, files->write(file, frame->len, lh_buf_span(&crc)));
    LH_TRY_TO(fail, err, files->sync(file));
    LH_TRY_TO(fail, err, files->sync_dir(o->env, o->dir));
    files->close(file);
    lh_buf_free(&crc);
    *out = e;
    return LH_OK;
fail:
    if (file) files->close(file);
    lh_buf_free(&crc);
    wk_entry_free(e);
    return err;
}

lh_err wk_outbox_erase(const struct wk_outbox *o, const struct wk_entry *e)
{
    char path[LH_PATH_SIZE];
    LH_TRY(path_of(o, &e->head, path));
    lh_err err = o->env->ops->files->remove(o->env, path);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

static void unlist(struct wk_outbox *o, const struct wk_entry *e)
{
    struct wk_entry **at = &o->first;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    o->entries--;
    o->bytes -= e->frame->len;
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

void wk_outbox_end_removal(struct wk_outbox *o)
{
    free_list(&o->removing);
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
