// How a log judges a point: every case of epoch, version and chain.
#include "common/base/check.h"
#include "server/point.h"
#include "tests/test.h"

enum { EPOCH = 5, END = 20 };
enum chain { NONE, A, B }; // a point may name no chain; a log may have no record there

static const struct lh_hash *hash(enum chain c)
{
    static const struct lh_hash of[] = {{{0}}, {{1}}, {{2}}};
    return &of[c];
}

static const struct {
    uint64_t epoch, version;
    enum chain named, in_log;
    enum ps_stand stand;
} cases[] = {
    // A point of another epoch: version and chain do not matter.
    {EPOCH - 1, END - 1, A, A, PS_POINT_EARLIER},
    {EPOCH - 1, END + 1, A, NONE, PS_POINT_EARLIER},
    {EPOCH - 1, END, NONE, B, PS_POINT_EARLIER},
    {0, 0, NONE, NONE, PS_POINT_EARLIER},
    {EPOCH + 1, END - 1, A, A, PS_POINT_LATER},
    {EPOCH + 1, END + 1, A, NONE, PS_POINT_LATER},
    {EPOCH + 1, 0, NONE, NONE, PS_POINT_LATER},
    // Above the end of the log, chains can't be compared.
    {EPOCH, END + 1, A, NONE, PS_POINT_AHEAD},
    {EPOCH, END + 1, NONE, NONE, PS_POINT_AHEAD},
    {EPOCH, UINT64_MAX, B, A, PS_POINT_AHEAD},
    // At the end and below it, the chain decides.
    {EPOCH, END, A, A, PS_POINT_OURS},
    {EPOCH, END - 1, B, B, PS_POINT_OURS},
    {EPOCH, END, A, B, PS_POINT_OTHER},
    {EPOCH, END - 1, B, A, PS_POINT_OTHER},
    {EPOCH, 0, A, A, PS_POINT_OURS},
    {EPOCH, 0, A, B, PS_POINT_OTHER},
    // Without a record there, the log can't tell; without a chain, the version decides.
    {EPOCH, END - 1, A, NONE, PS_POINT_CUT},
    {EPOCH, 0, A, NONE, PS_POINT_CUT},
    {EPOCH, END, NONE, A, PS_POINT_OURS},
    {EPOCH, END - 1, NONE, NONE, PS_POINT_OURS},
};

TEST(each_case_has_its_answer)
{
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        struct lh_point p = {cases[i].epoch, cases[i].version, *hash(cases[i].named)};
        enum chain in_log = cases[i].in_log;
        struct ps_log_answer log = {EPOCH, END, in_log == NONE ? NULL : hash(in_log)};
        if (ps_point_stand(&p, &log) != cases[i].stand) fail_msg("case %zu", i);
    }
}

// Only the chains of the last records are kept; a record that does not follow replaces all of them.
TEST(chains_are_known_of_the_last_records)
{
    struct ps_chains c = {0};
    assert_null(ps_chains_at(&c, 0));
    for (uint64_t v = 5; v < 5 + 2 * PS_CHAINS; v++) {
        struct lh_hash chain = {{(uint8_t)v, (uint8_t)(v >> 8)}};
        ps_chains_add(&c, v, &chain);
        uint64_t first = v - 4 > PS_CHAINS ? v - PS_CHAINS + 1 : 5;
        assert_null(ps_chains_at(&c, first - 1));
        assert_null(ps_chains_at(&c, v + 1));
        assert_int_equal(ps_chains_at(&c, first)->b[0], (uint8_t)first);
        assert_int_equal(ps_chains_at(&c, first)->b[1], (uint8_t)(first >> 8));
        assert_memory_equal(ps_chains_at(&c, v)->b, chain.b, LH_HASH_BYTES);
    }
    ps_chains_add(&c, 7, hash(A));
    assert_memory_equal(ps_chains_at(&c, 7)->b, hash(A)->b, LH_HASH_BYTES);
    assert_null(ps_chains_at(&c, 6));
    assert_null(ps_chains_at(&c, 8));
}
