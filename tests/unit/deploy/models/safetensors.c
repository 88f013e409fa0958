// deploy/models/safetensors.c: every valid file is read, any other is refused with the tensor's
// name, and 10,000 randomly mutated headers do no harm.
#include <string.h>

#include "deploy/models/safetensors.h"
#include "tests/test.h"
#include "tests/unit/deploy/models/folders.h"

static lh_err parse(const char *header, uint64_t data_bytes, struct dp_st *out)
{
    return dp_st_parse("f", lh_span_str(header), data_bytes, out);
}

static void refused(const char *header, uint64_t data_bytes, lh_err wanted, const char *text)
{
    struct dp_st st;
    lh_err err = parse(header, data_bytes, &st);
    assert_int_equal(err, wanted);
    assert_true(folders_says(err, text));
    assert_null(st.tensor);
    assert_null(st.root);
}

#define ONE(name, dtype, shape, from, to)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]" \
    "}"
#define A ONE("a", "F32", "[2,3]", "0", "24")

TEST(every_allowed_header_is_read)
{
    struct dp_st st;
    assert_int_equal(parse("{\"__metadata__\":{\"format\":\"pt\"}," ONE("b", "BF16", "[4]", "24",
                                                                        "32") "," A "}   ",
                           32, &st),
                     LH_OK);
    assert_int_equal(st.tensors, 2); // sorted by offset, not in the header's order
    assert_string_equal(st.tensor[0].name, "a");
    assert_int_equal(st.tensor[0].values, 6);
    assert_int_equal(st.tensor[1].at, 24);
    assert_int_equal(st.tensor[1].dtype, DP_DTYPE_BF16);
    dp_st_free(&st);

    assert_int_equal(parse("{" ONE("e", "F32", "[0,4611686018427387904,4]", "0",
                                   "0") "," ONE("s", "F64", "[]", "0", "8") "}",
                           8, &st),
                     LH_OK); // a tensor without values, and a scalar
    assert_int_equal(st.tensor[0].values, 0);
    assert_int_equal(st.tensor[1].values, 1);
    assert_int_equal(st.tensor[1].dims, 0);
    dp_st_free(&st);

    assert_int_equal(
        parse("{" ONE("h", "F4", "[2]", "0", "1") "," ONE("z", "U8", "[1]", "1", "2") "}", 2, &st),
        LH_OK);
    dp_st_free(&st);
    assert_int_equal(parse("{}", 0, &st), LH_OK);
    assert_int_equal(st.tensors, 0);
    dp_st_free(&st);
}

TEST(places_that_are_wrong_are_refused)
{
    refused("{" A "}", 23, LH_ERR_MALFORMED, "tensor a ends at byte 24 of 23");
    refused("{" A "}", 25, LH_ERR_MALFORMED, "end at byte 24 of 25");
    refused("{" A "," ONE("b", "U8", "[2]", "23", "25") "}", 25, LH_ERR_MALFORMED,
            "tensor b begins at byte 23, inside of tensor a");
    refused("{" A "," ONE("b", "U8", "[2]", "0", "2") "}", 24, LH_ERR_MALFORMED, "inside of");
    refused("{" A "," ONE("b", "U8", "[2]", "25", "27") "}", 27, LH_ERR_MALFORMED,
            "a hole before tensor b");
    refused("{" ONE("a", "U8", "[1]", "1", "2") "}", 2, LH_ERR_MALFORMED, "a hole before tensor a");
    refused("{" ONE("a", "U8", "[1]", "0", "2") "}", 2, LH_ERR_MALFORMED, "need 1 bytes");
    refused("{" ONE("a", "U8", "[2]", "2", "0") "}", 2, LH_ERR_MALFORMED, "ascending");
    refused("{" ONE("a", "U8", "[2]", "-2", "0") "}", 2, LH_ERR_MALFORMED, "ascending");
    refused("{" ONE("a", "U8", "[2]", "0", "2.0") "}", 2, LH_ERR_MALFORMED, "whole");
    refused("{" ONE("a", "U8", "[2]", "0", "2,3") "}", 3, LH_ERR_MALFORMED, "[from, to]");
    refused("{" ONE("a", "U8", "[2]", "0", "18446744073709551615") "}", 2, LH_ERR_MALFORMED,
            "too big integer");
}

