// Bytes. See buf.h.
#include "common/base/buf.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/check.h"
#include "common/base/pool.h"

enum { PAGE = 4096, HUGE_BYTES_MIN = 4 << 20, PHASED_BYTES_MIN = 1 << 20 };

struct lh_span lh_span_str(const char *text)
{
    return lh_span(text, strlen(text));
}

bool lh_span_equal(struct lh_span a, struct lh_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

// Announces that all n bytes at p will be used: several MiB then come in huge pages if the system
// has them. One page fault per 4 KiB of a dense push costs more than copying it.
static void use_huge_pages(void *p, size_t n)
{
    if (!p || n < HUGE_BYTES_MIN) return;
    size_t before = (PAGE - (uintptr_t)p % PAGE) % PAGE;
    // Only advice: a failure does not matter.
    (void)madvise((uint8_t *)p + before, (n - before) / PAGE * PAGE, MADV_HUGEPAGE);
}

void *lh_zeros(size_t count, size_t size)
{
    void *p = calloc(count, size);
    use_huge_pages(p, count * size);
    return p;
}

#ifndef MADV_POPULATE_WRITE // some C libraries' headers lack it
#define MADV_POPULATE_WRITE 23
#endif

bool lh_populate(void *p, size_t n)
{
    size_t before = (PAGE - (uintptr_t)p % PAGE) % PAGE;
    if (!p || n < before + PAGE) return true;
    return madvise((uint8_t *)p + before, (n - before) / PAGE * PAGE, MADV_POPULATE_WRITE) == 0;
}

// ---------------------------------------------------------------- buffer

void lh_buf_free(struct lh_buf *b)
{
    free(b->data);
    *b = lh_buf(b->max);
}

void lh_buf_clear(struct lh_buf *b)
{
    b->len = 0;
    b->err = LH_OK;
}

lh_err lh_buf_reserve(struct lh_buf *b, size_t total)
{
    if (b->err) return b->err;
    if (total <= b->cap) return LH_OK;
    if (total > b->max)
        return b->err = lh_fail(LH_ERR_TOO_LARGE, "%zu bytes where at most %zu fit", total, b->max);
    size_t cap = b->cap < 128 ? 256 : b->cap * 2;
    if (cap < total) cap = total;
    if (cap > b->max) cap = b->max;
    uint8_t *data = realloc(b->data, cap);
    if (!data) return b->err = LH_ERR_NO_MEMORY;
    use_huge_pages(data, cap);
    b->data = data;
    b->cap = cap;
    return LH_OK;
}

uint8_t *lh_buf_grow(struct lh_buf *b, size_t n)
{
    if (n > SIZE_MAX - b->len || lh_buf_reserve(b, b->len + n)) {
        if (!b->err) b->err = LH_ERR_TOO_LARGE;
        return NULL;
    }
    uint8_t *at = b->data ? b->data + b->len : NULL;
    b->len += n;
    return at;
}

void lh_put(struct lh_buf *b, const void *data, size_t n)
{
    uint8_t *at = lh_buf_grow(b, n);
    if (at && n) memcpy(at, data, n);
}

static void put_le(struct lh_buf *b, uint64_t v, size_t n)
{
    uint8_t *at = lh_buf_grow(b, n);
    for (size_t i = 0; at && i < n; i++) at[i] = (uint8_t)(v >> (8 * i));
}

void lh_put_u8(struct lh_buf *b, uint8_t v)
{
    put_le(b, v, 1);
}

void lh_put_u16(struct lh_buf *b, uint16_t v)
{
    put_le(b, v, 2);
}

void lh_put_u32(struct lh_buf *b, uint32_t v)
{
    put_le(b, v, 4);
}

void lh_put_u64(struct lh_buf *b, uint64_t v)
{
    put_le(b, v, 8);
}

void lh_put_f32(struct lh_buf *b, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    put_le(b, bits, 4);
}

void lh_put_f64(struct lh_buf *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, 8);
    put_le(b, bits, 8);
}

void lh_put_str(struct lh_buf *b, const char *text)
{
    size_t n = strlen(text);
    LH_ASSERT(n <= UINT16_MAX);
    lh_put_u16(b, (uint16_t)n);
    lh_put(b, text, n);
}

void lh_put_zeros(struct lh_buf *b, size_t n)
{
    uint8_t *at = lh_buf_grow(b, n);
    if (at && n) memset(at, 0, n);
}

