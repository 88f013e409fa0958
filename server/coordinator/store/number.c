// The number of a coordinator that leads. See number.h.
#include "server/coordinator/store/number.h"

static const char ROW[] = "leader";
static const uint64_t NUMBER_MAX = (uint64_t)1 << 62; // JSON's numbers have a sign

static LH_MUST lh_err read_last(const struct ps_store *s, uint64_t *out)
{
    struct lh_span value;
    *out = 0;
    if (!ps_store_get(s, ROW, &value)) return LH_OK;
    struct lh_cursor c = lh_cursor(value);
    *out = lh_get_u64(&c);
    if (!c.failed && !lh_left(&c) && *out < NUMBER_MAX) return LH_OK;
    return lh_fail(LH_ERR_CORRUPT, "the store's row %s is not a leader's number", ROW);
}

lh_err ps_store_number(struct lh_env *env, struct ps_store *s, uint64_t *out)
{
    uint8_t bytes[8];
    struct lh_buf value = lh_buf_over(bytes, sizeof bytes);
    int64_t wall_s = env->ops->wall_s(env);
    uint64_t last, now_ms = wall_s > 0 ? (uint64_t)wall_s * 1000 : 0;
    LH_TRY(read_last(s, &last));
    *out = last < now_ms ? now_ms : last + 1;
    lh_put_u64(&value, *out);
    LH_TRY(ps_store_put(s, ROW, lh_buf_span(&value)));
    return ps_store_commit(s);
}
