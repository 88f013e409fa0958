// The plan's bytes: version u16, the fields of struct lh_plan in order, lists with a u32 count.
// Four parts follow at the end: `left_out`; the highest retired number and the list of retired
// names; the change of the budget; `paused`. Empty parts at the end are omitted.
#include "common/format/plan.h"

#include <math.h>
#include <string.h>

enum { PLAN_VERSION = 4 };

void lh_plan_write(const struct lh_plan *p, struct lh_buf *out)
{
    lh_put_u16(out, PLAN_VERSION);
    lh_put_u64(out, p->number);
    lh_put_u8(out, p->phase);
    lh_put_u8(out, p->mode);
    lh_put_u8(out, p->weighting);
    lh_put_f32(out, p->eta);
    lh_put_f32(out, p->damping);
    lh_put_u32(out, p->staleness_per_live);
    lh_put_u32(out, p->live);
    for (uint32_t i = 0; i < p->live; i++) lh_put_u64(out, p->worker[i]);
    lh_put_u32(out, p->ends);
    for (uint32_t i = 0; i < p->ends; i++) lh_put_u64(out, p->end[i]);
    lh_put_u32(out, p->expelled_count);
    for (uint32_t i = 0; i < p->expelled_count; i++) lh_put_u64(out, p->expelled[i]);
    lh_put_u32(out, p->lets_back);
    for (uint32_t i = 0; i < p->lets_back; i++) {
        lh_put_u64(out, p->let_back[i].worker);
        lh_put_u32(out, p->let_back[i].count);
    }
    bool none = p->optimizer == LH_OPT_SGD; // every plan has one encoding
    lh_put_u8(out, p->optimizer);
    lh_put_f32(out, none ? 0 : p->momentum);
    lh_put_u32(out, none ? 0 : p->outer_every);
    lh_put_f32(out, none ? 0 : p->effective_step_max);
    lh_put_u32(out, p->steps_max);
    lh_put_u64(out, p->step_tokens_max);
    lh_put_u8(out, p->data);
    lh_put_u32(out, p->exceptions);
    for (uint32_t i = 0; i < p->exceptions; i++) {
        lh_put_u64(out, p->exception[i].worker);
        lh_put_u8(out, p->exception[i].data);
    }
    lh_privacy_write(&p->privacy, out);
    uint32_t left = p->phase < LH_PHASE_CLOSE ? 0 : p->left; // a run may continue after its end
    bool paused = p->paused, changed = p->budget_tokens || paused;
    bool retired = p->retired_up_to || changed;
    if (left || retired) lh_put_u32(out, left);
    for (uint32_t i = 0; i < left; i++) lh_put_u64(out, p->left_out[i]);
    if (!retired) return;
    lh_put_u32(out, p->retired_up_to);
    lh_put_u32(out, p->retired_count);
    for (uint32_t i = 0; i < p->retired_count; i++) lh_put_u64(out, p->retired[i]);
    if (!changed) return;
    lh_put_u64(out, p->budget_tokens);
    lh_put_u64(out, p->old_budget_tokens);
    lh_put_u64(out, p->changed_tokens);
    if (paused) lh_put_u8(out, 1);
}

static bool parse_people(struct lh_cursor *c, struct lh_plan *p)
{
    p->expelled_count = lh_get_u32(c);
    if (p->expelled_count > LH_EXPELLED_MAX) return false;
    for (uint32_t i = 0; i < p->expelled_count; i++) {
        p->expelled[i] = lh_get_u64(c);
        if (i && p->expelled[i] <= p->expelled[i - 1]) return false;
    }
    p->lets_back = lh_get_u32(c);
    if (p->lets_back > LH_LET_BACK_MAX) return false;
    for (uint32_t i = 0; i < p->lets_back; i++) {
        p->let_back[i].worker = lh_get_u64(c);
        p->let_back[i].count = lh_get_u32(c);
    }
    return !c->failed;
}

