// The plan of a run: the coordinator's decisions, which every shard's log records (kind PLAN).
//
// So decisions that depend on live workers, mode, constants or phase can be replayed.
#ifndef LH_COMMON_PLAN_H
#define LH_COMMON_PLAN_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/format/privacy.h"

enum lh_phase {
    LH_PHASE_WAIT = 0, // workers are joining
    LH_PHASE_RUN = 1,
    LH_PHASE_DRAIN = 2, // the budget is met: workers finish the units they have begun
    LH_PHASE_CLOSE = 3, // no push is accepted; every head is final but for the END record
    LH_PHASE_END = 4,   // `end` names the version vector at which the run ends
};
enum lh_mode { LH_MODE_ASYNC = 0, LH_MODE_BSP = 1 };
// The outer optimizer, which applies admitted pushes to the parameters (kernels/outer.h).
enum lh_optimizer { LH_OPT_SGD = 0, LH_OPT_DELAYED_NESTEROV = 1, LH_OPT_COUNT };
// A worker's mode: the data it trains on (server/docs/0004-authority.md#modes).
enum lh_data {
    LH_DATA_LEASED = 0, // units that the coordinator grants
    LH_DATA_OWN = 1,    // the region's own data
    LH_DATA_PRIVATE = 2 // the region's own data, under differential privacy
};
enum lh_weighting { LH_WEIGHT_EQUAL = 0, LH_WEIGHT_TOKENS = 1 };

struct lh_let_back { // a worker that operators let back
    uint64_t worker;
    uint32_t count; // times, over the whole run
};

struct lh_plan {
    uint64_t number; // rises with every change
    uint8_t phase, mode, weighting;
    float eta;                       // outer learning rate; each arrival weighs eta / live
    float damping;                   // exponent a of w = (1 + s)^-a
    uint32_t staleness_per_live;     // refuse staleness s > this * live
    uint32_t live;                   // R_live
    uint64_t worker[LH_WORKERS_MAX]; // live workers, ascending
    uint32_t ends;
    // The version before each shard's END record: this plan's in phase END, else that of the last
    // end of a run that was continued. A push whose base is not above that record is refused.
    uint64_t end[LH_SHARDS_MAX];
    uint32_t expelled_count;
    uint64_t expelled[LH_EXPELLED_MAX]; // identities of workers and servers, ascending
    uint32_t lets_back;
    struct lh_let_back let_back[LH_LET_BACK_MAX]; // ascending by worker
    // Phases CLOSE and END: workers that had not drained when the run closed, ascending. The run
    // does not wait for them, and no later push of theirs enters a log.
    uint32_t left;
    uint64_t left_out[LH_WORKERS_MAX];
    // Names being retired, ascending, and the highest number ever granted to a retired name; 0:
    // none (server/docs/0000-protocol.md#rule-35).
    uint32_t retired_up_to;
    uint32_t retired_count;
    uint64_t retired[LH_RETIRED_MAX];
    // The run's budget was changed while it ran or after its end
    // (server/docs/0000-protocol.md#rule-36): the new and the old budget, and the tokens credited
    // at the change. Learning rates continue without a jump. All 0: never changed.
    uint64_t budget_tokens, old_budget_tokens, changed_tokens;
    // Phases WAIT and RUN: nobody makes a step (server/docs/0000-protocol.md#rule-37).
    bool paused;
    // The next four are 0 with LH_OPT_SGD, which keeps no state.
    uint8_t optimizer;        // enum lh_optimizer
    float momentum;           // mu, from 0 to below 1
    uint32_t outer_every;     // admitted pushes between two outer steps; 0: `live` of them
    float effective_step_max; // bound of eta / (1 - mu * rho); 0: none
    uint32_t steps_max;       // local steps that a push may stand for; 0: no bound
    uint64_t step_tokens_max; // tokens of one step; 0: LH_STEP_TOKENS
    // The mode of the run's workers (enum lh_data), and the workers with another mode, ascending.
    uint8_t data;
    uint32_t exceptions;
    struct lh_plan_exception {
        uint64_t worker;
        uint8_t data;
    } exception[LH_WORKERS_MAX];
    // Terms of the private workers; no later plan changes them.
    struct lh_privacy privacy;
};

// Admitted pushes between two outer steps, at least 1.
static inline uint32_t lh_plan_outer_every(const struct lh_plan *p)
{
    uint32_t n = p->outer_every ? p->outer_every : p->live;
    return n ? n : 1;
}

void lh_plan_write(const struct lh_plan *p, struct lh_buf *out);
LH_MUST lh_err lh_plan_parse(struct lh_span bytes, struct lh_plan *out);
enum lh_data lh_plan_data(const struct lh_plan *p, uint64_t worker);
// Tokens that one push may stand for, regardless of its steps: a push, even one without steps, may
// also carry the tokens of refused pushes and tokens beyond earlier pushes' bounds.
uint64_t lh_plan_tokens_max(const struct lh_plan *p);
bool lh_plan_has(const struct lh_plan *p, uint64_t worker);
// Whether this identity (lh_worker_id of its certificate) is expelled from the run.
bool lh_plan_expelled(const struct lh_plan *p, uint64_t identity);
// Whether this plan retires the name.
bool lh_plan_is_retired(const struct lh_plan *p, uint64_t worker);
// Whether a retired name may have had this incarnation, for a worker without a row.
bool lh_plan_retires(const struct lh_plan *p, uint64_t incarnation);
// Whether the run closed without this worker.
bool lh_plan_left_out(const struct lh_plan *p, uint64_t worker);
const char *lh_phase_name(uint8_t phase);

#endif
