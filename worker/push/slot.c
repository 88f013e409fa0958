// The slot's bytes. See slot.h.
#include "worker/push/slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"

static const uint32_t MAGIC = 0x4c53484c; // "LHSL"
enum { VERSION = 4, SYNCED = 1, FIXED = 144 };
enum { BLOCK = 256 << 10 }; // bytes that stay in the cache from their CRC to their write

struct header {
    uint16_t flags;
    uint64_t generation, values;
    uint8_t boot[16];
    uint32_t residual_crc;
};

static size_t head_bytes(uint32_t claims, uint32_t positions)
{
    return FIXED + (size_t)LH_CLAIM_BYTES * claims + 16u * positions + 8u;
}

void wk_slot_free(struct wk_slot *slot)
{
    free(slot->claim);
    free(slot->position);
    slot->claim = NULL;
    slot->position = NULL;
}

static lh_err write_head(const struct wk_slots *s, const struct wk_slot *slot, uint64_t generation,
                         bool synced, uint32_t residual_crc, struct lh_buf *b)
{
    lh_put_u32(b, MAGIC);
    lh_put_u16(b, VERSION);
    lh_put_u16(b, synced ? SYNCED : 0);
    lh_put_u64(b, generation);
    lh_put(b, s->boot, sizeof s->boot);
    lh_put_u64(b, slot->incarnation.number);
    lh_put_u64(b, slot->incarnation.random);
    lh_put_u64(b, slot->gone_incarnation);
    lh_put_u64(b, slot->gone_step);
    lh_put_u64(b, slot->next);
    lh_put_u64(b, slot->decided);
    lh_put_u8(b, slot->decided_admitted);
    lh_put_u8(b, 0);
    lh_put_u16(b, 0);
    lh_put_u32(b, slot->claim_count);
    lh_put_u64(b, s->values);
    lh_put_u32(b, slot->position_count);
    lh_put_u32(b, 0);
    lh_put_u64(b, slot->tokens);
    lh_put_u64(b, slot->decided_epoch);
    lh_put(b, slot->life, sizeof slot->life);
    lh_put_u64(b, slot->cut);
    for (uint32_t i = 0; i < slot->claim_count; i++)
        lh_claim_write(slot->claim[i].unit, &slot->claim[i].grant, b);
    for (uint32_t i = 0; i < slot->position_count; i++) {
        lh_put_u64(b, slot->position[i].unit);
        lh_put_u64(b, slot->position[i].tokens);
    }
    lh_put_u32(b, residual_crc);
    if (!b->err) lh_put_u32(b, lh_crc32c(0, b->data, b->len));
    return lh_buf_err(b);
}

// Reads claims and positions from a header that is whole.
static lh_err read_lists(struct lh_span claims, struct lh_span positions, struct wk_slot *out)
{
    out->claim = calloc(out->claim_count + 1, sizeof *out->claim);
    out->position = calloc(out->position_count + 1, sizeof *out->position);
    if (!out->claim || !out->position) {
        wk_slot_free(out);
        return LH_ERR_NO_MEMORY;
    }
    struct lh_cursor c = lh_cursor(claims), p = lh_cursor(positions);
    for (uint32_t i = 0; i < out->claim_count; i++)
        out->claim[i].unit = lh_claim_read(&c, &out->claim[i].grant);
    for (uint32_t i = 0; i < out->position_count; i++) {
        out->position[i].unit = lh_get_u64(&p);
        out->position[i].tokens = lh_get_u64(&p);
    }
    return LH_OK;
}

static lh_err read_head(struct lh_cursor *c, struct header *h, struct wk_slot *out)
{
    const uint8_t *start = c->at;
    memset(out, 0, sizeof *out);
    uint32_t magic = lh_get_u32(c);
    uint16_t version = lh_get_u16(c);
    h->flags = lh_get_u16(c);
    h->generation = lh_get_u64(c);
    lh_get_into(c, h->boot, sizeof h->boot);
    out->incarnation.number = lh_get_u64(c);
    out->incarnation.random = lh_get_u64(c);
    out->gone_incarnation = lh_get_u64(c);
    out->gone_step = lh_get_u64(c);
    out->next = lh_get_u64(c);
    out->decided = lh_get_u64(c);
    out->decided_admitted = lh_get_u8(c) != 0;
    (void)lh_get(c, 3);
    out->claim_count = lh_get_u32(c);
    h->values = lh_get_u64(c);
    out->position_count = lh_get_u32(c);
    (void)lh_get_u32(c);
    out->tokens = lh_get_u64(c);
    out->decided_epoch = lh_get_u64(c);
    lh_get_into(c, out->life, sizeof out->life);
    out->cut = lh_get_u64(c);
    if (c->failed || magic != MAGIC || version != VERSION ||
        out->claim_count > WK_CLAIMS_HELD_MAX || out->position_count > WK_POSITIONS_MAX)
        return lh_fail(LH_ERR_CORRUPT, "not a slot");
    struct lh_span claims = lh_get(c, (size_t)LH_CLAIM_BYTES * out->claim_count);
    struct lh_span positions = lh_get(c, 16u * out->position_count);
    h->residual_crc = lh_get_u32(c);
    size_t head = (size_t)(c->at - start);
    uint32_t crc = lh_get_u32(c);
    if (c->failed || crc != lh_crc32c(0, start, head)) return lh_fail(LH_ERR_CORRUPT, "not a slot");
    return read_lists(claims, positions, out);
}

