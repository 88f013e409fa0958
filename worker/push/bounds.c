// Bounds: limits the steps and tokens that a push reports to what its server accepts
// (server/docs/0004-authority.md#bounds-on-what-peers-claim).
//
// A cut may be hours late, or carry the tokens of refused pushes. The server refuses a push that
// reports more than the plan and the worker's leases allow, so the worker reports less. Tokens
// above the bound of one push go into later pushes. Tokens above the allowance are never reported:
// they were trained more than once, after crashes.
#include "worker/push/bounds.h"

#include "worker/worker.h"

// Tokens of this worker's pushes that the shard's log holds, or may hold once the outbox is
// decided.
static uint64_t said(const struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    uint64_t sum = row ? row->tokens : 0;
    for (const struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (!e->version) sum += e->head.tokens; // not folded yet
    return sum;
}

static uint64_t allowed(const struct wk_shard *s, const struct lh_plan *plan,
                        const struct lh_frame *f)
{
    double most = (double)lh_plan_tokens_max(plan), have = (double)said(s);
    if ((double)f->allowance > most) most = (double)f->allowance;
    return most > have ? (uint64_t)(most - have) : 0;
}

uint64_t wk_bounds_apply(const struct wk_shard *s, struct lh_frame *f)
{
    const struct lh_plan *plan = &s->replica.ledger.plan;
    uint64_t all = f->tokens;
    f->allowance = s->worker->allowance;
    f->allowance_tag = f->allowance > 0 ? s->progress.allowance_tag : 0;
    if (!plan->steps_max) return 0;
    if (f->steps > plan->steps_max) f->steps = plan->steps_max;
    uint64_t most = lh_plan_tokens_max(plan);
    if (f->tokens > most) f->tokens = most;
    if (lh_plan_data(plan, s->worker->id) != LH_DATA_LEASED) return all - f->tokens;
    if (!(f->allowance > 0)) { // the coordinator has named no allowance in this life yet
        f->tokens = 0;
        return all;
    }
    most = allowed(s, plan, f);
    if (f->tokens <= most) return all - f->tokens;
    f->tokens = most;
    return 0;
}
