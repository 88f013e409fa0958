// The index of the data's manifest. See units_index.h for the file.
#include "common/format/units_index.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/check.h"

enum { VERSION = 1, HASH_AT = 40, SUM_AT = 124 };
static const uint32_t MAGIC = 0x4955484c; // "LHUI"
// The file has these structs in memory layout: a change of one needs a new version.
LH_STATIC_ASSERT(sizeof(struct lh_unit) == 272, "the index has units of 272 bytes");
LH_STATIC_ASSERT(offsetof(struct lh_unit, sha256) == 232, "and their sha256 at 232");
LH_STATIC_ASSERT(offsetof(struct lh_unit, may_leave) == 264, "and may_leave at 264");
LH_STATIC_ASSERT(sizeof(struct lh_heldout) == 192, "the index has heldout files of 192 bytes");

void lh_units_index_head(const struct lh_units *u, uint32_t crc, struct lh_buf *out)
{
    size_t from = out->len;
    lh_put_u32(out, MAGIC);
    lh_put_u32(out, VERSION);
    lh_put_u32(out, sizeof(struct lh_unit));
    lh_put_u32(out, sizeof(struct lh_heldout));
    lh_put_u64(out, u->count);
    lh_put_u32(out, u->heldout_count);
    lh_put_u32(out, u->vocabulary);
    lh_put_u32(out, u->token_bytes);
    lh_put_u32(out, crc);
    lh_put(out, u->hash.b, LH_HASH_BYTES);
    lh_put_zeros(out, SUM_AT - HASH_AT - LH_HASH_BYTES);
    if (!out->err) lh_put_u32(out, lh_crc32c(0, out->data + from, SUM_AT));
}

static lh_err is_none(const char *why)
{
    return lh_fail(LH_ERR_MALFORMED, "units: the index %s", why);
}

static lh_err read_head(struct lh_units *u, struct lh_span index, uint32_t *crc)
{
    struct lh_cursor c = lh_cursor(index);
    uint32_t magic = lh_get_u32(&c), version = lh_get_u32(&c);
    uint32_t unit = lh_get_u32(&c), heldout = lh_get_u32(&c);
    u->count = lh_get_u64(&c);
    u->heldout_count = lh_get_u32(&c);
    u->vocabulary = lh_get_u32(&c);
    u->token_bytes = lh_get_u32(&c);
    *crc = lh_get_u32(&c);
    lh_get_into(&c, u->hash.b, LH_HASH_BYTES);
    (void)lh_get(&c, SUM_AT - HASH_AT - LH_HASH_BYTES);
    uint32_t sum = lh_get_u32(&c);
    if (c.failed || magic != MAGIC || sum != lh_crc32c(0, index.data, SUM_AT))
        return is_none("has no header");
    if (version != VERSION || unit != sizeof(struct lh_unit) ||
        heldout != sizeof(struct lh_heldout))
        return is_none("is of another version");
    LH_TRY(lh_units_check_head(u));
    uint64_t bytes = u->count * unit + (uint64_t)u->heldout_count * heldout;
    if (index.len - LH_UNITS_INDEX_HEADER != bytes) return is_none("has another size");
    return LH_OK;
}

static lh_err check_entries(const struct lh_units *u)
{
    for (uint64_t i = 0; i < u->count; i++) {
        uint8_t flag; // a bool that is neither 0 nor 1 must not be read as one
        memcpy(&flag, (const uint8_t *)&u->unit[i] + offsetof(struct lh_unit, may_leave), 1);
        if (flag > 1) return is_none("has a unit that can't be read");
        LH_TRY(lh_unit_check(&u->unit[i], i));
    }
    for (uint32_t i = 0; i < u->heldout_count; i++) LH_TRY(lh_heldout_check(u, i));
    return LH_OK;
}

lh_err lh_units_index_read(struct lh_units *u, struct lh_span index, const struct lh_hash *hash)
{
    struct lh_units out = {0};
    uint32_t crc;
    *u = out;
    LH_TRY(read_head(&out, index, &crc));
    if (!lh_hash_equal(&out.hash, hash)) return is_none("is of another units.json");
    const uint8_t *at = index.data + LH_UNITS_INDEX_HEADER;
    if (crc != lh_crc32c(0, at, index.len - LH_UNITS_INDEX_HEADER)) return is_none("is damaged");
    out.unit = (struct lh_unit *)(uintptr_t)at; // never written
    out.heldout = (struct lh_heldout *)(out.unit + out.count);
    LH_TRY(check_entries(&out));
    *u = out;
    return LH_OK;
}
