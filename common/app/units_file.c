// The data's manifest, mapped from its index. See units_file.h.
//
// 1. The index is used only for the units.json whose hash it holds; units.json is hashed at each
// start.
// 2. A rename gives a complete index its name, so programs that start together each make one.
// 3. The index is not synced: one that a power cut tore has a wrong checksum and is made anew.
#include "common/app/units_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/env/env.h"
#include "common/format/units_index.h"
#include "common/objects/address.h"
#include "common/objects/objects.h"

enum { UNITS_AT_ONCE = 1024 };

// ---------------------------------------------------------------- maps

// Maps the whole file; an empty file gives an empty span.
static lh_err map_file(int fd, const char *path, struct lh_span *out)
{
    struct stat is;
    *out = lh_span(NULL, 0);
    if (fstat(fd, &is)) return lh_fail_errno(errno, "%s", path);
    if (!S_ISREG(is.st_mode)) return lh_fail(LH_ERR_INVALID, "%s is no file", path);
    if (!is.st_size) return LH_OK;
    void *p = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return lh_fail_errno(errno, "%s", path);
    *out = lh_span(p, (size_t)is.st_size);
    return LH_OK;
}

static void unmap(struct lh_span map)
{
    if (map.len) munmap((void *)(uintptr_t)map.data, map.len);
}

static lh_err map_path(const char *path, struct lh_span *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "%s is not there", path);
    if (fd < 0) return lh_fail_errno(errno, "%s", path);
    lh_err err = map_file(fd, path, out);
    close(fd);
    return err;
}

// Takes `map` on success.
static lh_err take_index(struct lh_span map, const struct lh_hash *hash, struct lh_units *u)
{
    lh_err err = lh_units_index_read(u, map, hash);
    if (err) unmap(map);
    return err;
}

// ---------------------------------------------------------------- making one

struct making {
    int fd;
    const char *path;
    off_t at;
    uint32_t crc;
    struct lh_unit unit[UNITS_AT_ONCE];
    size_t units;
};

static lh_err write_at(const struct making *m, const void *bytes, size_t n, off_t at)
{
    for (const uint8_t *p = bytes; n;) {
        ssize_t is = pwrite(m->fd, p, n, at);
        if (is < 0 && errno == EINTR) continue;
        if (is <= 0) return lh_fail_errno(errno, "%s", m->path);
        p += is;
        at += is;
        n -= (size_t)is;
    }
    return LH_OK;
}

static lh_err append(struct making *m, const void *bytes, size_t n)
{
    m->crc = lh_crc32c(m->crc, bytes, n);
    LH_TRY(write_at(m, bytes, n, m->at));
    m->at += (off_t)n;
    return LH_OK;
}

static lh_err flush(struct making *m)
{
    size_t n = m->units;
    m->units = 0;
    return append(m, m->unit, n * sizeof *m->unit);
}

static lh_err put(void *arg, const struct lh_unit *unit)
{
    struct making *m = arg;
    memcpy(&m->unit[m->units++], unit, sizeof *unit); // includes the padding, which is zeros
    return m->units == UNITS_AT_ONCE ? flush(m) : LH_OK;
}

// Writes the index of `json`; *u and *unit_tokens get the rest of its fields.
static lh_err write_index(struct making *m, struct lh_span json, struct lh_units *u,
                          uint64_t *unit_tokens)
{
    struct lh_buf head = lh_buf(LH_UNITS_INDEX_HEADER);
    m->at = LH_UNITS_INDEX_HEADER;
    lh_err err = lh_units_scan(u, json, put, m, unit_tokens);
    if (!err) err = flush(m);
    if (!err) err = append(m, u->heldout, u->heldout_count * sizeof *u->heldout);
    lh_units_index_head(u, m->crc, &head);
    if (!err) err = lh_buf_err(&head);
    if (!err) err = write_at(m, head.data, head.len, 0);
    lh_buf_free(&head);
    free(u->heldout);
    u->heldout = NULL;
    return err;
}

// Makes the index in an open file and opens *u from it.
static lh_err make_in(int fd, const char *path, struct lh_span json, struct lh_units *u)
{
    struct making *m = calloc(1, sizeof *m);
    struct lh_units head;
    struct lh_span map;
    uint64_t unit_tokens;
    if (!m) return lh_fail(LH_ERR_NO_MEMORY, "no memory for %s", path);
    m->fd = fd;
    m->path = path;
    lh_err err = write_index(m, json, &head, &unit_tokens);
    free(m);
    if (!err) err = map_file(fd, path, &map);
    if (!err) err = take_index(map, &head.hash, u);
    if (err) return err;
    err = lh_units_check(u, unit_tokens);
    if (err) lh_units_close(u);
    return err;
}

