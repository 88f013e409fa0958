// Terms of differential privacy. See privacy.h for the bytes.
#include "common/format/privacy.h"

#include <math.h>
#include <string.h>

void lh_privacy_write(const struct lh_privacy *t, struct lh_buf *out)
{
    lh_put_u8(out, t->level);
    if (!t->level) return;
    lh_put_f64(out, t->sigma);
    lh_put_f64(out, t->rate);
    lh_put_f64(out, t->clip);
    lh_put_f64(out, t->epsilon);
    lh_put_f64(out, t->delta);
    lh_put_u64(out, t->steps);
    lh_put_u64(out, t->ahead);
    lh_put_u32(out, t->local_steps);
    lh_put_u32(out, t->record_tokens);
}

static bool is_above(double x, double most)
{
    return isfinite(x) && x > 0 && x <= most;
}

bool lh_privacy_read(struct lh_cursor *c, struct lh_privacy *t)
{
    memset(t, 0, sizeof *t);
    t->level = lh_get_u8(c);
    if (c->failed || !t->level) return !c->failed;
    t->sigma = lh_get_f64(c);
    t->rate = lh_get_f64(c);
    t->clip = lh_get_f64(c);
    t->epsilon = lh_get_f64(c);
    t->delta = lh_get_f64(c);
    t->steps = lh_get_u64(c);
    t->ahead = lh_get_u64(c);
    t->local_steps = lh_get_u32(c);
    t->record_tokens = lh_get_u32(c);
    bool whole = t->level != LH_PRIVACY_REGION || t->rate >= 1;
    return !c->failed && t->level <= LH_PRIVACY_REPORTED && whole && is_above(t->sigma, 1e6) &&
           is_above(t->rate, 1) && is_above(t->clip, 1e9) && is_above(t->epsilon, 1e3) &&
           is_above(t->delta, 0.5) && t->steps && t->steps <= LH_CHARGED_MAX && t->ahead &&
           t->ahead <= LH_CHARGED_MAX && t->local_steps;
}

bool lh_privacy_equal(const struct lh_privacy *a, const struct lh_privacy *b)
{
    struct lh_buf x = lh_buf(128), y = lh_buf(128);
    lh_privacy_write(a, &x);
    lh_privacy_write(b, &y);
    bool same = !x.err && !y.err && lh_span_equal(lh_buf_span(&x), lh_buf_span(&y));
    lh_buf_free(&x);
    lh_buf_free(&y);
    return same;
}

uint64_t lh_privacy_cost(const struct lh_privacy *t, uint32_t steps)
{
    return t->level == LH_PRIVACY_REGION ? 1 : steps;
}

double lh_privacy_multiplier(const struct lh_privacy *t)
{
    return t->level == LH_PRIVACY_REGION ? t->sigma / 2 : t->sigma;
}

double lh_privacy_norm_max(const struct lh_privacy *t, uint64_t values, uint32_t shards)
{
    enum { TAIL = 8 }; // a chi of n degrees is above sqrt(n) + 8 with probability exp(-32)
    return t->clip / sqrt(shards) + t->sigma * t->clip * (sqrt((double)values) + TAIL);
}

const char *lh_privacy_level_name(uint8_t level)
{
    static const char *const name[] = {"none", "record", "region", "reported"};
    return level < LH_COUNT(name) ? name[level] : "?";
}
