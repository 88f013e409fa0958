// Encoding on several threads gives the bytes, residual and figures of one thread, for every codec
// and wherever a tensor or a part may end.
// labels: tsan
#include "tests/unit/kernels/codec_case.h"

#include "common/base/check.h"
#include "kernels/cpu/codec_walk.h"
#include "tests/test.h"

enum { PART = 16 * LK_GROUP_CHUNKS * LH_CHUNK };

// The second part begins within the first tensor, the third within the fifth; groups span the ends
// of tensors.
static const uint64_t shard[] = {PART + 5000, 3, 1, 4096, PART + 70000, 777, 3 * 4096 + 5, 0};
static const uint32_t threads[] = {2, 7};

static struct lk_codec codec_of(const char *name, float density)
{
    struct lk_codec c = {.density = density};
    assert_int_equal(lk_codec_parse(name, &c), LH_OK);
    return c;
}

static float *copy_of(const float *x, uint64_t n)
{
    float *y = malloc((n ? n : 1) * sizeof *y);
    assert_non_null(y);
    memcpy(y, x, n * sizeof *x);
    return y;
}

struct encoded {
    float *e;
    struct lh_buf out;
    struct lk_payload_info info;
};

static struct encoded encode(uint32_t count, const struct lk_codec *codec,
                             const struct lh_shard_layout *l, const float *e)
{
    struct encoded x = {copy_of(e, l->values), lh_buf(lk_payload_max(codec, l) + 3), {0}};
    lh_put(&x.out, "abc", 3); // encoding must append
    assert_int_equal(lk_encode_on(count, codec, l, x.e, &x.out, &x.info), LH_OK);
    return x;
}

static void drop(struct encoded *x)
{
    free(x->e);
    lh_buf_free(&x->out);
}

static void compare(const struct lk_codec *codec, const struct lh_shard_layout *l, const float *e)
{
    struct encoded one = encode(1, codec, l, e);
    for (size_t i = 0; i < LH_COUNT(threads); i++) {
        struct encoded many = encode(threads[i], codec, l, e);
        assert_int_equal(one.out.len, many.out.len);
        assert_memory_equal(one.out.data, many.out.data, one.out.len);
        assert_memory_equal(one.e, many.e, l->values * sizeof *e);
        assert_memory_equal(&one.info, &many.info, sizeof one.info);
        drop(&many);
    }
    drop(&one);
}

TEST(several_threads_give_the_bytes_of_one)
{
    struct layout_case c;
    case_layout(&c, shard);
    float *e = case_fill(CASE_TIES, c.layout.values, 1);
    for (size_t n = 0; lk_codec_word(n); n++) {
        struct lk_codec codec = codec_of(lk_codec_word(n), 64.0f / 4096);
        compare(&codec, &c.layout, e);
    }
    free(e);
    // Scales that differ from chunk to chunk, and another density.
    struct lk_codec codec = codec_of("topk-sign", 0.3f);
    e = case_fill(CASE_STEPS, c.layout.values, 3);
    compare(&codec, &c.layout, e);
    free(e);
}

static size_t parts_of(uint32_t count, const char *name, const uint64_t *lens)
{
    struct layout_case c;
    struct lk_codec codec = codec_of(name, 0.1f);
    struct lk_coding coding;
    struct lk_sizes sizes;
    struct lk_parts parts;
    case_layout(&c, lens);
    assert_int_equal(lk_coding_of(&codec, &coding), LH_OK);
    lk_measure(&coding, &c.layout, &sizes);
    lk_parts_create(count, &coding, &sizes, &c.layout, &parts);
    size_t is = parts.count;
    lk_parts_free(&parts);
    return is;
}

// Without this, the tests above might compare one thread with itself.
TEST(there_is_more_than_one_part)
{
    static const uint64_t just[] = {PART, 0}, over[] = {PART, 1, 0};
    assert_int_equal(parts_of(2, "topk-sign", shard), 3);
    assert_int_equal(parts_of(2, "dense-q4", shard), 3);
    assert_int_equal(parts_of(2, "topk-sign", over), 2);
    assert_int_equal(parts_of(2, "topk-sign", just), 0);
    assert_int_equal(parts_of(1, "topk-sign", shard), 0);
}

