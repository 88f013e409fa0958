// The coordinator's store. Layout and rules: store.h. Rows in memory: rows.h.
#include "server/coordinator/store.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "server/coordinator/store/rows.h"
#include "server/coordinator/store/bytes.h"

static const uint32_t MAGIC = 0x5453484c; // "LHST"
enum {
    VERSION = 3,
    HEADER_BYTES = 8,
    COPY_MIN = 1 << 16,     // a shorter file is not replaced
    LARGE_FILE = 64 << 20,  // a longer file is replaced at twice its content
    PART_BYTES = 256 << 10, // minimum bytes that a commit copies to the next file
    RESERVE_MAX = 1 << 20   // undo entries whose memory is kept
};
static const size_t FILE_BYTES_MAX = (size_t)2 << 30;

// A change that is not durable yet. `was`: the previous row, NULL: none. `made`: the new row if
// there was none before.
struct change {
    struct ps_row *was, *made;
};

// Between begin() and end(), only write() may use `file`, `at`, `number`, `next` and all of
// `flight`; the rest belongs to the loop.
struct ps_store {
    struct lh_env *env;
    char dir[LH_PATH_BYTES], path[LH_PATH_BYTES], next_path[LH_PATH_BYTES];
    struct lh_file *lock, *file;
    struct ps_rows *rows;
    uint64_t at, number;       // end and number of the last durable commit
    bool marked;               // the last durable commit is a mark
    struct ps_entries pending; // changes since the last begin
    struct change *undo;       // all changes since the last durable one, in order
    size_t undos, undo_cap;
    uint64_t durable;          // number of the last durable change; undo[0] is the next one
    struct ps_rows_walk walk;  // rows that the next file still lacks
    uint64_t too_full;         // size of a file whose replacement did not fit the disk
    bool copying, no_mark_now; // a next file is being made; the disk had no space for a mark
    struct {
        struct lh_file *file;
        uint64_t at, number;
    } next; // the file that will replace `file`
    struct {
        struct ps_entries live, part; // changes; rows for the next file
        size_t changes;
        uint64_t at, number;        // new values of `at` and `number`
        bool marked;                // new value of `marked`
        bool first_part, last_part; // first and last commit of the next file
        bool dropped;               // the disk had no space for the next file, which is removed
        bool torn, unmarked;        // `torn`: an attempt may have left bytes after `at`
        bool under_way;             // between begin() and end()
    } flight;
};

// ---------------------------------------------------------------- bytes

static void put_header(struct lh_buf *b)
{
    lh_put_u32(b, MAGIC);
    lh_put_u16(b, VERSION);
    lh_put_u16(b, 0);
}

// ---------------------------------------------------------------- start: reading

static LH_MUST lh_err apply(struct ps_store *s, struct lh_span entries)
{
    struct lh_cursor c = lh_cursor(entries);
    struct ps_entry e;
    while (lh_left(&c) && ps_entry_read(&c, &e, false)) {
        struct ps_row *row;
        if (e.removed) {
            free(ps_rows_take(s->rows, e.key));
            continue;
        }
        LH_TRY(ps_rows_make(s->rows, e.key, e.value, &row));
        free(ps_rows_put(s->rows, row));
    }
    return LH_OK;
}

static lh_err damaged(const struct ps_store *s, uint64_t at)
{
    return lh_fail(
        LH_ERR_CORRUPT,
        "%s: damaged at byte %llu, below commits that were acknowledged. Restore this "
        "file from a copy, of any age: members and leases are taken up again from it. "
        "An old copy may call a standby in sync that no longer was: let the servers that "
        "have the shards report before one that stands by is started. Don't start "
        "without it",
        s->path, (unsigned long long)at);
}

// A torn commit may follow the last whole one, with any part of it on disk. But a later head after
// it means damage: that commit began after this one was synced. The first commit comes with the
// file and is never torn.
static LH_MUST lh_err check_tail(const struct ps_store *s, struct lh_span bytes, uint64_t bad)
{
    if (!s->number) return damaged(s, bad);
    if (ps_commit_later(bytes, (size_t)s->at, s->number + 1)) return damaged(s, bad);
    return LH_OK;
}

