// common/net/trace.c: a push's trace is derived from its name; only one form is accepted from a
// peer.
#include <string.h>

#include "common/base/check.h"
#include "common/net/trace.h"
#include "tests/test.h"

static struct lh_trace of(const char *job, uint64_t worker, uint64_t incarnation, uint64_t step,
                          uint32_t shard)
{
    return lh_trace_of_push(lh_span_str(job), worker, incarnation, step, shard);
}

TEST(a_push_has_one_trace_and_no_other_has_it)
{
    struct lh_trace t = of("job", 1, 2, 3, 4), again = of("job", 1, 2, 3, 4), back;
    const struct lh_trace other[] = {of("jab", 1, 2, 3, 4), of("job", 9, 2, 3, 4),
                                     of("job", 1, 9, 3, 4), of("job", 1, 2, 9, 4),
                                     of("job", 1, 2, 3, 9), of("job", 2, 1, 3, 4)};
    char text[LH_TRACE_TEXT_BYTES];
    assert_string_equal(t.id, again.id);
    assert_string_equal(t.span, again.span);
    for (size_t i = 0; i < LH_COUNT(other); i++) assert_string_not_equal(t.id, other[i].id);
    lh_trace_text(&t, text);
    assert_int_equal(strlen(text), LH_TRACE_TEXT_BYTES - 1);
    assert_true(lh_trace_parse(lh_span_str(text), &back));
    assert_string_equal(back.id, t.id);
    assert_string_equal(back.span, t.span);
}

TEST(other_forms_are_ignored)
{
    static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    static const char *const bad[] = {
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\"-01",
        "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
        "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01",
    };
    struct lh_trace t;
    char nul[sizeof good];
    assert_true(lh_trace_parse(lh_span_str(good), &t));
    assert_string_equal(t.id, "0af7651916cd43dd8448eb211c80319c");
    assert_string_equal(t.span, "b7ad6b7169203331");
    assert_true(
        lh_trace_parse(lh_span_str("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"), &t));
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        if (lh_trace_parse(lh_span_str(bad[i]), &t)) fail_msg("%s was taken", bad[i]);
        assert_string_equal(t.id, "");
    }
    for (size_t i = 0; i + 1 < sizeof good; i++) { // a zero byte or a byte outside ASCII
        memcpy(nul, good, sizeof good);
        nul[i] = i % 2 ? 0 : (char)0xb0;
        assert_false(lh_trace_parse(lh_span(nul, sizeof good - 1), &t));
    }
}
