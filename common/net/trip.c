// A path's round trip. See trip.h.
#include "common/net/trip.h"

#include "common/base/check.h"

static const int64_t US = 1000;

// Eight timeouts of the longest accepted trip, four spreads each, fit an int64_t many times over.
LH_STATIC_ASSERT((int64_t)LH_TRIP_US_MAX * 1000 * 5 * LH_TRIP_RTOS < INT64_MAX / 1000,
                 "patience does not overflow");

static int64_t bounded(int64_t ns)
{
    const int64_t most = LH_TRIP_US_MAX * US;
    if (ns < 0) return 0;
    return ns < most ? ns : most;
}

struct lh_trip lh_trip_said(uint32_t mean_us, uint32_t spread_us)
{
    if (!mean_us) return (struct lh_trip){0};
    return (struct lh_trip){bounded(mean_us * US), bounded(spread_us * US)};
}

uint32_t lh_trip_us(int64_t ns)
{
    return (uint32_t)((bounded(ns) + US - 1) / US);
}

int64_t lh_trip_rto_ns(const struct lh_trip *t)
{
    return t->mean_ns ? t->mean_ns + 4 * t->spread_ns : 0;
}

int64_t lh_trip_patience_ns(const struct lh_trip *t, int64_t least_ns, int64_t most_ns)
{
    if (most_ns <= least_ns) return least_ns;
    int64_t need = LH_TRIP_RTOS * lh_trip_rto_ns(t);
    return need < most_ns - least_ns ? least_ns + need : most_ns;
}
