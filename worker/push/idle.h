// Idle: how long the trainer has made no step although it could, and how long a shard has waited
// for a push to be admitted. See idle.c.
#ifndef WK_IDLE_H
#define WK_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/estimate.h"
#include "common/net/listener.h"

struct wk_worker;
struct lh_progress;

struct wk_idle {
    struct lh_listener clock;  // time during which this process ran
    uint64_t timer;            // the next look
    uint64_t steps, passed;    // trained steps and passed boundaries, as of the last look
    uint64_t lives;            // the external loop's life to which `step_s` belongs
    int64_t looked_ns;         // on `clock`: the last look
    int64_t since_ns;          // on `clock`: the last step, or the last time no step was possible
    bool could;                // a step was possible at the last look
    bool stepped;              // it made a step in this life
    struct lh_estimate step_s; // step time of the external loop
};

struct wk_waits {           // the waits of one shard
    bool owes;              // a push, or the mass of a refused one, waits to be admitted
    int64_t since_ns;       // on `clock`: when the wait began
    uint64_t admitted;      // pushes of this process that were admitted (outcome.c counts)
    uint64_t admitted_seen; // as of the last look
};

void wk_idle_start(struct wk_worker *w);
// Nanoseconds without a step; 0: it just made one, or could make none.
int64_t wk_idle_ns(const struct wk_worker *w);
// Tokens per second; falls while a step is overdue.
double wk_idle_speed(const struct wk_worker *w);
// Fills in the idle times for the next lease request.
void wk_idle_tell(const struct wk_worker *w, struct lh_progress *out);

#endif