// Reads one file. LH_ERR_CORRUPT or LH_ERR_NOT_FOUND: it is not valid. The residual's bytes follow
// the cursor in `file`.
static lh_err read_file(struct wk_slots *s, const char *path, struct lh_buf *file, struct header *h,
                        struct wk_slot *out, struct lh_span *residual)
{
    lh_buf_clear(file);
    LH_TRY(lh_file_load(s->env, path, file));
    struct lh_cursor c = lh_cursor(lh_buf_span(file));
    LH_TRY(read_head(&c, h, out));
    *residual = lh_get(&c, lh_left(&c));
    if (h->values == s->values && residual->len == s->values * sizeof(float) &&
        h->residual_crc == lh_crc32c(0, residual->data, residual->len))
        return LH_OK;
    wk_slot_free(out);
    return lh_fail(LH_ERR_CORRUPT, "%s: not a whole slot", path);
}

static struct lh_buf file_buf(const struct wk_slots *s)
{
    return lh_buf(head_bytes(WK_CLAIMS_HELD_MAX, WK_POSITIONS_MAX) + s->values * sizeof(float));
}

static lh_err slot_path(const struct wk_slots *s, uint64_t generation, const char *more, char *out)
{
    return lh_path(out, LH_PATH_BYTES, s->dir, "slot-%04x-%c%s", s->shard,
                   'a' + (int)(generation % 2), more);
}

// Makes the newest slot durable: a killed process may have left it only in the page cache. From now
// on it is committed, so no power cut may bring back an older slot marked as synced, from the other
// file or from this file's old disk blocks. The file is rewritten because, after a failed sync, the
// cache treats its pages as clean and another sync would do nothing.
static lh_err sync_newest(struct wk_slots *s, int k, struct lh_buf *bytes)
{
    const struct lh_files_ops *files = s->env->ops->files;
    char path[LH_PATH_BYTES];
    struct lh_file *file;
    LH_TRY(slot_path(s, (uint64_t)k, "", path));
    lh_buf_clear(bytes);
    LH_TRY(lh_file_load(s->env, path, bytes));
    LH_TRY(files->open(s->env, path, LH_OPEN_WRITE, &file));
    lh_err err = files->write(file, 0, lh_buf_span(bytes));
    if (!err) err = files->sync(file);
    files->close(file);
    return err ? err : files->sync_dir(s->env, s->dir);
}

lh_err wk_slot_load(struct wk_slots *s, struct wk_slot *out, float *residual,
                    enum wk_slot_state *state)
{
    struct lh_buf file = file_buf(s);
    lh_err err = LH_OK;
    int newest = 0; // not derived from the generation: a damaged disk may hold any number
    *state = WK_SLOT_ABSENT;
    s->settle = 2;
    memset(out, 0, sizeof *out);
    for (int k = 0; k < 2; k++) {
        char path[LH_PATH_BYTES];
        struct header h;
        struct wk_slot slot;
        struct lh_span bytes;
        LH_TRY_TO(out, err, lh_path(path, sizeof path, s->dir, "slot-%04x-%c", s->shard, 'a' + k));
        err = read_file(s, path, &file, &h, &slot, &bytes);
        if (err == LH_ERR_NOT_FOUND || err == LH_ERR_CORRUPT) {
            if (err == LH_ERR_CORRUPT && *state == WK_SLOT_ABSENT) *state = WK_SLOT_LOST;
            err = LH_OK;
            continue;
        }
        if (err) goto out;
        if (h.generation <= s->generation) {
            wk_slot_free(&slot);
            continue;
        }
        wk_slot_free(out);
        *out = slot;
        s->generation = h.generation;
        newest = k;
        bool same_boot = memcmp(h.boot, s->boot, sizeof h.boot) == 0;
        *state = same_boot || h.flags & SYNCED ? WK_SLOT_INTACT : WK_SLOT_LOST;
        memcpy(residual, bytes.data, bytes.len);
    }
    if (*state == WK_SLOT_INTACT) err = sync_newest(s, newest, &file);
out:
    if (err) wk_slot_free(out); // the first file was read, the second could not be
    lh_buf_free(&file);
    return err;
}