TEST(shapes_that_are_wrong_are_refused)
{
    refused("{" ONE("a", "F32", "[1099511627776,1099511627776]", "0", "0") "}", 0, LH_ERR_TOO_LARGE,
            "tensor a: its shape has more than 2^56");
    refused("{" ONE("a", "F64", "[9223372036854775807]", "0", "8") "}", 8, LH_ERR_TOO_LARGE,
            "2^56");
    refused("{" ONE("a", "U8", "[-1]", "0", "1") "}", 1, LH_ERR_MALFORMED, "dimension 0");
    refused("{" ONE("a", "U8", "[1,true]", "0", "1") "}", 1, LH_ERR_MALFORMED, "dimension 1");
    refused("{" ONE("a", "U8", "{}", "0", "1") "}", 1, LH_ERR_MALFORMED, "\"shape\"");
    refused("{" ONE("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, LH_ERR_MALFORMED,
            "at most 8 dimensions");
    refused("{" ONE("a", "F4", "[3]", "0", "1") "}", 1, LH_ERR_MALFORMED, "inside a byte");
}

TEST(headers_that_are_wrong_are_refused)
{
    refused("", 0, LH_ERR_MALFORMED, "does not begin with {");
    refused(" {}", 0, LH_ERR_MALFORMED, "does not begin with {");
    refused("[]", 0, LH_ERR_MALFORMED, "does not begin with {");
    refused("{} {}", 0, LH_ERR_MALFORMED, "not JSON");
    refused("{" A "," A "}", 24, LH_ERR_MALFORMED, "duplicate object key");
    refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
            LH_ERR_MALFORMED, "duplicate object key");
    refused("{" ONE("\xff\xfe", "U8", "[1]", "0", "1") "}", 1, LH_ERR_MALFORMED, "decode byte");
    refused("{" ONE("\\u0000", "U8", "[1]", "0", "1") "}", 1, LH_ERR_MALFORMED, "not JSON");
    refused("{" ONE("a", "F31", "[1]", "0", "4") "}", 4, LH_ERR_UNSUPPORTED, "(is it F32?)");
    refused("{" ONE("a", "f32", "[1]", "0", "4") "}", 4, LH_ERR_UNSUPPORTED, "store it as F32");
    refused("{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, LH_ERR_MALFORMED, "no \"dtype\"");
    refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, LH_ERR_MALFORMED, "\"shape\"");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, LH_ERR_MALFORMED, "data_offsets");
    refused("{\"a\":7}", 0, LH_ERR_MALFORMED, "its entry is no object");
    refused("{\"__metadata__\":[]}", 0, LH_ERR_MALFORMED, "object of texts");
    refused("{\"__metadata__\":{\"k\":1}}", 0, LH_ERR_MALFORMED, "\"k\" must be a text");
}

// Otherwise a hundred megabytes of JSON could take gigabytes of memory.
TEST(more_entries_than_tensors_need_are_refused_unread)
{
    struct dp_st st;
    struct lh_buf b = lh_buf(8 << 20);
    lh_put(&b, "{\"a\":[", 6);
    for (int i = 0; i < 1000000; i++) lh_put(&b, "[],", 3);
    lh_put(&b, "[]]}", 4);
    lh_err err = dp_st_parse("f", lh_buf_span(&b), 0, &st);
    assert_int_equal(err, LH_ERR_TOO_LARGE);
    assert_true(folders_says(err, "more entries than"));
    lh_buf_clear(&b); // commas inside a string do not count
    lh_put(&b, "{\"__metadata__\":{\"k\":\"\\\"", 24);
    for (int i = 0; i < 1000000; i++) lh_put(&b, ",[{", 3);
    lh_put(&b, "\"}}", 3);
    assert_int_equal(dp_st_parse("f", lh_buf_span(&b), 0, &st), LH_OK);
    dp_st_free(&st);
    lh_buf_free(&b);
}

TEST(lengths_are_checked_before_anything_is_read)
{
    uint64_t length;
    uint8_t first[8] = {2};
    assert_int_equal(dp_st_length("f", lh_span(first, 8), 10, &length), LH_OK);
    assert_int_equal(length, 2);
    assert_int_equal(dp_st_length("f", lh_span(first, 8), 9, &length), LH_ERR_MALFORMED);
    assert_int_equal(dp_st_length("f", lh_span(first, 7), 7, &length), LH_ERR_MALFORMED);
    memset(first, 255, sizeof first);
    assert_int_equal(dp_st_length("f", lh_span(first, 8), 1 << 30, &length), LH_ERR_TOO_LARGE);
    const uint8_t over[8] = {1, 0xe1, 0xf5, 5}; // 100,000,001
    assert_int_equal(dp_st_length("f", lh_span(over, 8), 1 << 30, &length), LH_ERR_TOO_LARGE);
}

