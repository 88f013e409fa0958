// Possession. See possession.h.
#include "kernels/state/possession.h"

#include "common/base/buf.h"

enum { ARRAYS = 3, PARTS = 1 + ARRAYS * LK_POSSESSION_PIECES };

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t add_pieces(const float *values, uint64_t count, uint64_t seed, struct lh_span *part)
{
    const uint64_t most = LK_POSSESSION_PIECES * LK_POSSESSION_VALUES;
    if (count <= most) {
        *part = lh_span(values, count * sizeof *values);
        return 1;
    }
    for (size_t i = 0; i < LK_POSSESSION_PIECES; i++) {
        uint64_t at = next(&seed) % (count - LK_POSSESSION_VALUES + 1);
        part[i] = lh_span(values + at, LK_POSSESSION_VALUES * sizeof *values);
    }
    return LK_POSSESSION_PIECES;
}

struct lh_hash lk_possession(const struct lk_replica *r, const struct lh_hash *challenge)
{
    static const char LABEL[] = "longhaul possession 1";
    const struct lh_ledger *l = &r->ledger;
    uint8_t bytes[sizeof LABEL + 4 + 8 + 8 + LH_HASH_BYTES];
    struct lh_buf head = lh_buf_over(bytes, sizeof bytes);
    struct lh_span part[PARTS];
    struct lh_cursor at = lh_cursor(lh_span(challenge->b, LH_HASH_BYTES));
    uint64_t seed = lh_get_u64(&at);
    lh_put(&head, LABEL, sizeof LABEL - 1);
    lh_put_u32(&head, l->shard);
    lh_put_u64(&head, l->epoch);
    lh_put_u64(&head, l->version);
    lh_put(&head, l->chain.b, LH_HASH_BYTES);
    LH_ASSERT(!head.err);
    part[0] = lh_buf_span(&head);
    size_t n = 1;
    const float *const arrays[ARRAYS] = {r->theta, r->outer.u, r->outer.m};
    for (size_t i = 0; i < ARRAYS; i++)
        if (arrays[i]) n += add_pieces(arrays[i], r->layout->values, seed, part + n);
    return lh_hash_of(lh_span(challenge->b, LH_HASH_BYTES), part, n);
}