// Applies whole commits. *last: where the last one begins.
static lh_err replay(struct ps_store *s, struct lh_span bytes, uint64_t *last)
{
    struct ps_commit h;
    uint64_t bad;
    for (s->at = HEADER_BYTES;; s->at += PS_COMMIT_HEAD_BYTES + h.bytes) {
        bad = s->at;
        if (!ps_commit_read(bytes, (size_t)s->at, &h)) break;
        if (!h.number || (s->number && h.number != s->number + 1)) break;
        if (!ps_commit_is_whole(bytes, (size_t)s->at, &h, &bad)) break;
        LH_TRY(apply(s, lh_span(bytes.data + s->at + PS_COMMIT_HEAD_BYTES, (size_t)h.bytes)));
        *last = s->at;
        s->number = h.number;
        s->marked = !h.entries;
    }
    return check_tail(s, bytes, bad);
}

static LH_MUST lh_err read_file(struct ps_store *s, struct lh_span bytes, uint64_t *last)
{
    struct lh_cursor c = lh_cursor(bytes);
    uint32_t magic = lh_get_u32(&c);
    uint16_t version = lh_get_u16(&c);
    if (c.failed || magic != MAGIC)
        return lh_fail(LH_ERR_CORRUPT, "%s: not a coordinator's store", s->path);
    if (version != VERSION)
        return lh_fail(LH_ERR_VERSION, "%s: a store of version %u, this build reads %d", s->path,
                       version, VERSION);
    return replay(s, bytes, last);
}

// ---------------------------------------------------------------- start: what survived is durable

static LH_MUST lh_err make_file(struct ps_store *s)
{
    struct lh_buf b = lh_buf(HEADER_BYTES + PS_COMMIT_HEAD_BYTES);
    struct ps_entries none = {.bytes = lh_buf(PS_COMMIT_HEAD_BYTES)};
    put_header(&b);
    lh_err err = ps_commit_head(&none, NULL, 1);
    lh_put(&b, none.bytes.data, none.bytes.len);
    if (!err) err = lh_buf_err(&b);
    if (!err) err = lh_file_replace_secret(s->env, s->path, lh_buf_span(&b));
    s->at = b.len;
    s->number = 1;
    s->marked = true;
    lh_buf_free(&none.bytes);
    lh_buf_free(&b);
    return err;
}

static LH_MUST lh_err open_file(struct ps_store *s)
{
    return s->env->ops->files->open(s->env, s->path, LH_OPEN_WRITE, &s->file);
}

// The last whole commit may be in the page cache only, marked as clean: writes it again in place
// (server/docs/0000-protocol.md#rule-5). Drops the bytes after it.
static LH_MUST lh_err write_again(struct ps_store *s, struct lh_span bytes, uint64_t last)
{
    const struct lh_files_ops *files = s->env->ops->files;
    LH_TRY(open_file(s));
    LH_TRY(files->write(s->file, last, lh_span(bytes.data + last, (size_t)(s->at - last))));
    LH_TRY(files->resize(s->file, s->at));
    LH_TRY(files->sync(s->file));
    lh_err err = files->remove(s->env, s->next_path);
    if (err && err != LH_ERR_NOT_FOUND) return err;
    return files->sync_dir(s->env, s->dir);
}

// The lock is a separate file, because the store's file is replaced repeatedly.
static LH_MUST lh_err take_lock(struct ps_store *s)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, s->dir, "store.lock"));
    return s->env->ops->files->open(s->env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_LOCK,
                                    &s->lock);
}

static LH_MUST lh_err start(struct ps_store *s, struct lh_buf *bytes)
{
    uint64_t last = 0;
    LH_TRY(take_lock(s));
    lh_err err = lh_file_load(s->env, s->path, bytes);
    if (err && err != LH_ERR_NOT_FOUND) return err;
    bool first = err == LH_ERR_NOT_FOUND;
    s->rows = ps_rows_create(bytes->len / (4 * PS_ENTRY_BYTES));
    if (!s->rows) return LH_ERR_NO_MEMORY;
    if (!first) {
        LH_TRY(read_file(s, lh_buf_span(bytes), &last));
        return write_again(s, lh_buf_span(bytes), last);
    }
    LH_TRY(make_file(s));
    return open_file(s);
}

