// The coordinator's store. Layout and rules: store.h.
#include "server/coordinator/store.h"

#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

static const uint32_t MAGIC = 0x5453484c; // "LHST"
enum { HEADER = 8, KEY_SIZE = 128, FILE_MAX = 1 << 30, REWRITE_MIN = 1 << 16, VERSION = 2 };
static const uint32_t REMOVED = UINT32_MAX;

struct pair {
    char key[KEY_SIZE];
    uint8_t *value;
    uint32_t len;
};

struct ps_store {
    struct lh_env *env;
    char path[LH_PATH_SIZE];
    struct lh_file *lock, *file;
    struct pair *pair; // ascending by key
    size_t pairs, live_bytes;
    uint64_t at; // end of the last commit
    struct lh_buf pending;
};

static size_t place(const struct ps_store *s, const char *key)
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

static void drop(struct ps_store *s, const char *key)
{
    size_t i = place(s, key);
    if (!at_key(s, i, key)) return;
    s->live_bytes -= s->pair[i].len + strlen(key);
    free(s->pair[i].value);
    memmove(s->pair + i, s->pair + i + 1, (s->pairs - i - 1) * sizeof *s->pair);
    s->pairs--;
}

static lh_err set(struct ps_store *s, const char *key, struct lh_span value)
{
    uint8_t *copy = malloc(value.len + 1);
    if (!copy) return LH_ERR_NO_MEMORY;
    if (value.len) memcpy(copy, value.data, value.len);
    drop(s, key);
    size_t i = place(s, key);
    struct pair *grown = realloc(s->pair, (s->pairs + 1) * sizeof *grown);
    if (!grown) {
        free(copy);
        return LH_ERR_NO_MEMORY;
    }
    s->pair = grown;
    memmove(s->pair + i + 1, s->pair + i, (s->pairs - i) * sizeof *s->pair);
    s->pairs++;
    s->pair[i] = (struct pair){.value = copy, .len = (uint32_t)value.len};
    memcpy(s->pair[i].key, key, strlen(key) + 1);
    s->live_bytes += value.len + strlen(key);
    return LH_OK;
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
    char key[KEY_SIZE];
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
    return lh_fail(LH_ERR_CORRUPT,
                   "%s: damaged at byte %llu, below commits that were acknowledged. Restore this "
                   "file from a copy, of any age: members and leases are taken up again from it. "
                   "Don't start without it",
                   s->path, (unsigned long long)at);
}

// What follows the last whole commit is a torn one, of which any part may be on the disk, unless a
// later commit ends behind it: that was begun after this one was synced. The first commit comes
// with the file and is never torn.
static LH_MUST lh_err check_tail(const struct ps_store *s, struct lh_span bytes, uint64_t bad)
{
    if (s->at == HEADER) return damaged(s, bad);
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
    uint64_t from, bad = HEADER;
    (void)lh_get(&c, HEADER);
    s->at = HEADER;
    for (; read_entry(&c, &e); bad = (uint64_t)(c.at - bytes.data)) {
        if (e.key[0]) continue;
        if (!is_end(&e, &from) || from != s->at) break;
        uint64_t end = (uint64_t)(c.at - bytes.data);
        LH_TRY(apply(s, lh_span(bytes.data + s->at, (size_t)(end - s->at))));
        s->at = end;
    }
    return check_tail(s, bytes, bad);
}

static void write_header(struct lh_buf *b)
{
    lh_put_u32(b, MAGIC);
    lh_put_u16(b, VERSION);
    lh_put_u16(b, 0);
}

static lh_err write_all(struct ps_store *s)
{
    struct lh_buf b = lh_buf(FILE_MAX);
    write_header(&b);
    for (size_t i = 0; i < s->pairs; i++)
        put_entry(&b, s->pair[i].key, lh_span(s->pair[i].value, s->pair[i].len), false);
    put_end(&b, HEADER);
    lh_err err = lh_buf_err(&b);
    if (!err) err = lh_file_replace(s->env, s->path, lh_buf_span(&b));
    if (!err) s->at = b.len;
    lh_buf_free(&b);
    return err;
}

static lh_err reopen(struct ps_store *s)
{
    if (s->file) s->env->ops->files->close(s->file);
    s->file = NULL;
    return s->env->ops->files->open(s->env, s->path, LH_OPEN_WRITE, &s->file);
}

// The lock is a file of its own: the store's file is replaced again and again.
static LH_MUST lh_err take_lock(struct ps_store *s, const char *dir)
{
    char path[LH_PATH_SIZE];
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
    s->pending = lh_buf(FILE_MAX);
    struct lh_buf bytes = lh_buf(FILE_MAX);
    lh_err err;
    LH_TRY_TO(fail, err, lh_path(s->path, sizeof s->path, path, "store"));
    LH_TRY_TO(fail, err, take_lock(s, path));
    err = lh_file_load(env, s->path, &bytes);
    if (!err) err = read_file(s, lh_buf_span(&bytes));
    if (err && err != LH_ERR_NOT_FOUND) goto fail;
    LH_TRY_TO(fail, err, write_all(s)); // cuts what was never committed, and makes it durable
    LH_TRY_TO(fail, err, reopen(s));
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
    for (size_t i = 0; i < s->pairs; i++) free(s->pair[i].value);
    free(s->pair);
    lh_buf_free(&s->pending);
    free(s);
}

// ---------------------------------------------------------------- use

bool ps_store_get(const struct ps_store *s, const char *key, struct lh_span *value)
{
    size_t i = place(s, key);
    if (!at_key(s, i, key)) return false;
    *value = lh_span(s->pair[i].value, s->pair[i].len);
    return true;
}

lh_err ps_store_put(struct ps_store *s, const char *key, struct lh_span value)
{
    LH_ASSERT(key[0] && strlen(key) < KEY_SIZE);
    LH_TRY(set(s, key, value));
    put_entry(&s->pending, key, value, false);
    return lh_buf_err(&s->pending);
}

void ps_store_remove(struct ps_store *s, const char *key)
{
    drop(s, key);
    put_entry(&s->pending, key, (struct lh_span){0}, true);
}

static LH_MUST lh_err append(struct ps_store *s)
{
    LH_TRY(lh_buf_err(&s->pending));
    LH_FAILPOINT("store.write");
    LH_TRY(s->env->ops->files->write(s->file, s->at, lh_buf_span(&s->pending)));
    LH_FAILPOINT("store.sync");
    if (!LH_BUG("store_unsynced")) LH_TRY(s->env->ops->files->sync(s->file));
    LH_FAILPOINT("store.committed");
    return LH_OK;
}

lh_err ps_store_commit(struct ps_store *s)
{
    size_t entries = s->pending.len;
    if (!entries) return LH_OK;
    put_end(&s->pending, s->at);
    lh_err err = append(s);
    if (err) {
        s->pending.len = entries; // the next try ends it
        return err;
    }
    s->at += s->pending.len;
    lh_buf_clear(&s->pending);
    if (s->at < REWRITE_MIN || s->at < 4 * (s->live_bytes + 16 * s->pairs)) return LH_OK;
    LH_TRY(write_all(s));
    return reopen(s);
}

void ps_store_each(const struct ps_store *s, const char *prefix,
                   void (*each)(void *arg, const char *key, struct lh_span value), void *arg)
{
    size_t n = strlen(prefix);
    for (size_t i = place(s, prefix); i < s->pairs && strncmp(s->pair[i].key, prefix, n) == 0; i++)
        each(arg, s->pair[i].key, lh_span(s->pair[i].value, s->pair[i].len));
}
