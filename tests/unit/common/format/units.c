// common/format/units.c: a written list is parsed again, and a bad one is refused with its reason.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/format/units.h"
#include "tests/test.h"

#define SHA "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct lh_unit unit[] = {
    {.id = 0,
     .file = "asia-ja-000.bin",
     .language = "ja",
     .home = "asia",
     .from = 0,
     .tokens = 512,
     .sha256 = {0xab, 0xcd},
     .may_leave = true},
    {.id = 1,
     .file = "asia-ja-000.bin",
     .language = "ja",
     .home = "asia",
     .from = 512,
     .tokens = 512},
    {.id = 2,
     .file = "asia-zh-000.bin",
     .language = "zh",
     .home = "asia",
     .from = 0,
     .tokens = 100},
};
static struct lh_heldout heldout[] = {
    {.language = "ja", .file = "heldout-ja.bin", .tokens = 77, .bytes = 77},
    {.language = "zh", .file = "heldout-zh.bin", .tokens = 30, .bytes = 99, .sha256 = {1}},
};

static struct lh_units sample(void)
{
    return (struct lh_units){.unit = unit,
                             .count = 3,
                             .heldout = heldout,
                             .heldout_count = 2,
                             .vocabulary = 256,
                             .token_bytes = 2};
}

TEST(round_trip)
{
    struct lh_units u = sample(), again;
    struct lh_buf out = lh_buf(1 << 16), twice = lh_buf(1 << 16);
    assert_int_equal(lh_units_write(&u, &out), LH_OK);
    assert_int_equal(lh_units_parse(&again, lh_buf_span(&out)), LH_OK);
    assert_int_equal(again.count, 3);
    assert_int_equal(again.heldout_count, 2);
    assert_int_equal(again.vocabulary, 256);
    assert_int_equal(again.token_bytes, 2);
    assert_memory_equal(again.unit, unit, sizeof unit);
    assert_memory_equal(again.heldout, heldout, sizeof heldout);
    struct lh_span all = lh_buf_span(&out);
    struct lh_hash h = lh_hash_of(lh_span(NULL, 0), &all, 1);
    assert_true(lh_hash_equal(&h, &again.hash));
    assert_int_equal(lh_units_write(&again, &twice), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&out), lh_buf_span(&twice)));
    for (size_t n = 0; n + 1 < out.len; n++) { // every truncation is refused
        struct lh_units part;
        assert_int_equal(lh_units_parse(&part, lh_span(out.data, n)), LH_ERR_MALFORMED);
    }
    lh_units_free(&again);
    lh_buf_free(&out);
    lh_buf_free(&twice);
}

#define ROOT(dtype, vocabulary, n, units, heldout)                                                 \
    "{\"schema\":\"longhaul.units/1\",\"vocabulary\":" vocabulary ",\"dtype\":\"" dtype            \
    "\",\"unit_tokens\":" n ",\"units\":[" units "],\"heldout\":[" heldout "]}"
#define UNIT(id, file, from, n, language, sha)                                                     \
    "{\"id\":" id ",\"file\":\"" file "\",\"from\":" from ",\"tokens\":" n                         \
    ",\"language\":\"" language "\",\"home\":\"eu\",\"sha256\":\"" sha "\",\"may_leave\":true}"
#define HELD(language, file, n, bytes)                                                             \
    "{\"language\":\"" language "\",\"file\":\"" file "\",\"tokens\":" n ",\"bytes\":" bytes       \
    ",\"sha256\":\"" SHA "\"}"
#define GOOD UNIT("0", "a.bin", "0", "8", "de", SHA)

