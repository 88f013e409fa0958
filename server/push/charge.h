// Charge: checks the privacy budget that a private worker's push charges
// (server/docs/0000-protocol.md#rule-34). Pure functions of a shard's head.
#ifndef PS_CHARGE_H
#define PS_CHARGE_H

#include "common/format/ledger.h"

// LH_ERR_BUDGET: the charged total does not rise by the push's cost, or exceeds the plan's budget;
// or a worker that is not private charges one.
LH_MUST lh_err ps_charge_check(const struct lh_ledger *l, const struct lh_frame *f);
// At region level the privacy terms bound a push's norm, in place of the norm gate.
bool ps_charge_bounds_norm(const struct lh_ledger *l, const struct lh_frame *f);
double ps_charge_norm_max(const struct lh_ledger *l, const struct lh_frame *f);

#endif
