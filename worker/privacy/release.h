// A release: one shard's push of a private region, at region level
// (server/docs/0000-protocol.md#rule-34).
//
// A public fragment of progress and residual, which follows from the push's total
// (kernels/fragment.h), is clipped to C / sqrt(shards) on a grid, noise is added, and the sum is
// encoded. Nothing of the fragment stays in the residual: the clipped part is dropped. The compute
// lane, which is idle with an external loop, draws the noise before the shard's cut begins, so
// before it reads the progress.
//
// A push that was refused or fenced was released all the same. Its entry waits in the outbox
// (WK_AGAIN) and is sealed again, the same payload and total under the next step, before anything
// new is released.
#ifndef WK_RELEASE_H
#define WK_RELEASE_H

#include "common/format/frame.h"
#include "common/format/privacy.h"
#include "kernels/codec.h"
#include "kernels/privacy/grid.h"

struct lk_pool;
struct wk_entry;
struct wk_shard;

// The part of a shard that a private region has.
struct wk_release {
    bool open;
    bool begun;    // `used` counts the file's and the log's total, and this life's cuts
    uint64_t used; // total of the last committed release
    struct lk_grid grid;
    struct lk_pool *pool;              // noise of the next release
    bool draws;                        // the compute lane fills the pool
    uint64_t count;                    // values of a fragment
    float *values;                     // [count]: the values to release
    double noise_energy, delta_energy; // encode lane: the last release's
};

// Memory of a shard's releases: 12 bytes a value of a fragment.
LH_MUST lh_err wk_release_open(struct wk_shard *s, const struct lh_privacy *p);
void wk_release_close(struct wk_shard *s);

// True: only a later stable point lets something new of the shard be released.
bool wk_release_waits(const struct wk_shard *s);
// May something new of the shard be released: within the terms' steps, with fewer than A pushes
// above the stable point, and with its noise drawn? Or is there a push to seal again?
bool wk_release_may(struct wk_shard *s);
bool wk_release_is_spent(const struct wk_shard *s);
// The push that is to be sealed again next; NULL: none.
struct wk_entry *wk_release_again(const struct wk_shard *s);
// Makes the payload of this total out of `values`, the progress with the residual; leaves zeros at
// the fragment's places. Encode lane.
LH_MUST lh_err wk_release_make(struct wk_shard *s, const struct lk_codec *codec, uint64_t total,
                               float *values, struct lh_buf *plain, struct lk_payload_info *info);
// Counts what earlier lives released, and charges it where the budget's file is behind.
void wk_release_look(struct wk_shard *s);
// The push of this total is committed. On the loop.
void wk_release_committed(struct wk_shard *s, uint64_t total);
#endif