static const struct {
    const char *json, *says;
    lh_err err;
} bad[] = {
    {"", "not JSON", LH_ERR_MALFORMED},
    {"{\"schema\":\"longhaul.units/9\"}", "longhaul.units/9", LH_ERR_MALFORMED},
    {"{\"schema\":\"longhaul.units/1\"}", "vocabulary", LH_ERR_MALFORMED},
    {ROOT("u8", "256", "8", GOOD, ""), "u16 or u32", LH_ERR_INVALID},
    {ROOT("u16", "65537", "8", GOOD, ""), "vocabulary", LH_ERR_INVALID},
    {ROOT("u32", "0", "8", GOOD, ""), "vocabulary", LH_ERR_INVALID},
    {ROOT("u32", "4294967297", "8", GOOD, ""), "vocabulary", LH_ERR_INVALID},
    {ROOT("u16", "256", "9", GOOD, ""), "unit_tokens", LH_ERR_INVALID},
    {ROOT("u16", "256", "-8", GOOD, ""), "unit_tokens", LH_ERR_INVALID},
    {ROOT("u16", "256", "8", "", ""), "units", LH_ERR_MALFORMED},
    {ROOT("u16", "256", "8", "7", ""), "unit number 0", LH_ERR_MALFORMED},
    {ROOT("u16", "256", "8", UNIT("1", "a.bin", "0", "8", "de", SHA), ""), "has id 1",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("-1", "a.bin", "0", "8", "de", SHA), ""), "id is below 0",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", GOOD "," GOOD, ""), "has id 0", LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "/a.bin", "0", "8", "de", SHA), ""), "plain name",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "a/b.bin", "0", "8", "de", SHA), ""), "plain name",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "..", "0", "8", "de", SHA), ""), "plain name",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "a..bin", "0", "8", "de", SHA), ""), "plain name",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "", "0", "8", "de", SHA), ""), "plain name", LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "a.bin", "0", "8", "languages-beyond", SHA), ""), "language",
     LH_ERR_TOO_LARGE},
    {ROOT("u16", "256", "8", UNIT("0", "a.bin", "0", "8", "d e", SHA), ""), "language",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "0", UNIT("0", "a.bin", "0", "0", "de", SHA), ""), "0 tokens",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "a.bin", "2147483640", "8", "de", SHA), ""), "2^31",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "a.bin", "9223372036854775807", "8", "de", SHA), ""), "2^31",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", UNIT("0", "a.bin", "0", "8", "de", "0011"), ""), "sha256",
     LH_ERR_MALFORMED},
    {ROOT("u16", "256", "8", UNIT("0", "a.bin", "0", "8", "de", SHA "00"), ""), "sha256",
     LH_ERR_MALFORMED},
    {ROOT("u16", "256", "8",
          UNIT("0", "a.bin", "0", "8", "de",
               "0011223344556677G899aabbccddeeff00112233445566778899aabbccddeeff"),
          ""),
     "sha256", LH_ERR_MALFORMED},
    {ROOT("u16", "256", "8", GOOD "," UNIT("1", "a.bin", "7", "8", "de", SHA), ""),
     "units 0 and 1 share", LH_ERR_INVALID},
    {ROOT("u16", "256", "8", GOOD, HELD("de", "../x", "1", "1")), "heldout number 0",
     LH_ERR_INVALID},
    {ROOT("u16", "256", "8", GOOD, HELD("de", "x", "0", "1")), "tokens", LH_ERR_INVALID},
    {ROOT("u16", "256", "8", GOOD, HELD("de", "x", "1", "0")), "bytes", LH_ERR_INVALID},
    {ROOT("u16", "256", "8", GOOD, HELD("de", "x", "1", "1") "," HELD("de", "y", "1", "1")),
     "held out twice", LH_ERR_INVALID},
};

TEST(bad_files_are_refused)
{
    struct lh_units u;
    assert_int_equal(
        lh_units_parse(&u, lh_span_str(ROOT("u16", "256", "8", GOOD, HELD("de", "x", "1", "1")))),
        LH_OK);
    lh_units_free(&u);
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        lh_err err = lh_units_parse(&u, lh_span_str(bad[i].json));
        if (err != bad[i].err || !strstr(lh_err_text(err), bad[i].says))
            fail_msg("case %zu: %s: %s", i, lh_err_name(err), lh_err_text(err));
        assert_null(u.unit);
        assert_null(u.heldout);
    }
}

TEST(invalid_unit_lists_are_not_written)
{
    struct lh_units u = sample();
    struct lh_buf out = lh_buf(1 << 16);
    u.token_bytes = 3;
    assert_int_equal(lh_units_write(&u, &out), LH_ERR_INVALID);
    u = sample();
    u.count = 0;
    assert_int_equal(lh_units_write(&u, &out), LH_ERR_INVALID);
    u = sample();
    struct lh_unit wrong[3];
    memcpy(wrong, unit, sizeof wrong);
    snprintf(wrong[1].file, sizeof wrong[1].file, "a\"b");
    u.unit = wrong;
    assert_int_equal(lh_units_write(&u, &out), LH_ERR_INVALID);
    assert_int_equal(out.len, 0);
    lh_buf_free(&out);
}

TEST(a_run_has_as_many_epochs_as_its_units_allow)
{
    struct lh_units u = sample();
    const uint64_t most = LH_UNITS_MAX / 3;
    assert_int_equal(lh_units_check_epochs(&u, 1), LH_OK);
    assert_int_equal(lh_units_check_epochs(&u, most), LH_OK);
    assert_int_equal(lh_units_check_epochs(&u, most + 1), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "1398102 data epochs of 3 units"));
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "up to 1398101 epochs"));
    assert_int_equal(lh_units_check_epochs(&u, 0), LH_ERR_CONFIG);
    assert_int_equal(lh_units_check_epochs(&u, UINT64_MAX), LH_ERR_CONFIG);
    u.count = 1;
    assert_int_equal(lh_units_check_epochs(&u, LH_UNITS_MAX), LH_OK);
}

TEST(a_unit_of_a_later_epoch_has_the_same_data)
{
    struct lh_units u = sample();
    assert_ptr_equal(lh_units_at(&u, 2), &unit[2]);
    assert_ptr_equal(lh_units_at(&u, 3 + 2), &unit[2]);
    assert_ptr_equal(lh_units_at(&u, 3 * 1000), &unit[0]);
}
