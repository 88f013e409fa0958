// The sealed frame's bytes. Layout and rules: frame.h.
#include "common/format/frame.h"

#include <float.h>
#include <string.h>

static const uint32_t MAGIC = 0x3146484c; // "LHF1"

void lh_frame_write_head(const struct lh_frame *f, struct lh_buf *out)
{
    size_t start = out->len;
    LH_ASSERT(f->claims <= LH_CLAIMS_MAX);
    lh_put_u32(out, MAGIC);
    lh_put_u16(out, LH_WIRE_VERSION_MAX);
    lh_put_u16(out, LH_FRAME_HEADER_BYTES);
    lh_put_u8(out, f->index_code);
    lh_put_u8(out, f->value_code);
    lh_put_u8(out, f->cipher);
    lh_put_u8(out, 0);
    lh_put_f32(out, f->density);
    lh_put_u32(out, f->key_id);
    lh_put_u32(out, f->shard);
    lh_put(out, f->job, LH_JOB_BYTES);
    lh_put_u64(out, f->worker);
    lh_put_u64(out, f->incarnation.number);
    lh_put_u64(out, f->incarnation.random);
    lh_put_u64(out, f->step);
    lh_put_u64(out, f->base_version);
    lh_put_u64(out, f->base_epoch);
    lh_put_u64(out, f->base_others);
    lh_put_u64(out, f->tokens);
    lh_put_u32(out, f->steps);
    lh_put_u32(out, f->claims);
    lh_put_u64(out, f->values);
    lh_put_u32(out, f->plain_bytes);
    lh_put_f32(out, f->allowance);
    lh_put(out, f->manifest.b, LH_HASH_BYTES);
    lh_put(out, f->nonce, LH_SEAL_NONCE_BYTES);
    lh_put_u64(out, f->allowance_tag);
    lh_put_u64(out, f->charged);
    LH_ASSERT(out->err || out->len - start == LH_FRAME_HEADER_BYTES);
    for (uint32_t i = 0; i < f->claims; i++) lh_claim_write(f->claim[i], &f->grant[i], out);
}

static lh_err read_head(struct lh_cursor *c, struct lh_frame *f)
{
    memset(f, 0, sizeof *f);
    uint32_t magic = lh_get_u32(c);
    uint16_t wire = lh_get_u16(c), header = lh_get_u16(c);
    f->index_code = lh_get_u8(c);
    f->value_code = lh_get_u8(c);
    f->cipher = lh_get_u8(c);
    uint8_t flags = lh_get_u8(c);
    f->density = lh_get_f32(c);
    f->key_id = lh_get_u32(c);
    f->shard = lh_get_u32(c);
    lh_get_into(c, f->job, LH_JOB_BYTES);
    f->worker = lh_get_u64(c);
    f->incarnation.number = lh_get_u64(c);
    f->incarnation.random = lh_get_u64(c);
    f->step = lh_get_u64(c);
    f->base_version = lh_get_u64(c);
    f->base_epoch = lh_get_u64(c);
    f->base_others = lh_get_u64(c);
    f->tokens = lh_get_u64(c);
    f->steps = lh_get_u32(c);
    f->claims = lh_get_u32(c);
    f->values = lh_get_u64(c);
    f->plain_bytes = lh_get_u32(c);
    f->allowance = lh_get_f32(c);
    lh_get_into(c, f->manifest.b, LH_HASH_BYTES);
    lh_get_into(c, f->nonce, LH_SEAL_NONCE_BYTES);
    f->allowance_tag = lh_get_u64(c);
    f->charged = lh_get_u64(c);
    if (c->failed) return lh_fail(LH_ERR_MALFORMED, "frame shorter than its header");
    if (magic != MAGIC) return lh_fail(LH_ERR_MALFORMED, "not a frame (magic %08x)", magic);
    if (wire < LH_WIRE_VERSION_MIN || wire > LH_WIRE_VERSION_MAX)
        return lh_fail(LH_ERR_VERSION, "frame of wire version %u; this build reads %d to %d", wire,
                       LH_WIRE_VERSION_MIN, LH_WIRE_VERSION_MAX);
    if (header != LH_FRAME_HEADER_BYTES || flags)
        return lh_fail(LH_ERR_MALFORMED, "frame with unknown flags or header size");
    if (!(f->allowance >= 0 && f->allowance <= FLT_MAX))
        return lh_fail(LH_ERR_MALFORMED, "frame with an allowance of %g tokens",
                       (double)f->allowance);
    if (!(f->density > 0 && f->density <= 1))
        return lh_fail(LH_ERR_MALFORMED, "frame with density %g", (double)f->density);
    if (f->step == 0) return lh_fail(LH_ERR_MALFORMED, "frame of step 0; steps count from 1");
    if (f->claims > LH_CLAIMS_MAX)
        return lh_fail(LH_ERR_MALFORMED, "frame claims %u units, at most %d fit", f->claims,
                       LH_CLAIMS_MAX);
    for (uint32_t i = 0; i < f->claims; i++) {
        f->claim[i] = lh_claim_read(c, &f->grant[i]);
        if (!c->failed && f->claim[i] >= LH_UNITS_MAX)
            return lh_fail(LH_ERR_MALFORMED, "frame claims unit %llu, ids end at %d",
                           (unsigned long long)f->claim[i], LH_UNITS_MAX);
    }
    if (c->failed) return lh_fail(LH_ERR_MALFORMED, "frame shorter than its claims");
    return LH_OK;
}

