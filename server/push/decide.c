// Decide: the outcome of a received push (server/docs/0000-protocol.md#rule-2 to #rule-4, #rule-6,
// #rule-25, #rule-31 for norms; DESIGN.md#section-5 step 9).
//
// Order: expelled, session, incarnation, dedupe, move, phase of the run, key of the grants, pace;
// then, after unsealing: payload, base, claims, bounds, budget, set aside, staleness, norm. Only
// the checks after unsealing write a record, which consumes the step. No I/O here.
#include <float.h>
#include <math.h>
#include <string.h>

#include "server/push/charge.h"
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
    if (lh_plan_expelled(&s->head->plan, f->worker)) {
        not_final(d, lh_fail(LH_ERR_EXPELLED, "this worker was expelled from the run; ask its "
                                              "operators, who can undo it (longhaul admit)"));
        return;
    }
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
    } else if (ps_shard_frozen(s)) {
        not_final(d, lh_fail(LH_ERR_BUSY, "shard %u goes to another server now", s->id));
    } else if (s->head->plan.phase < LH_PHASE_RUN) {
        not_final(d, lh_fail(LH_ERR_BUSY, "the run has not begun"));
    } else if (s->head->plan.phase >= LH_PHASE_CLOSE) {
        bool over = s->head->plan.phase == LH_PHASE_END;
        not_final(d, lh_fail(LH_ERR_BUSY, over ? "the run has ended without this push"
                                               : "the run is closing; no push is taken any more"));
    } else if (ps_grants_wait(&s->grants, f)) {
        not_final(d, lh_fail(LH_ERR_BUSY,
                             "the coordinator has not yet sent the key of the "
                             "grants to shard %u",
                             s->id));
    } else if (ps_pace_is_busy(s, f->worker)) {
        not_final(d, lh_fail(LH_ERR_BUSY,
                             "this worker pushes to shard %u far more often than the "
                             "others do; send it again later",
                             s->id));
    } else {
        d->verdict = PS_DECIDED_NOW;
    }
}

// The base must not lie beyond the log's epoch or version. `base_others` above the log's own count
// is cut to it: a larger count would not make the push any fresher.
static lh_err check_base(const struct lh_ledger *l, const struct lh_frame *f)
{
    if (f->base_epoch > l->epoch)
        return lh_fail(LH_ERR_BOUND, "its base is of epoch %llu, the shard is in epoch %llu",
                       (unsigned long long)f->base_epoch, (unsigned long long)l->epoch);
    if (f->base_epoch == l->epoch && f->base_version > l->version)
        return lh_fail(LH_ERR_BOUND, "its base is version %llu, the log ends with %llu",
                       (unsigned long long)f->base_version, (unsigned long long)l->version);
    return LH_OK;
}

