// The bytes of the coordinator's store. See bytes.h.
#include "server/coordinator/store/bytes.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

static const uint32_t COMMIT_MAGIC = 0x4353484c; // "LHSC"
static const uint32_t REMOVED = UINT32_MAX;

// ---------------------------------------------------------------- writing

static void put_entry(struct ps_entries *e, const char *key, struct lh_span value, bool removed)
{
    size_t n = strlen(key);
    struct lh_buf *b = &e->bytes;
    if (!b->len) lh_put_zeros(b, PS_COMMIT_HEAD_BYTES);
    lh_put_u32(b, (uint32_t)(4 + 2 + n + 4 + (removed ? 0 : value.len)));
    lh_put_u32(b, 0);
    lh_put_u32(b, 0);
    lh_put_str(b, key);
    lh_put_u32(b, removed ? REMOVED : (uint32_t)value.len);
    if (!removed) lh_put(b, value.data, value.len);
    e->count++;
}

void ps_entries_put(struct ps_entries *e, const char *key, struct lh_span value)
{
    put_entry(e, key, value, false);
}

void ps_entries_remove(struct ps_entries *e, const char *key)
{
    put_entry(e, key, (struct lh_span){0}, true);
}

void ps_entries_seal(struct ps_entries *e, uint32_t behind)
{
    struct lh_buf *b = &e->bytes;
    uint32_t left = e->count + behind;
    for (size_t at = PS_COMMIT_HEAD_BYTES; !b->err && at < b->len;) {
        struct lh_cursor c = lh_cursor(lh_span(b->data + at, b->len - at));
        uint32_t bytes = lh_get_u32(&c);
        lh_buf_patch_u32(b, at + 8, --left);
        lh_buf_patch_u32(b, at + 4, lh_crc32c(0, b->data + at + 8, bytes));
        at += 8 + bytes;
    }
}

void ps_entries_clear(struct ps_entries *e)
{
    lh_buf_clear(&e->bytes);
    e->count = 0;
}

size_t ps_entries_bytes(const struct ps_entries *e)
{
    return e->bytes.len ? e->bytes.len - PS_COMMIT_HEAD_BYTES : 0;
}

lh_err ps_commit_head(struct ps_entries *first, const struct ps_entries *then, uint64_t number)
{
    struct lh_buf *b = &first->bytes;
    size_t one = ps_entries_bytes(first), two = then ? ps_entries_bytes(then) : 0;
    b->len = 0; // the head's place
    lh_put_u32(b, COMMIT_MAGIC);
    lh_put_u32(b, 0);
    lh_put_u64(b, number);
    lh_put_u32(b, first->count + (then ? then->count : 0));
    lh_put_u64(b, one + two);
    if (b->err) return b->err;
    lh_buf_patch_u32(b, 4, lh_crc32c(0, b->data + 8, b->len - 8));
    b->len += one;
    return LH_OK;
}

void ps_commit_mark(uint64_t number, uint8_t out[PS_COMMIT_HEAD_BYTES])
{
    struct ps_entries none = {.bytes = lh_buf_over(out, PS_COMMIT_HEAD_BYTES)};
    LH_ASSERT(!ps_commit_head(&none, NULL, number)); // it needs no memory
}

// ---------------------------------------------------------------- reading

bool ps_commit_read(struct lh_span bytes, size_t at, struct ps_commit *h)
{
    if (at > bytes.len || bytes.len - at < PS_COMMIT_HEAD_BYTES) return false;
    struct lh_cursor c = lh_cursor(lh_span(bytes.data + at, PS_COMMIT_HEAD_BYTES));
    uint32_t magic = lh_get_u32(&c), crc = lh_get_u32(&c);
    h->number = lh_get_u64(&c);
    h->entries = lh_get_u32(&c);
    h->bytes = lh_get_u64(&c);
    return magic == COMMIT_MAGIC &&
           crc == lh_crc32c(0, bytes.data + at + 8, PS_COMMIT_HEAD_BYTES - 8);
}

bool ps_entry_read(struct lh_cursor *c, struct ps_entry *e, bool check)
{
    uint32_t bytes = lh_get_u32(c), crc = lh_get_u32(c);
    struct lh_span body = lh_get(c, bytes);
    if (c->failed || (check && crc != lh_crc32c(0, body.data, body.len))) return false;
    struct lh_cursor b = lh_cursor(body);
    e->following = lh_get_u32(&b);
    lh_get_str(&b, e->key, sizeof e->key);
    uint32_t len = lh_get_u32(&b);
    e->removed = len == REMOVED;
    e->value = lh_get(&b, e->removed ? 0 : len);
    return !b.failed && !lh_left(&b) && e->key[0];
}

bool ps_commit_is_whole(struct lh_span bytes, size_t at, const struct ps_commit *h, uint64_t *bad)
{
    struct ps_entry e;
    *bad = at;
    if (h->bytes > bytes.len - at - PS_COMMIT_HEAD_BYTES) return false;
    struct lh_cursor c =
        lh_cursor(lh_span(bytes.data + at + PS_COMMIT_HEAD_BYTES, (size_t)h->bytes));
    for (uint32_t left = h->entries; left; left--) {
        *bad = (uint64_t)(c.at - bytes.data);
        if (!ps_entry_read(&c, &e, true) || e.following != left - 1) return false;
    }
    return !lh_left(&c);
}

lh_err ps_entries_apply(struct ps_rows *rows, struct lh_span entries)
{
    struct lh_cursor c = lh_cursor(entries);
    struct ps_entry e;
    while (lh_left(&c) && ps_entry_read(&c, &e, false)) {
        struct ps_row *row;
        if (e.removed) {
            free(ps_rows_take(rows, e.key));
            continue;
        }
        LH_TRY(ps_rows_make(rows, e.key, e.value, &row));
        free(ps_rows_put(rows, row));
    }
    return LH_OK;
}

bool ps_commit_later(struct lh_span bytes, size_t from, uint64_t number)
{
    for (size_t at = from; at < bytes.len; at++) {
        struct ps_commit h;
        const uint8_t *next = memchr(bytes.data + at, COMMIT_MAGIC & 0xff, bytes.len - at);
        if (!next) return false;
        at = (size_t)(next - bytes.data);
        if (ps_commit_read(bytes, at, &h) && h.number > number) return true;
    }
    return false;
}