// An unlinked file of this process alone.
static int nameless(char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/longhaul-units-XXXXXX", folder && folder[0] ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd >= 0) unlink(path);
    return fd;
}

static bool is_no_place(lh_err err)
{
    return err == LH_ERR_IO || err == LH_ERR_DISK_FULL;
}

// `mode`: the manifest's.
static lh_err make(const char *index, mode_t mode, struct lh_span json, struct lh_units *u)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, "", "%s.XXXXXX", index));
    int fd = mkstemp(path);
    lh_err err = fd < 0 ? LH_ERR_IO : make_in(fd, path, json, u);
    if (fd >= 0 && !err) {
        // Readers of the manifest may read the index; if fchmod() fails, they make their own.
        (void)!fchmod(fd, mode & 0644);
        if (rename(path, index)) unlink(path);
    }
    if (fd >= 0 && err) unlink(path);
    if (fd >= 0) close(fd);
    if (!is_no_place(err)) return err;
    fd = nameless(path, sizeof path);
    if (fd < 0)
        return lh_fail_errno(errno,
                             "no place for the index of %s: let the folder take a file, or "
                             "set TMPDIR to one that does",
                             path);
    err = make_in(fd, path, json, u);
    close(fd);
    return err;
}

// ---------------------------------------------------------------- the whole

lh_err lh_units_open(const char *path, struct lh_units *u)
{
    char index[LH_PATH_BYTES];
    struct lh_span json, map;
    *u = (struct lh_units){0};
    LH_TRY(lh_path(index, sizeof index, "", "%s.index", path));
    LH_TRY(map_path(path, &json));
    struct lh_hash hash = lh_hash_of(lh_span(NULL, 0), &json, 1);
    lh_err err = map_path(index, &map);
    if (!err) err = take_index(map, &hash, u);
    struct stat of;
    if (err) err = make(index, stat(path, &of) ? 0600 : of.st_mode, json, u);
    unmap(json);
    return err;
}

// ---------------------------------------------------------------- a manifest in a store

static LH_MUST lh_err fetch(struct lh_env *env, const char *folder, const char *key,
                            const char *path)
{
    char fresh[LH_PATH_BYTES];
    struct lh_objects *o;
    uint64_t bytes;
    const struct lh_objects_conf conf = {.env = env, .address = folder};
    LH_TRY(lh_path(fresh, sizeof fresh, "", "%s.tmp", path));
    LH_TRY(lh_objects_open(&conf, &o));
    lh_err err = lh_object_size(o, key, &bytes);
    if (err == LH_ERR_NOT_FOUND) err = lh_fail(err, "there is no %s/%s", folder, key);
    if (!err) err = o->ops->get_file(o, key, bytes, fresh);
    if (!err) err = env->ops->files->rename(env, fresh, path);
    lh_objects_close(o);
    return err;
}

lh_err lh_units_find(struct lh_env *env, struct lh_log *log, const char *from, const char *dir,
                     char path[LH_PATH_BYTES])
{
    char folder[LH_PATH_BYTES];
    if (!lh_objects_is(from)) return lh_path(path, LH_PATH_BYTES, "", "%s", from);
    LH_TRY(lh_path(folder, sizeof folder, "", "%s", from));
    char *slash = strrchr(folder, '/');
    *slash = 0;
    if (!lh_object_key_fits(slash + 1))
        return lh_fail(LH_ERR_CONFIG, "%.100s: want s3://BUCKET/PREFIX/units.json", from);
    LH_TRY(lh_path(path, LH_PATH_BYTES, dir, "units-copy.json")); // units.json marks data
    lh_err err = fetch(env, folder, slash + 1, path);
    if (!err || err == LH_ERR_NO_MEMORY || access(path, R_OK)) return err;
    lh_logf(log, LH_WARN, "units.copy", "data.units: %s; the copy of an earlier start serves: %s",
            lh_err_text(err), path);
    return LH_OK;
}

void lh_units_close(struct lh_units *u)
{
    if (u->unit)
        unmap(lh_span((const uint8_t *)u->unit - LH_UNITS_INDEX_HEADER,
                      LH_UNITS_INDEX_HEADER + u->count * sizeof *u->unit +
                          u->heldout_count * sizeof *u->heldout));
    *u = (struct lh_units){0};
}
