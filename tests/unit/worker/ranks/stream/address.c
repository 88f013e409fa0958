// Addresses: valid and invalid ones, their bytes, and listening on them.
#include <string.h>
#include <unistd.h>

#include "tests/test.h"
#include "worker/ranks/stream/address.h"

static void check_text(const struct wk_address *p, const char *text)
{
    char is[WK_ADDRESS_BYTES];
    wk_address_text(p, is);
    assert_string_equal(is, text);
}

TEST(addresses)
{
    struct wk_address p;
    assert_int_equal(wk_address_find("10.1.2.3:4711", &p), LH_OK);
    check_text(&p, "10.1.2.3:4711");
    assert_int_equal(wk_address_find("[fd00::7]:65535", &p), LH_OK);
    check_text(&p, "[fd00::7]:65535");
    assert_int_equal(wk_address_find("[::1]:1", &p), LH_OK);
    assert_int_equal(wk_address_numeric("127.0.0.9", &p), LH_OK);
    check_text(&p, "127.0.0.9:0");
    p = wk_address_loopback(80);
    check_text(&p, "127.0.0.1:80");
}

TEST(invalid_addresses_are_refused)
{
    static const char *const none[] = {"", ":", ":80", "10.1.2.3", "10.1.2.3:", "[]:80"};
    struct wk_address p;
    char longer[400];
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(wk_address_find(none[i], &p), LH_ERR_CONFIG);
    memset(longer, 'a', sizeof longer);
    memcpy(longer + sizeof longer - 4, ":80", 4);
    assert_int_equal(wk_address_find(longer, &p), LH_ERR_CONFIG);
    assert_int_equal(wk_address_find("10.1.2.3:http", &p), LH_ERR_UNAVAILABLE);
    assert_int_not_equal(wk_address_find("[::1:80", &p), LH_OK); // half a pair of brackets
    assert_int_not_equal(wk_address_find("::1]:80", &p), LH_OK);
    assert_int_equal(wk_address_numeric("localhost", &p), LH_ERR_CONFIG);
    assert_int_equal(wk_address_numeric("10.1.2.3:80", &p), LH_ERR_CONFIG);
}

TEST(bytes)
{
    static const char *const all[] = {"10.1.2.3:4711", "[fd00::7]:258"};
    for (size_t i = 0; i < 2; i++) {
        uint8_t room[WK_HOST_BYTES + 2];
        struct lh_buf b = lh_buf_over(room, sizeof room);
        struct wk_address p;
        assert_int_equal(wk_address_find(all[i], &p), LH_OK);
        wk_address_put(&b, &p);
        assert_int_equal(b.len, sizeof room);
        struct lh_cursor c = lh_cursor(lh_buf_span(&b));
        struct wk_address back = wk_address_get(&c);
        assert_false(c.failed);
        check_text(&back, all[i]);
        c = lh_cursor(lh_span(room, sizeof room - 1));
        (void)wk_address_get(&c);
        assert_true(c.failed);
    }
}

TEST(listening)
{
    struct wk_address p = wk_address_loopback(0), again, elsewhere;
    int fd, second;
    assert_int_equal(wk_address_listen(&p, 4, &fd), LH_OK);
    assert_true(p.port > 0);
    again = p;
    assert_int_equal(wk_address_listen(&again, 4, &second), LH_ERR_BUSY);
    assert_int_equal(second, -1);
    // reserved for documentation
    assert_int_equal(wk_address_numeric("192.0.2.1", &elsewhere), LH_OK);
    assert_true(wk_address_listen(&elsewhere, 4, &second) != LH_OK);
    close(fd);
}
