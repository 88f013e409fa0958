// The coordinator's store: the changes of a commit, and the undo of a failed one. Rules:
// store.h. Rows in memory: rows.h. Bytes at rest: medium.h.
#include "server/coordinator/store.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/store/medium.h"

enum {
    COPY_MIN = 1 << 16,     // a shorter log is not replaced
    LARGE_LOG = 64 << 20,   // a longer log is replaced at twice its content
    PART_BYTES = 256 << 10, // minimum bytes that a commit copies to the next log
    RESERVE_MAX = 1 << 20   // undo entries whose memory is kept
};
static const size_t COMMIT_BYTES_MAX = (size_t)2 << 30;

// A change that is not durable yet. `was`: the previous row, NULL: none. `made`: the new row if
// there was none before.
struct change {
    struct ps_row *was, *made;
};

// Between begin() and end(), only write() may use `medium`, `number`, `next_number` and all of
// `flight`; the rest belongs to the loop.
struct ps_store {
    struct ps_medium *medium;
    struct ps_rows *rows;
    uint64_t number;           // the last durable commit's
    bool marked;               // the last durable commit is a mark
    bool failed;               // the last commit was taken back
    struct ps_entries pending; // changes since the last begin
    struct change *undo;       // all changes since the last durable one, in order
    size_t undos, undo_cap;
    uint64_t durable;          // number of the last durable change; undo[0] is the next one
    struct ps_rows_walk walk;  // rows that the next log still lacks
    uint64_t too_full;         // size of a log whose replacement did not fit the disk
    bool copying, no_mark_now; // a next log is being made; the disk had no space for a mark
    uint64_t next_number;      // the number of the next log's last commit
    struct {
        struct ps_entries live, part; // changes; rows for the next log
        size_t changes;
        uint64_t number;            // new value of `number`
        bool marked;                // new value of `marked`
        bool first_part, last_part; // first and last commit of the next log
        bool dropped;               // the disk had no space for the next log, which is removed
        bool unmarked;              // the disk had no space for a mark
        bool under_way;             // between begin() and end()
    } flight;
};

// ---------------------------------------------------------------- start

lh_err ps_store_over(struct ps_medium *medium, const struct ps_replayed *from,
                     struct ps_store **out)
{
    struct ps_store *s = calloc(1, sizeof *s);
    if (!s) {
        ps_rows_destroy(from->rows);
        medium->ops->close(medium);
        return LH_ERR_NO_MEMORY;
    }
    s->medium = medium;
    s->rows = from->rows;
    s->number = from->number;
    s->marked = from->marked;
    s->pending.bytes = lh_buf(COMMIT_BYTES_MAX);
    s->flight.live.bytes = lh_buf(COMMIT_BYTES_MAX);
    s->flight.part.bytes = lh_buf(COMMIT_BYTES_MAX);
    *out = s;
    return LH_OK;
}

lh_err ps_store_open(struct lh_env *env, const char *path, struct ps_store **out)
{
    struct ps_replayed found = {0};
    struct ps_medium *medium;
    lh_err err = ps_file_open(env, path, &found, &medium);
    if (!err) return ps_store_over(medium, &found, out);
    ps_rows_destroy(found.rows);
    return err;
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
    uint64_t bytes = s->medium->ops->bytes(s->medium), times = bytes >= LARGE_LOG ? 2 : 4;
    return bytes >= COPY_MIN && bytes > s->too_full && bytes >= times * held;
}

// Takes the next rows for the next log, at least twice the commit's bytes, so that the walk ends
// before the log has grown by half of its content. The rows are as this commit leaves them.
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
    bool mark = s->medium->ops->marks && !(s->marked || s->no_mark_now);
    *begun = s->undos > 0 || mark;
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

static LH_MUST lh_err append(struct ps_store *s)
{
    s->flight.number = s->number + 1;
    LH_TRY(ps_commit_head(&s->flight.live, NULL, s->flight.number));
    return s->medium->ops->append(s->medium, s->flight.number, lh_buf_span(&s->flight.live.bytes));
}