void lh_buf_patch_u32(struct lh_buf *b, size_t at, uint32_t v)
{
    if (b->err) return;
    LH_ASSERT(at + 4 <= b->len);
    for (size_t i = 0; i < 4; i++) b->data[at + i] = (uint8_t)(v >> (8 * i));
}

// ---------------------------------------------------------------- cursor

struct lh_span lh_get(struct lh_cursor *c, size_t n)
{
    if (c->failed || lh_left(c) < n) {
        c->failed = true;
        return (struct lh_span){0};
    }
    struct lh_span s = lh_span(c->at, n);
    if (n) c->at += n;
    return s;
}

void lh_get_into(struct lh_cursor *c, void *out, size_t n)
{
    struct lh_span s = lh_get(c, n);
    if (s.len == n && n)
        memcpy(out, s.data, n);
    else if (n)
        memset(out, 0, n);
}

static uint64_t get_le(struct lh_cursor *c, size_t n)
{
    struct lh_span s = lh_get(c, n);
    uint64_t v = 0;
    for (size_t i = 0; i < s.len; i++) v |= (uint64_t)s.data[i] << (8 * i);
    return v;
}

uint8_t lh_get_u8(struct lh_cursor *c)
{
    return (uint8_t)get_le(c, 1);
}

uint16_t lh_get_u16(struct lh_cursor *c)
{
    return (uint16_t)get_le(c, 2);
}

uint32_t lh_get_u32(struct lh_cursor *c)
{
    return (uint32_t)get_le(c, 4);
}

uint64_t lh_get_u64(struct lh_cursor *c)
{
    return get_le(c, 8);
}

float lh_get_f32(struct lh_cursor *c)
{
    uint32_t bits = lh_get_u32(c);
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

double lh_get_f64(struct lh_cursor *c)
{
    uint64_t bits = lh_get_u64(c);
    double v;
    memcpy(&v, &bits, 8);
    return v;
}

void lh_get_str(struct lh_cursor *c, char *out, size_t size)
{
    struct lh_span s = lh_get(c, lh_get_u16(c));
    if (s.len >= size || (s.len && memchr(s.data, 0, s.len))) {
        c->failed = true;
        s.len = 0;
    }
    if (s.len) memcpy(out, s.data, s.len);
    out[s.len] = 0;
}

// ---------------------------------------------------------------- blob

struct lh_blob *lh_blob_new(size_t len)
{
    size_t lead = sizeof(struct lh_blob) + (len < PHASED_BYTES_MIN ? 0 : LH_BLOCK);
    struct lh_blob *b = len < SIZE_MAX - lead ? malloc(lead + len) : NULL;
    if (!b) return NULL;
    use_huge_pages(b, lead + len);
    atomic_init(&b->owners, 1);
    b->data = (uint8_t *)(b + 1);
    if (len >= PHASED_BYTES_MIN) b->data += (LH_BLOB_PHASE - (uintptr_t)b->data) % LH_BLOCK;
    b->len = b->cap = len;
    b->home = NULL;
    b->given = NULL;
    return b;
}

struct lh_blob *lh_blob_over(void *memory, size_t len)
{
    struct lh_blob *b = lh_blob_new(0);
    if (!b) return NULL;
    b->data = memory;
    b->len = b->cap = len;
    return b;
}

bool lh_blob_alone(const struct lh_blob *b)
{
    return atomic_load_explicit(&b->owners, memory_order_acquire) == 1;
}

void lh_blob_give(struct lh_blob *b)
{
    b->given = b->data;
}

struct lh_blob *lh_blob_copy(struct lh_span s)
{
    struct lh_blob *b = lh_blob_new(s.len);
    if (b && s.len) memcpy(b->data, s.data, s.len);
    return b;
}

struct lh_blob *lh_blob_share(struct lh_blob *b)
{
    if (b) atomic_fetch_add_explicit(&b->owners, 1, memory_order_relaxed);
    return b;
}

void lh_blob_release(struct lh_blob *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->owners, 1, memory_order_acq_rel) != 1) return;
    if (b->home) {
        lh_pool_take_back(b->home, b);
        return;
    }
    free(b->given);
    free(b);
}