lh_err lh_frame_parse(struct lh_span bytes, struct lh_frame *out, struct lh_frame_parts *parts)
{
    struct lh_cursor c = lh_cursor(bytes);
    LH_TRY(read_head(&c, out));
    if (bytes.len > LH_FRAME_BYTES_MAX || lh_frame_bytes(out) != bytes.len)
        return lh_fail(LH_ERR_MALFORMED, "frame of %zu bytes says %zu", bytes.len,
                       lh_frame_bytes(out));
    parts->head = lh_span(bytes.data, lh_frame_head_bytes(out));
    parts->sealed = lh_get(&c, lh_left(&c));
    return LH_OK;
}

lh_err lh_frame_parse_head(struct lh_span bytes, struct lh_frame *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    return read_head(&c, out);
}

lh_err lh_frame_parse_stub(struct lh_span bytes, struct lh_frame *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    LH_TRY(read_head(&c, out));
    if (lh_left(&c) != LH_SEAL_TAG_BYTES)
        return lh_fail(LH_ERR_MALFORMED, "frame stub with %zu bytes of tag", lh_left(&c));
    return LH_OK;
}

void lh_frame_write_stub(struct lh_span frame, const struct lh_frame *f, struct lh_buf *out)
{
    size_t head = lh_frame_head_bytes(f);
    LH_ASSERT(frame.len >= head + LH_SEAL_TAG_BYTES);
    lh_put(out, frame.data, head);
    lh_put(out, frame.data + frame.len - LH_SEAL_TAG_BYTES, LH_SEAL_TAG_BYTES);
}

struct lh_digest lh_frame_digest(struct lh_span bytes, const struct lh_frame *f)
{
    size_t head = lh_frame_head_bytes(f);
    LH_ASSERT(bytes.len >= head + LH_SEAL_TAG_BYTES);
    struct lh_span parts[2] = {
        lh_span(bytes.data, head),
        lh_span(bytes.data + bytes.len - LH_SEAL_TAG_BYTES, LH_SEAL_TAG_BYTES)};
    struct lh_hash h = lh_hash_of(lh_span(f->job, LH_JOB_BYTES), parts, 2);
    struct lh_digest d;
    memcpy(d.b, h.b, LH_DIGEST_BYTES);
    return d;
}

bool lh_digest_equal(const struct lh_digest *a, const struct lh_digest *b)
{
    return memcmp(a->b, b->b, LH_DIGEST_BYTES) == 0;
}

uint64_t lh_worker_id(const struct lh_peer *peer)
{
    char uri[LH_URI_BYTES];
    lh_peer_uri(peer, uri);
    struct lh_span text = lh_span_str(uri);
    struct lh_hash h = lh_hash_of((struct lh_span){0}, &text, 1);
    struct lh_cursor c = lh_cursor(lh_span(h.b, 8));
    return lh_get_u64(&c) | 1; // 0 means no worker
}
