// Cadence: chooses the number of local steps between two pushes of a shard (H) for each worker.
//
//   H = clamp(max(H_speed, H_link), 1, 300)
//
//   H_speed = base * tokens_per_s / tokens_per_s of the fastest         (DyLU: equal time a round)
//   H_link  = ceil((max(up_s, down_s) + 2 RTT) / (0.8 * step_s))        (an exchange fits in a
//   round)
//
// The fastest worker is one that trains: a worker whose loop is away keeps its old speed, but is
// not compared with until its loop is back.
// up_s: measured time for the worker's own pushes of one round; down_s: the same for the other
// workers' pushes, at the rate of received snapshots. Unknown values add nothing. Source of H_link:
// DESIGN.md#section-6. `staged`: half the base for the first 1,000 steps of the run, twice the base
// after 10,000; newly credited tokens count as steps of the fastest worker with a loop.
//
// A region with a fixed H (coordinator.h_base) keeps it. Without cadence by link and stages, H
// follows every measurement; otherwise small changes are skipped (cadence.c). Changes are events
// with their figures.
#ifndef PS_CO_CADENCE_H
#define PS_CO_CADENCE_H

#include <jansson.h>

#include "server/coordinator/core.h"

enum { PS_CO_H_MAX = 300 };

// The worker's H as last told, or as it would be told now.
uint32_t ps_co_local_steps(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Call for each request of the worker, before the answer: uses the newest measurements.
void ps_co_pace(struct ps_coordinator *c, struct ps_co_worker *w);
// Expected number of rounds of the run: its tokens over those of one round of all workers; an
// expected worker that is absent counts as an average one. 0: no worker has reported its tokens per
// step.
double ps_co_rounds(const struct ps_coordinator *c);

// Adds the sources of H to a worker's row, if there are more than speed: "h_by_speed", "h_by_link"
// and "exchange_s" (0: not known), "h_base".
void ps_co_tell_cadence(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row);

#endif
