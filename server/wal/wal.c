// The write-ahead log: writing. Layout and invariants: wal.h. Reading at start: wal_scan.c.
#include "server/wal/wal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "server/wal/wal_format.h"

LH_STATIC_ASSERT((PS_SEGMENT_HEADER_BYTES + PS_ENTRY_HEADER_BYTES + LH_RECORD_HEADER_BYTES) %
                         LH_BLOCK ==
                     LH_BLOB_PHASE,
                 "the first body of a segment goes to the disk from where it is");

static void write_segment_header(const struct ps_wal *w, struct lh_buf *out)
{
    lh_put_u32(out, PS_SEGMENT_MAGIC);
    lh_put_u16(out, 1);
    lh_put_u16(out, 0);
    lh_put_u64(out, w->segment);
    lh_put_u64(out, w->generation);
    lh_put_u64(out, w->segment_first);
    lh_put(out, w->conf.job, LH_JOB_BYTES);
    lh_put_u64(out, 0);
    lh_put_u32(out, lh_crc32c(0, out->data, out->len));
    LH_ASSERT(out->err || out->len == PS_SEGMENT_HEADER_BYTES - 4);
    lh_put_u32(out, 0);
}

void ps_wal_reserve(struct ps_wal *w, uint64_t bytes)
{
    atomic_store(&w->reserve, bytes);
}

// Bytes that failed to sync may still be on disk. The process must not go on as if they were
// absent, even if the error was a full disk.
static lh_err final(lh_err err)
{
    char text[256];
    if (err != LH_ERR_DISK_FULL) return err;
    snprintf(text, sizeof text, "%s", lh_err_text(err));
    return lh_fail(LH_ERR_IO, "%s", text);
}

// Opens the next segment of `size` bytes and leaves `reserve` bytes free. Disk lane.
static lh_err open_segment(struct ps_wal *w, uint64_t size, uint64_t reserve)
{
    const struct lh_files_ops *files = w->conf.env->ops->files;
    char path[LH_PATH_BYTES];
    struct lh_buf header = lh_buf(PS_SEGMENT_HEADER_BYTES);
    struct lh_file *file = NULL;
    lh_err err;
    uint64_t before = w->segment_first;
    LH_TRY(lh_file_room(w->conf.env, w->conf.dir, size, reserve));
    w->segment++;
    w->segment_first = w->group_first;
    write_segment_header(w, &header);
    LH_TRY_TO(out, err, lh_buf_err(&header));
    ps_wal_segment_path(w, w->segment, path);
    LH_TRY_TO(
        out, err,
        files->open(w->conf.env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_DIRECT, &file));
    LH_TRY_TO(out_remove, err, files->resize(file, size));
    LH_TRY_TO(out_remove, err, files->write(file, 0, lh_buf_span(&header)));
    LH_FAILPOINT("wal.roll");
    LH_TRY_TO(out_remove, err, final(files->sync(file)));
    LH_TRY_TO(out_remove, err, final(files->sync_dir(w->conf.env, w->conf.dir)));
    if (w->file) files->close(w->file);
    w->file = file;
    w->at = PS_SEGMENT_HEADER_BYTES;
    w->size = size;
    lh_buf_free(&header);
    return LH_OK;
out_remove:
    files->close(file);
    if (err == LH_ERR_DISK_FULL) {
        lh_err gone = files->remove(w->conf.env, path);
        if (gone) err = gone;
    }
out:
    w->segment--;
    w->segment_first = before;
    lh_buf_free(&header);
    return err;
}

// Opens the next segment, preallocated for at least `need` bytes of entries.
static lh_err roll(struct ps_wal *w, uint64_t need)
{
    uint64_t size = PS_SEGMENT_HEADER_BYTES + need;
    if (size < w->conf.segment_bytes) size = w->conf.segment_bytes;
    return open_segment(w, size, atomic_load(&w->reserve));
}

// Opens a start's segment. If the disk is full, the segment is a header only: the server comes up,
// serves its state, and the first group handles the full disk.
static lh_err first_segment(struct ps_wal *w)
{
    bool first = !w->segment; // a new log has nothing to remove
    ps_wal_reserve(w, first ? 0 : w->conf.reserve);
    lh_err err = roll(w, 0);
    if (err == LH_ERR_DISK_FULL && !first) err = open_segment(w, PS_SEGMENT_HEADER_BYTES, 0);
    ps_wal_reserve(w, w->conf.reserve);
    return err;
}