static lh_err read_residual(struct wk_slots *s, struct lh_file *file, struct lh_buf *head,
                            float *residual)
{
    const struct lh_files_ops *files = s->env->ops->files;
    size_t bytes = (size_t)s->values * sizeof *residual, got = 0;
    struct header h;
    struct wk_slot slot;
    LH_TRY(lh_buf_reserve(head, head->max));
    LH_TRY(files->read(file, 0, head->data, head->max, &got));
    struct lh_cursor c = lh_cursor(lh_span(head->data, got));
    LH_TRY(read_head(&c, &h, &slot));
    wk_slot_free(&slot);
    if (h.generation != s->generation || h.values != s->values)
        return lh_fail(LH_ERR_CORRUPT, "another slot");
    LH_TRY(files->read(file, (size_t)(c.at - head->data), residual, bytes, &got));
    if (got == bytes && h.residual_crc == lh_crc32c(0, residual, bytes)) return LH_OK;
    return lh_fail(LH_ERR_CORRUPT, "not its residual");
}

lh_err wk_slot_residual(struct wk_slots *s, float *residual)
{
    struct lh_buf head = lh_buf(head_bytes(WK_CLAIMS_HELD_MAX, WK_POSITIONS_MAX));
    struct lh_file *file;
    char path[LH_PATH_BYTES];
    LH_TRY(slot_path(s, s->generation, "", path));
    LH_TRY(s->env->ops->files->open(s->env, path, LH_OPEN_READ, &file));
    lh_err err = read_residual(s, file, &head, residual);
    s->env->ops->files->close(file);
    lh_buf_free(&head);
    if (err == LH_ERR_CORRUPT)
        return lh_fail(err, "%s was changed since this process wrote it", path);
    return err;
}

static uint32_t crc_of_zeros(uint64_t bytes)
{
    static const uint8_t zero[4096];
    uint32_t crc = 0;
    for (size_t n; bytes; bytes -= n) {
        n = bytes < sizeof zero ? (size_t)bytes : sizeof zero;
        crc = lh_crc32c(crc, zero, n);
    }
    return crc;
}

// Writes the residual from `at` on, and computes its CRC-32C.
static lh_err write_values(struct lh_file *file, const struct lh_files_ops *files, uint64_t at,
                           struct lh_span values, uint32_t *crc)
{
    *crc = 0;
    for (size_t done = 0, n; done < values.len; done += n) {
        n = values.len - done < BLOCK ? values.len - done : BLOCK;
        struct lh_span block = lh_span(values.data + done, n);
        *crc = lh_crc32c(*crc, block.data, n);
        LH_TRY(files->write(file, at + done, block));
    }
    return LH_OK;
}

static lh_err forget(struct wk_slots *s, const char *path)
{
    static const uint8_t none[sizeof MAGIC];
    const struct lh_files_ops *files = s->env->ops->files;
    struct lh_file *file;
    uint64_t size = 0;
    LH_TRY(files->open(s->env, path, LH_OPEN_WRITE, &file));
    lh_err err = files->size(file, &size);
    if (size > sizeof none) size = sizeof none; // never extend the file: that would need disk space
    if (!err && size) err = files->write(file, 0, lh_span(none, (size_t)size));
    files->close(file);
    return err;
}

// Undoes a write that met a full disk. Removes a first slot's file. Of another slot only the magic
// number is cleared, because removing the file would release its disk space. If that fails too, the
// file's state is unknown.
static lh_err undo(struct wk_slots *s, const char *path, bool first, lh_err why)
{
    char text[512];
    snprintf(text, sizeof text, "%s", lh_err_text(why));
    lh_err err = first ? s->env->ops->files->remove(s->env, path) : forget(s, path);
    if (err == LH_ERR_DISK_FULL) err = lh_fail(LH_ERR_IO, "%s; it can't be undone either", text);
    return err && err != LH_ERR_NOT_FOUND ? err : lh_fail(why, "%s", text);
}

// A slot to be written.
struct flipped {
    const struct wk_slot *slot;
    const float *residual; // NULL: zeros
    uint64_t generation;
    bool sync, durably; // sync: it is marked as synced
};

