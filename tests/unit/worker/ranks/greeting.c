// The first bytes between a region's ranks are read back as written; anything else is refused.
#include <string.h>

#include "tests/test.h"
#include "worker/ranks/greeting.h"

TEST(the_channels)
{
    static const uint8_t one_host[] = {'W', 'P', 'E', 'R', 1, 5, 0, 0};
    for (int hosts = 0; hosts < 2; hosts++) {
        uint8_t bytes[WK_CHANNEL_GREETING_HOSTS_BYTES + 1] = {0};
        size_t all = hosts ? WK_CHANNEL_GREETING_HOSTS_BYTES : WK_CHANNEL_GREETING_BYTES;
        struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
        struct wk_channel_greeting g = {.rank = 5, .hosts = hosts, .name = "asia-0"}, back;
        wk_channel_greeting_put(&b, &g);
        assert_int_equal(b.len, all);
        assert_memory_equal(bytes, one_host, sizeof one_host);
        assert_int_equal(wk_channel_greeting_get(lh_buf_span(&b), hosts, &back), LH_OK);
        assert_int_equal(back.rank, 5);
        if (hosts) assert_memory_equal(back.name, g.name, sizeof g.name);
        for (size_t n = 0; n <= sizeof bytes; n++)
            if (n != all)
                assert_int_equal(wk_channel_greeting_get(lh_span(bytes, n), hosts, &back),
                                 LH_ERR_MALFORMED);
        for (size_t i = 0; i < 8; i++) { // any byte of the head but the rank changes
            bytes[i] ^= 1;
            assert_int_equal(wk_channel_greeting_get(lh_span(bytes, all), hosts, &back),
                             i == 5 ? LH_OK : LH_ERR_MALFORMED);
            bytes[i] ^= 1;
        }
    }
}

TEST(names)
{
    for (int i = 0; i < 3; i++) {
        uint8_t bytes[WK_CHANNEL_GREETING_HOSTS_BYTES];
        struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
        struct wk_channel_greeting g = {.rank = 1, .hosts = true}, back;
        if (i == 0) memset(g.name, 'x', sizeof g.name);     // not terminated
        if (i == 1) memcpy(g.name, "a\0b", 3);              // bytes after the terminating zero
        if (i == 2) memset(g.name, 'x', sizeof g.name - 1); // the longest name
        wk_channel_greeting_put(&b, &g);
        assert_int_equal(wk_channel_greeting_get(lh_buf_span(&b), true, &back),
                         i == 2 ? LH_OK : LH_ERR_MALFORMED);
    }
}

TEST(the_rings)
{
    for (int hosts = 0; hosts < 2; hosts++) {
        uint8_t bytes[WK_RING_GREETING_HOSTS_BYTES + 1] = {0};
        size_t all = hosts ? WK_RING_GREETING_HOSTS_BYTES : WK_RING_GREETING_BYTES;
        struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
        struct wk_ring_greeting g = {.kind = WK_RING_BEFORE, .rank = 2, .hosts = hosts}, back;
        assert_int_equal(wk_address_find("10.0.0.7:4711", &g.address), LH_OK);
        memset(g.secret.b, 0xab, sizeof g.secret.b);
        wk_ring_greeting_put(&b, &g);
        assert_int_equal(b.len, all);
        assert_int_equal(wk_ring_greeting_get(lh_buf_span(&b), hosts, &back), LH_OK);
        assert_int_equal(back.kind, WK_RING_BEFORE);
        assert_int_equal(back.rank, 2);
        assert_int_equal(back.address.port, 4711);
        assert_int_equal(back.address.host[15], hosts ? 7 : 1);
        assert_memory_equal(back.secret.b, g.secret.b, sizeof g.secret.b);
        for (size_t n = 0; n <= sizeof bytes; n++)
            if (n != all)
                assert_int_equal(wk_ring_greeting_get(lh_span(bytes, n), hosts, &back),
                                 LH_ERR_MALFORMED);
        bytes[4] = 3; // no such kind
        assert_int_equal(wk_ring_greeting_get(lh_span(bytes, all), hosts, &back), LH_ERR_MALFORMED);
    }
}
