// A step as a region's leader sends it to its peers, and the figures that peers send behind the
// gradient. Layout: peers_step.c.
#ifndef WK_PEERS_STEP_H
#define WK_PEERS_STEP_H

#include "common/base/buf.h"
#include "worker/ranks/reduce.h"

struct wk_peers_step {
    struct lh_hash manifest;    // the model's hash; must be the same on all ranks
    struct wk_reduce_step step; // ids and update belong to this struct
    struct wk_update update;
    uint32_t *ids; // [sequences][length + 1], owned
    size_t room;   // capacity of ids
};

// Appends a step's bytes.
void wk_peers_step_put(struct lh_buf *out, const struct lh_hash *manifest,
                       const struct wk_reduce_step *step);
// LH_ERR_MALFORMED; LH_ERR_NO_MEMORY. `out` is zeroed before its first use and reused for later
// steps; the caller sets the step's `values`.
LH_MUST lh_err wk_peers_step_get(struct lh_span bytes, struct wk_peers_step *out);
void wk_peers_step_free(struct wk_peers_step *s);

// Figures behind a gradient: WK_FIGURES floats. Each rank fills its own place, so their sum over
// the ranks is exact.
void wk_figures_put(float *figures, uint32_t part, const struct wk_share *share);
// Adds all places except part 0, the leader's.
void wk_figures_get(const float *figures, uint32_t parts, struct wk_gathered *sum);

#endif
