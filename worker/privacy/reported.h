// A region whose loop clips and adds noise by itself (server/docs/0000-protocol.md#rule-34).
//
// The loop reports sigma, rate and clip, and each boundary that trained is a step, or as many as
// the loop says. The worker checks that these are no weaker than the plan's terms, counts the
// steps, charges them before a push leaves, and pushes nothing beyond the budget. Clip and noise it
// takes on trust. What comes back lies in the residual as any other push's mass.
#ifndef WK_REPORTED_H
#define WK_REPORTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct wk_shard;
struct wk_worker;

struct wk_reported {
    bool open;
    bool said;       // the log says that the loop reports no noise
    uint64_t before; // steps of the record set before the loop's present life
};

enum wk_reported_verdict {
    WK_REPORTED_WAITS, // a later stable point, or the loop's report, is needed
    WK_REPORTED_FITS,  // it may be pushed
    WK_REPORTED_KEPT,  // it goes into the residual: empty, beyond the budget, or the run has ended
    WK_REPORTED_BAD,   // its life has to end, and nothing of it may ever leave
};

// A life of the loop begins, or goes on after this process was started. Nothing at another level,
// as with the next two.
void wk_reported_begin(struct wk_worker *w, bool resumed);
void wk_reported_count(struct wk_worker *w, uint64_t steps); // `steps` of the life have trained
// Steps of the record set when so many of the life had trained.
uint64_t wk_reported_total(const struct wk_worker *w, uint64_t steps);
// Decides about the shard's whole cut; `why` is filled where it is bad.
enum wk_reported_verdict wk_reported_judge(struct wk_shard *s, char *why, size_t size);
// May the residual take the shard's whole cut without a push? Its steps are charged first, as far
// as the budget goes: a later process does not know of them, and pushes the residual.
bool wk_reported_may_keep(const struct wk_shard *s);
// So few steps are left that the loop is to end.
bool wk_reported_is_spent(const struct wk_worker *w);

#endif
