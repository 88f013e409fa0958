// Decide: what becomes of a received push (server/docs/0000-protocol.md#rule-2 to #rule-4, #rule-6,
// #rule-25; DESIGN.md#section-5 step 9).
//
// Order: session, incarnation, dedupe, tokens, move, phase of the run; then, after unsealing:
// payload, staleness, norm. Only the checks after unsealing consume the step, by a record. No I/O
// here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/push/decide.h"

static void not_final(struct ps_decision *d, lh_err error)
{
    d->verdict = PS_NOT_FINAL;
    d->error = error;
}

void ps_decide_step(const struct ps_shard *s, const struct lh_frame *f,
                    const struct lh_digest *digest, struct ps_decision *d)
{
    memset(d, 0, sizeof *d);
    if (!ps_shard_session(s, f->worker, f->incarnation) && !LH_BUG("no_hello")) {
        not_final(d, lh_fail(LH_ERR_NEED_HELLO, "say hello to this process first"));
        return;
    }
    const struct lh_row *row = lh_ledger_row(s->head, f->worker);
    if (!row || !lh_incarnation_equal(row->incarnation, f->incarnation)) {
        bool newer = row && row->incarnation.number >= f->incarnation.number;
        not_final(d, newer ? lh_fail(LH_ERR_FENCED, "a newer incarnation of this worker exists")
                           : lh_fail(LH_ERR_NEED_HELLO, "this incarnation is not known yet"));
        return;
    }
    uint64_t last = lh_row_step(row);
    if (f->step == last) {
        if (lh_digest_equal(&row->last_digest, digest))
            d->verdict = PS_DECIDED_BEFORE;
        else
            not_final(d, lh_fail(LH_ERR_PROTOCOL, "step %llu was decided with other bytes",
                                 (unsigned long long)f->step));
    } else if (f->step < last) {
        not_final(d, lh_fail(LH_ERR_PROTOCOL, "step %llu is older than the last decided one",
                             (unsigned long long)f->step));
    } else if (f->step > last + 1) {
        not_final(d, lh_fail(LH_ERR_BEHIND, "step %llu, %llu is expected next",
                             (unsigned long long)f->step, (unsigned long long)last + 1));
    } else if (f->tokens > LH_PUSH_TOKENS_MAX) {
        not_final(d,
                  lh_fail(LH_ERR_MALFORMED,
                          "a push that says it stands for %llu tokens: one stands for %llu at "
                          "most",
                          (unsigned long long)f->tokens, (unsigned long long)LH_PUSH_TOKENS_MAX));
    } else if (ps_shard_frozen(s)) {
        not_final(d, lh_fail(LH_ERR_BUSY, "shard %u goes to another server now", s->id));
    } else if (s->head->plan.phase < LH_PHASE_RUN) {
        not_final(d, lh_fail(LH_ERR_BUSY, "the run has not begun"));
    } else if (s->head->plan.phase >= LH_PHASE_CLOSE) {
        not_final(d, lh_fail(LH_ERR_BUSY, "the run is closing; no push is taken any more"));
    } else {
        d->verdict = PS_DECIDED_NOW;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double ps_median_norm(const struct ps_shard *s)
{
    double sorted[LH_NORM_WINDOW];
    size_t n = s->norm_count < LH_NORM_WINDOW ? (size_t)s->norm_count : LH_NORM_WINDOW;
    if (n < 8) return 0;
    memcpy(sorted, s->norm, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return sorted[n / 2];
}

// w of DESIGN.md#section-6: staleness damping, and weighting by tokens where the plan says so.
static double weight(const struct ps_shard *s, const struct ps_gate *gate, const struct lh_frame *f,
                     uint64_t staleness)
{
    const struct lh_plan *plan = &s->head->plan;
    if (plan->mode == LH_MODE_BSP) return 1;
    double w = pow(1 + (double)staleness, -(double)plan->damping);
    if (plan->weighting == LH_WEIGHT_TOKENS && gate->mean_tokens > 0) {
        double share = (double)f->tokens / gate->mean_tokens;
        w *= share < 0.25 ? 0.25 : share > 4 ? 4 : share;
    }
    return w;
}

static void refuse(struct ps_decision *d, lh_err reason)
{
    d->kind = LH_REFUSE;
    d->error = reason;
    d->scale = 0;
}

void ps_decide_value(const struct ps_shard *s, const struct ps_gate *gate, const struct lh_frame *f,
                     lh_err unsealed, const struct lk_payload_info *info, struct ps_decision *d)
{
    const struct lh_plan *plan = &s->head->plan;
    uint32_t live = plan->live ? plan->live : 1;
    d->staleness = lh_ledger_staleness(s->head, f->worker, f->base_others);
    if (unsealed) {
        refuse(d, unsealed);
        return;
    }
    d->norm = sqrt(info->sum_squares);
    if (plan->mode == LH_MODE_ASYNC && d->staleness > (uint64_t)plan->staleness_per_live * live) {
        refuse(d,
               lh_fail(LH_ERR_STALE, "%llu pushes of others since its base, at most %u are allowed",
                       (unsigned long long)d->staleness, plan->staleness_per_live * live));
        return;
    }
    double median = ps_median_norm(s);
    d->kind = LH_ADMIT;
    d->error = LH_OK;
    d->scale = (float)((double)plan->eta / live * weight(s, gate, f, d->staleness));
    if (gate->norm_gate <= 0 || median <= 0 || d->norm <= gate->norm_gate * median) return;
    if (LH_BUG("gate_refuses"))
        refuse(d, lh_fail(LH_ERR_TOO_LARGE, "its norm is above the gate"));
    else // Clipped, not refused: a refused push returns to its residual and comes back no smaller.
        d->scale *= (float)(gate->norm_gate * median / d->norm);
}