lh_err ps_store_open(struct lh_env *env, const char *path, struct ps_store **out)
{
    struct ps_store *s = calloc(1, sizeof *s);
    if (!s) return LH_ERR_NO_MEMORY;
    s->env = env;
    s->flight.torn = true; // until the file has been read
    s->pending.bytes = lh_buf(FILE_BYTES_MAX);
    s->flight.live.bytes = lh_buf(FILE_BYTES_MAX);
    s->flight.part.bytes = lh_buf(FILE_BYTES_MAX);
    struct lh_buf bytes = lh_buf(FILE_BYTES_MAX);
    lh_err err = lh_path(s->dir, sizeof s->dir, path, "%s", "");
    if (!err) err = lh_path(s->path, sizeof s->path, path, "store");
    if (!err) err = lh_path(s->next_path, sizeof s->next_path, path, "store.next");
    if (!err) err = start(s, &bytes);
    lh_buf_free(&bytes);
    if (err) {
        ps_store_close(s);
        return err;
    }
    s->flight.torn = false;
    *out = s;
    return LH_OK;
}

// ---------------------------------------------------------------- use

bool ps_store_get(const struct ps_store *s, const char *key, struct lh_span *value)
{
    const struct ps_row *row = ps_rows_find(s->rows, key);
    if (row) *value = ps_row_value(row);
    return row != NULL;
}

// Makes space for a change in the undo list.
static LH_MUST lh_err make_note(struct ps_store *s)
{
    if (s->undos < s->undo_cap) return LH_OK;
    size_t cap = 2 * s->undo_cap + 64;
    struct change *grown = realloc(s->undo, cap * sizeof *grown);
    if (!grown) return LH_ERR_NO_MEMORY;
    s->undo = grown;
    s->undo_cap = cap;
    return LH_OK;
}

lh_err ps_store_put(struct ps_store *s, const char *key, struct lh_span value)
{
    struct ps_row *row;
    LH_TRY(make_note(s));
    LH_TRY(ps_rows_make(s->rows, key, value, &row));
    ps_entries_put(&s->pending, key, value);
    struct ps_row *was = ps_rows_put(s->rows, row);
    s->undo[s->undos++] = (struct change){was, was ? NULL : row};
    return lh_buf_err(&s->pending.bytes);
}

lh_err ps_store_remove(struct ps_store *s, const char *key)
{
    LH_TRY(make_note(s));
    ps_entries_remove(&s->pending, key);
    s->undo[s->undos++] = (struct change){ps_rows_take(s->rows, key), NULL};
    return lh_buf_err(&s->pending.bytes);
}

uint64_t ps_store_changed(const struct ps_store *s)
{
    return s->durable + s->undos;
}

uint64_t ps_store_durable(const struct ps_store *s)
{
    return s->durable;
}

lh_err ps_store_each(const struct ps_store *s, const char *prefix,
                     void (*each)(void *arg, const char *key, struct lh_span value), void *arg)
{
    return ps_rows_each(s->rows, prefix, each, arg);
}

// ---------------------------------------------------------------- a commit begins

static bool has_grown(const struct ps_store *s)
{
    uint64_t held = ps_rows_bytes(s->rows) + PS_ENTRY_BYTES * ps_rows_count(s->rows);
    uint64_t times = s->at >= LARGE_FILE ? 2 : 4;
    return s->at >= COPY_MIN && s->at > s->too_full && s->at >= times * held;
}

// Takes the next rows for the next file, at least twice the commit's bytes, so that the walk ends
// before the file has grown by half of its content. The rows are as this commit leaves them.
static void take_part(struct ps_store *s)
{
    size_t enough = PART_BYTES + 2 * s->flight.live.bytes.len;
    const struct ps_row *row = NULL;
    s->flight.first_part = !s->copying;
    if (!s->copying) s->walk = ps_rows_walk(s->rows);
    s->copying = true;
    while (s->flight.part.bytes.len < enough && (row = ps_rows_next(s->rows, &s->walk)))
        ps_entries_put(&s->flight.part, row->key, ps_row_value(row));
    s->flight.last_part = !s->walk.kind;
}

