// server/coordinator/balance/terms.c: the cap of each link, and texts that are refused.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/units.h"
#include "server/coordinator/balance/terms.h"
#include "tests/test.h"

TEST(the_first_entry_that_names_a_link_counts)
{
    static const char TEXT[] = "asia>africa=1.5GiB, europe>asia=2B *>africa=200kB";
    struct ps_terms t;
    assert_int_equal(ps_terms_parse(TEXT, &t), LH_OK);
    assert_int_equal(t.terms, 3);
    const struct ps_term *is = ps_terms_of(&t, "asia", "africa");
    assert_true(is && is->cap_bytes == 1.5 * 1024 * 1024 * 1024);
    is = ps_terms_of(&t, "europe", "asia");
    assert_true(is && is->cap_bytes == 2);
    is = ps_terms_of(&t, "europe", "africa");
    assert_true(is && is->cap_bytes == 200e3);
    assert_null(ps_terms_of(&t, "africa", "asia"));
    assert_null(ps_terms_of(&t, "africa", "africa")); // nothing crosses a link
    assert_null(ps_terms_of(NULL, "asia", "africa"));
    assert_int_equal(ps_terms_parse("", &t), LH_OK);
    assert_int_equal(t.terms, 0);
    assert_int_equal(ps_terms_parse("a>b=0B", &t), LH_OK); // nothing may cross it
    assert_true(ps_terms_of(&t, "a", "b")->cap_bytes == 0);
}

TEST(malformed_terms_are_refused)
{
    static const char *const bad[] = {
        "asia",      "asia=1GiB", "asia>=1GiB", ">b=1GiB",  "a>b",      "a>b=",      "a>b=1",
        "a>b=1 GiB", "a>b=-1GiB", "a>b=GiB",    "a>b=1PiB", "a>b=infB", "a>b=1GiB1", "a>b=1GiB@1",
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct ps_terms t;
        if (ps_terms_parse(bad[i], &t) != LH_ERR_CONFIG) fail_msg("\"%s\" was taken", bad[i]);
        assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "coordinator.links"));
    }
}

TEST(a_home_that_no_unit_has_is_refused)
{
    struct lh_unit unit[] = {{.home = "asia"}, {.home = "europe"}};
    const struct lh_units units = {.unit = unit, .count = LH_COUNT(unit)};
    struct ps_terms t;
    assert_int_equal(ps_terms_parse("*>x=1B,europe>x=1B,asia>y=1B", &t), LH_OK);
    assert_int_equal(ps_terms_check(&t, &units), LH_OK);
    assert_int_equal(ps_terms_parse("asia>x=1B,assia>africa=1B", &t), LH_OK);
    assert_int_equal(ps_terms_check(&t, &units), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "coordinator.links: assia>africa: no unit"));
}

TEST(there_are_not_too_many)
{
    char text[8 * (PS_TERMS_MAX + 1) + 1];
    struct ps_terms t;
    for (int n = PS_TERMS_MAX; n <= PS_TERMS_MAX + 1; n++) {
        for (int i = 0; i < n; i++) snprintf(text + 7 * i, sizeof text - 7 * (size_t)i, "a>b=1B,");
        assert_int_equal(ps_terms_parse(text, &t), n > PS_TERMS_MAX ? LH_ERR_CONFIG : LH_OK);
    }
}