// Random, so that a worker's chosen body cannot pass as an entry. Never 0.
static uint64_t new_generation(struct lh_env *env)
{
    return (lh_random_u64(env) & PS_COUNT_MAX) | 1;
}

lh_err ps_wal_open(const struct ps_wal_conf *conf, ps_wal_replay_fn replay, void *arg, bool *torn,
                   struct ps_wal **out)
{
    struct ps_wal *w = calloc(1, sizeof *w);
    if (!w) return LH_ERR_NO_MEMORY;
    w->conf = *conf;
    w->group = lh_buf((size_t)LH_RECORD_BYTES_MAX);
    w->next = w->group_first = 1;
    lh_err err;
    LH_TRY_TO(fail, err, conf->env->ops->files->make_dir(conf->env, conf->dir));
    LH_TRY_TO(fail, err, ps_wal_scan(w, replay, arg, torn));
    if (conf->scanned) LH_TRY_TO(fail, err, conf->scanned(arg, *torn));
    w->generation = new_generation(conf->env);
    w->group_first = w->next;
    w->durable = w->next - 1;
    LH_TRY_TO(fail, err, first_segment(w));
    w->segment_seen = w->segment;
    *out = w;
    return LH_OK;
fail:
    ps_wal_close(w);
    return err;
}

void ps_wal_close(struct ps_wal *w)
{
    if (!w) return;
    if (w->file) w->conf.env->ops->files->close(w->file);
    for (size_t i = 0; i < LH_COUNT(w->reader); i++)
        if (w->reader[i].file) w->conf.env->ops->files->close(w->reader[i].file);
    lh_buf_free(&w->group);
    free(w->piece);
    free(w);
}

static struct ps_piece *new_piece(struct ps_wal *w)
{
    if (w->pieces == w->piece_cap) {
        size_t cap = w->piece_cap ? 2 * w->piece_cap : 64;
        struct ps_piece *grown = realloc(w->piece, cap * sizeof *grown);
        if (!grown) return NULL;
        w->piece = grown;
        w->piece_cap = cap;
    }
    return &w->piece[w->pieces];
}

// The disk lane adds the checksum (seal_entries): it has the time to read the body.
static lh_err add_entry(struct ps_wal *w, uint32_t shard, const struct lh_record *r,
                        struct ps_place *place)
{
    struct lh_buf *b = &w->group;
    if (r && r->body.len > LH_RECORD_BYTES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "a record of %zu bytes", r->body.len);
    struct ps_piece *p = new_piece(w);
    if (!p) return LH_ERR_NO_MEMORY;
    p->start = b->len;
    p->body = r ? r->body : (struct lh_span){0};
    lh_put_u32(b, PS_ENTRY_MAGIC);
    lh_put_u32(b, 0);
    lh_put_u64(b, w->generation);
    lh_put_u64(b, w->next);
    lh_put_u64(b, w->durable);
    lh_put_u32(b, shard);
    lh_put_u32(b, 0);
    if (r) lh_record_write_header(r, b);
    p->body_at = b->len;
    if (place)
        *place = (struct ps_place){0, w->group_bytes + PS_ENTRY_HEADER_BYTES,
                                   (uint32_t)(LH_RECORD_HEADER_BYTES + p->body.len)};
    lh_put_zeros(b, (8 - (b->len - p->start + p->body.len) % 8) % 8);
    p->end = b->len;
    lh_put_u64(b, 0); // the trailer
    size_t total = b->len - p->start + p->body.len;
    lh_buf_patch_u32(b, p->start + 4, (uint32_t)total);
    if (b->err) {
        lh_err err = b->err;
        b->len = p->start;
        b->err = LH_OK;
        return err;
    }
    w->pieces++;
    w->group_bytes += total;
    w->next++;
    w->last_is_mark = !r;
    return LH_OK;
}

lh_err ps_wal_add(struct ps_wal *w, uint32_t shard, const struct lh_record *r,
                  struct ps_place *place)
{
    LH_ASSERT(shard != PS_MARK);
    return add_entry(w, shard, r, place); // the group's place in a segment is known after commit
}

