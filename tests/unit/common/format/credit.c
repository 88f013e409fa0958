// common/format/credit.c: packed credits hold the same bits, for any number of units and shards.
#include <stdbool.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/format/credit.h"
#include "tests/test.h"

enum { MOST = 64, SEEDS = 50 };

static bool has(const uint8_t *bits, uint64_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

// Compares packed bits with the original bits, one by one.
static void compare(const uint8_t *bits, size_t bytes, uint32_t shard, uint32_t shards)
{
    uint8_t packed[MOST + 2];
    size_t n = lh_credit_packed_bytes(bytes, shards);
    uint64_t open = shard, end = 0;
    assert_true(n < sizeof packed);
    assert_true(n * shards >= bytes); // every bit has a place
    packed[n] = 0xa5;
    lh_credit_pack(bits, bytes, shard, shards, packed);
    assert_int_equal(packed[n], 0xa5);
    for (uint64_t unit = shard; unit < 8 * n * shards; unit += shards) {
        bool credited = unit < 8 * bytes && has(bits, unit);
        assert_int_equal(has(packed, unit / shards), credited);
        if (credited) end = unit + 1;
        if (credited && open == unit) open = unit + shards;
    }
    assert_int_equal(lh_credit_first_open(packed, n, shard, shards), open);
    assert_int_equal(lh_credit_end(packed, n, shard, shards), end);
}

TEST(packed_bits_say_the_same)
{
    static const uint32_t shards[] = {1, 2, 3, 7, 8, 64, 513};
    uint64_t z = 1;
    for (int seed = 0; seed < SEEDS; seed++)
        for (size_t k = 0; k < sizeof shards / sizeof *shards; k++) {
            uint8_t bits[MOST];
            size_t bytes = (size_t)seed % (MOST + 1);
            for (size_t i = 0; i < bytes; i++) {
                z = z * 6364136223846793005u + 1442695040888963407u;
                bits[i] = seed % 3 ? (uint8_t)(z >> 56) : UINT8_MAX;
            }
            for (uint32_t s = 0; s < shards[k]; s += 1 + shards[k] / 5)
                compare(bits, bytes, s, shards[k]);
        }
}

TEST(nothing_is_credited_in_no_bytes)
{
    assert_int_equal(lh_credit_first_open(NULL, 0, 3, 5), 3);
    assert_int_equal(lh_credit_end(NULL, 0, 3, 5), 0);
}

TEST(all_shards_together_are_a_bit_a_unit)
{
    for (uint32_t shards = 1; shards <= LH_SHARDS_MAX; shards++)
        assert_true(shards * lh_credit_packed_bytes(LH_UNITS_MAX / 8, shards) <=
                    LH_UNITS_MAX / 8 + shards);
}
