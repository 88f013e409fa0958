// Terms of privacy read back byte for byte, alone and in a plan; anything else is refused.
#include <math.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/format/plan.h"
#include "common/format/privacy.h"
#include "tests/test.h"

static const struct lh_privacy TERMS = {.level = LH_PRIVACY_RECORD,
                                        .sigma = 1.5,
                                        .rate = 0.01,
                                        .clip = 0.5,
                                        .epsilon = 8,
                                        .delta = 1e-6,
                                        .steps = 1000,
                                        .ahead = 64,
                                        .local_steps = 8,
                                        .record_tokens = 1024};

static bool reads(const struct lh_privacy *t, struct lh_privacy *out)
{
    struct lh_buf b = lh_buf(128);
    lh_privacy_write(t, &b);
    struct lh_cursor c = lh_cursor(lh_buf_span(&b));
    bool good = lh_privacy_read(&c, out) && !lh_left(&c);
    lh_buf_free(&b);
    return good;
}

TEST(terms_read_back)
{
    struct lh_privacy got, none = {0};
    assert_true(reads(&TERMS, &got));
    assert_true(lh_privacy_equal(&TERMS, &got));
    assert_true(reads(&none, &got));
    assert_true(lh_privacy_equal(&none, &got));
    assert_false(lh_privacy_equal(&none, &TERMS));
    struct lh_buf b = lh_buf(128);
    lh_privacy_write(&TERMS, &b);
    assert_int_equal(b.len, 65);
    for (size_t n = 0; n < b.len; n++) {
        struct lh_cursor c = lh_cursor(lh_span(b.data, n));
        assert_false(lh_privacy_read(&c, &got));
    }
    lh_buf_free(&b);
}

TEST(a_number_that_is_none_is_refused)
{
    struct lh_privacy got;
#define BAD(field, value)                                                                          \
    do {                                                                                           \
        struct lh_privacy t = TERMS;                                                               \
        t.field = value;                                                                           \
        assert_false(reads(&t, &got));                                                             \
    } while (0)
    BAD(level, LH_PRIVACY_REPORTED + 1);
    BAD(sigma, 0);
    BAD(sigma, NAN);
    BAD(sigma, INFINITY);
    BAD(rate, 0);
    BAD(rate, 1.5);
    BAD(clip, -1);
    BAD(epsilon, 0);
    BAD(delta, 0);
    BAD(delta, 0.9);
    BAD(steps, 0);
    BAD(steps, (uint64_t)LH_CHARGED_MAX + 1);
    BAD(ahead, 0);
    BAD(local_steps, 0);
#undef BAD
    struct lh_privacy sampled = TERMS;
    sampled.level = LH_PRIVACY_REGION; // a push contains the whole region
    assert_false(reads(&sampled, &got));
    sampled.rate = 1;
    assert_true(reads(&sampled, &got));
}

TEST(a_plan_has_them)
{
    struct lh_plan *p = calloc(2, sizeof *p), *got = p + 1;
    struct lh_buf b = lh_buf(1 << 10);
    p->number = 1;
    p->phase = LH_PHASE_CLOSE;
    p->data = LH_DATA_PRIVATE;
    p->privacy = TERMS;
    p->left = 1;
    p->left_out[0] = 7;
    lh_plan_write(p, &b);
    assert_int_equal(lh_plan_parse(lh_buf_span(&b), got), LH_OK);
    assert_true(lh_privacy_equal(&got->privacy, &TERMS));
    assert_true(lh_plan_left_out(got, 7));
    lh_buf_free(&b);
    free(p);
}

TEST(terms_give_a_pushs_cost_and_largest_norm)
{
    struct lh_privacy region = TERMS;
    region.level = LH_PRIVACY_REGION;
    assert_int_equal(lh_privacy_cost(&TERMS, 5), 5);
    assert_int_equal(lh_privacy_cost(&region, 5), 1);
    assert_true(fabs(lh_privacy_norm_max(&region, 100, 4) - (0.25 + 1.5 * 0.5 * 18)) < 1e-12);
    assert_true(lh_privacy_multiplier(&region) == 0.75 && lh_privacy_multiplier(&TERMS) == 1.5);
    assert_string_equal(lh_privacy_level_name(LH_PRIVACY_REPORTED), "reported");
    assert_string_equal(lh_privacy_level_name(9), "?");
}
