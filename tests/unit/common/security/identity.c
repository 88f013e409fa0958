// Identities: the one accepted form, and refusal of every near miss.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/security/identity.h"
#include "tests/test.h"

#define LONGEST "abcdefghijklmnopqrstuvwxyz0123456789._-abcdefghijklmnopqrstuvwx" // 63 characters

TEST(an_identity_is_read_and_written)
{
    const char *uri = "spiffe://lab.example/longhaul/run-7/worker/eu-west_1/w0.a";
    struct lh_peer p;
    char out[LH_URI_BYTES];
    assert_int_equal(lh_peer_parse(lh_span_str(uri), &p), LH_OK);
    assert_int_equal(p.role, LH_W);
    assert_string_equal(p.domain, "lab.example");
    assert_string_equal(p.run, "run-7");
    assert_string_equal(p.region, "eu-west_1");
    assert_string_equal(p.name, "w0.a");
    lh_peer_uri(&p, out);
    assert_string_equal(out, uri);
}

TEST(the_longest_fits)
{
    const char *uri = "spiffe://" LONGEST "/longhaul/" LONGEST "/coordinator/" LONGEST "/" LONGEST;
    struct lh_peer p;
    char out[LH_URI_BYTES];
    assert_int_equal(strlen(LONGEST), LH_NAME_BYTES - 1);
    assert_int_equal(lh_peer_parse(lh_span_str(uri), &p), LH_OK);
    lh_peer_uri(&p, out);
    assert_string_equal(out, uri);
}

TEST(everything_else_is_refused)
{
    static const char *bad[] = {
        "",
        "spiffe://",
        "spiffe:///longhaul/r/worker/eu/w",
        "http://d/longhaul/r/worker/eu/w",
        "SPIFFE://d/longhaul/r/worker/eu/w",
        " spiffe://d/longhaul/r/worker/eu/w",
        "spiffe://d/longhaul/r/worker/eu",
        "spiffe://d/longhaul/r/worker/eu/",
        "spiffe://d/longhaul/r/worker/eu/w/",
        "spiffe://d/longhaul/r/worker/eu/w/x",
        "spiffe://d/longhaul/r/worker//w",
        "spiffe://d//longhaul/r/worker/eu/w",
        "spiffe://d/shorthaul/r/worker/eu/w",
        "spiffe://d/longhaul/r/boss/eu/w",
        "spiffe://d/longhaul/r/Worker/eu/w",
        "spiffe://d/longhaul/r/work/eu/w",
        "spiffe://d/longhaul/r/worker/EU/w",
        "spiffe://d/longhaul/r/worker/e%75/w",
        "spiffe://d/longhaul/r/worker/eu/w?x",
        "spiffe://d/longhaul/r/worker/eu/w#x",
        "spiffe://d:1/longhaul/r/worker/eu/w",
        "spiffe://u@d/longhaul/r/worker/eu/w",
        "spiffe://d/longhaul/r/worker/../w",
        "spiffe://d/longhaul/r/worker/./w",
        "spiffe://d/longhaul/r/worker/eu/w ",
        "spiffe://d/longhaul/r/worker/eu/\xc3\xa9",
        "spiffe://" LONGEST "x/longhaul/r/worker/eu/w",
        "spiffe://d/longhaul/r/worker/eu/" LONGEST "x",
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct lh_peer p = {.run = "untouched"};
        lh_err err = lh_peer_parse(lh_span_str(bad[i]), &p);
        if (err != LH_ERR_UNAUTHENTICATED) print_error("accepted: %s\n", bad[i]);
        assert_int_equal(err, LH_ERR_UNAUTHENTICATED);
        assert_string_equal(p.run, "untouched");
    }
}

TEST(a_zero_inside_is_refused)
{
    char uri[] = "spiffe://d/longhaul/r/worker/eu/w0admin";
    struct lh_peer p;
    uri[strlen(uri) - 6] = 0;
    assert_int_equal(lh_peer_parse(lh_span(uri, sizeof uri - 1), &p), LH_ERR_UNAUTHENTICATED);
    assert_int_equal(lh_peer_parse(lh_span(uri, sizeof uri), &p), LH_ERR_UNAUTHENTICATED);
}

// Each truncation and each changed byte of an identity is refused or names another peer.
TEST(no_two_texts_name_the_same_peer)
{
    const char *good = "spiffe://d.x/longhaul/r/admin/eu/w-1";
    char text[64], again[LH_URI_BYTES];
    struct lh_peer p;
    size_t n = strlen(good), accepted = 0;
    for (size_t i = 0; i < n; i++) {
        for (int c = 0; c < 256; c++) {
            memcpy(text, good, n);
            text[i] = (char)c;
            if (lh_peer_parse(lh_span(text, n), &p)) continue;
            lh_peer_uri(&p, again);
            assert_int_equal(strlen(again), n);
            assert_memory_equal(again, text, n);
            accepted++;
        }
    }
    assert_true(accepted > n);
    for (size_t i = 0; i < n; i++)
        if (!lh_peer_parse(lh_span(good, i), &p)) {
            lh_peer_uri(&p, again);
            assert_int_equal(strlen(again), i);
        }
}

TEST(roles_have_names)
{
    const enum lh_role all[] = {LH_W, LH_S, LH_C, LH_A};
    for (size_t i = 0; i < LH_COUNT(all); i++) {
        enum lh_role back = 0;
        assert_int_equal(lh_role_parse(lh_role_name(all[i]), &back), LH_OK);
        assert_int_equal(back, all[i]);
    }
    enum lh_role role;
    assert_int_equal(lh_role_parse("", &role), LH_ERR_INVALID);
    assert_int_equal(lh_role_parse("workers", &role), LH_ERR_INVALID);
    assert_string_equal(lh_role_name(0), "unknown");
    assert_string_equal(lh_role_name(LH_W | LH_S), "unknown");
}

TEST(a_coordinator_serves_shards_too)
{
    const enum lh_role all[] = {LH_W, LH_S, LH_C, LH_A};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(lh_role_serves(all[i], all[k]),
                             i == k || (all[i] == LH_C && all[k] == LH_S));
}
