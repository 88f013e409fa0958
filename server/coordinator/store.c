// The coordinator's store. Layout and rules: store.h.
#include "server/coordinator/store.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"

static const uint32_t MAGIC = 0x5453484c; // "LHST"
enum {
    HEADER_BYTES = 8,
    KEY_BYTES = 128,
    FILE_BYTES_MAX = 1 << 30,
    REWRITE_MIN = 1 << 16,
    VERSION = 2
};
static const uint32_t REMOVED = UINT32_MAX;

struct pair {
    char key[KEY_BYTES];
    uint8_t *value;
    uint32_t len;
};

// A key's value before a change that is not durable yet. `existed` false: there was no such key.
struct before {
    struct pair pair;
    bool existed;
};

// Between begin() and end() `file`, `at` and all of `flight` belong to write() alone; the rest is
// the loop's.
struct ps_store {
    struct lh_env *env;
    char path[LH_PATH_BYTES];
    struct lh_file *lock, *file;
    struct pair *pair; // ascending by key
    size_t pairs, pair_cap, live_bytes;
    uint64_t at;           // end of the last commit
    struct lh_buf pending; // changed since the last begin
    struct before *undo;   // every change since the last durable one, in their order
    size_t undos, undo_cap;
    uint64_t durable; // number of the last durable change; undo[0] is of the next one
    struct {
        struct lh_buf bytes;
        size_t changes;
        uint64_t end;      // the place where the commit ends
        bool rewrite;      // the file has grown enough
        bool torn;         // an earlier try may have left something behind `at`
        bool under_way;    // between begin() and end()
        uint64_t too_full; // there was no room for a rewrite of a file of so many bytes
    } flight;
};