// The head is written last: until then its CRC-32C of the residual is another one's.
static lh_err write_open(struct wk_slots *s, struct lh_file *file, const struct flipped *f)
{
    const struct lh_files_ops *files = s->env->ops->files;
    struct lh_span values = {(const uint8_t *)f->residual, s->values * sizeof(float)};
    size_t head = head_bytes(f->slot->claim_count, f->slot->position_count);
    struct lh_buf b = lh_buf(head);
    uint32_t crc = f->residual ? 0 : crc_of_zeros(values.len);
    lh_err err = f->residual ? write_values(file, files, head, values, &crc)
                             : files->resize(file, 0); // zeros: a sparse file
    if (!err) err = write_head(s, f->slot, f->generation, f->sync, crc, &b);
    LH_ASSERT(err || b.len == head);
    if (!err) err = files->write(file, 0, lh_buf_span(&b));
    if (!err) err = files->resize(file, head + values.len);
    if (!err && f->durably) err = files->sync(file);
    lh_buf_free(&b);
    return err;
}

// Overwrites the residual in place: the other file is whole. Without a residual it writes zeros
// under a temporary name, because there is no other file.
static lh_err write_file(struct wk_slots *s, const struct flipped *f)
{
    const struct lh_files_ops *files = s->env->ops->files;
    struct lh_file *file;
    char path[LH_PATH_BYTES], first[LH_PATH_BYTES];
    LH_TRY(slot_path(s, f->generation, "", path));
    LH_TRY(slot_path(s, f->generation, f->residual ? "" : ".tmp", first));
    LH_TRY(files->open(s->env, first, LH_OPEN_WRITE | LH_OPEN_CREATE, &file));
    lh_err err = write_open(s, file, f);
    files->close(file);
    if (!err && !f->residual) err = files->rename(s->env, first, path);
    if (!err && f->durably) err = files->sync_dir(s->env, s->dir);
    return err == LH_ERR_DISK_FULL ? undo(s, path, !f->residual, err) : err;
}

lh_err wk_slot_flip(struct wk_slots *s, const struct wk_slot *slot, const float *residual,
                    bool sync)
{
    const struct flipped f = {slot, residual, s->generation + 1, sync, sync || s->settle};
    lh_err err = write_file(s, &f);
    if (!err) s->generation = f.generation;
    if (!err && f.durably) s->settle = sync ? 2 : s->settle - 1;
    return err;
}

struct snapshot {
    const struct lh_files_ops *files;
    struct lh_span head, values;
};

static lh_err write_snapshot(void *arg, struct lh_file *file)
{
    const struct snapshot *n = arg;
    LH_TRY(n->files->write(file, 0, n->head));
    return n->files->write(file, n->head.len, n->values);
}

lh_err wk_snapshot_write(struct wk_slots *s, const struct wk_slot *slot, const float *residual)
{
    struct lh_buf b = lh_buf(head_bytes(WK_CLAIMS_HELD_MAX, WK_POSITIONS_MAX));
    struct lh_span values = {(const uint8_t *)residual, s->values * sizeof(float)};
    char path[LH_PATH_BYTES];
    uint32_t crc = lh_crc32c(0, residual, values.len);
    lh_err err = write_head(s, slot, s->generation, true, crc, &b);
    struct snapshot n = {s->env->ops->files, lh_buf_span(&b), values};
    if (!err) err = lh_path(path, sizeof path, s->dir, "residual-%04x", s->shard);
    if (!err) err = lh_file_replace_by(s->env, path, write_snapshot, &n);
    lh_buf_free(&b);
    return err;
}

lh_err wk_snapshot_load(struct wk_slots *s, struct wk_slot *out, float *residual)
{
    struct lh_buf file = file_buf(s);
    char path[LH_PATH_BYTES];
    struct header h;
    struct lh_span bytes;
    lh_err err = lh_path(path, sizeof path, s->dir, "residual-%04x", s->shard);
    if (!err) err = read_file(s, path, &file, &h, out, &bytes);
    if (err == LH_ERR_CORRUPT) err = LH_ERR_NOT_FOUND;
    if (!err && residual) memcpy(residual, bytes.data, bytes.len);
    lh_buf_free(&file);
    return err;
}

lh_err wk_snapshot_remove(struct wk_slots *s)
{
    const struct lh_files_ops *files = s->env->ops->files;
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, s->dir, "residual-%04x", s->shard));
    lh_err err = files->remove(s->env, path);
    return err && err != LH_ERR_NOT_FOUND ? err : files->sync_dir(s->env, s->dir);
}
