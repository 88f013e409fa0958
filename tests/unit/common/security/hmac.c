// common/security/hmac.c: the codes of RFC 4231, and malformed secret files.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/security/hmac.h"
#include "tests/test.h"

TEST(codes_are_those_of_the_rfc)
{
    static const struct {
        uint8_t byte;
        size_t bytes;
        const char *message, *code;
    } row[] = {
        // test cases 1 and 6
        {0x0b, 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {0xaa, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_hmac_key key = {.bytes = row[i].bytes};
        char hex[LH_HMAC_HEX_BYTES];
        memset(key.b, row[i].byte, row[i].bytes);
        lh_hmac_hex(&key, lh_span(row[i].message, strlen(row[i].message)), hex);
        assert_string_equal(hex, row[i].code);
    }
}

static lh_err load(const char *text, size_t bytes, mode_t mode, struct lh_hmac_key *out)
{
    char path[] = "/tmp/longhaul-hmac-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), (ssize_t)bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(close(fd), 0);
    lh_err err = lh_hmac_load(path, out);
    assert_int_equal(unlink(path), 0);
    return err;
}

TEST(a_secret_is_one_line)
{
    struct lh_hmac_key key;
    char longest[LH_HMAC_KEY_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[LH_HMAC_KEY_MAX] = '\n';
    assert_int_equal(load("0123456789abcdef\n", 17, 0600, &key), LH_OK);
    assert_int_equal(key.bytes, 16);
    assert_memory_equal(key.b, "0123456789abcdef", 16);
    assert_int_equal(load("0123456789abcdef", 16, 0400, &key), LH_OK);
    assert_int_equal(key.bytes, 16);
    assert_int_equal(load(longest, LH_HMAC_KEY_MAX + 1, 0600, &key), LH_OK);
    assert_int_equal(key.bytes, LH_HMAC_KEY_MAX);
    lh_hmac_wipe(&key);
    assert_int_equal(key.bytes, 0);
}

TEST(bad_key_files_are_refused)
{
    struct lh_hmac_key key;
    char too_long[LH_HMAC_KEY_MAX + 10];
    memset(too_long, 'x', sizeof too_long);
    assert_int_equal(load("0123456789abcdef\n", 17, 0644, &key), LH_ERR_DENIED);
    assert_int_equal(load("0123456789abcde\n", 16, 0600, &key), LH_ERR_CONFIG);
    assert_int_equal(key.bytes, 0);
    assert_int_equal(load("", 0, 0600, &key), LH_ERR_CONFIG);
    assert_int_equal(load("0123456789 abcdefg\n", 19, 0600, &key), LH_ERR_CONFIG);
    assert_int_equal(load("0123456789abcdef\n\n0123456789abcdef\n", 35, 0600, &key), LH_ERR_CONFIG);
    assert_int_equal(load(too_long, LH_HMAC_KEY_MAX + 1, 0600, &key), LH_ERR_CONFIG);
    assert_int_equal(load(too_long, sizeof too_long, 0600, &key), LH_ERR_CONFIG);
    assert_int_equal(lh_hmac_load("/nowhere/at/all", &key), LH_ERR_NOT_FOUND);
}
