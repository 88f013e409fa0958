// The role table, cell by cell against a table written by hand; copies of a message's bytes.
#include <string.h>

#include "common/base/check.h"
#include "common/net/transport.h"
#include "tests/test.h"

static const enum lh_role roles[] = {LH_W, LH_S, LH_C, LH_A};

// Written a second time on purpose: a slip in the X-macro would give a role a right it must not
// have.
static const struct {
    const char *path, *may; // one letter per role that may call
} expected[] = {
    {"longhaul.v1.Member/Join", "W"},     {"longhaul.v1.Member/Lease", "W"},
    {"longhaul.v1.Member/Report", "SC"},  {"longhaul.v1.Member/Status", "WSCA"},
    {"longhaul.v1.Member/Drain", "A"},    {"longhaul.v1.Shard/Hello", "W"},
    {"longhaul.v1.Member/Epoch", "SC"},   {"longhaul.v1.Shard/Offer", "W"},
    {"longhaul.v1.Shard/Restore", "W"},   {"longhaul.v1.Shard/Push", "W"},
    {"longhaul.v1.Shard/Follow", "WSA"},  {"longhaul.v1.Shard/Snapshot", "WSA"},
    {"longhaul.v1.Member/InSync", "SC"},  {"longhaul.v1.Shard/Confirm", "SC"},
    {"longhaul.v1.Shard/Status", "WSCA"}, {"grpc.health.v1.Health/Check", "WSCA"},
    {"longhaul.v1.Member/Move", "A"},     {"longhaul.v1.Data/Unit", "W"},
    {"longhaul.v1.Member/Expel", "A"},    {"longhaul.v1.Member/Adopt", "A"},
    {"longhaul.v1.Member/Refold", "A"},   {"longhaul.v1.Member/Pause", "A"},
};

static const char *row_of(enum lh_rpc rpc)
{
    for (size_t i = 0; i < LH_COUNT(expected); i++)
        if (!strcmp(expected[i].path, lh_rpc_path(rpc))) return expected[i].may;
    return NULL;
}

TEST(every_cell_of_the_role_table)
{
    assert_int_equal(LH_COUNT(expected), LH_RPC_COUNT);
    for (int rpc = 0; rpc < LH_RPC_COUNT; rpc++) {
        const char *may = row_of((enum lh_rpc)rpc);
        assert_non_null(may);
        for (size_t r = 0; r < LH_COUNT(roles); r++) {
            bool want = strchr(may, "WSCA"[r]) != NULL;
            assert_int_equal(lh_rpc_allowed((enum lh_rpc)rpc, roles[r]), want);
        }
    }
}

TEST(unlisted_calls_and_roles_are_denied)
{
    assert_false(lh_rpc_allowed(LH_RPC_COUNT, LH_A));
    assert_false(lh_rpc_allowed((enum lh_rpc) - 1, LH_A));
    assert_false(lh_rpc_allowed(LH_RPC_STATUS, (enum lh_role)0));
    assert_false(lh_rpc_allowed(LH_RPC_STATUS, (enum lh_role)(LH_W | LH_A))); // a peer has one role
    assert_false(lh_rpc_allowed(LH_RPC_STATUS, (enum lh_role)16));
}

TEST(bytes_are_copied_across_parts)
{
    const struct lh_span part[] = {{(const uint8_t *)"abc", 3},
                                   {NULL, 0},
                                   {(const uint8_t *)"d", 1},
                                   {(const uint8_t *)"efgh", 4}};
    const struct lh_msg m = {.part = part, .parts = LH_COUNT(part), .len = 8};
    char out[9];
    for (size_t at = 0; at <= 8; at++) {
        for (size_t n = 0; at + n <= 8; n++) {
            memset(out, '.', sizeof out);
            assert_true(lh_msg_copy(&m, at, out, n));
            assert_memory_equal(out, &"abcdefgh"[at], n);
            assert_int_equal(out[n], '.');
        }
        assert_false(lh_msg_copy(&m, at, out, 9 - at));
        assert_false(lh_msg_copy(&m, at, out, SIZE_MAX));
    }
    assert_false(lh_msg_copy(&m, 9, out, 0));
    const struct lh_msg none = {0};
    assert_true(lh_msg_copy(&none, 0, out, 0));
    assert_false(lh_msg_copy(&none, 0, out, 1));
}