static bool parse_optimizer(struct lh_cursor *c, struct lh_plan *p)
{
    p->optimizer = lh_get_u8(c);
    p->momentum = lh_get_f32(c);
    p->outer_every = lh_get_u32(c);
    p->effective_step_max = lh_get_f32(c);
    bool none = p->momentum <= 0 && !p->outer_every && p->effective_step_max <= 0;
    // Neither is below zero, and zero has one encoding.
    if (signbit(p->momentum) || signbit(p->effective_step_max)) return false;
    if (p->optimizer == LH_OPT_SGD) return none;
    return p->optimizer < LH_OPT_COUNT && p->momentum < 1 && isfinite(p->effective_step_max);
}

static bool parse_bounds(struct lh_cursor *c, struct lh_plan *p)
{
    p->steps_max = lh_get_u32(c);
    p->step_tokens_max = lh_get_u64(c);
    p->data = lh_get_u8(c);
    p->exceptions = lh_get_u32(c);
    bool ok = !c->failed && p->step_tokens_max <= LH_PUSH_TOKENS_MAX &&
              p->data <= LH_DATA_PRIVATE && p->exceptions <= LH_WORKERS_MAX;
    for (uint32_t i = 0; ok && i < p->exceptions; i++) {
        p->exception[i].worker = lh_get_u64(c);
        p->exception[i].data = lh_get_u8(c);
        ok = p->exception[i].data <= LH_DATA_PRIVATE &&
             (!i || p->exception[i - 1].worker < p->exception[i].worker);
    }
    return ok && lh_privacy_read(c, &p->privacy);
}

// The last parts. Every plan has one encoding, so an empty last part is an error.
static bool parse_left_out(struct lh_cursor *c, struct lh_plan *p)
{
    if (c->failed || !lh_left(c)) return true;
    p->left = lh_get_u32(c);
    if (p->left > LH_WORKERS_MAX || (p->left && p->phase < LH_PHASE_CLOSE)) return false;
    for (uint32_t i = 0; i < p->left; i++) {
        p->left_out[i] = lh_get_u64(c);
        if (i && p->left_out[i] <= p->left_out[i - 1]) return false;
    }
    return p->left || lh_left(c); // every plan has one encoding
}

static bool parse_retired(struct lh_cursor *c, struct lh_plan *p)
{
    if (c->failed || !lh_left(c)) return true;
    p->retired_up_to = lh_get_u32(c);
    p->retired_count = lh_get_u32(c);
    if (p->retired_count > LH_RETIRED_MAX || (p->retired_count && !p->retired_up_to)) return false;
    for (uint32_t i = 0; i < p->retired_count; i++) {
        p->retired[i] = lh_get_u64(c);
        if (i && p->retired[i] <= p->retired[i - 1]) return false;
    }
    return p->retired_up_to || lh_left(c);
}

static bool parse_budget(struct lh_cursor *c, struct lh_plan *p)
{
    if (c->failed || !lh_left(c)) return true;
    p->budget_tokens = lh_get_u64(c);
    p->old_budget_tokens = lh_get_u64(c);
    p->changed_tokens = lh_get_u64(c);
    if (p->budget_tokens) return p->old_budget_tokens;
    return !p->old_budget_tokens && !p->changed_tokens && lh_left(c);
}

static bool parse_paused(struct lh_cursor *c, struct lh_plan *p)
{
    if (c->failed || !lh_left(c)) return true;
    p->paused = lh_get_u8(c) == 1;
    return p->paused && p->phase <= LH_PHASE_RUN;
}

