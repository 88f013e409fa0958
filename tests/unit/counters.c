// Counters: registration, quantile accuracy, dump.
// labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/check.h"
#include "common/counters.h"

static void same_name_is_same_metric(void **state)
{
    (void)state;
    struct lh_counters c = {0};
    struct lh_metric *a = lh_metric(&c, "push.admitted", LH_COUNTER);
    struct lh_metric *b = lh_metric(&c, "push.refused", LH_COUNTER);
    lh_metric_add(a, 3);
    lh_metric_add(lh_metric(&c, "push.admitted", LH_COUNTER), 4);
    assert_int_equal(lh_metric_value(a), 7);
    assert_int_equal(lh_metric_value(b), 0);
    lh_counters_free(&c);
}

// Every value's quantile is at least the value and at most a quarter above it, never over the max.
static void quantile_is_within_a_quarter(void **state)
{
    (void)state;
    for (int64_t v = 0; v < INT64_MAX / 16; v = v < 40 ? v + 1 : v * 9 / 7) {
        struct lh_counters c = {0};
        struct lh_metric *h = lh_metric(&c, "h", LH_HISTOGRAM);
        lh_metric_observe(h, v);
        lh_metric_observe(h, INT64_MAX);
        int64_t q = lh_metric_quantile(h, 0.5);
        assert_true(q >= v && q - v <= v / 4);
        assert_true(lh_metric_quantile(h, 1.0) == INT64_MAX);
        lh_counters_free(&c);
    }
}

static void quantiles_split_a_distribution(void **state)
{
    (void)state;
    struct lh_counters c = {0};
    struct lh_metric *h = lh_metric(&c, "staleness", LH_HISTOGRAM);
    assert_int_equal(lh_metric_quantile(h, 0.99), 0);
    for (int i = 0; i < 90; i++) lh_metric_observe(h, 2);
    for (int i = 0; i < 10; i++) lh_metric_observe(h, 6);
    assert_int_equal(lh_metric_quantile(h, 0.5), 2);
    assert_int_equal(lh_metric_quantile(h, 0.9), 2);
    assert_int_equal(lh_metric_quantile(h, 0.99), 6);
    lh_counters_free(&c);
}

static void dump_shows_every_kind(void **state)
{
    (void)state;
    struct lh_counters c = {0};
    lh_metric_add(lh_metric(&c, "a", LH_COUNTER), 5);
    lh_metric_set(lh_metric(&c, "b", LH_GAUGE), -1);
    lh_metric_observe(lh_metric(&c, "c", LH_HISTOGRAM), 3);
    struct lh_buf out = lh_buf(1024);
    lh_counters_dump(&c, &out);
    lh_put_u8(&out, 0);
    assert_int_equal(lh_buf_err(&out), LH_OK);
    assert_string_equal((char *)out.data, "a 5\nb -1\nc count 1 sum 3 p50 3 p99 3 max 3\n");
    lh_buf_free(&out);
    lh_counters_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_name_is_same_metric),
        cmocka_unit_test(quantile_is_within_a_quarter),
        cmocka_unit_test(quantiles_split_a_distribution),
        cmocka_unit_test(dump_shows_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