lh_err ps_store_begin(struct ps_store *s, bool *begun)
{
    LH_ASSERT(!s->flight.under_way);
    *begun = s->undos > 0 || !(s->marked || s->no_mark_now);
    if (!*begun) return LH_OK;
    struct ps_entries empty = s->flight.live;
    s->flight.live = s->pending;
    s->pending = empty;
    s->flight.changes = s->undos;
    s->flight.first_part = s->flight.last_part = s->flight.dropped = s->flight.unmarked = false;
    if (s->copying || has_grown(s)) take_part(s);
    ps_entries_seal(&s->flight.live, 0);
    ps_entries_seal(&s->flight.part, s->flight.live.count);
    LH_TRY(lh_buf_err(&s->flight.live.bytes));
    LH_TRY(lh_buf_err(&s->flight.part.bytes));
    s->flight.marked = !s->flight.changes;
    s->flight.under_way = true;
    return LH_OK;
}

// ---------------------------------------------------------------- beside the loop

// *at: where the commit begins; afterwards, where it ends.
static LH_MUST lh_err write_commit(struct ps_store *s, struct lh_file *file, uint64_t *at,
                                   uint64_t number, struct ps_entries *first,
                                   const struct ps_entries *then)
{
    const struct lh_files_ops *files = s->env->ops->files;
    size_t rest = then ? ps_entries_bytes(then) : 0;
    LH_TRY(ps_commit_head(first, then, number));
    struct lh_span bytes = lh_buf_span(&first->bytes);
    LH_TRY(files->write(file, *at, bytes));
    if (rest)
        LH_TRY(files->write(file, *at + bytes.len,
                            lh_span(then->bytes.data + PS_COMMIT_HEAD_BYTES, rest)));
    *at += bytes.len + rest;
    return LH_OK;
}

static LH_MUST lh_err write_mark(struct ps_store *s, struct lh_file *file, uint64_t *at,
                                 uint64_t number)
{
    struct ps_entries none = {.bytes = lh_buf(PS_COMMIT_HEAD_BYTES)};
    lh_err err = write_commit(s, file, at, number, &none, NULL);
    lh_buf_free(&none.bytes);
    return err ? err : s->env->ops->files->sync(file);
}

static LH_MUST lh_err append(struct ps_store *s)
{
    const struct lh_files_ops *files = s->env->ops->files;
    if (s->flight.torn) { // a shorter commit would leave the old one's rest after it
        LH_TRY(files->resize(s->file, s->at));
        LH_TRY(files->sync(s->file));
        s->flight.torn = false;
    }
    LH_FAILPOINT("store.write");
    s->flight.at = s->at;
    s->flight.number = s->number + 1;
    LH_TRY(write_commit(s, s->file, &s->flight.at, s->flight.number, &s->flight.live, NULL));
    LH_FAILPOINT("store.sync");
    if (!LH_BUG("store_unsynced")) LH_TRY(files->sync(s->file));
    LH_FAILPOINT("store.committed");
    return LH_OK;
}

static LH_MUST lh_err begin_next(struct ps_store *s)
{
    const struct lh_files_ops *files = s->env->ops->files;
    unsigned flags = LH_OPEN_SECRET | LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE;
    struct lh_buf b = lh_buf(HEADER_BYTES);
    put_header(&b);
    lh_err err = lh_buf_err(&b);
    if (!err) err = files->open(s->env, s->next_path, flags, &s->next.file);
    if (!err) err = files->write(s->next.file, 0, lh_buf_span(&b));
    s->next.at = HEADER_BYTES;
    s->next.number = 0;
    lh_buf_free(&b);
    return err;
}

// The mark at the end says that all before it is durable; that is true once the file has its name.
static LH_MUST lh_err take_its_place(struct ps_store *s)
{
    const struct lh_files_ops *files = s->env->ops->files;
    LH_TRY(write_mark(s, s->next.file, &s->next.at, ++s->next.number));
    LH_TRY(files->rename(s->env, s->next_path, s->path));
    files->close(s->file);
    s->file = s->next.file;
    s->next.file = NULL;
    s->flight.at = s->next.at;
    s->flight.number = s->next.number;
    s->flight.marked = true;
    lh_err err = files->sync_dir(s->env, s->dir);
    return err == LH_ERR_DISK_FULL ? LH_ERR_IO : err; // the old file is obsolete
}

