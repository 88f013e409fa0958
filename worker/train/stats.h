// Stats: training figures besides the loss. See stats.c.
#ifndef WK_STATS_H
#define WK_STATS_H

#include "worker/worker.h"

LH_MUST lh_err wk_stats_open(struct wk_worker *w);
void wk_stats_close(struct wk_worker *w);
void wk_stats_ask(struct wk_worker *w);           // before a step: requests norms if due
void wk_stats_tell(struct wk_worker *w);          // after a step
json_t *wk_stats_eval(const struct wk_worker *w); // gives a JSON object; NULL: no memory
// Sums the squares of the residual over each extent of the shard's layout, into square[extents]. On
// any lane.
void wk_stats_residual(const struct wk_shard *s, const float *residual, double *square);

#endif
