// Bytes: spans borrow, buffers own, cursors read, blobs are shared.
//
// All integers in our formats are little endian and of fixed width. All bytes from outside are read
// through a cursor, whose failure is sticky: read everything, then check once.
#ifndef LH_COMMON_BUF_H
#define LH_COMMON_BUF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct lh_span {
    const uint8_t *data;
    size_t len;
};

static inline struct lh_span lh_span(const void *data, size_t len)
{
    return (struct lh_span){data, len};
}
struct lh_span lh_span_str(const char *text); // without the terminating zero
bool lh_span_equal(struct lh_span a, struct lh_span b);

// calloc() for memory that will all be used: several MiB come in huge pages if the system has them,
// as in large buffers and blobs.
void *lh_zeros(size_t count, size_t size);
// Maps the pages of n bytes at p now, on any thread, instead of at the first write to each: a
// kernel clears some 2 GB/s. Their contents stay; memory that was freed meanwhile does no harm.
// False: not supported (before Linux 5.14).
bool lh_populate(void *p, size_t n);

// ---- buffer: grows up to `max`, never beyond. Writes after a failure do nothing; lh_buf_err()
// tells. Zero-initialise with lh_buf(max); free with lh_buf_free().
struct lh_buf {
    uint8_t *data;
    size_t len, cap, max;
    lh_err err;
};

static inline struct lh_buf lh_buf(size_t max)
{
    return (struct lh_buf){.max = max};
}
// A buffer over the caller's memory; it never grows beyond it and must not be freed.
static inline struct lh_buf lh_buf_over(void *data, size_t bytes)
{
    return (struct lh_buf){.data = data, .cap = bytes, .max = bytes};
}
void lh_buf_free(struct lh_buf *b);
void lh_buf_clear(struct lh_buf *b); // keeps the memory
static inline struct lh_span lh_buf_span(const struct lh_buf *b)
{
    return lh_span(b->data, b->len);
}
static inline lh_err LH_MUST lh_buf_err(const struct lh_buf *b)
{
    return b->err;
}
// `n` more bytes, contents undefined; NULL after a failure (also for n = 0 on an empty buffer).
uint8_t *lh_buf_grow(struct lh_buf *b, size_t n);
LH_MUST lh_err lh_buf_reserve(struct lh_buf *b, size_t total); // capacity for `total` bytes in all
void lh_put(struct lh_buf *b, const void *data, size_t n);
void lh_put_u8(struct lh_buf *b, uint8_t v);
void lh_put_u16(struct lh_buf *b, uint16_t v);
void lh_put_u32(struct lh_buf *b, uint32_t v);
void lh_put_u64(struct lh_buf *b, uint64_t v);
void lh_put_f32(struct lh_buf *b, float v);
void lh_put_f64(struct lh_buf *b, double v);
void lh_put_str(struct lh_buf *b, const char *text); // u16 length, bytes
void lh_put_zeros(struct lh_buf *b, size_t n);
// Overwrites 4 bytes written before (a length or a checksum known only later).
void lh_buf_patch_u32(struct lh_buf *b, size_t at, uint32_t v);

// ---- cursor: all reading. After a failure every read gives 0 and `failed` stays set.
struct lh_cursor {
    const uint8_t *at, *end;
    bool failed;
};

static inline struct lh_cursor lh_cursor(struct lh_span s)
{
    return (struct lh_cursor){s.data, s.data + s.len, false};
}
static inline size_t lh_left(const struct lh_cursor *c)
{
    return (size_t)(c->end - c->at);
}
struct lh_span lh_get(struct lh_cursor *c, size_t n); // borrows; empty after a failure
void lh_get_into(struct lh_cursor *c, void *out, size_t n);
uint8_t lh_get_u8(struct lh_cursor *c);
uint16_t lh_get_u16(struct lh_cursor *c);
uint32_t lh_get_u32(struct lh_cursor *c);
uint64_t lh_get_u64(struct lh_cursor *c);
float lh_get_f32(struct lh_cursor *c);
double lh_get_f64(struct lh_cursor *c);
// A string of at most size-1 bytes, without zeros inside, into out[size].
void lh_get_str(struct lh_cursor *c, char *out, size_t size);

// ---- blob: immutable shared bytes with a count of owners; any thread may release.
// A large blob's address lies LH_BLOB_PHASE bytes after a multiple of LH_BLOCK, as the first body
// of a log segment does in its file (server/wal/wal.h), so a direct write needs no copy.
enum { LH_BLOCK = 512, LH_BLOB_PHASE = 168 };
struct lh_pool;
struct lh_blob {
    atomic_uint owners;
    size_t len, cap;
    struct lh_pool *home; // the pool that it returns to (pool.h); NULL: it is freed
    uint8_t *data;        // the bytes: in this allocation, or in the caller's memory
    void *given;          // memory that is freed with the blob; may be NULL
};
struct lh_blob *lh_blob_new(size_t len); // one owner, contents undefined; NULL: out of memory
struct lh_blob *lh_blob_copy(struct lh_span s);
// A blob over the caller's memory. The caller must not change or free the memory until the blob has
// no other owner, or until lh_blob_give() (memory of malloc() only).
struct lh_blob *lh_blob_over(void *memory, size_t len);
bool lh_blob_alone(const struct lh_blob *b);      // it has one owner: no other reader is left
void lh_blob_give(struct lh_blob *b);             // the last owner's release frees the memory
struct lh_blob *lh_blob_share(struct lh_blob *b); // one more owner; NULL gives NULL
void lh_blob_release(struct lh_blob *b);          // NULL is allowed
static inline struct lh_span lh_blob_span(const struct lh_blob *b)
{
    return lh_span(b->data, b->len);
}

// ---- hashes
uint32_t lh_crc32c(uint32_t crc, const void *data, size_t n); // Castagnoli; start with 0
enum { LH_HASH_BYTES = 32 };
struct lh_hash {
    uint8_t b[LH_HASH_BYTES];
};
// BLAKE2b-256 of the parts one after another (libsodium generichash), optionally keyed.
struct lh_hash lh_hash_of(struct lh_span key, const struct lh_span *parts, size_t count);
bool lh_hash_equal(const struct lh_hash *a, const struct lh_hash *b);
void lh_hash_hex(const struct lh_hash *h, char out[2 * LH_HASH_BYTES + 1]);

#endif
