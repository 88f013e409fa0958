// Damaged payloads: the error text names each fault, no flipped bit makes a reader leave its
// bounds, and the naive reader agrees on every payload that is accepted.
#include "tests/unit/kernels/codec_case.h"

#include "common/base/check.h"
#include "tests/test.h"

static const uint64_t small[] = {300, 21, 0};

struct made {
    struct layout_case c;
    struct lk_codec codec;
    struct lh_buf payload;
};

static void make(struct made *m, const char *name, const uint64_t *lens)
{
    case_layout(&m->c, lens);
    m->codec.density = 0.05f;
    assert_int_equal(lk_codec_parse(name, &m->codec), LH_OK);
    m->payload = lh_buf(lk_payload_max(&m->codec, &m->c.layout));
    float *e = case_fill(CASE_GAUSSIAN, m->c.layout.values, 9);
    assert_int_equal(lk_encode(&m->codec, &m->c.layout, e, &m->payload, NULL), LH_OK);
    if (!m->payload.data) abort(); // cannot happen; tells the static analyzer
    free(e);
}

static lh_err check_bytes(const struct made *m, const uint8_t *data, size_t n)
{
    // exact length, so that a sanitizer sees a read past the end
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    if (n) memcpy(exact, data, n);
    struct lk_payload_info info;
    lh_err err = lk_payload_check(&m->codec, &m->c.layout, lh_span(exact, n), &info);
    free(exact);
    return err;
}

// Flips bits of one byte; expects error `code` with a text that contains `why`.
static void expect(const struct made *m, size_t at, uint8_t turn, lh_err code, const char *why)
{
    assert_true(at < m->payload.len);
    m->payload.data[at] ^= turn;
    assert_int_equal(check_bytes(m, m->payload.data, m->payload.len), code);
    if (!strstr(lh_err_text(code), why)) fail_msg("\"%s\" has no \"%s\"", lh_err_text(code), why);
    m->payload.data[at] ^= turn;
    assert_int_equal(check_bytes(m, m->payload.data, m->payload.len), LH_OK);
}

TEST(headers)
{
    for (size_t n = 0; lk_codec_word(n); n++) {
        struct made m;
        make(&m, lk_codec_word(n), small);
        expect(&m, 0, 2, LH_ERR_MALFORMED, "version");
        expect(&m, 1, 1, LH_ERR_MALFORMED, "codec");
        expect(&m, 2, 8, LH_ERR_MALFORMED, "codec");
        expect(&m, 3, 16, LH_ERR_MALFORMED, "Rice parameter");
        expect(&m, 4, 1, LH_ERR_MALFORMED, "flags");
        expect(&m, 7, 128, LH_ERR_MALFORMED, "flags");
        expect(&m, 8, 1, LH_ERR_MALFORMED, "density");
        expect(&m, 12, 1, LH_ERR_MALFORMED, "chunks");
        expect(&m, 23, 1, LH_ERR_MALFORMED, "values");
        lh_buf_free(&m.payload);
    }
}

