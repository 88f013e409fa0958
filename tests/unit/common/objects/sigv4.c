// common/objects/sigv4.c: signatures published by AWS, from its test suite for version 4 and from
// the examples in the S3 documentation.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/objects/sigv4.h"
#include "tests/test.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void expect(const struct lh_sigv4_request *r, const char *id, const char *secret,
                   const char *names, const char *signature)
{
    struct lh_sigv4_keys keys = {.token = ""};
    char got[LH_SIGV4_AUTHORIZATION_BYTES], want[LH_SIGV4_AUTHORIZATION_BYTES];
    snprintf(keys.id, sizeof keys.id, "%s", id);
    snprintf(keys.secret, sizeof keys.secret, "%s", secret);
    assert_int_equal(lh_sigv4_sign(r, &keys, got), LH_OK);
    snprintf(want, sizeof want,
             "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=%s, "
             "Signature=%s",
             id, r->time, r->region, r->service, names, signature);
    assert_string_equal(got, want);
}

// Cases of aws-sig-v4-test-suite, by their names there.
TEST(the_test_suites_are_right)
{
    static const struct {
        const char *name, *method, *query, *signature;
    } row[] = {
        {"get-vanilla", "GET", "",
         "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"post-vanilla", "POST", "",
         "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
        {"get-vanilla-query-order-key-case", "GET", "Param1=value1&Param2=value2",
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        const struct lh_sigv4_request r = {
            .method = row[i].method,
            .path = "/",
            .query = row[i].query,
            .header = {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}},
            .headers = 2,
            .sha256 = EMPTY,
            .region = "us-east-1",
            .service = "service",
            .time = "20150830T123600Z"};
        expect(&r, "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "host;x-amz-date",
               row[i].signature);
    }
}

TEST(s3s_examples_are_right)
{
    static const struct {
        const char *path, *query, *range, *signature;
    } row[] = {
        {"/test.txt", "", "bytes=0-9",
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {"/", "lifecycle=", NULL,
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {"/", "max-keys=2&prefix=J", NULL,
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_sigv4_request r = {.method = "GET",
                                     .path = row[i].path,
                                     .query = row[i].query,
                                     .header = {{"host", "examplebucket.s3.amazonaws.com"}},
                                     .headers = 1,
                                     .sha256 = EMPTY,
                                     .region = "us-east-1",
                                     .service = "s3",
                                     .time = "20130524T000000Z"};
        if (row[i].range) r.header[r.headers++] = (struct lh_sigv4_header){"range", row[i].range};
        r.header[r.headers++] = (struct lh_sigv4_header){"x-amz-content-sha256", EMPTY};
        r.header[r.headers++] = (struct lh_sigv4_header){"x-amz-date", r.time};
        expect(&r, "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
               row[i].range ? "host;range;x-amz-content-sha256;x-amz-date"
                            : "host;x-amz-content-sha256;x-amz-date",
               row[i].signature);
    }
}

TEST(times_hashes_and_codes)
{
    char time[LH_SIGV4_TIME_BYTES], hash[LH_SIGV4_SHA256_BYTES];
    struct lh_buf text = lh_buf(200);
    lh_sigv4_time(1440938160, time);
    assert_string_equal(time, "20150830T123600Z");
    lh_sigv4_sha256(lh_span("", 0), hash);
    assert_string_equal(hash, EMPTY);
    lh_sigv4_encode(&text, "a/b c+*=\xc3\xa4~", true);
    lh_put_u8(&text, 0);
    assert_string_equal((char *)text.data, "a/b%20c%2B%2A%3D%C3%A4~");
    lh_buf_clear(&text);
    lh_sigv4_encode(&text, "a/b", false);
    lh_put_u8(&text, 0);
    assert_string_equal((char *)text.data, "a%2Fb");
    lh_buf_free(&text);
}

TEST(too_long_a_request_is_refused)
{
    char *query = malloc(40 << 10), out[LH_SIGV4_AUTHORIZATION_BYTES];
    const struct lh_sigv4_keys keys = {.id = "a", .secret = "b"};
    assert_non_null(query);
    memset(query, 'q', 40 << 10);
    query[(40 << 10) - 1] = 0;
    const struct lh_sigv4_request r = {.method = "GET",
                                       .path = "/",
                                       .query = query,
                                       .sha256 = EMPTY,
                                       .region = "r",
                                       .service = "s3",
                                       .time = "20130524T000000Z"};
    assert_int_equal(lh_sigv4_sign(&r, &keys, out), LH_ERR_TOO_LARGE);
    struct lh_sigv4_request far = r;
    far.query = "";
    assert_int_equal(lh_sigv4_sign(&far, &keys, out), LH_OK);
    query[160] = 0;
    far.region = query;
    assert_int_equal(lh_sigv4_sign(&far, &keys, out), LH_ERR_TOO_LARGE);
    free(query);
}
