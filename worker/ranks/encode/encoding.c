// Parts of a push on their way to a rank and back, as bytes. See encoding.h.
//
// Little endian. An ask:
//   0 u32 magic "WEAS"   4 u8 version 1   5 u8 index code   6 u8 value code   7 u8 zero
//   8 u64 push          16 u32 portion     20 f32 density    24 u32 extents    28 u32 zero
//  32 u32 length of each extent, then its values, fp32, of one extent after the other
// An answer:
//   0 u32 magic "WEAN"   4 u8 version 1   5 u8 fine (0, 1)  6 u16 zero
//   8 u64 push          16 u32 portion     20 u32 zero       24 the payload; none where not fine
//
// A message is whole or refused: counts and lengths are checked before anything is believed.
#include "worker/ranks/encode/encoding.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

static const uint32_t ask_magic = 0x53414557, answer_magic = 0x4e414557;
enum { VERSION = 1 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written as they lie");
LH_STATIC_ASSERT(WK_ENCODING_GROUPS *LK_GROUP_VALUES_MAX == WK_ENCODING_VALUES, "whole groups");

void wk_encoding_ask_put(struct lh_buf *out, uint64_t push, uint32_t portion,
                         const struct lk_codec *codec, const struct lh_shard_layout *layout,
                         const float *values)
{
    LH_ASSERT(layout->chunks && layout->chunks <= WK_ENCODING_CHUNKS);
    lh_put_u32(out, ask_magic);
    lh_put_u8(out, VERSION);
    lh_put_u8(out, codec->index);
    lh_put_u8(out, codec->value);
    lh_put_u8(out, 0);
    lh_put_u64(out, push);
    lh_put_u32(out, portion);
    lh_put_f32(out, codec->density);
    lh_put_u32(out, layout->extents);
    lh_put_u32(out, 0);
    for (uint32_t i = 0; i < layout->extents; i++) lh_put_u32(out, (uint32_t)layout->extent[i].len);
    lh_put(out, values, layout->values * sizeof *values);
}

static lh_err bad(const char *what)
{
    return lh_fail(LH_ERR_MALFORMED, "a portion of a push between ranks: %s", what);
}

static LH_MUST lh_err read_extents(struct lh_cursor *c, struct wk_encoding_ask *out, uint32_t count)
{
    struct lh_shard_layout *l = &out->layout;
    *l = (struct lh_shard_layout){.extent = out->extent, .extents = count};
    if (!count || count > WK_ENCODING_CHUNKS) return bad("no such number of extents");
    for (uint32_t i = 0; i < count; i++) {
        uint64_t len = lh_get_u32(c);
        if (!len || len > WK_ENCODING_VALUES) return bad("no such length of an extent");
        out->extent[i] = (struct lh_extent){.tensor = i, .offset = l->values, .len = len};
        l->values += len;
        l->chunks += (len + LH_CHUNK - 1) / LH_CHUNK;
    }
    return l->chunks > WK_ENCODING_CHUNKS ? bad("more chunks than a portion has") : LH_OK;
}

lh_err wk_encoding_ask_get(struct lh_span bytes, struct wk_encoding_ask *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    uint32_t magic = lh_get_u32(&c);
    uint8_t version = lh_get_u8(&c);
    out->codec.index = lh_get_u8(&c);
    out->codec.value = lh_get_u8(&c);
    uint8_t zero = lh_get_u8(&c);
    out->push = lh_get_u64(&c);
    out->portion = lh_get_u32(&c);
    out->codec.density = lh_get_f32(&c);
    uint32_t extents = lh_get_u32(&c), zeros = lh_get_u32(&c);
    if (c.failed || magic != ask_magic || version != VERSION || zero || zeros)
        return bad("not what is asked of a rank");
    LH_TRY(read_extents(&c, out, extents));
    if (c.failed || lh_left(&c) != out->layout.values * sizeof(float)) return bad("a wrong length");
    if (!out->values) out->values = malloc(WK_ENCODING_VALUES * sizeof *out->values);
    if (!out->values) return lh_fail(LH_ERR_NO_MEMORY, "a portion of a push");
    lh_get_into(&c, out->values, out->layout.values * sizeof(float));
    return LH_OK;
}

void wk_encoding_ask_free(struct wk_encoding_ask *ask)
{
    free(ask->values);
    ask->values = NULL;
}

void wk_encoding_answer_put(struct lh_buf *out, const struct wk_encoding_answer *a)
{
    LH_ASSERT(a->fine == (a->payload.len > 0));
    lh_put_u32(out, answer_magic);
    lh_put_u8(out, VERSION);
    lh_put_u8(out, a->fine);
    lh_put_u16(out, 0);
    lh_put_u64(out, a->push);
    lh_put_u32(out, a->portion);
    lh_put_u32(out, 0);
    lh_put(out, a->payload.data, a->payload.len);
}

lh_err wk_encoding_answer_get(struct lh_span bytes, struct wk_encoding_answer *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    uint32_t magic = lh_get_u32(&c);
    uint8_t version = lh_get_u8(&c), fine = lh_get_u8(&c);
    uint16_t zero = lh_get_u16(&c);
    *out = (struct wk_encoding_answer){.push = lh_get_u64(&c)};
    out->portion = lh_get_u32(&c);
    uint32_t zeros = lh_get_u32(&c);
    if (c.failed || magic != answer_magic || version != VERSION || fine > 1 || zero || zeros)
        return bad("not a rank's answer");
    out->fine = fine == 1;
    out->payload = lh_get(&c, lh_left(&c));
    return out->fine == (out->payload.len > 0) ? LH_OK : bad("a payload that is none");
}
