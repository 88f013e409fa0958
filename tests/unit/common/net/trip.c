// A path's round trip as in RFC 6298, and the timeout that follows from it.
#include "common/env/env.h"
#include "common/net/trip.h"
#include "tests/test.h"

TEST(a_timeout_is_the_mean_and_four_spreads)
{
    const struct lh_trip unknown = {0}, far = {1200 * LH_MS, 600 * LH_MS};
    assert_int_equal(lh_trip_rto_ns(&unknown), 0);
    assert_int_equal(lh_trip_rto_ns(&far), 3600 * LH_MS);
}

TEST(a_peers_round_trip_time_is_bounded)
{
    struct lh_trip t = lh_trip_said(0, 7000);
    assert_int_equal(t.mean_ns + t.spread_ns, 0); // an older peer, which sends none
    t = lh_trip_said(1200000, 50000);
    assert_int_equal(t.mean_ns, 1200 * LH_MS);
    assert_int_equal(t.spread_ns, 50 * LH_MS);
    t = lh_trip_said(UINT32_MAX, UINT32_MAX);
    assert_int_equal(t.mean_ns, 60 * LH_SECOND);
    assert_int_equal(t.spread_ns, 60 * LH_SECOND);
    assert_int_equal(lh_trip_us(-5), 0);
    assert_int_equal(lh_trip_us(1), 1); // a known time never rounds to 0, which means unknown
    assert_int_equal(lh_trip_us(1200 * LH_MS), 1200000);
    assert_int_equal(lh_trip_us(INT64_MAX), LH_TRIP_US_MAX);
}

TEST(patience_is_the_setting_and_eight_timeouts_of_the_path)
{
    const struct lh_trip unknown = {0}, far = {1200 * LH_MS, 50 * LH_MS};
    const struct lh_trip huge = lh_trip_said(UINT32_MAX, UINT32_MAX);
    const int64_t least = 15 * LH_SECOND, most = 120 * LH_SECOND;
    assert_int_equal(lh_trip_patience_ns(&unknown, least, most), least);
    assert_int_equal(lh_trip_patience_ns(&far, least, most), least + 8 * 1400 * LH_MS);
    assert_int_equal(lh_trip_patience_ns(&far, least, 20 * LH_SECOND), 20 * LH_SECOND);
    assert_int_equal(lh_trip_patience_ns(&huge, least, most), most);
    assert_int_equal(lh_trip_patience_ns(&huge, least, INT64_MAX), least + 8 * 300 * LH_SECOND);
    assert_int_equal(lh_trip_patience_ns(&far, least, 0), least); // no bound: adds nothing
    assert_int_equal(lh_trip_patience_ns(&far, least, least - 1), least);
}
