// Charge. See charge.h.
#include "server/push/charge.h"

static bool is_private(const struct lh_plan *plan, uint64_t worker)
{
    return plan->privacy.level && lh_plan_data(plan, worker) == LH_DATA_PRIVATE;
}

static lh_err check_total(const struct lh_ledger *l, const struct lh_frame *f)
{
    const struct lh_privacy *p = &l->plan.privacy;
    const struct lh_row *row = lh_ledger_row(l, f->worker);
    uint64_t before = row ? row->charged : 0, cost = lh_privacy_cost(p, f->steps);
    if (f->charged > p->steps)
        return lh_fail(LH_ERR_BUDGET, "it charges step %llu of a budget of %llu",
                       (unsigned long long)f->charged, (unsigned long long)p->steps);
    if (f->charged >= before && f->charged - before >= cost) return LH_OK;
    return lh_fail(LH_ERR_BUDGET,
                   "it costs %llu steps and states a total of %llu, after %llu: two workers use "
                   "one set of records, or its budget's file is an older copy",
                   (unsigned long long)cost, (unsigned long long)f->charged,
                   (unsigned long long)before);
}

lh_err ps_charge_check(const struct lh_ledger *l, const struct lh_frame *f)
{
    const struct lh_plan *plan = &l->plan;
    bool private = lh_plan_data(plan, f->worker) == LH_DATA_PRIVATE;
    if (!is_private(plan, f->worker)) {
        if (private)
            return lh_fail(LH_ERR_BUDGET, "its worker is private, and the plan has no terms");
        if (!f->charged) return LH_OK;
        return lh_fail(LH_ERR_BUDGET, "it charges a privacy budget, but its worker is not private");
    }
    return check_total(l, f);
}

bool ps_charge_bounds_norm(const struct lh_ledger *l, const struct lh_frame *f)
{
    return l->plan.privacy.level == LH_PRIVACY_REGION && is_private(&l->plan, f->worker);
}

double ps_charge_norm_max(const struct lh_ledger *l, const struct lh_frame *f)
{
    return lh_privacy_norm_max(&l->plan.privacy, f->values, l->shards);
}
