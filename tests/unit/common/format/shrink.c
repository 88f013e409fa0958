// common/format/shrink.c: a shrunk block comes back, a block that would gain too little stays as it
// is, and a frame with wrong contents is refused, whoever sent it.
#include <stdlib.h>
#include <string.h>

#include "common/format/shrink.h"
#include "tests/test.h"

enum { BYTES = 9 << 20 }; // more than two lz4 blocks

static uint8_t *text(size_t n)
{
    static const char words[] = "the tokens of a text are two bytes each ";
    uint8_t *out = calloc(n + 1, 1);
    assert_non_null(out);
    for (size_t i = 0; i < n; i += 2) out[i] = (uint8_t)words[i / 2 % (sizeof words - 1)];
    return out;
}

static uint8_t *noise(size_t n)
{
    uint8_t *out = malloc(n + 1);
    uint64_t x = 88172645463325252u;
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out[i] = (uint8_t)x;
    }
    return out;
}

static struct lh_buf shrunk(const uint8_t *bytes, size_t n)
{
    struct lh_buf out = lh_buf(SIZE_MAX / 2);
    assert_int_equal(lh_shrink(lh_span(bytes, n), &out), LH_OK);
    return out;
}

TEST(compressed_bytes_decompress_unchanged)
{
    const size_t sizes[] = {100, 1000, 65536, 65537, BYTES};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        uint8_t *in = text(n), *back = malloc(n);
        struct lh_buf small = shrunk(in, n);
        assert_non_null(back);
        assert_true(small.len > 0 && small.len < n / 100 * 95 + 95);
        assert_int_equal(lh_unshrink(lh_buf_span(&small), back, n), LH_OK);
        assert_memory_equal(back, in, n);
        lh_buf_free(&small);
        free(back);
        free(in);
    }
}

TEST(bytes_that_compress_too_little_are_left_alone)
{
    uint8_t *in = noise(100000);
    struct lh_buf out = shrunk(in, 100000);
    assert_int_equal(out.len, 0);
    memset(in, 0, 4000); // 4 % gain
    lh_buf_free(&out);
    out = shrunk(in, 100000);
    assert_int_equal(out.len, 0);
    memset(in, 0, 6000); // 6 % gain
    lh_buf_free(&out);
    out = shrunk(in, 100000);
    assert_true(out.len > 90000 && out.len <= 95000);
    lh_buf_free(&out);
    out = shrunk(in, 0);
    assert_int_equal(out.len, 0);
    lh_buf_free(&out);
    free(in);
}

TEST(a_frame_holds_exactly_what_it_should)
{
    uint8_t *in = text(100000), *back = malloc(100002);
    struct lh_buf small = shrunk(in, 100000);
    assert_non_null(back);
    back[99999] = 0xa5;
    assert_int_equal(lh_unshrink(lh_buf_span(&small), back, 99999), LH_ERR_MALFORMED);
    assert_int_equal(back[99999], 0xa5); // nothing is written past the end
    assert_int_equal(lh_unshrink(lh_buf_span(&small), back, 100001), LH_ERR_MALFORMED);
    assert_int_equal(lh_unshrink(lh_span(small.data, small.len - 1), back, 100000),
                     LH_ERR_MALFORMED);
    assert_int_equal(lh_unshrink(lh_span(small.data, 0), back, 100000), LH_ERR_MALFORMED);
    lh_put_u8(&small, 0);
    assert_int_equal(lh_unshrink(lh_buf_span(&small), back, 100000), LH_ERR_MALFORMED);
    assert_int_equal(lh_unshrink(lh_span(in, 1000), back, 100000), LH_ERR_MALFORMED);
    lh_buf_free(&small);
    free(back);
    free(in);
}