TEST(a_written_header_is_read_back)
{
    struct dp_st_tensor t[] = {
        {.name = "b", .dtype = DP_DTYPE_BF16, .dims = 2, .shape = {3, 5}},
        {.name = "z", .dtype = DP_DTYPE_F32, .dims = 1, .shape = {7}},
        {.name = "a\"/\xc3\xa4", .dtype = DP_DTYPE_F32, .dims = 0},
        {.name = "i", .dtype = DP_DTYPE_I64, .dims = 1, .shape = {1}},
    };
    const char *const order[] = {"i", "a\"/\xc3\xa4", "z", "b"};
    struct lh_buf out = lh_buf(1 << 16);
    struct dp_st st;
    for (size_t i = 0; i < LH_COUNT(t); i++) assert_int_equal(dp_st_measure("f", &t[i]), LH_OK);
    dp_st_sort(t, LH_COUNT(t));
    json_t *about = json_pack("{s:s}", "format", "pt");
    assert_int_equal(dp_st_header(t, LH_COUNT(t), about, &out), LH_OK);
    json_decref(about);
    assert_int_equal(out.len % 8, 0);
    assert_memory_equal(out.data + 8,
                        "{\"__metadata__\":{\"format\":\"pt\"},\"i\":{\"dtype\":"
                        "\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},",
                        84);
    assert_int_equal(dp_st_parse("f", lh_span(out.data + 8, out.len - 8), 8 + 4 + 28 + 30, &st),
                     LH_OK);
    for (uint32_t i = 0; i < LH_COUNT(order); i++) {
        assert_string_equal(st.tensor[i].name, order[i]);
        assert_int_equal(st.tensor[i].at % (dp_dtype_bits(st.tensor[i].dtype) / 8), 0); // aligned
    }
    dp_st_free(&st);
    lh_buf_free(&out);
}

// ---------------------------------------------------------------- random mutations

static uint64_t chance(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
    return (*state >> 33) % below;
}

// Makes one to four changes: a byte, a bit, a piece that is removed, doubled, or copied from
// elsewhere, or a number in another's place.
static void mutate(uint64_t *seed, struct lh_buf *b)
{
    static const char *const bits[] = {"0",          "-1",   "18446744073709551615",
                                       "4294967296", "[]",   "{}",
                                       "\"F64\"",    "null", "1e9",
                                       "\\ud800",    ",",    "\"",
                                       "}",          "\xc0"};
    for (uint64_t n = 1 + chance(seed, 4); n; n--) {
        size_t at = (size_t)chance(seed, b->len), to = (size_t)chance(seed, b->len);
        size_t len = (size_t)chance(seed, 24);
        if (at + len > b->len) len = b->len - at;
        const char *put = bits[chance(seed, LH_COUNT(bits))];
        switch (chance(seed, 5)) {
        case 0: b->data[at] = (uint8_t)chance(seed, 256); break;
        case 1: b->data[at] ^= (uint8_t)(1u << chance(seed, 8)); break;
        case 2:
            if (len + 1 >= b->len) break;
            memmove(b->data + at, b->data + at + len, b->len - at - len);
            b->len -= len;
            break;
        case 3:
            if (to + len <= b->len) memmove(b->data + to, b->data + at, len);
            break;
        default:
            len = strlen(put);
            if (at + len <= b->len) memcpy(b->data + at, put, len);
        }
    }
}

TEST(ten_thousand_changed_headers_do_no_harm)
{
    static const char *const seeds[] = {
        "{\"__metadata__\":{\"format\":\"pt\"}," A "," ONE("b", "BF16", "[4]", "24", "32") "}",
        "{" ONE("e", "F32", "[0,4]", "0",
                "0") "," ONE("s", "F64", "[]", "0", "8") "," ONE("m", "I64", "[3]", "8", "32") "}",
        "{" ONE("model.layers.0.w", "F8_E4M3", "[4,8]", "0", "32") "}      ",
    };
    enum { HEADERS = 10000, DATA_BYTES = 32 };
    unsigned read = 0, refused_ = 0;
    uint64_t seed = 1;
    for (unsigned i = 0; i < HEADERS; i++) {
        struct lh_buf b = lh_buf(1 << 16);
        struct dp_st st;
        const char *text = seeds[i % LH_COUNT(seeds)];
        lh_put(&b, text, strlen(text));
        mutate(&seed, &b);
        uint8_t *exact = malloc(b.len); // exact size: a sanitizer sees a read beyond it
        assert_non_null(exact);
        memcpy(exact, b.data, b.len);
        lh_err err = dp_st_parse("f", lh_span(exact, b.len), DATA_BYTES, &st);
        uint64_t end = 0;
        for (uint32_t k = 0; !err && k < st.tensors; k++) {
            assert_int_equal(st.tensor[k].at, end);
            end += st.tensor[k].bytes;
        }
        if (!err) assert_int_equal(end, DATA_BYTES);
        if (err) assert_int_equal(lh_err_class(err), LH_CLASS_REJECT);
        read += !err;
        refused_ += err != LH_OK;
        if (!err) dp_st_free(&st);
        free(exact);
        lh_buf_free(&b);
    }
    assert_int_equal(read + refused_, HEADERS);
    assert_true(read > 100 && refused_ > 5000); // changes of names and spaces are valid
}
