// Cadence: how many local steps a worker takes between two pushes of a shard (H), and why.
//
//   H = clamp(max(H_speed, H_link), 1, 300)
//
//   H_speed = base * tokens_per_s / tokens_per_s of the fastest         (DyLU: equal time a round)
//   H_link  = ceil((max(up_s, down_s) + 2 RTT) / (0.8 * step_s))        (an exchange fits in a
//   round)
//
// The fastest is one that trains: a worker whose loop is away keeps the speed that it had, and is
// nobody's measure until the loop is there again.
// up_s: the time in which the worker's own pushes of one round cross, as it measured it; down_s:
// the same for those of the others, by the rate at which snapshots came. What is not known adds
// nothing. Source of H_link: DESIGN.md#section-6. `staged`: half the base for the first 1,000
// steps of the run, twice the base after 10,000; what is credited meanwhile counts as steps of the
// fastest of those whose loop is there.
//
// A region with a fixed H (coordinator.h_base) has that. With neither cadence by link nor stages, H
// follows every measurement; else small changes are not made (cadence.c). Changes are events with
// their figures.
#ifndef PS_CO_CADENCE_H
#define PS_CO_CADENCE_H

#include <jansson.h>

#include "server/coordinator/core.h"

enum { PS_CO_H_MAX = 300 };

// H of the worker as it was told last, or would be told now.
uint32_t ps_co_local_steps(const struct ps_coordinator *c, const struct ps_co_worker *w);
// To be called with each request of the worker, before it is answered: takes what was measured
// since.
void ps_co_pace(struct ps_coordinator *c, struct ps_co_worker *w);
// Rounds that the run will have as things are: its tokens over those of one round of all workers,
// where one that is expected and not here counts as the others do. 0: nobody has said how many
// tokens a step has.
double ps_co_rounds(const struct ps_coordinator *c);

// Adds to a worker's row what its H follows from, where more than speed counts: "h_by_speed",
// "h_by_link" and "exchange_s" (0: not known), "h_base".
void ps_co_tell_cadence(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row);

#endif