TEST(a_value_that_is_not_finite_changes_nothing)
{
    struct layout_case c;
    struct lk_codec codec = codec_of("topk-sign", 64.0f / 4096);
    case_layout(&c, shard);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
    const struct lh_extent *x = &c.layout.extent[4];
    e[x->offset + 500000] = NAN;
    float *before = copy_of(e, c.layout.values);
    struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout));
    assert_int_equal(lk_encode_on(3, &codec, &c.layout, e, &out, NULL), LH_ERR_NON_FINITE);
    if (!strstr(lh_err_text(LH_ERR_NON_FINITE), "tensor 11 (extent 4 of shard 3): value 500000"))
        fail_msg("%s", lh_err_text(LH_ERR_NON_FINITE));
    assert_memory_equal(e, before, c.layout.values * sizeof *e);
    assert_int_equal(out.len, 0);
    lh_buf_free(&out);
    free(e);
    free(before);
}

// ---------------------------------------------------------------- fed

struct feeding {
    const float *d;
    uint64_t fails; // the value whose feed fails; UINT64_MAX: none
    _Atomic uint64_t fed;
};

static lh_err feed(void *arg, uint64_t from, uint64_t n, float *e)
{
    struct feeding *f = arg;
    if (f->fails - from < n) return lh_fail(LH_ERR_CORRUPT, "as asked");
    for (uint64_t i = 0; i < n; i++) e[i] = 0.9f * e[i] + f->d[from + i];
    f->fed += n;
    return LH_OK;
}

TEST(a_feed_gives_the_bytes_of_values_that_were_there)
{
    struct layout_case c;
    case_layout(&c, shard);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
    float *d = case_fill(CASE_STEPS, c.layout.values, 2), *whole = copy_of(e, c.layout.values);
    assert_int_equal(feed(&(struct feeding){d, UINT64_MAX, 0}, 0, c.layout.values, whole), LH_OK);
    for (size_t n = 0; lk_codec_word(n); n++)
        for (uint32_t count = 1; count < 4; count++) {
            struct lk_codec codec = codec_of(lk_codec_word(n), 64.0f / 4096);
            struct encoded one = encode(1, &codec, &c.layout, whole);
            struct encoded fed = {copy_of(e, c.layout.values), lh_buf(one.out.max), {0}};
            struct feeding from = {d, UINT64_MAX, 0};
            lh_put(&fed.out, "abc", 3);
            assert_int_equal(lk_encode_fed(count, &codec, &c.layout, &(struct lk_feed){feed, &from},
                                           fed.e, &fed.out, &fed.info),
                             LH_OK);
            assert_int_equal(from.fed, c.layout.values);
            assert_int_equal(one.out.len, fed.out.len);
            assert_memory_equal(one.out.data, fed.out.data, one.out.len);
            assert_memory_equal(one.e, fed.e, c.layout.values * sizeof *e);
            assert_memory_equal(&one.info, &fed.info, sizeof one.info);
            drop(&one);
            drop(&fed);
        }
    free(e);
    free(d);
    free(whole);
}

TEST(a_feed_that_fails_is_the_encodings_error)
{
    struct layout_case c;
    struct lk_codec codec = codec_of("topk-sign", 64.0f / 4096);
    case_layout(&c, shard);
    float *d = case_fill(CASE_GAUSSIAN, c.layout.values, 2);
    const uint64_t last = c.layout.values - 1;
    for (uint32_t count = 1; count < 4; count += 2)
        for (int spoilt = 0; spoilt < 2; spoilt++) {
            float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
            struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout));
            struct feeding from = {d, spoilt ? UINT64_MAX : last, 0};
            if (spoilt) e[last] = INFINITY;
            assert_int_equal(lk_encode_fed(count, &codec, &c.layout, &(struct lk_feed){feed, &from},
                                           e, &out, NULL),
                             spoilt ? LH_ERR_NON_FINITE : LH_ERR_CORRUPT);
            assert_int_equal(out.len, 0);
            lh_buf_free(&out);
            free(e);
        }
    free(d);
}
