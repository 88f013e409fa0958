// Frames and their stubs: an accepted one encodes to the same bytes.
#include "common/base/check.h"
#include "common/format/frame.h"
#include "tests/fuzz/fuzz.h"

static void check_head(const struct lh_frame *f, struct lh_span head)
{
    struct lh_buf again = lh_buf(1 << 12);
    lh_frame_write_head(f, &again);
    LH_ASSERT(lh_span_equal(lh_buf_span(&again), head));
    lh_buf_free(&again);
}

static void check_whole(struct lh_span bytes, const struct lh_frame *f,
                        const struct lh_frame_parts *parts)
{
    LH_ASSERT(parts->head.len + parts->sealed.len == bytes.len);
    LH_ASSERT(parts->sealed.len == f->plain_bytes + (size_t)LH_SEAL_TAG_BYTES);
    check_head(f, parts->head);

    struct lh_buf stub = lh_buf(1 << 12);
    struct lh_frame same;
    lh_frame_write_stub(bytes, f, &stub);
    lh_err err = lh_frame_parse_stub(lh_buf_span(&stub), &same);
    LH_ASSERT(err == LH_OK);
    struct lh_digest a = lh_frame_digest(bytes, f);
    struct lh_digest b = lh_frame_digest(lh_buf_span(&stub), &same);
    LH_ASSERT(lh_digest_equal(&a, &b));
    lh_buf_free(&stub);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    struct lh_span bytes = lh_span(data, size);

    lh_err err = lh_frame_parse(bytes, &f, &parts);
    if (!err)
        check_whole(bytes, &f, &parts);
    else
        LH_ASSERT(err == LH_ERR_MALFORMED || err == LH_ERR_VERSION);

    err = lh_frame_parse_stub(bytes, &f);
    if (!err) check_head(&f, lh_span(data, lh_frame_head_bytes(&f)));
    return 0;
}
