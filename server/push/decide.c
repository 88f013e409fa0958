// Decide: what becomes of a received push (server/docs/0000-protocol.md#rule-2 to #rule-4, #rule-6,
// #rule-25; DESIGN.md#section-5 step 9).
//
// Order: expelled, session, incarnation, dedupe, move, phase of the run, key of the grants, pace;
// then, after unsealing: payload, claims and what else it says, set aside, staleness, norm. Only
// the checks after unsealing consume the step, by a record. No I/O here.
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
                             "the coordinator has not told shard %u yet by which key "
                             "grants are checked",
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

// A log has no record of an epoch or a version that is to come. How many pushes of others the base
// has is believed up to what the log has: more would not make the push any fresher.
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

// Compares what a push says beside its values with what it may say.
static lh_err check_said(const struct ps_shard *s, const struct lh_frame *f)
{
    const struct lh_plan *plan = &s->head->plan;
    // Its worker took it back when it heard of that end.
    if (s->id < plan->ends && f->base_version <= plan->end[s->id] + 1 && !LH_BUG("push_of_the_end"))
        return lh_fail(LH_ERR_STALE, "it was made before the run ended at version %llu",
                       (unsigned long long)plan->end[s->id] + 1);
    if (f->tokens > LH_PUSH_TOKENS_MAX)
        return lh_fail(LH_ERR_BOUND, "it says it stands for %llu tokens, %llu at most",
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

// The steps are the pusher's own word, which norms.h bounds.
static double root_of_steps(const struct ps_shard *s, const struct lh_frame *f)
{
    return sqrt(lh_norms_steps(s->head, f->worker, f->steps));
}

// Before there is a reference a push may be as large as the shard's parameters are: local steps
// move parameters by a part of themselves. The reference is then the bound. Where fewer than three
// workers have pushed, it may be one's whose pushes are next to nothing: one push may then move the
// shard by 1/32 of itself all the same. Where one voice alone is heard of several live workers, it
// moves the reference alone: the shard's size stays the bound of that.
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

// A clipped push that is far from what others push now, whose own pushes go in as they are. Where
// all are clipped, the reference is what lags behind, and nobody is an outlier. One other voice may
// lie: then the push must be far from the shard's own size, too. The worker's earlier pushes are no
// witness for it: one that was too large from the beginning would stay.
static bool is_outlier(const struct ps_shard *s, const struct ps_gate *gate,
                       const struct lh_frame *f, double norm)
{
    enum { FAR = 10 };
    struct lh_norms_others others = lh_norms_others(s->head, f->worker);
    if (!others.workers || norm / root_of_steps(s, f) <= FAR * others.high) return false;
    return others.workers > 1 || norm > FAR * gate->size;
}

// Clipped, not refused: a refused push returns to its residual and comes back no smaller. The
// record notes the norm, but no more than NOTED times the bound, so that one push of any size says
// no more than another one.
static void gate_norm(const struct ps_shard *s, const struct ps_gate *gate,
                      const struct lh_frame *f, struct ps_decision *d)
{
    enum { NOTED = 4 };
    double bound = ps_norm_bound(s, gate, f), noted = d->norm;
    bool noise = ps_charge_bounds_norm(s->head, f); // its size is the noise's, and no voice
    d->noted.clipped = d->norm > bound;
    if (d->noted.clipped) {
        d->noted.outlier = !noise && is_outlier(s, gate, f, d->norm);
        d->scale = (float)((double)d->scale * (bound / d->norm));
        if (noted > NOTED * bound) noted = NOTED * bound;
    }
    noted = noise ? 0 : noted / root_of_steps(s, f);
    d->noted.at_equal_h = noted < (double)FLT_MAX ? (float)noted : FLT_MAX;
}

// No fold may leave fp32: the norm bounds each value, momentum multiplies what lasts. A scale that
// is too small for a whole fp32 would fold other values than it says.
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
