// Totals that earlier lives charged, as far as this directory and the log show.
#ifndef WK_TOTALS_H
#define WK_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/format/frame.h"
#include "common/format/privacy.h"

struct wk_entry;
struct wk_shard;
struct wk_worker;

// A charge outside a push, made on the disk lane. It belongs to a count of the budget's file: a
// shard's at region level; at the other levels all shards share the first one's.
struct wk_charge {
    uint64_t charged;  // durable in the budget's file, as far as this process made it so here
    uint64_t charging; // the total that is under way; 0: none
    lh_err result;     // the last charge's error, and its text
    char text[256];
};

// The terms of the own run.
const struct lh_privacy *wk_totals_terms(const struct wk_worker *w);
// Fills the header of a private frame of f->steps steps: constants of the plan, and the total.
void wk_totals_head(const struct wk_shard *s, uint64_t total, struct lh_frame *f);
// The highest total that a shard's log and outbox show.
uint64_t wk_totals_shown(const struct wk_shard *s);
// An earlier life of this worker was there: its directory, its number, or its row says so.
bool wk_totals_lived(const struct wk_shard *s);
// True: this worker pushed progress to the shard before its region was private. At record level a
// push without a step of its own, only with returned values, has no charge and does not count.
bool wk_totals_uncharged(const struct wk_shard *s);
// This entry's push lies under the stable point.
bool wk_totals_is_under(const struct wk_shard *s, const struct wk_entry *e);
// Gives the total at which releases go on. If the file is lost, or older than `shown`, that is
// `shown` plus A, because no life of the worker released more
// (server/docs/0000-protocol.md#rule-34). Then it is charged at once, and an event is logged.
uint64_t wk_totals_begin(struct wk_shard *s, uint64_t shown, bool lived);
// Charges this total without a push, if no other charge of that count is under way. After a full
// disk it has to be called again; any other error ends the worker.
void wk_totals_charge(struct wk_shard *s, uint64_t total);
// Charges up to `total` where the file has less than the shard's log shows: another life of this
// worker, which this directory does not know, charged more.
void wk_totals_cover(struct wk_shard *s, uint64_t total);
// Steps of this shard's count that such charges have made durable here.
uint64_t wk_totals_charged(const struct wk_shard *s);
// No charge without a push is under way.
bool wk_totals_are_charged(const struct wk_worker *w);

#endif