// ---------------------------------------------------------------- hashes

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78; RFC 3720 B.4): a table, and the SSE 4.2
// instruction where the processor has it. The instruction's latency is three cycles and its
// throughput one per cycle, so large inputs go in three lanes. CRC is linear in its start value, so
// crc_past() moves a lane's sum past the next lane as if that were zeros (M. Adler, crc32c.c,
// 2013).
enum { CRC_LANE = 4096 };
static uint32_t crc_table[256], crc_zeros[4][256];

static uint32_t crc_times(const uint32_t bit[32], uint32_t c)
{
    uint32_t sum = 0;
    for (int k = 0; k < 32; k++) sum ^= bit[k] & (0u - (c >> k & 1));
    return sum;
}

// Fills in the effect of CRC_LANE zero bytes on each byte of a sum, by repeatedly squaring the
// effect of one zero byte.
static void crc_fill_zeros(void)
{
    uint32_t bit[32], twice[32];
    for (int k = 0; k < 32; k++) bit[k] = (1u << k) >> 8 ^ crc_table[(1u << k) & 255];
    for (size_t n = 1; n < CRC_LANE; n *= 2) {
        for (int k = 0; k < 32; k++) twice[k] = crc_times(bit, bit[k]);
        memcpy(bit, twice, sizeof bit);
    }
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) crc_zeros[k][i] = crc_times(bit, i << (8 * k));
}

__attribute__((constructor)) static void crc_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = (c >> 1) ^ (0x82f63b78u & (0u - (c & 1)));
        crc_table[i] = c;
    }
    crc_fill_zeros();
}

static uint32_t crc_soft(uint32_t c, const uint8_t *p, size_t n)
{
    for (; n; n--, p++) c = (c >> 8) ^ crc_table[(c ^ *p) & 255];
    return c;
}

#if defined(__x86_64__)
static uint32_t crc_past(uint32_t c)
{
    return crc_zeros[0][c & 255] ^ crc_zeros[1][c >> 8 & 255] ^ crc_zeros[2][c >> 16 & 255] ^
           crc_zeros[3][c >> 24];
}

__attribute__((target("sse4.2"))) static uint64_t crc_word(uint64_t c, const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return __builtin_ia32_crc32di(c, word);
}

__attribute__((target("sse4.2"))) static uint32_t crc_hard(uint32_t c, const uint8_t *p, size_t n)
{
    for (; n >= 3 * CRC_LANE; n -= 3 * CRC_LANE, p += 3 * CRC_LANE) {
        uint64_t first = c, second = 0, third = 0;
        for (const uint8_t *at = p; at < p + CRC_LANE; at += 8) {
            first = crc_word(first, at);
            second = crc_word(second, at + CRC_LANE);
            third = crc_word(third, at + 2 * CRC_LANE);
        }
        c = crc_past((uint32_t)first) ^ (uint32_t)second;
        c = crc_past(c) ^ (uint32_t)third;
    }
    uint64_t wide = c;
    for (; n >= 8; n -= 8, p += 8) wide = crc_word(wide, p);
    c = (uint32_t)wide;
    for (; n; n--, p++) c = __builtin_ia32_crc32qi(c, *p);
    return c;
}
#endif

uint32_t lh_crc32c(uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc_hard(~crc, data, n);
#endif
    return ~crc_soft(~crc, data, n);
}

struct lh_hash lh_hash_of(struct lh_span key, const struct lh_span *parts, size_t count)
{
    crypto_generichash_state state;
    struct lh_hash out;
    LH_ASSERT(key.len == 0 || (key.len >= crypto_generichash_KEYBYTES_MIN &&
                               key.len <= crypto_generichash_KEYBYTES_MAX));
    crypto_generichash_init(&state, key.len ? key.data : NULL, key.len, LH_HASH_BYTES);
    for (size_t i = 0; i < count; i++)
        crypto_generichash_update(&state, parts[i].data, parts[i].len);
    crypto_generichash_final(&state, out.b, LH_HASH_BYTES);
    return out;
}

bool lh_hash_equal(const struct lh_hash *a, const struct lh_hash *b)
{
    return memcmp(a->b, b->b, LH_HASH_BYTES) == 0;
}

void lh_hash_hex(const struct lh_hash *h, char out[2 * LH_HASH_BYTES + 1])
{
    sodium_bin2hex(out, 2 * LH_HASH_BYTES + 1, h->b, LH_HASH_BYTES);
}
