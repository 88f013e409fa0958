// A run whose workers have limits for progress, and the coordinator's view of each worker.
#ifndef TESTS_CORES_STALLING_H
#define TESTS_CORES_STALLING_H

#include "server/coordinator/watch/states.h"
#include "tests/cores/words.h"

enum { FLOOR_S = 30 };

static const struct words TRAINS = {.want = 4,
                                    .ahead = LH_LEASES_MAX,
                                    .units_per_s = 1,
                                    .batch_s = 0.1,
                                    .step_ms = 100,
                                    .push_s = 0.2};

static inline struct rig *with_bounds(struct rig *r)
{
    struct ps_co_conf *conf = &r->coordinator->conf;
    conf->worker_timeout_ns = 600 * LH_SECOND;
    conf->stall_floor_ns = conf->drain_floor_ns = FLOOR_S * LH_SECOND;
    conf->stall_rounds = conf->drain_rounds = 4;
    return r;
}

static inline struct rig *stalling(uint32_t units)
{
    return with_bounds(begun_run(units, 300 * LH_SECOND));
}

static inline const struct ps_co_worker *worker_of(const struct rig *r, uint32_t w)
{
    const struct ps_coordinator *c = r->coordinator;
    return &c->worker[ps_co_worker_index(c, lh_worker_id(&r->w[w].self))];
}

static inline bool is_stalled(const struct rig *r, uint32_t w)
{
    return worker_of(r, w)->stall.why != PS_CO_GOES_ON;
}

static inline bool is_counted(const struct rig *r, uint32_t w)
{
    return lh_plan_has(&r->coordinator->plan, lh_worker_id(&r->w[w].self));
}

// Both workers ask once a second for so long; returns the run's phase then.
static inline uint8_t phase_after(struct rig *r, int64_t seconds, struct words *a, struct words *b)
{
    for (int64_t i = 0; i < seconds; i++) {
        say(r, 0, a);
        say(r, 1, b);
        rig_run(r, LH_SECOND);
    }
    return r->coordinator->plan.phase;
}

#endif