bool ps_wal_mark(struct ps_wal *w)
{
    return !w->group_bytes && !w->last_is_mark && add_entry(w, PS_MARK, NULL, NULL) == LH_OK;
}

uint64_t ps_wal_group_bytes(const struct ps_wal *w)
{
    return w->group_bytes;
}

static void seal_entries(struct ps_wal *w)
{
    const uint8_t *own = w->group.data;
    for (size_t i = 0; i < w->pieces; i++) {
        const struct ps_piece *p = &w->piece[i];
        lh_buf_patch_u32(&w->group, p->start + PS_ENTRY_FOLLOWING, (uint32_t)(w->pieces - 1 - i));
        uint32_t crc = lh_crc32c(0, own + p->start, p->body_at - p->start);
        crc = lh_crc32c(crc, p->body.data, p->body.len);
        crc = lh_crc32c(crc, own + p->body_at, p->end - p->body_at);
        lh_buf_patch_u32(&w->group, p->end, crc);
    }
}

// Invariant 5: nothing more is written to this segment. Cuts the file at its last good byte, if the
// disk allows it; a start would take the leftovers of a failed write for a torn tail.
static void close_segment(struct ps_wal *w)
{
    w->size = w->at;
    lh_err err = w->conf.env->ops->files->resize(w->file, w->at);
    if (err)
        lh_log_peer(w->conf.log, LH_WARN, "log.uncut",
                    "bytes of a failed write remain behind the end of segment %016llx: %s",
                    (unsigned long long)w->segment, lh_err_text(err));
}

static lh_err write_body(struct ps_wal *w, struct lh_span body)
{
    const uint64_t head = PS_ENTRY_HEADER_BYTES + LH_RECORD_HEADER_BYTES;
    uint64_t need = head + body.len + 7 + PS_ENTRY_TRAILER;
    if (w->at + need > w->size) LH_TRY(roll(w, need));
    lh_err err = w->conf.env->ops->files->write(w->file, w->at + head, body);
    if (err) close_segment(w);
    return err;
}

void ps_wal_write_ahead(struct ps_wal *w, struct lh_span body)
{
    LH_ASSERT(!w->ahead.len);
    lh_err err = write_body(w, body);
    if (!err)
        w->ahead = body;
    else // the commit writes it again and may succeed, so only this message reports the error
        lh_log_peer(w->conf.log, LH_WARN, "log.ahead", "a frame was not written ahead: %s",
                    lh_err_text(err));
}

// `ahead`: the first body is already written.
static lh_err write_group(struct ps_wal *w, bool ahead)
{
    const struct lh_files_ops *files = w->conf.env->ops->files;
    uint64_t at = w->at;
    size_t done = 0; // bytes of our own buffer written so far
    for (size_t i = 0; i < w->pieces; i++) {
        const struct ps_piece *p = &w->piece[i];
        if (!p->body.len) continue; // written together with its neighbours
        LH_TRY(files->write(w->file, at, lh_span(w->group.data + done, p->body_at - done)));
        at += p->body_at - done;
        done = p->body_at;
        if (i || !ahead) LH_TRY(files->write(w->file, at, p->body));
        at += p->body.len;
    }
    return files->write(w->file, at, lh_span(w->group.data + done, w->group.len - done));
}

static lh_err write_synced(struct ps_wal *w, bool ahead)
{
    seal_entries(w);
    LH_FAILPOINT("wal.write");
    lh_err err = write_group(w, ahead);
    if (err == LH_ERR_DISK_FULL) close_segment(w);
    if (err) return err;
    LH_FAILPOINT("wal.sync");
    err = final(w->conf.env->ops->files->sync(w->file));
    LH_FAILPOINT("wal.synced");
    return err;
}

lh_err ps_wal_commit(struct ps_wal *w)
{
    struct lh_span ahead = w->ahead;
    LH_ASSERT(w->pieces);
    bool fits = w->at + w->group_bytes <= w->size;
    bool there = ahead.len && fits && w->piece[0].body.data == ahead.data;
    w->ahead = (struct lh_span){0};
    // Leftover bytes of an unused body end with their segment, where no scan takes them for a torn
    // entry. The segment is closed even if the disk has no space for another.
    if (ahead.len && !there) w->size = w->at;
    if (w->at + w->group_bytes > w->size) LH_TRY(roll(w, w->group_bytes));
    return write_synced(w, there);
}

