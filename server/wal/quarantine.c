// Quarantine: replaced logs and damaged checkpoints, kept for inspection while the disk has space.
//
// A log that is replaced by a follower's state, or by another history, moves to
// DIR/damaged-<number, 16 hex>/. 1. The replacing state is durable before the move, so the server
// never reads the folder again. 2. When the disk is full, all these folders are removed at once,
// before any promised write has to wait, and the log says so. Folder numbers have no gaps, because
// the environment cannot list directories: the first folder without a file ends the count. Damaged
// checkpoints that a start skipped (checkpoints/*.damaged) are removed with them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/core.h"
#include "server/wal/quarantine.h"

struct segments {
    char (*name)[64];
    size_t count;
    lh_err err;
};

static void note_segment(void *arg, const char *name)
{
    struct segments *s = arg;
    if (s->err || strlen(name) >= sizeof *s->name) return;
    char(*grown)[64] = realloc(s->name, (s->count + 1) * sizeof *grown);
    if (!grown) {
        s->err = LH_ERR_NO_MEMORY;
        return;
    }
    s->name = grown;
    memcpy(s->name[s->count++], name, strlen(name) + 1);
}

// The files of a folder, in order; none if there is no folder. Caller frees out->name.
static lh_err list(struct ps_server *s, const char *folder, struct segments *out)
{
    *out = (struct segments){0};
    lh_err err = s->conf.env->ops->files->list(s->conf.env, folder, note_segment, out);
    if (err == LH_ERR_NOT_FOUND) err = LH_OK;
    if (!err) err = out->err;
    if (err) free(out->name);
    return err;
}

static lh_err folder_path(const struct ps_server *s, uint64_t number, char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, s->conf.dir, "damaged-%016" PRIx64, number);
}

// Counts the folders.
static lh_err count_folders(struct ps_server *s, uint64_t *out)
{
    char path[LH_PATH_BYTES];
    struct segments found;
    for (*out = 0;; ++*out) {
        LH_TRY(folder_path(s, *out + 1, path));
        LH_TRY(list(s, path, &found));
        free(found.name);
        if (!found.count) return LH_OK;
    }
}

// Moves the oldest first: a crash in between leaves the log's end, never a log that seems shorter.
lh_err ps_quarantine_move(struct ps_server *s, const char *from, const char *to)
{
    const struct lh_files_ops *files = s->conf.env->ops->files;
    struct segments found;
    char from_path[LH_PATH_BYTES], to_path[LH_PATH_BYTES];
    LH_TRY(list(s, from, &found));
    lh_err err = LH_OK;
    for (size_t i = 0; i < found.count && !err; i++) {
        err = lh_path(from_path, sizeof from_path, from, "%s", found.name[i]);
        if (!err) err = lh_path(to_path, sizeof to_path, to, "%s", found.name[i]);
        if (!err) err = files->rename(s->conf.env, from_path, to_path);
        if (!err) err = files->sync_dir(s->conf.env, from);
    }
    free(found.name);
    if (!err) err = files->sync_dir(s->conf.env, to);
    return err;
}

lh_err ps_quarantine_log(struct ps_server *s)
{
    const struct lh_files_ops *files = s->conf.env->ops->files;
    char to[LH_PATH_BYTES];
    uint64_t folders;
    LH_TRY(count_folders(s, &folders));
    LH_TRY(folder_path(s, folders + 1, to));
    LH_TRY(files->make_dir(s->conf.env, to));
    LH_TRY(files->sync_dir(s->conf.env, s->conf.dir));
    LH_TRY(ps_quarantine_move(s, s->wal_dir, to));
    lh_logf(s->conf.log, LH_WARN, "log.set_aside",
            "%s has the abandoned log; it is removed when the disk is full", to);
    return LH_OK;
}

static lh_err empty(struct ps_server *s, const char *folder, size_t *count)
{
    const struct lh_files_ops *files = s->conf.env->ops->files;
    struct segments found;
    char path[LH_PATH_BYTES];
    LH_TRY(list(s, folder, &found));
    lh_err err = LH_OK;
    for (size_t i = 0; i < found.count && !err; i++) {
        err = lh_path(path, sizeof path, folder, "%s", found.name[i]);
        if (!err) err = files->remove(s->conf.env, path);
    }
    *count = found.count;
    free(found.name);
    return err ? err : files->sync_dir(s->conf.env, folder);
}

lh_err ps_quarantine_empty(struct ps_server *s, const char *folder)
{
    size_t count;
    return empty(s, folder, &count);
}

static lh_err remove_folder(struct ps_server *s, const char *folder)
{
    size_t count;
    LH_TRY(empty(s, folder, &count));
    lh_logf(s->conf.log, LH_WARN, "log.aside_removed",
            "the disk is full: removed %zu segments of an abandoned log in %s", count, folder);
    return LH_OK;
}

static bool damaged(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && !strcmp(end, ".damaged");
}

static lh_err remove_damaged(struct ps_server *s, bool *any)
{
    const struct lh_files_ops *files = s->conf.env->ops->files;
    struct segments found;
    char path[LH_PATH_BYTES];
    LH_TRY(list(s, s->checkpoint_dir, &found));
    lh_err err = LH_OK;
    *any = false;
    for (size_t i = 0; i < found.count && !err; i++) {
        if (!damaged(found.name[i])) continue;
        *any = true;
        err = lh_path(path, sizeof path, s->checkpoint_dir, "%s", found.name[i]);
        if (!err) err = files->remove(s->conf.env, path);
    }
    if (!err && *any) err = files->sync_dir(s->conf.env, s->checkpoint_dir);
    if (!err && *any)
        lh_logf(s->conf.log, LH_WARN, "checkpoint.aside_removed",
                "the disk is full: removed damaged checkpoints in %s", s->checkpoint_dir);
    free(found.name);
    return err;
}

lh_err ps_quarantine_remove(struct ps_server *s, bool *any)
{
    char path[LH_PATH_BYTES];
    uint64_t folders;
    LH_TRY(remove_damaged(s, any));
    LH_TRY(count_folders(s, &folders));
    *any |= folders > 0;
    for (; folders; folders--) { // the last first: a crash in between leaves no gap
        LH_TRY(folder_path(s, folders, path));
        LH_TRY(remove_folder(s, path));
    }
    return LH_OK;
}