static LH_MUST lh_err copy_part(struct ps_store *s)
{
    const struct ps_medium_ops *ops = s->medium->ops;
    const struct ps_entries *live = &s->flight.live;
    size_t rest = ps_entries_bytes(live);
    uint8_t mark[PS_COMMIT_HEAD_BYTES];
    if (s->flight.first_part) {
        LH_TRY(ops->next_begin(s->medium));
        s->next_number = 0;
    }
    LH_TRY(ps_commit_head(&s->flight.part, live, ++s->next_number));
    LH_TRY(ops->next_append(s->medium, s->next_number, lh_buf_span(&s->flight.part.bytes),
                            lh_span(rest ? live->bytes.data + PS_COMMIT_HEAD_BYTES : NULL, rest)));
    if (!s->flight.last_part) return LH_OK;
    // It says that all before it is durable; that is true once the next log is in force.
    ps_commit_mark(++s->next_number, mark);
    LH_TRY(
        ops->next_append(s->medium, s->next_number, lh_span(mark, sizeof mark), lh_span(NULL, 0)));
    LH_TRY(ops->next_replace(s->medium));
    s->flight.number = s->next_number;
    s->flight.marked = true;
    return LH_OK;
}

// Without space for the next log, drops it; the present log keeps growing.
static lh_err drop_next(struct ps_store *s)
{
    s->flight.dropped = true;
    return s->medium->ops->next_drop(s->medium);
}

lh_err ps_store_write(struct ps_store *s)
{
    LH_ASSERT(s->flight.under_way);
    lh_err err = append(s);
    if (err == LH_ERR_DISK_FULL && !s->flight.changes) { // a mark can wait for disk space
        s->flight.number = s->number;
        s->flight.marked = false;
        s->flight.unmarked = true;
        return s->copying ? drop_next(s) : LH_OK;
    }
    if (!s->copying) return err;
    if (err) { // the next log may hold changes that are taken back now
        (void)drop_next(s);
        return err;
    }
    err = copy_part(s);
    if (err != LH_ERR_DISK_FULL && err != LH_ERR_NO_MEMORY) return err;
    return drop_next(s); // the commit itself is durable; the copy can wait
}

void ps_store_stop(struct ps_store *s)
{
    s->medium->ops->stop(s->medium);
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
    s->copying = false;
}

void ps_store_end(struct ps_store *s, lh_err result)
{
    LH_ASSERT(s->flight.under_way);
    s->flight.under_way = false;
    ps_entries_clear(&s->flight.live);
    ps_entries_clear(&s->flight.part);
    s->failed = result != LH_OK;
    s->medium->ops->end(s->medium, !s->failed && !s->flight.unmarked);
    if (s->failed) {
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
    s->number = s->flight.number;
    s->marked = s->flight.marked;
    s->no_mark_now = s->flight.unmarked;
    if (s->flight.dropped) s->too_full = 2 * s->medium->ops->bytes(s->medium);
    if (s->flight.dropped || s->flight.last_part) s->copying = false;
}

// ---------------------------------------------------------------- the end

// The last commit is durable: with a mark, the next start can tell its damage from a torn one. Best
// effort.
static void leave_mark(struct ps_store *s)
{
    if (!s->medium->ops->marks || s->marked || s->failed || s->no_mark_now || s->flight.under_way)
        return;
    uint8_t mark[PS_COMMIT_HEAD_BYTES];
    ps_commit_mark(s->number + 1, mark);
    (void)!s->medium->ops->append(s->medium, s->number + 1, lh_span(mark, sizeof mark));
}

void ps_store_close(struct ps_store *s)
{
    if (!s) return;
    leave_mark(s);
    s->medium->ops->close(s->medium);
    ps_rows_destroy(s->rows);
    for (size_t i = 0; i < s->undos; i++) free(s->undo[i].was);
    free(s->undo);
    lh_buf_free(&s->pending.bytes);
    lh_buf_free(&s->flight.live.bytes);
    lh_buf_free(&s->flight.part.bytes);
    free(s);
}

lh_err ps_store_commit(struct ps_store *s)
{
    bool begun;
    LH_TRY(ps_store_begin(s, &begun));
    if (!begun) return LH_OK;
    lh_err err = ps_store_write(s);
    ps_store_end(s, err);
    return err;
}
