// Encodes and decodes the messages between a region's ranks. See region_message.h.
//
// Little endian:
//   0 u32 magic "WRGN"    4 u8 version 8   5 u8 kind   6 u8 rank   7 u8 share
//   (0, 1) 8 u32 nccl           12 u32 bytes of the payload
//  16 u64 life           24 u64 epoch     32 u64 step  40 u64 digest
//  48 u64 members        56 u64 bytes of a bucket of the sum
//  64 u8 sums in bf16 (0, 1)         65 u8 trains on a GPU (0, 1)       66 6 zeros
//  72 128 the communicator's id     200 the payload
//
// All ranks of a region run one version of Longhaul; a message of another version is refused.
//
// A message is accepted whole or refused: kinds, ranks and lengths are checked before any field is
// used.
#include "worker/ranks/region_message.h"

#include <string.h>

#include "common/base/check.h"

static const uint32_t magic = 0x4e475257;
enum { VERSION = 8, ZEROS = 6 };

LH_STATIC_ASSERT(WK_RANKS_MAX == 64, "a member is a bit of 64");

void wk_region_message_put(struct lh_buf *out, const struct wk_region_message *m)
{
    LH_ASSERT(m->payload.len <= WK_REGION_PAYLOAD_BYTES && m->rank < WK_RANKS_MAX);
    lh_put_u32(out, magic);
    lh_put_u8(out, VERSION);
    lh_put_u8(out, (uint8_t)m->kind);
    lh_put_u8(out, (uint8_t)m->rank);
    lh_put_u8(out, m->share);
    lh_put_u32(out, m->nccl);
    lh_put_u32(out, (uint32_t)m->payload.len);
    lh_put_u64(out, m->life);
    lh_put_u64(out, m->epoch);
    lh_put_u64(out, m->step);
    lh_put_u64(out, m->digest);
    lh_put_u64(out, m->members);
    lh_put_u64(out, m->bucket_bytes);
    lh_put_u8(out, m->sum == WK_SUM_BF16);
    lh_put_u8(out, m->cuda);
    lh_put_zeros(out, ZEROS);
    lh_put(out, m->id.bytes, sizeof m->id.bytes);
    lh_put(out, m->payload.data, m->payload.len);
}

static lh_err bad(const char *what)
{
    return lh_fail(LH_ERR_MALFORMED, "a message between ranks: %s", what);
}

lh_err wk_region_message_get(struct lh_span bytes, struct wk_region_message *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    uint8_t zeros[ZEROS], none[ZEROS] = {0};
    uint32_t is = lh_get_u32(&c);
    uint8_t version = lh_get_u8(&c), kind = lh_get_u8(&c), rank = lh_get_u8(&c);
    uint8_t share = lh_get_u8(&c);
    *out = (struct wk_region_message){.rank = rank, .share = share == 1};
    out->nccl = lh_get_u32(&c);
    uint32_t payload = lh_get_u32(&c);
    out->life = lh_get_u64(&c);
    out->epoch = lh_get_u64(&c);
    out->step = lh_get_u64(&c);
    out->digest = lh_get_u64(&c);
    out->members = lh_get_u64(&c);
    out->bucket_bytes = lh_get_u64(&c);
    uint8_t narrow = lh_get_u8(&c), cuda = lh_get_u8(&c);
    out->sum = narrow ? WK_SUM_BF16 : WK_SUM_FP32;
    out->cuda = cuda == 1;
    lh_get_into(&c, zeros, sizeof zeros);
    lh_get_into(&c, out->id.bytes, sizeof out->id.bytes);
    if (c.failed) return bad("it ends too soon");
    if (is != magic || version != VERSION)
        return bad("not of version 8: give all ranks of a region the same version of Longhaul");
    if (kind < WK_REGION_HELLO || kind >= WK_REGION_KINDS) return bad("no such kind");
    if (rank >= WK_RANKS_MAX || share > 1) return bad("no such rank");
    if (narrow > 1) return bad("no such sum");
    if (cuda > 1) return bad("no such backend");
    if (memcmp(zeros, none, sizeof zeros) != 0) return bad("bytes that must be zero");
    if (payload != lh_left(&c) || payload > WK_REGION_PAYLOAD_BYTES) return bad("a wrong length");
    out->kind = (enum wk_region_kind)kind;
    out->payload = lh_get(&c, payload);
    return LH_OK;
}
