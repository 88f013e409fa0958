// server/coordinator/schedule.c: the number that holds at each time, and texts that are refused.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/schedule.h"
#include "tests/test.h"

enum { MINUTE = 60, HOUR = 3600, DAY = 86400 };
static const int64_t SOME_DAY = INT64_C(20000) * DAY;

TEST(each_holds_until_the_next_of_its_region)
{
    struct ps_schedule s;
    assert_int_equal(ps_schedule_parse("22:00=64, 06:30=8,asia@12:00=3 asia@00:00=0", &s), LH_OK);
    static const struct {
        const char *region;
        int64_t at;
        uint32_t workers;
    } row[] = {
        {"", 0, 64},
        {"", 6 * HOUR + 30 * MINUTE - 1, 64},
        {"", 6 * HOUR + 30 * MINUTE, 8},
        {"", 22 * HOUR - 1, 8},
        {"", 22 * HOUR, 64},
        {"", DAY - 1, 64},
        {"asia", 0, 0},
        {"asia", 12 * HOUR - 1, 0},
        {"asia", 12 * HOUR, 3},
        {"asia", DAY - 1, 3},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++)
        assert_int_equal(ps_schedule_at(&s, row[i].region, SOME_DAY + row[i].at)->workers,
                         row[i].workers);
    assert_null(ps_schedule_at(&s, "europe", SOME_DAY));
}

TEST(one_entry_holds_always)
{
    struct ps_schedule s;
    assert_int_equal(ps_schedule_parse("22:00=5", &s), LH_OK);
    for (int64_t at = 0; at < DAY; at += 7 * MINUTE)
        assert_int_equal(ps_schedule_at(&s, "", SOME_DAY + at)->workers, 5);
}

TEST(no_text_is_no_schedule)
{
    struct ps_schedule s;
    assert_int_equal(ps_schedule_parse("", &s), LH_OK);
    assert_int_equal(s.entries, 0);
    assert_null(ps_schedule_at(&s, "", SOME_DAY));
}

TEST(wrong_ones_are_refused)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {"22:00", "\"22:00\" is not valid, expected HH:MM=workers"},
        {"22:00=", "not valid"},
        {"22:00=x", "not valid"},
        {"22:00=-1", "not valid"},
        {"22:00=+1", "not valid"},
        {"22:00=1025", "at most 1024"},
        {"22:00=99999999999999999999", "not valid"},
        {"22:00=6x", "not valid"},
        {"24:00=6", "not valid"},
        {"23:60=6", "not valid"},
        {"2:00=6", "not valid"},
        {"22.00=6", "not valid"},
        {"@22:00=6", "not valid"},
        {"asia@=6", "not valid"},
        {"asia@2", "not valid"},
        {"06:00=1,asia@06:00=2,06:00=3", "\"06:00=3\" gives a time a second time"},
    };
    struct ps_schedule s;
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        if (ps_schedule_parse(row[i].text, &s) != LH_ERR_CONFIG) fail_msg("%s", row[i].text);
        if (!strstr(lh_err_text(LH_ERR_CONFIG), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CONFIG), row[i].says);
    }
}

TEST(it_has_a_limit)
{
    char text[1024] = "";
    struct ps_schedule s;
    for (int i = 0; i < PS_SCHEDULE_MAX; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%02d:%02d=1,", i / 60, i % 60);
    assert_int_equal(ps_schedule_parse(text, &s), LH_OK);
    assert_int_equal(s.entries, PS_SCHEDULE_MAX);
    snprintf(text + strlen(text), sizeof text - strlen(text), "23:00=1");
    assert_int_equal(ps_schedule_parse(text, &s), LH_ERR_CONFIG);
    char name[80 + 1];
    memset(name, 'a', 80); // longer than a region's name may be
    name[80] = 0;
    snprintf(text, sizeof text, "%s@06:00=1", name);
    assert_int_equal(ps_schedule_parse(text, &s), LH_ERR_CONFIG);
}