lh_err lh_plan_parse(struct lh_span bytes, struct lh_plan *p)
{
    struct lh_cursor c = lh_cursor(bytes);
    memset(p, 0, sizeof *p);
    uint16_t version = lh_get_u16(&c);
    p->number = lh_get_u64(&c);
    p->phase = lh_get_u8(&c);
    p->mode = lh_get_u8(&c);
    p->weighting = lh_get_u8(&c);
    p->eta = lh_get_f32(&c);
    p->damping = lh_get_f32(&c);
    p->staleness_per_live = lh_get_u32(&c);
    p->live = lh_get_u32(&c);
    bool ok = !c.failed && version == PLAN_VERSION && p->phase <= LH_PHASE_END &&
              p->mode <= LH_MODE_BSP && p->weighting <= LH_WEIGHT_TOKENS && isfinite(p->eta) &&
              isfinite(p->damping) && p->live <= LH_WORKERS_MAX;
    if (!ok) return lh_fail(LH_ERR_MALFORMED, "a plan that this build can't read");
    for (uint32_t i = 0; i < p->live; i++) p->worker[i] = lh_get_u64(&c);
    p->ends = lh_get_u32(&c);
    if (p->ends > LH_SHARDS_MAX) return lh_fail(LH_ERR_MALFORMED, "a plan with %u ends", p->ends);
    for (uint32_t i = 0; i < p->ends; i++) p->end[i] = lh_get_u64(&c);
    if (!parse_people(&c, p))
        return lh_fail(LH_ERR_MALFORMED, "a plan that expels or lets back more than it can");
    if (!parse_optimizer(&c, p))
        return lh_fail(LH_ERR_MALFORMED, "a plan with an optimizer that this build can't read");
    if (!parse_bounds(&c, p))
        return lh_fail(LH_ERR_MALFORMED, "a plan with bounds that this build can't read");
    if (!parse_left_out(&c, p))
        return lh_fail(LH_ERR_MALFORMED, "a plan leaves out a worker that must not be left out");
    if (!parse_retired(&c, p))
        return lh_fail(LH_ERR_MALFORMED, "a plan retires a name that must not be retired");
    if (!parse_budget(&c, p)) return lh_fail(LH_ERR_MALFORMED, "a plan with an impossible budget");
    if (!parse_paused(&c, p)) return lh_fail(LH_ERR_MALFORMED, "a plan with a pause that can't be");
    if (c.failed || lh_left(&c)) return lh_fail(LH_ERR_MALFORMED, "a plan of the wrong length");
    return LH_OK;
}

enum lh_data lh_plan_data(const struct lh_plan *p, uint64_t worker)
{
    for (uint32_t i = 0; i < p->exceptions; i++)
        if (p->exception[i].worker == worker) return (enum lh_data)p->exception[i].data;
    return (enum lh_data)p->data;
}

uint64_t lh_plan_tokens_max(const struct lh_plan *p)
{
    if (!p->steps_max) return LH_PUSH_TOKENS_MAX;
    uint64_t n = (uint64_t)p->steps_max + p->steps_max / 4 + 1;
    uint64_t each = p->step_tokens_max ? p->step_tokens_max : LH_STEP_TOKENS;
    return n <= LH_PUSH_TOKENS_MAX / each ? n * each : LH_PUSH_TOKENS_MAX;
}

bool lh_plan_has(const struct lh_plan *p, uint64_t worker)
{
    for (uint32_t i = 0; i < p->live; i++)
        if (p->worker[i] == worker) return true;
    return false;
}

bool lh_plan_expelled(const struct lh_plan *p, uint64_t identity)
{
    uint32_t low = 0, high = p->expelled_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (p->expelled[mid] < identity)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->expelled_count && p->expelled[low] == identity;
}

bool lh_plan_is_retired(const struct lh_plan *p, uint64_t worker)
{
    for (uint32_t i = 0; i < p->retired_count; i++)
        if (p->retired[i] == worker) return true;
    return false;
}

bool lh_plan_retires(const struct lh_plan *p, uint64_t incarnation)
{
    return p->retired_up_to && incarnation >> 32 <= p->retired_up_to;
}

bool lh_plan_left_out(const struct lh_plan *p, uint64_t worker)
{
    for (uint32_t i = 0; i < p->left; i++)
        if (p->left_out[i] == worker) return true;
    return false;
}

const char *lh_phase_name(uint8_t phase)
{
    static const char *const name[] = {"waiting", "running", "draining", "closing", "ended"};
    return phase < LH_COUNT(name) ? name[phase] : "?";
}
