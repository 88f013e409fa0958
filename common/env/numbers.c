// Small files of numbers. Layout: numbers.h.
#include "common/env/numbers.h"

#include <string.h>

#include "common/base/check.h"

enum { FRAME = 12, BYTES_MAX = FRAME + 8 * LH_NUMBERS_MAX };

static bool parse(const struct lh_numbers *kind, struct lh_span bytes,
                  uint64_t number[LH_NUMBERS_MAX])
{
    struct lh_cursor c = lh_cursor(bytes);
    uint32_t magic = lh_get_u32(&c);
    uint16_t version = lh_get_u16(&c);
    (void)lh_get_u16(&c);
    if (c.failed || magic != kind->magic || version != kind->version) return false;
    for (int i = 0; i < kind->count; i++) number[i] = lh_get_u64(&c);
    uint32_t sum = lh_crc32c(0, bytes.data, (size_t)(c.at - bytes.data));
    return lh_get_u32(&c) == sum && !c.failed && !lh_left(&c);
}

lh_err lh_numbers_load(struct lh_env *e, const struct lh_numbers *kind, const char *path,
                       uint64_t *out)
{
    uint64_t number[LH_NUMBERS_MAX] = {0};
    struct lh_buf b = lh_buf(BYTES_MAX);
    lh_err err = lh_file_load(e, path, &b);
    if (err == LH_ERR_TOO_LARGE || (!err && !parse(kind, lh_buf_span(&b), number)))
        err = lh_fail(LH_ERR_CORRUPT, "%s is damaged; %s", path, kind->remedy);
    lh_buf_free(&b);
    if (!err) memcpy(out, number, kind->count * sizeof *out);
    return err;
}

lh_err lh_numbers_store(struct lh_env *e, const struct lh_numbers *kind, const char *path,
                        const uint64_t *number)
{
    LH_ASSERT(kind->count <= LH_NUMBERS_MAX);
    uint8_t bytes[BYTES_MAX];
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    lh_put_u32(&b, kind->magic);
    lh_put_u16(&b, kind->version);
    lh_put_u16(&b, 0);
    for (int i = 0; i < kind->count; i++) lh_put_u64(&b, number[i]);
    lh_put_u32(&b, lh_crc32c(0, b.data, b.len));
    LH_TRY(lh_buf_err(&b));
    return kind->secret ? lh_file_replace_secret(e, path, lh_buf_span(&b))
                        : lh_file_replace(e, path, lh_buf_span(&b));
}