TEST(values)
{
    struct made m;
    make(&m, "topk-sign", small); // k = 15 and 1; b = 4: records of 2+10 and 2+1 bytes at 26, 38
    expect(&m, 27, 0x80, LH_ERR_MALFORMED, "negative");
    uint8_t high = m.payload.data[27];
    expect(&m, 27, (uint8_t)(high ^ 0x7c), LH_ERR_NON_FINITE, "chunk 0: centroid");
    expect(&m, 37, 0x80, LH_ERR_MALFORMED, "padding"); // 75 bits in 10 bytes
    expect(&m, 24, 1, LH_ERR_MALFORMED, "");           // length of the group's index stream
    expect(&m, 41, m.payload.data[41], LH_ERR_MALFORMED, "index");
    lh_buf_free(&m.payload);

    make(&m, "topk-fp32", small); // 15 fields of 4 bits: 8 bytes, then values at 26 + 8
    uint8_t top = m.payload.data[37], next = m.payload.data[36];
    m.payload.data[36] |= 0x80;
    assert_int_equal(check_bytes(&m, m.payload.data, m.payload.len), LH_OK);
    expect(&m, 37, (uint8_t)((top ^ 0x7f) & 0x7f), LH_ERR_NON_FINITE, "chunk 0: a value");
    m.payload.data[36] = next;
    expect(&m, 33, 0xf0, LH_ERR_MALFORMED, "padding");
    lh_buf_free(&m.payload);

    make(&m, "dense-sign", small); // 2 + 38 bytes at 24, 300 = 8*37 + 4
    expect(&m, 24 + 39, 0x10, LH_ERR_MALFORMED, "padding");
    lh_buf_free(&m.payload);

    make(&m, "dense-q4", small); // 2 + 150 bytes, then 2 + 11 with half a byte empty
    expect(&m, 24 + 152 + 12, 0x10, LH_ERR_MALFORMED, "padding");
    uint8_t level = m.payload.data[30];
    expect(&m, 30, (uint8_t)(level ^ ((level & 0xf0) | 8)), LH_ERR_MALFORMED, "-8");
    lh_buf_free(&m.payload);
}

// Puts a code of 4 or 16 bits into the first field: after its 4 bits of gap if `gap`, else at its
// start.
static void put_code(uint8_t *field, unsigned bits, unsigned code, bool gap)
{
    for (unsigned i = 0, at = gap ? 4 : 0; i < bits; i++, at++) {
        field[at / 8] &= (uint8_t) ~(1u << at % 8);
        field[at / 8] |= (uint8_t)((code >> i & 1) << at % 8);
    }
}

// Codes that no encoder writes, with an index (b is 4 for 15 of 300) and without one.
TEST(codes_that_are_none)
{
    static const struct {
        const char *name;
        size_t field; // offset of the first field
        unsigned bits, code;
        lh_err wanted;
    } cases[] = {
        {"topk-q4", 28, 4, 8, LH_ERR_MALFORMED},
        {"topk-fp16", 26, 16, 0x7c00, LH_ERR_NON_FINITE},
        {"topk-fp16", 26, 16, 0xfe01, LH_ERR_NON_FINITE},
        {"dense-q4", 26, 4, 8, LH_ERR_MALFORMED},
    };
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        struct made m;
        make(&m, cases[i].name, small);
        bool gap = m.codec.index != LK_INDEX_DENSE;
        uint8_t *field = m.payload.data + cases[i].field;
        put_code(field, cases[i].bits, 5, gap);
        assert_int_equal(check_bytes(&m, m.payload.data, m.payload.len), LH_OK);
        put_code(field, cases[i].bits, cases[i].code, gap);
        assert_int_equal(check_bytes(&m, m.payload.data, m.payload.len), cases[i].wanted);
        const char *why = cases[i].wanted == LH_ERR_MALFORMED ? "level" : "not finite";
        assert_non_null(strstr(lh_err_text(cases[i].wanted), why));
        lh_buf_free(&m.payload);
    }
}

TEST(every_cut_and_every_longer_one)
{
    for (size_t n = 0; lk_codec_word(n); n++) {
        struct made m;
        make(&m, lk_codec_word(n), small);
        size_t len = m.payload.len;
        uint8_t *longer = calloc(len + 9, 1);
        assert_non_null(longer);
        memcpy(longer, m.payload.data, len);
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(check_bytes(&m, longer, cut), LH_ERR_MALFORMED);
        assert_int_equal(check_bytes(&m, longer, len), LH_OK);
        for (size_t more = 1; more < 10; more++)
            assert_int_equal(check_bytes(&m, longer, len + more), LH_ERR_MALFORMED);
        free(longer);
        lh_buf_free(&m.payload);
    }
}

