// CRC-32C against a bitwise reference: lengths around those of the lanes, every alignment, in one
// piece and in two.
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "tests/test.h"

enum { LANES = 3 * 4096, MOST = 4 * LANES };

static uint32_t by_bits(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    for (; n; n--, p++) {
        c ^= *p;
        for (int k = 0; k < 8; k++) c = (c >> 1) ^ (0x82f63b78u & (0u - (c & 1)));
    }
    return ~c;
}

TEST(known_sums)
{
    uint8_t zeros[32] = {0};
    assert_int_equal(lh_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(lh_crc32c(0, zeros, sizeof zeros), 0x8a9136aau); // RFC 3720 B.4
    assert_int_equal(lh_crc32c(0, NULL, 0), 0);
}

TEST(all_lengths_and_places)
{
    static const size_t near[] = {0, 8, LANES, 2 * LANES, 3 * LANES};
    uint8_t *bytes = malloc(MOST);
    assert_non_null(bytes);
    uint32_t seed = 7;
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        for (size_t n = near[i] < 9 ? 0 : near[i] - 9; n < near[i] + 10; n++) {
            size_t at = n % 7, half = n / 2;
            uint32_t want = by_bits(bytes + at, n);
            assert_int_equal(lh_crc32c(0, bytes + at, n), want);
            uint32_t first = lh_crc32c(0, bytes + at, half);
            assert_int_equal(lh_crc32c(first, bytes + at + half, n - half), want);
        }
    free(bytes);
}
