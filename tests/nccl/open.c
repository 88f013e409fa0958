// A library that is not NCCL, or too old, is reported in one line; settings in the environment are
// kept.
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "worker/ranks/comm/nccl.h"

static void refused(const char *path, const char *why)
{
    struct wk_nccl n;
    assert_int_equal(wk_nccl_open(path, &n), LH_ERR_UNSUPPORTED);
    const char *text = lh_err_text(LH_ERR_UNSUPPORTED);
    if (!strstr(text, why)) fail_msg("\"%s\" lacks \"%s\"", text, why);
    assert_null(strchr(text, '\n'));
    assert_null(n.library);
    assert_null(n.api.version);
    wk_nccl_close(&n);
}

TEST(not_there)
{
    refused("./no-such-nccl.so", "no-such-nccl.so");
    refused("libm.so.6", "it lacks ncclGetVersion");
    setenv(WK_NCCL_VARIABLE, "./named-by-the-environment.so", 1);
    refused(NULL, "named-by-the-environment.so");
    refused("", "named-by-the-environment.so");
    unsetenv(WK_NCCL_VARIABLE);
}

TEST(not_enough)
{
    refused(getenv("LH_TEST_NCCL_LACKS"), "it lacks ncclBroadcast");
    refused(getenv("LH_TEST_NCCL_OLD"), "is version 2.17.1; 2.18 or newer");
}

TEST(enough)
{
    struct wk_nccl n;
    char text[32];
    assert_int_equal(wk_nccl_open(getenv("LH_TEST_NCCL_NEW"), &n), LH_OK);
    assert_string_equal(wk_nccl_version_text(n.version, text), "2.28.9");
    wk_nccl_close(&n);
    assert_null(n.library);
}

// Settings of the environment hold; the others get safe values.
TEST(settings)
{
    struct lh_buf out = lh_buf(4096);
    unsetenv("NCCL_RAS_ENABLE");
    unsetenv("NCCL_DEBUG");
    setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
    wk_nccl_defaults("eth7", "/tmp/of-a-rank.log");
    assert_string_equal(getenv("NCCL_RAS_ENABLE"), "0");
    assert_string_equal(getenv("NCCL_SOCKET_IFNAME"), "ib0");
    assert_string_equal(getenv("NCCL_DEBUG_FILE"), "/tmp/of-a-rank.log");
    assert_string_equal(getenv("NCCL_DEBUG"), "WARN");
    wk_nccl_environment(&out);
    lh_put_u8(&out, 0);
    assert_non_null(strstr((const char *)out.data, "NCCL_SOCKET_IFNAME=ib0"));
    assert_non_null(strstr((const char *)out.data, "NCCL_RAS_ENABLE=0"));
    assert_null(strstr((const char *)out.data, "PATH="));
    lh_buf_free(&out);
}