// One surplus byte in the index stream, counted in the table: indices have one encoding only.
TEST(a_stream_longer_than_needed)
{
    struct made m;
    make(&m, "topk-sign", small);
    size_t len = m.payload.len;
    uint8_t longer[512] = {0};
    assert_true(len < sizeof longer);
    memcpy(longer, m.payload.data, len);
    longer[24]++;
    assert_int_equal(check_bytes(&m, longer, len + 1), LH_ERR_MALFORMED);
    assert_non_null(strstr(lh_err_text(LH_ERR_MALFORMED), "surplus indices"));
    longer[len] = 1; // a set bit in the surplus byte
    assert_int_equal(check_bytes(&m, longer, len + 1), LH_ERR_MALFORMED);
    lh_buf_free(&m.payload);
}

// Reads an accepted payload again, with the naive reader and by folding it into an array of the
// exact length.
static void expect_agreement(const struct made *m)
{
    struct naive got;
    naive_read(&got, &m->codec, &m->c.layout, m->payload.data);
    assert_false(got.bad);
    assert_int_equal(got.bytes, m->payload.len);
    float *theta = calloc(m->c.layout.values, sizeof *theta);
    assert_non_null(theta);
    assert_int_equal(lk_fold(&m->codec, &m->c.layout, lh_buf_span(&m->payload), -1, theta), LH_OK);
    for (uint64_t i = 0; i < m->c.layout.values; i++) assert_true(theta[i] == got.q[i]);
    free(theta);
    naive_free(&got);
}

TEST(every_bit_turned)
{
    for (size_t n = 0; lk_codec_word(n); n++) {
        struct made m;
        make(&m, lk_codec_word(n), small);
        size_t accepted = 0;
        for (size_t bit = 0; bit < 8 * m.payload.len; bit++) {
            m.payload.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            lh_err err = check_bytes(&m, m.payload.data, m.payload.len);
            assert_true(err == LH_OK || err == LH_ERR_MALFORMED || err == LH_ERR_NON_FINITE);
            if (bit < 24 * 8) assert_int_not_equal(err, LH_OK);
            accepted += err == LH_OK;
            if (err == LH_OK) expect_agreement(&m);
            m.payload.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_true(accepted > 0); // some flips only give another valid value or sign
        lh_buf_free(&m.payload);
    }
}

// Random bytes over many groups and chunks, so that streams end early or overrun.
TEST(noise)
{
    static const uint64_t lens[] = {4096 * 20, 100, 0};
    uint64_t seed = 11;
    struct made m;
    make(&m, "topk-sign", lens);
    uint8_t *good = malloc(m.payload.len + 1);
    assert_non_null(good);
    memcpy(good, m.payload.data, m.payload.len);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 1 + round % 20; i++)
            m.payload.data[case_random(&seed) % m.payload.len] = (uint8_t)case_random(&seed);
        if (check_bytes(&m, m.payload.data, m.payload.len) == LH_OK) expect_agreement(&m);
        memcpy(m.payload.data, good, m.payload.len);
    }
    expect_agreement(&m);
    free(good);
    lh_buf_free(&m.payload);
}

// Payloads of another shard, another density and another codec.
TEST(payloads_of_others)
{
    static const uint64_t other[] = {400, 21, 0};
    for (size_t n = 0; lk_codec_word(n); n++) {
        struct made m;
        make(&m, lk_codec_word(n), other);
        case_layout(&m.c, small);
        assert_int_equal(check_bytes(&m, m.payload.data, m.payload.len), LH_ERR_MALFORMED);
        case_layout(&m.c, other);
        assert_int_equal(check_bytes(&m, m.payload.data, m.payload.len), LH_OK);
        m.codec.density = 0.051f;
        bool dense = m.codec.index == LK_INDEX_DENSE; // dense codecs have no density
        assert_int_equal(check_bytes(&m, m.payload.data, m.payload.len),
                         dense ? LH_OK : LH_ERR_MALFORMED);
        const char *next = lk_codec_word(n + 1) ? lk_codec_word(n + 1) : lk_codec_word(0);
        assert_int_equal(lk_codec_parse(next, &m.codec), LH_OK);
        assert_int_equal(check_bytes(&m, m.payload.data, m.payload.len), LH_ERR_MALFORMED);
        lh_buf_free(&m.payload);
    }
}
