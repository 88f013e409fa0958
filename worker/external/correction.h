// Corrections, as the worker makes them. See correction.c.
#ifndef WK_CORRECTION_H
#define WK_CORRECTION_H

#include "common/base/err.h"
#include "worker/external/external.h"

struct wk_base { // a part's parameters without progress: a slot plus corrections
    const struct wk_channel *channel;
    uint32_t part;
    uint64_t slot, after, upto; // the slot's number; corrections after..upto
};

// Reads values [from, from + n) of the part, n at most WK_CHANNEL_CHUNK and within one chunk.
LH_MUST lh_err wk_base_read(const struct wk_base *b, uint64_t from, uint64_t n, float *out);

// The table for corrections of parts of this many values. One correction at a time.
struct wk_correction_work {
    uint64_t *begin; // [chunks + 1] entries before this chunk
};
LH_MUST lh_err wk_correction_open(struct wk_correction_work *w, uint64_t values);
void wk_correction_close(struct wk_correction_work *w);

struct wk_correction_plan {
    enum wk_channel_kind kind;
    uint64_t count, bytes;
};
// Counts the entries of the correction from base to view, on all processors; count 0: they are
// equal. Counts marks where view->changed names the values, and stops early once the correction
// must be dense. LH_ERR_CORRUPT: the trainer overwrote the base.
LH_MUST lh_err wk_correction_plan(const struct wk_base *b, const struct wk_external_view *view,
                                  struct wk_correction_work *work, struct wk_correction_plan *out);
// Writes the planned correction, plan->bytes, from the same base and view. LH_ERR_CORRUPT: the
// trainer overwrote the base, and the written bytes are invalid.
LH_MUST lh_err wk_correction_write(const struct wk_base *b, const struct wk_external_view *view,
                                   const struct wk_correction_work *work,
                                   const struct wk_correction_plan *plan, uint8_t *to);

// Finds the place in a ring of `room` bytes for an entry of `bytes`, behind the live ones, which
// are given in their order. UINT64_MAX: there is none.
uint64_t wk_ring_place(const struct wk_channel_entry *live, uint32_t lives, uint64_t values,
                       uint64_t room, uint64_t bytes);

#endif
