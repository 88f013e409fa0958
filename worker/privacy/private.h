// A private worker: the terms that it accepts, its remaining budget, and its reports.
//
// The worker's settings say that its region is private; the PLAN has the terms. Without terms that
// the settings accept, the worker takes no cut. If plan and settings disagree about whether the
// worker is private, it ends.
#ifndef WK_PRIVATE_H
#define WK_PRIVATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "worker/privacy/budget.h"
#include "worker/privacy/records.h"
#include "worker/privacy/reported.h"

struct wk_shard;
struct wk_worker;

struct wk_private_conf {
    const char *budget;    // file of the record set's budget; NULL: the region is not private
    double epsilon, delta; // no plan above them is taken part in
    bool quiet;            // privacy.telemetry: none
    bool reported;         // the loop beside the worker clips and adds noise by itself
};

struct wk_private {
    struct wk_budget *budget; // NULL: the plan's terms are not known yet
    bool said_waiting;
    struct wk_records records;   // record level, and reported
    struct wk_reported reported; // level reported
    // Epsilon of so many charged steps: computed anew where the count has risen.
    double epsilon;
    uint64_t epsilon_at;
    double earlier; // epsilon of earlier runs on these records
    bool earlier_known;
    // Energies of the last release's noise and clipped delta, for the region's operator.
    double noise_energy, delta_energy;
};

// Do the settings say that this region is private?
bool wk_private_is(const struct wk_worker *w);
// Is it so at region level, because a loop beside the worker trains? Its pushes are releases, and
// none of them ever returns to the residual.
bool wk_private_releases(const struct wk_worker *w);
// Looks at the plan. *may: a private worker's terms are in force and its budget is open, or the
// worker is not private. LH_ERR_CONFIG, LH_ERR_BUSY, or of the budget's file: the worker ends.
LH_MUST lh_err wk_private_look(struct wk_worker *w, bool *may);
// Makes the total of a shard's push durable in the budget's file. Disk lane, before the push's
// entry is written; nothing where the worker is not private.
LH_MUST lh_err wk_private_charge(struct wk_shard *s, uint64_t total);
// All shards' budgets are spent: the worker is to drain.
bool wk_private_spent(const struct wk_worker *w);
// Epsilon of all that this run has charged, at the terms' delta.
double wk_private_epsilon(const struct wk_budget_run *r);
json_t *wk_private_status(struct wk_worker *w); // NULL: not private
void wk_private_close(struct wk_worker *w);

#endif