// Checks the push's header: base, tokens, claims, bounds, privacy charge.
static lh_err check_said(const struct ps_shard *s, const struct lh_frame *f)
{
    const struct lh_plan *plan = &s->head->plan;
    // The worker has taken this push back: it has heard of that end of the run.
    if (s->id < plan->ends && f->base_version <= plan->end[s->id] + 1 && !LH_BUG("push_of_the_end"))
        return lh_fail(LH_ERR_STALE, "it was made before the run ended at version %llu",
                       (unsigned long long)plan->end[s->id] + 1);
    if (f->tokens > LH_PUSH_TOKENS_MAX)
        return lh_fail(LH_ERR_BOUND, "it claims %llu tokens; at most %llu are allowed",
                       (unsigned long long)f->tokens, (unsigned long long)LH_PUSH_TOKENS_MAX);
    LH_TRY(check_base(s->head, f));
    LH_TRY(ps_grants_check(&s->grants, s->head, f));
    return ps_charge_check(s->head, f);
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

// ---------------------------------------------------------------- the norm gate

// The pusher states the step count itself; norms.h bounds it.
static double root_of_steps(const struct ps_shard *s, const struct lh_frame *f)
{
    return sqrt(lh_norms_steps(s->head, f->worker, f->steps));
}

// Without a reference the bound is the norm of the shard's parameters: local steps move parameters
// by a fraction of themselves. With a reference the bound follows it. If fewer than three workers
// have pushed, that reference may come from a worker whose pushes are almost zero, so the bound is
// at least 1/32 of the shard's norm. If only one of several live workers has pushed, that worker
// alone sets the reference, so the shard's norm caps the bound.
double ps_norm_bound(const struct ps_shard *s, const struct ps_gate *gate, const struct lh_frame *f)
{
    if (ps_charge_bounds_norm(s->head, f)) return ps_charge_norm_max(s->head, f);
    if (gate->norm_gate <= 0 || LH_BUG("norm_any")) return (double)INFINITY;
    if (s->head->norm_reference <= 0) return gate->size;
    double bound = gate->norm_gate * s->head->norm_reference * root_of_steps(s, f);
    uint32_t voices = lh_norms_voices(s->head);
    if (voices < 2 && s->head->plan.live > 1 && bound > gate->size) return gate->size;
    double least = voices < 3 ? gate->size / 32 : 0;
    return bound > least ? bound : least;
}

// A clipped push far above the recent pushes of other workers that were admitted unclipped. If
// everybody is clipped, the reference lags and nobody is an outlier. The push must also be larger
// than the shard itself: workers that have little to train, or few steps in a push, push far less
// than an honest one beside them. A single other worker may lie, so the push must then be far above
// the shard's norm. The worker's own earlier pushes do not count: a worker that is too large from
// the start would stay.
static bool is_outlier(const struct ps_shard *s, const struct ps_gate *gate,
                       const struct lh_frame *f, double norm)
{
    enum { FAR = 10 };
    struct lh_norms_others others = lh_norms_others(s->head, f->worker);
    if (!others.workers || norm / root_of_steps(s, f) <= FAR * others.high) return false;
    return norm > gate->size * (others.workers > 1 ? 1 : FAR);
}

// Clips a large push instead of refusing it: a refused push returns to its residual and comes back
// no smaller. The record notes the norm, capped at NOTED times the bound, so that no single push
// dominates the reference.
static void gate_norm(const struct ps_shard *s, const struct ps_gate *gate,
                      const struct lh_frame *f, struct ps_decision *d)
{
    enum { NOTED = 4 };
    double bound = ps_norm_bound(s, gate, f), noted = d->norm;
    bool noise = ps_charge_bounds_norm(s->head, f); // a norm of noise stays out of the reference
    d->noted.clipped = d->norm > bound;
    if (d->noted.clipped) {
        d->noted.outlier = !noise && is_outlier(s, gate, f, d->norm);
        d->scale = (float)((double)d->scale * (bound / d->norm));
        if (noted > NOTED * bound) noted = NOTED * bound;
    }
    noted = noise ? 0 : noted / root_of_steps(s, f);
    d->noted.at_equal_h = noted < (double)FLT_MAX ? (float)noted : FLT_MAX;
}

// Keeps every fold finite in fp32: the push's norm bounds each value, momentum multiplies it. A
// scale below FLT_MIN would lose precision in fp32.
static bool folds_finite(const struct lh_plan *plan, const struct ps_gate *gate,
                         const struct ps_decision *d)
{
    double moved = ps_moved(plan, (double)d->scale, d->norm);
    return d->scale >= FLT_MIN && moved <= PS_MOVED_MAX && gate->reach + moved <= PS_REACH_MAX;
}

void ps_decide_value(const struct ps_shard *s, const struct ps_gate *gate, const struct lh_frame *f,
                     lh_err unsealed, const struct lk_payload_info *info, struct ps_decision *d)
{
    const struct lh_plan *plan = &s->head->plan;
    const struct lh_row *row = lh_ledger_row(s->head, f->worker);
    uint32_t live = plan->live ? plan->live : 1;
    d->staleness = ps_pace_staleness(s, f);
    lh_err said = unsealed ? unsealed : check_said(s, f);
    if (said) {
        refuse(d, said);
        return;
    }
    d->norm = sqrt(info->sum_squares);
    if (row && lh_norms_set_aside(&row->norms)) {
        refuse(d, lh_fail(LH_ERR_SET_ASIDE,
                          "%d pushes in a row were far larger than other workers'; an operator "
                          "lets this worker back (longhaul admit)",
                          LH_OUTLIERS_MAX));
        return;
    }
    if (plan->mode == LH_MODE_ASYNC && d->staleness > (uint64_t)plan->staleness_per_live * live) {
        refuse(d,
               lh_fail(LH_ERR_STALE, "%llu pushes of others since its base, at most %u are allowed",
                       (unsigned long long)d->staleness, plan->staleness_per_live * live));
        return;
    }
    d->kind = LH_ADMIT;
    d->error = LH_OK;
    d->scale = (float)((double)plan->eta / live * weight(s, gate, f, d->staleness));
    gate_norm(s, gate, f, d);
    if (d->noted.clipped && LH_BUG("gate_refuses"))
        refuse(d, lh_fail(LH_ERR_TOO_LARGE, "its norm is above the gate"));
    else if (!folds_finite(plan, gate, d))
        refuse(d, lh_fail(LH_ERR_TOO_LARGE, "a norm of %g: no fold of it stays finite", d->norm));
}