static size_t find(const struct ps_store *s, const char *key)
{
    size_t low = 0, high = s->pairs;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(s->pair[mid].key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool at_key(const struct ps_store *s, size_t i, const char *key)
{
    return i < s->pairs && strcmp(s->pair[i].key, key) == 0;
}

// Takes the pair out of its place, value and all.
static struct pair take_out(struct ps_store *s, size_t i)
{
    struct pair out = s->pair[i];
    s->live_bytes -= out.len + strlen(out.key);
    memmove(s->pair + i, s->pair + i + 1, (s->pairs - i - 1) * sizeof *s->pair);
    s->pairs--;
    return out;
}

static void drop(struct ps_store *s, const char *key)
{
    size_t i = find(s, key);
    if (at_key(s, i, key)) free(take_out(s, i).value);
}

// Takes a pair whose key is not there; the list has memory for it.
static void insert(struct ps_store *s, const struct pair *pair)
{
    size_t i = find(s, pair->key);
    LH_ASSERT(s->pairs < s->pair_cap && !at_key(s, i, pair->key));
    memmove(s->pair + i + 1, s->pair + i, (s->pairs - i) * sizeof *s->pair);
    s->pairs++;
    s->pair[i] = *pair;
    s->live_bytes += pair->len + strlen(pair->key);
}

// Makes a pair, and memory in the list for it.
static LH_MUST lh_err make_pair(struct ps_store *s, const char *key, struct lh_span value,
                                struct pair *out)
{
    *out = (struct pair){.len = (uint32_t)value.len};
    if (s->pairs == s->pair_cap) {
        size_t cap = 2 * s->pair_cap + 64;
        struct pair *grown = realloc(s->pair, cap * sizeof *grown);
        if (!grown) return LH_ERR_NO_MEMORY;
        s->pair = grown;
        s->pair_cap = cap;
    }
    out->value = malloc(value.len + 1);
    if (!out->value) return LH_ERR_NO_MEMORY;
    if (value.len) memcpy(out->value, value.data, value.len);
    memcpy(out->key, key, strlen(key) + 1);
    return LH_OK;
}

static LH_MUST lh_err set(struct ps_store *s, const char *key, struct lh_span value)
{
    struct pair pair;
    LH_TRY(make_pair(s, key, value, &pair));
    drop(s, key);
    insert(s, &pair);
    return LH_OK;
}

static LH_MUST lh_err make_note(struct ps_store *s)
{
    if (s->undos < s->undo_cap) return LH_OK;
    size_t cap = 2 * s->undo_cap + 64;
    struct before *grown = realloc(s->undo, cap * sizeof *grown);
    if (!grown) return LH_ERR_NO_MEMORY;
    s->undo = grown;
    s->undo_cap = cap;
    return LH_OK;
}

// Notes what the key holds, and takes it out: a change of it follows. There is memory for the note.
static void remember(struct ps_store *s, const char *key)
{
    struct before *b = &s->undo[s->undos++];
    size_t i = find(s, key);
    b->existed = at_key(s, i, key);
    if (b->existed)
        b->pair = take_out(s, i);
    else
        memcpy(b->pair.key, key, strlen(key) + 1);
}

static void seal_entry(struct lh_buf *b, size_t start)
{
    if (!b->err)
        lh_buf_patch_u32(b, start + 4, lh_crc32c(0, b->data + start + 8, b->len - start - 8));
}

static void put_entry(struct lh_buf *b, const char *key, struct lh_span value, bool removed)
{
    size_t start = b->len;
    lh_put_u32(b, (uint32_t)(2 + strlen(key) + 4 + value.len));
    lh_put_u32(b, 0);
    lh_put_str(b, key);
    lh_put_u32(b, removed ? REMOVED : (uint32_t)value.len);
    lh_put(b, value.data, value.len);
    seal_entry(b, start);
}

// Ends a commit: the empty key, whose value says where the commit begins.
static void put_end(struct lh_buf *b, uint64_t from)
{
    size_t start = b->len;
    lh_put_u32(b, 2 + 4 + 8);
    lh_put_u32(b, 0);
    lh_put_str(b, "");
    lh_put_u32(b, 8);
    lh_put_u64(b, from);
    seal_entry(b, start);
}

// ---------------------------------------------------------------- start

struct entry {
    char key[KEY_BYTES];
    struct lh_span value;
    bool removed;
};

static bool read_entry(struct lh_cursor *c, struct entry *e)
{
    uint32_t bytes = lh_get_u32(c), crc = lh_get_u32(c);
    struct lh_span body = lh_get(c, bytes);
    if (c->failed || crc != lh_crc32c(0, body.data, body.len)) return false;
    struct lh_cursor b = lh_cursor(body);
    lh_get_str(&b, e->key, sizeof e->key);
    uint32_t len = lh_get_u32(&b);
    e->removed = len == REMOVED;
    e->value = lh_get(&b, e->removed ? 0 : len);
    return !b.failed && !lh_left(&b);
}

static bool is_end(const struct entry *e, uint64_t *from)
{
    struct lh_cursor c = lh_cursor(e->value);
    if (e->key[0] || e->removed) return false;
    *from = lh_get_u64(&c);
    return !c.failed && !lh_left(&c);
}

static lh_err apply(struct ps_store *s, struct lh_span commit)
{
    struct lh_cursor c = lh_cursor(commit);
    struct entry e;
    while (lh_left(&c) && read_entry(&c, &e)) {
        if (!e.key[0]) continue;
        if (e.removed)
            drop(s, e.key);
        else
            LH_TRY(set(s, e.key, e.value));
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

// Behind the last whole commit stands a torn one, of which any part may be on the disk, unless a
// later commit ends behind it: that was begun after this one was synced. The first commit comes
// with the file and is never torn.
static LH_MUST lh_err check_tail(const struct ps_store *s, struct lh_span bytes, uint64_t bad)
{
    if (s->at == HEADER_BYTES) return damaged(s, bad);
    for (size_t at = (size_t)bad + 1; at < bytes.len; at++) {
        struct lh_cursor c = lh_cursor(lh_span(bytes.data + at, bytes.len - at));
        struct entry e;
        uint64_t from;
        if (read_entry(&c, &e) && is_end(&e, &from) && from > s->at) return damaged(s, bad);
    }
    return LH_OK;
}

// Applies whole commits; s->at is where the last one ends.
static lh_err replay(struct ps_store *s, struct lh_span bytes)
{
    struct lh_cursor c = lh_cursor(bytes);
    struct entry e;
    uint64_t from, bad = HEADER_BYTES;
    (void)lh_get(&c, HEADER_BYTES);
    s->at = HEADER_BYTES;
    for (; read_entry(&c, &e); bad = (uint64_t)(c.at - bytes.data)) {
        if (e.key[0]) continue;
        if (!is_end(&e, &from) || from != s->at) break;
        uint64_t end = (uint64_t)(c.at - bytes.data);
        LH_TRY(apply(s, lh_span(bytes.data + s->at, (size_t)(end - s->at))));
        s->at = end;
    }
    return check_tail(s, bytes, bad);
}

static void free_pairs(struct ps_store *s)
{
    for (size_t i = 0; i < s->pairs; i++) free(s->pair[i].value);
    free(s->pair);
}

static void write_header(struct lh_buf *b)
{
    lh_put_u32(b, MAGIC);
    lh_put_u16(b, VERSION);
    lh_put_u16(b, 0);
}

static LH_MUST lh_err write_all(struct ps_store *s)
{
    struct lh_buf b = lh_buf(FILE_BYTES_MAX);
    write_header(&b);
    for (size_t i = 0; i < s->pairs; i++)
        put_entry(&b, s->pair[i].key, lh_span(s->pair[i].value, s->pair[i].len), false);
    put_end(&b, HEADER_BYTES);
    lh_err err = lh_buf_err(&b);
    if (!err) err = lh_file_replace(s->env, s->path, lh_buf_span(&b));
    if (!err) s->at = b.len;
    lh_buf_free(&b);
    return err;
}

static LH_MUST lh_err reopen(struct ps_store *s)
{
    if (s->file) s->env->ops->files->close(s->file);
    s->file = NULL;
    return s->env->ops->files->open(s->env, s->path, LH_OPEN_WRITE, &s->file);
}

// On a full disk a start writes the same bytes in their place again: they may be in the page cache
// alone, which may call them clean (server/docs/0000-protocol.md#rule-5), and what follows them is
// dropped.
static LH_MUST lh_err write_again(struct ps_store *s, struct lh_span bytes, const char *dir)
{
    const struct lh_files_ops *files = s->env->ops->files;
    LH_TRY(reopen(s));
    LH_TRY(files->write(s->file, 0, lh_span(bytes.data, (size_t)s->at)));
    LH_TRY(files->resize(s->file, s->at));
    LH_TRY(files->sync(s->file));
    return files->sync_dir(s->env, dir);
}

// The lock is a file of its own: the store's file is replaced again and again.
static LH_MUST lh_err take_lock(struct ps_store *s, const char *dir)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, dir, "store.lock"));
    return s->env->ops->files->open(s->env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_LOCK,
                                    &s->lock);
}

static LH_MUST lh_err read_file(struct ps_store *s, struct lh_span bytes)
{
    struct lh_cursor c = lh_cursor(bytes);
    uint32_t magic = lh_get_u32(&c);
    uint16_t version = lh_get_u16(&c);
    if (c.failed || magic != MAGIC)
        return lh_fail(LH_ERR_CORRUPT, "%s: not a coordinator's store", s->path);
    if (version != VERSION)
        return lh_fail(LH_ERR_VERSION, "%s: a store of version %u, this build reads %d", s->path,
                       version, VERSION);
    return replay(s, bytes);
}

lh_err ps_store_open(struct lh_env *env, const char *path, struct ps_store **out)
{
    struct ps_store *s = calloc(1, sizeof *s);
    if (!s) return LH_ERR_NO_MEMORY;
    s->env = env;
    s->pending = lh_buf(FILE_BYTES_MAX);
    s->flight.bytes = lh_buf(FILE_BYTES_MAX);
    struct lh_buf bytes = lh_buf(FILE_BYTES_MAX);
    lh_err err;
    LH_TRY_TO(fail, err, lh_path(s->path, sizeof s->path, path, "store"));
    LH_TRY_TO(fail, err, take_lock(s, path));
    err = lh_file_load(env, s->path, &bytes);
    if (!err) err = read_file(s, lh_buf_span(&bytes));
    if (err && err != LH_ERR_NOT_FOUND) goto fail;
    bool first = err == LH_ERR_NOT_FOUND;
    err = write_all(s); // drops what was never committed, and makes it durable
    if (!err)
        err = reopen(s);
    else if (err == LH_ERR_DISK_FULL && !first)
        err = write_again(s, lh_buf_span(&bytes), path);
    if (err) goto fail;
    lh_buf_free(&bytes);
    *out = s;
    return LH_OK;
fail:
    lh_buf_free(&bytes);
    ps_store_close(s);
    return err;
}

void ps_store_close(struct ps_store *s)
{
    if (!s) return;
    if (s->file) s->env->ops->files->close(s->file);
    if (s->lock) s->env->ops->files->close(s->lock);
    free_pairs(s);
    for (size_t i = 0; i < s->undos; i++)
        if (s->undo[i].existed) free(s->undo[i].pair.value);
    free(s->undo);
    lh_buf_free(&s->pending);
    lh_buf_free(&s->flight.bytes);
    free(s);
}

// ---------------------------------------------------------------- use

bool ps_store_get(const struct ps_store *s, const char *key, struct lh_span *value)
{
    size_t i = find(s, key);
    if (!at_key(s, i, key)) return false;
    *value = lh_span(s->pair[i].value, s->pair[i].len);
    return true;
}

lh_err ps_store_put(struct ps_store *s, const char *key, struct lh_span value)
{
    LH_ASSERT(key[0] && strlen(key) < KEY_BYTES);
    struct pair pair;
    LH_TRY(make_note(s));
    LH_TRY(make_pair(s, key, value, &pair));
    put_entry(&s->pending, key, value, false);
    remember(s, key);
    insert(s, &pair);
    return lh_buf_err(&s->pending);
}

lh_err ps_store_remove(struct ps_store *s, const char *key)
{
    LH_TRY(make_note(s));
    put_entry(&s->pending, key, (struct lh_span){0}, true);
    remember(s, key);
    return lh_buf_err(&s->pending);
}

uint64_t ps_store_changed(const struct ps_store *s)
{
    return s->durable + s->undos;
}

uint64_t ps_store_durable(const struct ps_store *s)
{
    return s->durable;
}

lh_err ps_store_begin(struct ps_store *s, bool *begun)
{
    LH_ASSERT(!s->flight.under_way);
    *begun = s->undos > 0;
    if (!*begun) return LH_OK;
    put_end(&s->pending, s->at);
    LH_TRY(lh_buf_err(&s->pending));
    struct lh_buf empty = s->flight.bytes;
    s->flight.bytes = s->pending;
    s->pending = empty;
    s->flight.changes = s->undos;
    s->flight.end = s->at + s->flight.bytes.len;
    s->flight.rewrite = s->flight.end >= REWRITE_MIN && s->flight.end > s->flight.too_full &&
                        s->flight.end >= 4 * (s->live_bytes + 16 * s->pairs);
    s->flight.under_way = true;
    return LH_OK;
}

// ---------------------------------------------------------------- beside the loop

static LH_MUST lh_err append(struct ps_store *s)
{
    const struct lh_files_ops *files = s->env->ops->files;
    if (s->flight.torn) { // a shorter commit would have the rest of that one behind it
        LH_TRY(files->resize(s->file, s->at));
        LH_TRY(files->sync(s->file));
        s->flight.torn = false;
    }
    LH_FAILPOINT("store.write");
    LH_TRY(files->write(s->file, s->at, lh_buf_span(&s->flight.bytes)));
    LH_FAILPOINT("store.sync");
    if (!LH_BUG("store_unsynced")) LH_TRY(files->sync(s->file));
    LH_FAILPOINT("store.committed");
    return LH_OK;
}

// The file as it is durable now, without what later commits replaced. It is read again, for the
// pairs are the loop's and have changed meanwhile.
static LH_MUST lh_err rewrite(struct ps_store *s)
{
    struct ps_store now = {.env = s->env};
    struct lh_buf bytes = lh_buf(FILE_BYTES_MAX);
    memcpy(now.path, s->path, sizeof now.path);
    lh_err err = lh_file_load(s->env, s->path, &bytes);
    if (!err) err = replay(&now, lh_buf_span(&bytes));
    if (!err) err = write_all(&now);
    if (!err) err = reopen(s);
    if (!err) s->flight.end = now.at;
    free_pairs(&now);
    lh_buf_free(&bytes);
    return err;
}

lh_err ps_store_write(struct ps_store *s)
{
    LH_ASSERT(s->flight.under_way);
    LH_TRY(append(s));
    if (!s->flight.rewrite) return LH_OK;
    lh_err err = rewrite(s);
    if (err != LH_ERR_DISK_FULL && err != LH_ERR_NO_MEMORY) return err;
    s->flight.too_full = 2 * s->flight.end; // the commit itself is durable; this can wait
    return LH_OK;
}

// ---------------------------------------------------------------- a commit's end

// The pairs are those of the last durable commit again. No memory is needed for it.
static void take_back(struct ps_store *s)
{
    while (s->undos) {
        struct before *b = &s->undo[--s->undos];
        drop(s, b->pair.key);
        if (b->existed) insert(s, &b->pair);
    }
    lh_buf_clear(&s->pending);
    s->flight.torn = true;
}

void ps_store_end(struct ps_store *s, lh_err result)
{
    LH_ASSERT(s->flight.under_way);
    s->flight.under_way = false;
    lh_buf_clear(&s->flight.bytes);
    if (result) {
        take_back(s);
        return;
    }
    size_t n = s->flight.changes;
    for (size_t i = 0; i < n; i++)
        if (s->undo[i].existed) free(s->undo[i].pair.value);
    s->undos -= n;
    memmove(s->undo, s->undo + n, s->undos * sizeof *s->undo);
    s->durable += n;
    s->at = s->flight.end;
}

void ps_store_each(const struct ps_store *s, const char *prefix,
                   void (*each)(void *arg, const char *key, struct lh_span value), void *arg)
{
    size_t n = strlen(prefix);
    for (size_t i = find(s, prefix); i < s->pairs && strncmp(s->pair[i].key, prefix, n) == 0; i++)
        each(arg, s->pair[i].key, lh_span(s->pair[i].value, s->pair[i].len));
}
