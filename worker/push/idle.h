// Idle: how long the trainer has made no step although it could, and how long a shard has waited
// for a push to be admitted. See idle.c.
#ifndef WK_IDLE_H
#define WK_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/estimate.h"
#include "common/net/listener.h"

struct wk_worker;
struct Longhaul__V1__Progress;

struct wk_idle {
    struct lh_listener clock;  // time in which this process ran
    uint64_t timer;            // the next look
    uint64_t steps, passed;    // steps that trained, and boundaries, as of the last look
    uint64_t lives;            // the life of the loop beside the worker that `step_s` is of
    int64_t since_ns;          // the clock when the trainer made a step last, or could make none
    bool could;                // it could make a step at the last look
    bool stepped;              // it made one in this life
    struct lh_estimate step_s; // time of a step of the loop beside the worker
};

struct wk_waits {           // a shard's
    bool owes;              // a push, or what a refused one gave back, waits to be admitted
    int64_t since_ns;       // the clock when that began
    uint64_t admitted;      // pushes of this process that were admitted (outcome.c counts)
    uint64_t admitted_seen; // as of the last look
};

void wk_idle_start(struct wk_worker *w);
void wk_idle_close(struct wk_worker *w);
// Nanoseconds without a step; 0: a step was made just now, or none could be.
int64_t wk_idle_ns(const struct wk_worker *w);
// Tokens a second, less with each second in which a step is overdue.
double wk_idle_speed(const struct wk_worker *w);
// Fills in what the next lease request tells of it.
void wk_idle_tell(const struct wk_worker *w, struct Longhaul__V1__Progress *out);

#endif
