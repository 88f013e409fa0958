// The record's bytes and the chain. Layout: record.h.
#include "common/format/record.h"

#include <math.h>
#include <string.h>

uint32_t lh_record_norm_bits(const struct lh_norm *n)
{
    uint32_t bits;
    LH_ASSERT(isfinite(n->at_equal_h) && !signbit(n->at_equal_h));
    memcpy(&bits, &n->at_equal_h, sizeof bits);
    return (bits & ~1u) | (uint32_t)n->clipped | (uint32_t)n->outlier << 31;
}

struct lh_norm lh_record_norm(const struct lh_record *r)
{
    struct lh_norm n = {.clipped = r->reason & 1, .outlier = r->reason >> 31};
    uint32_t bits = r->reason & 0x7ffffffe;
    memcpy(&n.at_equal_h, &bits, sizeof bits);
    return n;
}

void lh_record_write_header(const struct lh_record *r, struct lh_buf *out)
{
    LH_ASSERT(r->body.len <= LH_RECORD_BYTES_MAX);
    lh_put_u64(out, r->version);
    lh_put_u64(out, r->epoch);
    lh_put_u16(out, r->kind);
    lh_put_u16(out, r->flags);
    lh_put_u32(out, r->reason);
    lh_put_f32(out, r->scale);
    lh_put_u32(out, (uint32_t)r->body.len);
    lh_put(out, r->chain.b, LH_HASH_BYTES);
}

lh_err lh_record_parse_header(struct lh_span bytes, struct lh_record *out, uint32_t *body_bytes)
{
    struct lh_cursor c = lh_cursor(bytes);
    memset(out, 0, sizeof *out);
    out->version = lh_get_u64(&c);
    out->epoch = lh_get_u64(&c);
    out->kind = lh_get_u16(&c);
    out->flags = lh_get_u16(&c);
    out->reason = lh_get_u32(&c);
    out->scale = lh_get_f32(&c);
    *body_bytes = lh_get_u32(&c);
    lh_get_into(&c, out->chain.b, LH_HASH_BYTES);
    if (c.failed) return lh_fail(LH_ERR_MALFORMED, "record shorter than its header");
    if (out->version == 0 || out->kind < LH_ADMIT || out->kind > LH_MOVE)
        return lh_fail(LH_ERR_MALFORMED, "record of unknown kind %u at version %llu", out->kind,
                       (unsigned long long)out->version);
    if (out->flags & ~LH_RECORD_ELIDED || (out->flags && out->kind != LH_ADMIT))
        return lh_fail(LH_ERR_MALFORMED, "record with unknown flags %u", out->flags);
    if (!isfinite(out->scale) || signbit(out->scale)) // the fold would spread it to all values
        return lh_fail(LH_ERR_MALFORMED, "record of scale %g at version %llu", (double)out->scale,
                       (unsigned long long)out->version);
    if (out->kind == LH_ADMIT && !isfinite(lh_record_norm(out).at_equal_h))
        return lh_fail(LH_ERR_MALFORMED, "record of a norm that is not finite at version %llu",
                       (unsigned long long)out->version);
    if (*body_bytes > LH_RECORD_BYTES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "record of %u bytes, at most %d are allowed", *body_bytes,
                       LH_RECORD_BYTES_MAX);
    return LH_OK;
}

// The body's bytes that the chain hashes: a frame's head and tag, or all of any other body.
static size_t identity(const struct lh_record *r, struct lh_span out[2])
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    bool whole = r->kind == LH_ADMIT && !(r->flags & LH_RECORD_ELIDED);
    if (!whole || lh_frame_parse(r->body, &f, &parts) != LH_OK) {
        out[0] = r->body;
        return 1;
    }
    out[0] = parts.head;
    out[1] = lh_span(r->body.data + r->body.len - LH_SEAL_TAG_BYTES, LH_SEAL_TAG_BYTES);
    return 2;
}

struct lh_hash lh_record_chain(const struct lh_hash *before, const struct lh_record *r)
{
    uint8_t bytes[64]; // on the stack: out of memory would give a wrong chain and ruin the log
    struct lh_buf fixed = lh_buf_over(bytes, sizeof bytes);
    lh_put_u64(&fixed, r->version);
    lh_put_u64(&fixed, r->epoch);
    lh_put_u16(&fixed, r->kind);
    lh_put_u32(&fixed, r->reason);
    lh_put_f32(&fixed, r->scale);
    struct lh_span parts[4] = {lh_span(before->b, LH_HASH_BYTES), lh_buf_span(&fixed)};
    size_t n = identity(r, parts + 2);
    return lh_hash_of((struct lh_span){0}, parts, 2 + n);
}

// ---------------------------------------------------------------- a stream of them

void lh_record_stream_reset(struct lh_record_stream *t)
{
    lh_buf_free(&t->body);
    *t = (struct lh_record_stream){0};
}

// Copies bytes `have` to `need`, as far as available.
static void fill(uint8_t *to, size_t *have, size_t need, struct lh_span *bytes)
{
    size_t n = need - *have < bytes->len ? need - *have : bytes->len;
    if (n) memcpy(to + *have, bytes->data, n);
    *have += n;
    *bytes = lh_span(bytes->data + n, bytes->len - n);
}

lh_err lh_record_stream_take(struct lh_record_stream *t, size_t body_max, struct lh_span *bytes)
{
    if (t->whole) lh_record_stream_reset(t);
    if (t->header_have < LH_RECORD_HEADER_BYTES) {
        fill(t->header, &t->header_have, LH_RECORD_HEADER_BYTES, bytes);
        if (t->header_have < LH_RECORD_HEADER_BYTES) return LH_OK;
        uint32_t body;
        LH_TRY(
            lh_record_parse_header(lh_span(t->header, LH_RECORD_HEADER_BYTES), &t->record, &body));
        if (body > body_max)
            return lh_fail(LH_ERR_TOO_LARGE, "record of %u bytes, the shard's have at most %zu",
                           body, body_max);
        t->body = lh_buf(body);
        if (body && !lh_buf_grow(&t->body, body)) return LH_ERR_BUSY;
    }
    fill(t->body.data, &t->body_have, t->body.len, bytes);
    t->whole = t->body_have == t->body.len;
    if (t->whole) t->record.body = lh_buf_span(&t->body);
    return LH_OK;
}
