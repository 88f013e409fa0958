// Totals that earlier lives charged, as far as this directory and the log show.
#ifndef WK_TOTALS_H
#define WK_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

struct wk_entry;
struct wk_shard;

// The highest total that a shard's log and outbox show.
uint64_t wk_totals_shown(const struct wk_shard *s);
// An earlier life of this worker was there: its directory, its number, or its row says so.
bool wk_totals_lived(const struct wk_shard *s);
// True: this worker pushed progress to the shard before its region was private. At record level a
// push without a step of its own, only with returned values, has no charge and does not count.
bool wk_totals_uncharged(const struct wk_shard *s);
// This entry's push lies under the stable point.
bool wk_totals_is_under(const struct wk_shard *s, const struct wk_entry *e);
// Gives the total at which releases go on, and logs an event if it differs from the file's. If the
// file is lost, or older than `shown`, that is `shown` plus A, because no life of the worker
// released more (server/docs/0000-protocol.md#rule-34).
uint64_t wk_totals_begin(const struct wk_shard *s, uint64_t shown, bool lived);

#endif
