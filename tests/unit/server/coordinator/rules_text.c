// server/coordinator/watch/rules_text.c: rules as operators write them, and texts that are refused.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "server/coordinator/watch/rules_text.h"
#include "tests/test.h"

TEST(rules_are_read)
{
    struct ps_rules r;
    assert_int_equal(
        ps_rules_parse("diverging: loss_rise > 15% and utilisation<40% for 30s then pause\n"
                       "\n"
                       "nan: failing then pause;away: silent > 2min for 5min then alarm\n"
                       "disk: disk_free < 5GB; cert: certificate_ends < 30d",
                       &r),
        LH_OK);
    assert_int_equal(r.rules, 5);
    const struct ps_rule *d = &r.rule[0];
    assert_string_equal(d->name, "diverging");
    assert_true(d->pauses && d->whens == 2 && d->for_ns == 30 * LH_SECOND);
    assert_int_equal(d->when[0].metric, PS_RULE_LOSS_RISE);
    assert_true(d->when[0].above && d->when[0].bound == 0.15);
    assert_int_equal(d->when[1].metric, PS_RULE_UTILISATION);
    assert_true(!d->when[1].above && d->when[1].bound == 0.4);
    assert_true(r.rule[1].when[0].above && r.rule[1].when[0].bound == 0 && r.rule[1].pauses);
    assert_true(r.rule[2].when[0].bound == 120 && r.rule[2].for_ns == 300 * LH_SECOND);
    assert_false(r.rule[2].pauses);
    assert_true(r.rule[3].when[0].bound == 5e9 && !r.rule[3].for_ns);
    assert_true(r.rule[4].when[0].bound == 30 * 86400.0);
}

TEST(no_text_is_no_rule)
{
    struct ps_rules r;
    assert_int_equal(ps_rules_parse("", &r), LH_OK);
    assert_int_equal(r.rules, 0);
    assert_int_equal(ps_rules_parse(" \n;\t;\n", &r), LH_OK);
    assert_int_equal(r.rules, 0);
}

TEST(a_wrong_one_is_refused_with_its_line_and_what_to_write)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {"loss > 9", "line 1: a rule begins with its name and a colon"},
        {"\na b: loss > 9", "line 2: a rule begins with its name"},
        {"a:", "\"\" is no metric of rules"},
        {"a\xc3\xa4: loss", "a rule's name has 1 to 31 letters"},
        {":", "a rule's name has 1 to 31 letters"},
        {"a: loss > 1\na: loss > 2", "line 2: another rule has this name"},
        {"a: los > 9", "did you mean loss?"},
        {"a: loss >", "after < and > comes a number"},
        {"a: loss > nan", "after < and > comes a number"},
        {"a: loss > -1", "after < and > comes a number"},
        {"a: loss > 9 apples", "a rule is NAME: METRIC > NUMBER"},
        {"a: loss > 9apples", "after < and > comes a number"},
        {"a: loss = 9", "a rule is NAME: METRIC > NUMBER"},
        {"a: loss > 1 and", "\"\" is no metric"},
        {"a: loss and loss and loss and loss and loss", "at most 4 conditions"},
        {"a: loss for 30%", "after for comes a duration"},
        {"a: loss for 8d", "after for comes a duration"},
        {"a: loss then stop", "then alarm, or then pause"},
        {"a: loss then pause now", "a rule is NAME"},
    };
    struct ps_rules r;
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        assert_int_equal(ps_rules_parse(row[i].text, &r), LH_ERR_CONFIG);
        const char *text = lh_err_text(LH_ERR_CONFIG);
        if (strncmp(text, "coordinator.rules, line ", 24) != 0 || !strstr(text, row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", text, row[i].says);
    }
}

TEST(there_are_16_at_most)
{
    struct ps_rules r;
    char text[1024];
    size_t n = 0;
    for (int i = 0; i <= PS_RULES_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "a%d: loss > %d\n", i, i);
    assert_int_equal(ps_rules_parse(text, &r), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "line 17: there are at most 16 rules"));
    *strstr(text, "\na16") = 0;
    assert_int_equal(ps_rules_parse(text, &r), LH_OK);
    assert_int_equal(r.rules, PS_RULES_MAX);
}