lh_err ps_wal_commit_small(struct ps_wal *w, uint64_t reserve)
{
    LH_ASSERT(w->pieces && !w->ahead.len);
    LH_TRY(open_segment(w, PS_SEGMENT_HEADER_BYTES + w->group_bytes, reserve));
    return write_synced(w, false);
}

static void clear_group(struct ps_wal *w)
{
    lh_buf_clear(&w->group);
    w->pieces = 0;
    w->group_bytes = 0;
}

void ps_wal_group_done(struct ps_wal *w)
{
    w->at += w->group_bytes;
    w->durable = w->next - 1;
    w->group_first = w->next;
    w->segment_seen = w->segment;
    clear_group(w);
}

void ps_wal_drop_group(struct ps_wal *w)
{
    w->next = w->group_first;
    w->last_is_mark = false;
    clear_group(w);
}

struct ps_place ps_wal_committed_place(const struct ps_wal *w, struct ps_place in_group)
{
    return (struct ps_place){w->segment, w->at + in_group.at, in_group.bytes};
}

// ---------------------------------------------------------------- reading back

// Never opens the file being written: that one belongs to the disk lane.
static lh_err reader(struct ps_wal *w, uint64_t segment, struct lh_file **out)
{
    size_t slot = segment % LH_COUNT(w->reader);
    if (w->reader[slot].file && w->reader[slot].segment != segment) {
        w->conf.env->ops->files->close(w->reader[slot].file);
        w->reader[slot].file = NULL;
    }
    if (!w->reader[slot].file) {
        char path[LH_PATH_BYTES];
        ps_wal_segment_path(w, segment, path);
        LH_TRY(
            w->conf.env->ops->files->open(w->conf.env, path, LH_OPEN_READ, &w->reader[slot].file));
        w->reader[slot].segment = segment;
    }
    *out = w->reader[slot].file;
    return LH_OK;
}

lh_err ps_wal_read(struct ps_wal *w, struct ps_place place, size_t from, size_t n,
                   struct lh_blob **out)
{
    struct lh_file *file;
    size_t got = 0;
    LH_ASSERT(from <= place.bytes && n <= place.bytes - from);
    LH_TRY(reader(w, place.segment, &file));
    struct lh_blob *b = lh_blob_new(n);
    if (!b) return LH_ERR_NO_MEMORY;
    lh_err err = w->conf.env->ops->files->read(file, place.at + from, b->data, n, &got);
    if (!err && got != n)
        err = lh_fail(LH_ERR_CORRUPT, "segment %016llx ends before byte %llu",
                      (unsigned long long)place.segment,
                      (unsigned long long)(place.at + place.bytes));
    if (err)
        lh_blob_release(b);
    else
        *out = b;
    return err;
}

struct ps_segments ps_wal_release(struct ps_wal *w, uint64_t first_segment_needed)
{
    struct ps_segments out = {.from = w->oldest};
    for (; w->oldest < first_segment_needed && w->oldest < w->segment_seen; w->oldest++) {
        size_t slot = w->oldest % LH_COUNT(w->reader);
        if (w->reader[slot].file && w->reader[slot].segment == w->oldest) {
            w->conf.env->ops->files->close(w->reader[slot].file);
            w->reader[slot].file = NULL;
        }
    }
    out.to = w->oldest;
    return out;
}

lh_err ps_wal_remove(const struct ps_wal *w, struct ps_segments gone)
{
    for (uint64_t segment = gone.from; segment < gone.to; segment++) {
        char path[LH_PATH_BYTES];
        ps_wal_segment_path(w, segment, path);
        lh_err err = w->conf.env->ops->files->remove(w->conf.env, path);
        if (err && err != LH_ERR_NOT_FOUND) return err;
    }
    return LH_OK;
}

uint64_t ps_wal_generation(const struct ps_wal *w)
{
    return w->generation;
}

uint64_t ps_wal_segment(const struct ps_wal *w)
{
    return w->segment_seen;
}
