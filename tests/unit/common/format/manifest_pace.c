// common/format/manifest_pace.h: small models have more frequent stable points and smaller
// segments.
#include "common/format/manifest_pace.h"
#include "tests/test.h"

static struct lh_manifest of(struct lh_shard_layout *shard, uint64_t first, uint64_t second)
{
    shard[0].values = first;
    shard[1].values = second;
    return (struct lh_manifest){.values = first + second, .shard = shard, .shards = 2};
}

TEST(a_point_comes_more_often_where_it_costs_little)
{
    struct lh_shard_layout shard[2] = {0};
    struct lh_manifest small = of(shard, 1 << 19, (1 << 19) - 1);
    assert_int_equal(lh_point_every(&small), 10);
    struct lh_manifest large = of(shard, 1 << 19, 1 << 19);
    assert_int_equal(lh_point_every(&large), 50);
}

TEST(a_segment_grows_with_the_largest_shard)
{
    static const struct {
        uint64_t values, bytes;
    } row[] = {{0, 64 << 10},      {64 << 10, 64 << 10},       {(64 << 10) + 1, 128 << 10},
               {3 << 20, 4 << 20}, {(64 << 20) - 1, 64 << 20}, {437ull << 20, 64 << 20}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct lh_shard_layout shard[2] = {0};
        struct lh_manifest m = of(shard, 5, row[i].values);
        assert_int_equal(lh_segment_bytes(&m), row[i].bytes);
    }
}
