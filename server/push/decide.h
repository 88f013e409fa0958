// Decide: admits or refuses a push. Pure functions of a shard's head; no I/O.
#ifndef PS_DECIDE_H
#define PS_DECIDE_H

#include "server/shard.h"

enum ps_verdict {
    PS_DECIDED_NOW,    // continues: unsealed next, then a record of `kind` is appended
    PS_DECIDED_BEFORE, // the row's recorded outcome, sent when it is durable
    PS_NOT_FINAL,      // `error` gives the reason; no record, and the step is not consumed
};

struct ps_decision {
    enum ps_verdict verdict;
    uint16_t kind; // LH_ADMIT or LH_REFUSE
    float scale;
    lh_err error; // the reason of a refusal, or of PS_NOT_FINAL
    uint64_t staleness;
    double norm;          // before clipping
    struct lh_norm noted; // the norm that an ADMIT record carries
};

struct ps_gate {
    double norm_gate;   // clip above this times the reference, 0: off
    double mean_tokens; // mean tokens of a push, for weighting by tokens
    double size;        // the shard's own size (ps_size_of)
    double reach;       // no parameter's magnitude is above this
};

// Limits per push and per parameter that keep the fold below fp32's maximum of 3.4e38.
#define PS_MOVED_MAX 1e30
#define PS_REACH_MAX 1e37
// The farthest that an admitted push of this norm moves any value, momentum included.
static inline double ps_moved(const struct lh_plan *plan, double scale, double norm)
{
    return scale * norm / (1 - (double)plan->momentum);
}

// The checks that need no unsealing: session, incarnation, step, phase. `d->verdict` is
// PS_DECIDED_NOW if the push is to be unsealed next.
void ps_decide_step(const struct ps_shard *s, const struct lh_frame *f,
                    const struct lh_digest *digest, struct ps_decision *d);
// The checks after unsealing; `unsealed` is its result (lk_replica_unseal_into). Sets kind, scale,
// error.
void ps_decide_value(const struct ps_shard *s, const struct ps_gate *gate, const struct lh_frame *f,
                     lh_err unsealed, const struct lk_payload_info *info, struct ps_decision *d);
// The largest norm of this push that is not clipped; INFINITY: the gate is off.
double ps_norm_bound(const struct ps_shard *s, const struct ps_gate *gate,
                     const struct lh_frame *f);

#endif
