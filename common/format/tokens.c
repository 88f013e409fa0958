// Token files: header and ids. See tokens.h for the layout.
#include "common/format/tokens.h"

#include "common/base/check.h"

static uint32_t magic_of(uint32_t token_bytes)
{
    LH_ASSERT(token_bytes == 2 || token_bytes == 4);
    return token_bytes == 2 ? 20240520 : 20240801;
}

static uint32_t version_of(uint32_t token_bytes)
{
    return token_bytes == 2 ? 1 : 7;
}

void lh_tokens_put_header(struct lh_buf *out, uint32_t token_bytes, uint64_t count)
{
    LH_ASSERT(count <= LH_TOKENS_MAX);
    lh_put_u32(out, magic_of(token_bytes));
    lh_put_u32(out, version_of(token_bytes));
    lh_put_u32(out, (uint32_t)count);
    lh_put_zeros(out, LH_TOKENS_HEADER_BYTES - 12);
}

void lh_tokens_put(struct lh_buf *out, uint32_t token_bytes, uint32_t id)
{
    if (token_bytes == 2)
        lh_put_u16(out, (uint16_t)id);
    else
        lh_put_u32(out, id);
}

lh_err lh_tokens_header(struct lh_span head, uint32_t token_bytes, uint64_t *count)
{
    struct lh_cursor c = lh_cursor(head);
    uint32_t magic = lh_get_u32(&c), version = lh_get_u32(&c), n = lh_get_u32(&c);
    if (c.failed || head.len < LH_TOKENS_HEADER_BYTES)
        return lh_fail(LH_ERR_MALFORMED, "shorter than a header of %d bytes",
                       LH_TOKENS_HEADER_BYTES);
    if (magic != magic_of(token_bytes) || version != version_of(token_bytes))
        return lh_fail(LH_ERR_MALFORMED,
                       "magic %u version %u where tokens of %u bytes have %u version %u", magic,
                       version, token_bytes, magic_of(token_bytes), version_of(token_bytes));
    if (n > LH_TOKENS_MAX) return lh_fail(LH_ERR_MALFORMED, "a negative number of tokens");
    *count = n;
    return LH_OK;
}

void lh_tokens_decode(const uint8_t *bytes, uint32_t token_bytes, uint64_t n, uint32_t *ids)
{
    for (uint64_t i = 0; i < n; i++, bytes += token_bytes)
        ids[i] = token_bytes == 2 ? bytes[0] | (uint32_t)bytes[1] << 8
                                  : bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                                        (uint32_t)bytes[3] << 24;
}

uint64_t lh_tokens_beyond(const uint8_t *bytes, uint32_t token_bytes, uint64_t n,
                          uint32_t vocabulary)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t id;
        lh_tokens_decode(bytes + i * token_bytes, token_bytes, 1, &id);
        if (id >= vocabulary) return i;
    }
    return n;
}