static LH_MUST lh_err copy_part(struct ps_store *s)
{
    if (s->flight.first_part) LH_TRY(begin_next(s));
    LH_TRY(write_commit(s, s->next.file, &s->next.at, ++s->next.number, &s->flight.part,
                        &s->flight.live));
    if (s->flight.last_part) return take_its_place(s);
    return s->env->ops->files->sync(s->next.file);
}

// Without space for the next file, drops it; the present file keeps growing.
static lh_err drop_next(struct ps_store *s)
{
    s->flight.dropped = true;
    if (!s->next.file) return LH_OK;
    s->env->ops->files->close(s->next.file);
    s->next.file = NULL;
    lh_err err = s->env->ops->files->remove(s->env, s->next_path);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

lh_err ps_store_write(struct ps_store *s)
{
    LH_ASSERT(s->flight.under_way);
    lh_err err = append(s);
    if (err == LH_ERR_DISK_FULL && !s->flight.changes) { // a mark can wait for disk space
        s->flight.at = s->at;
        s->flight.number = s->number;
        s->flight.marked = false;
        s->flight.unmarked = s->flight.torn = true;
        return s->copying ? drop_next(s) : LH_OK;
    }
    if (!s->copying) return err;
    if (err) { // the next file may hold changes that are taken back now
        (void)drop_next(s);
        return err;
    }
    err = copy_part(s);
    if (err != LH_ERR_DISK_FULL && err != LH_ERR_NO_MEMORY) return err;
    return drop_next(s); // the commit itself is durable; the copy can wait
}

// ---------------------------------------------------------------- a commit's end

// Restores the rows of the last durable commit, without allocation.
static void take_back(struct ps_store *s)
{
    while (s->undos) {
        struct change *b = &s->undo[--s->undos];
        if (b->was) free(ps_rows_put(s->rows, b->was));
        if (b->made) free(ps_rows_take(s->rows, b->made->key));
    }
    ps_entries_clear(&s->pending);
    s->flight.torn = true;
    s->copying = false;
}

void ps_store_end(struct ps_store *s, lh_err result)
{
    LH_ASSERT(s->flight.under_way);
    s->flight.under_way = false;
    ps_entries_clear(&s->flight.live);
    ps_entries_clear(&s->flight.part);
    if (result) {
        take_back(s);
        return;
    }
    size_t n = s->flight.changes;
    for (size_t i = 0; i < n; i++) free(s->undo[i].was);
    s->undos -= n;
    memmove(s->undo, s->undo + n, s->undos * sizeof *s->undo);
    if (s->undo_cap > RESERVE_MAX && !s->undos) {
        free(s->undo);
        s->undo = NULL;
        s->undo_cap = 0;
    }
    s->durable += n;
    s->at = s->flight.at;
    s->number = s->flight.number;
    s->marked = s->flight.marked;
    s->no_mark_now = s->flight.unmarked;
    if (s->flight.dropped) s->too_full = 2 * s->at;
    if (s->flight.dropped || s->flight.last_part) s->copying = false;
}

// ---------------------------------------------------------------- the end

// The last commit is durable: with a mark, the next start can tell its damage from a torn one.
static void leave_mark(struct ps_store *s)
{
    if (!s->file || s->marked || s->flight.torn || s->flight.under_way) return;
    (void)!write_mark(s, s->file, &s->at, s->number + 1); // best effort
}

void ps_store_close(struct ps_store *s)
{
    if (!s) return;
    leave_mark(s);
    if (s->next.file) s->env->ops->files->close(s->next.file);
    if (s->file) s->env->ops->files->close(s->file);
    if (s->lock) s->env->ops->files->close(s->lock);
    ps_rows_destroy(s->rows);
    for (size_t i = 0; i < s->undos; i++) free(s->undo[i].was);
    free(s->undo);
    lh_buf_free(&s->pending.bytes);
    lh_buf_free(&s->flight.live.bytes);
    lh_buf_free(&s->flight.part.bytes);
    free(s);
}
