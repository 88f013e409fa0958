// Reduce: the processes of one region ("ranks") share every local step's gradient
// (DESIGN.md#section-5).
//
// Rank 0, the leader, is the region's worker: only it leases, reads data, optimizes, pushes and
// follows. The other ranks have no state that could be lost: they read the leader's parameters,
// compute the gradient of their part of a step's sequences, and give it. So the mean covers the
// same sequences with any number of ranks, and a step of N ranks equals the step of one process at
// the same batch (up to rounding of a sum in another order). A lost rank costs the others only its
// share of the work.
//
// A step, on the leader's compute lane:
//
// deal(step, &part);           deals the sequences among the live ranks
//   do {
//       ... the gradient of `part` ...
// gather(fine, gradient, &sum, &part);  adds the others' gradients, in rank order
// } while (part.count);             a lost rank's part is dealt again
//
// Implementations: shm (one host: reduce_shm.c), peers (reduce_peers.c): ranks with their own
// parameters and optimizer that take every step themselves. With peers a lost rank costs the
// current step: gather() clears the gradient, drops all sums of it and deals the step again. A
// region of one process has none.
//
// Peers sum a gradient in buckets, from its end to its start, then the figures behind it. A bucket
// is summed as soon as all ranks' backward passes are past it, while they continue. Buckets have
// one size, except the last one, at the start: all ranks cut the gradient alike, however much of it
// is final. A value's sum does not depend on the bucket size (except for NCCL's own order), nor on
// when it is summed.
#ifndef WK_REDUCE_H
#define WK_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/env/log.h"
#include "worker/train/update.h"

enum { WK_RANKS_MAX = 64 }; // GPUs or sockets of one host
// Floats behind a trainer's gradient in which peers sum the figures of their parts.
enum { WK_FIGURES_EACH = 20, WK_FIGURES = WK_RANKS_MAX * WK_FIGURES_EACH };

// Wire type of gradients between ranks: ranks.wire, its words in order. In bf16 each rank's part of
// a value is rounded to bf16 (nearest, ties to even), and so is every partial sum, in rank order:
// bf16(bf16(bf16(x0) + bf16(x1)) + bf16(x2)) and so on. (NCCL has its own order.) A rounding
// changes a value by at most 2^-8 of it, so over N ranks the error of a sum is at most about N/256
// of the sum of the parts' absolute values. All ranks hold the same bits. Non-finite values stay
// non-finite; a sum beyond 3.39e38 is infinite. A single rank rounds nothing.
enum wk_sum_type { WK_SUM_FP32, WK_SUM_BF16 };
const char *wk_sum_word(enum wk_sum_type type); // "bf16"
// Bytes per value between ranks.
static inline uint32_t wk_sum_bytes(enum wk_sum_type type)
{
    return type == WK_SUM_BF16 ? 2 : 4;
}

struct wk_part { // sequences [from, from + count) of a step
    uint32_t from, count;
};
// The part of a step for place `part` of `parts`, as even as possible.
struct wk_part wk_reduce_part(uint32_t sequences, uint32_t part, uint32_t parts);

struct wk_reduce_step {
    const uint32_t *ids; // [sequences][length + 1]
    uint32_t sequences, length;
    uint64_t values;                // parameters
    float scale;                    // factor of the gradient: 1 / tokens of the whole step
    bool measure;                   // `true`: take the `first` figures too
    const struct wk_update *update; // the optimizer's step from the gradient
};

// A rank's figures for its part.
struct wk_share {
    double nll; // negative log likelihoods, nats
    // One rank's: sequences of its first pass, and the squared norm of that pass's gradient.
    uint32_t first;
    double first_square;
};
enum { WK_SAMPLES_MAX = WK_RANKS_MAX };
struct wk_gathered {
    bool fresh; // the gradient is empty: the step begins or restarts
    double nll;
    uint32_t samples; // number of `first` figures, one per rank
    struct wk_share sample[WK_SAMPLES_MAX];
};

// A trainer's state. Each peer has its own copy.
struct wk_reduce_state {
    float *value, *m, *v; // [values] each; NULL with a device, which owns them
    float *gradient;      // [values + WK_FIGURES]; with a device only the figures
    uint64_t values;
    uint64_t *steps; // optimizer steps taken
    const struct wk_params *params;
    struct wk_device *device; // NULL: the arrays are on the host
};
// Memory of the ranks' figures, [WK_FIGURES], on the host.
static inline float *wk_reduce_figures(const struct wk_reduce_state *s)
{
    return s->gradient + (s->device ? 0 : s->values);
}
// Allocates the host's arrays, as zeros, after all other fields are set; `value` is kept if it is
// set. wk_reduce_free() frees them, also after a failure.
LH_MUST lh_err wk_reduce_allocate(struct wk_reduce_state *s);
void wk_reduce_free(struct wk_reduce_state *s);
LH_MUST lh_err wk_reduce_clear(const struct wk_reduce_state *s); // the gradient and the figures
// As wk_update_norm() and wk_update_apply(), on the host or on the device.
LH_MUST lh_err wk_reduce_norm(const struct wk_reduce_state *s, uint64_t step,
                              struct wk_tensor_norms *norms, double *norm);
LH_MUST lh_err wk_reduce_update(const struct wk_reduce_state *s, const struct wk_update *u,
                                double norm, float *before, struct wk_tensor_norms *norms);

struct wk_reduce;
struct wk_reduce_ops {
    // Gives zeroed memory for the parameters that all ranks can read. NULL: any memory will do.
    float *(*parameters)(struct wk_reduce *r);
    // Called once, before the first step. Borrows the arrays until close(). NULL: not needed.
    lh_err (*bind)(struct wk_reduce *r, const struct wk_reduce_state *state);
    // Compute lane. `own` is the caller's part; it may be empty.
    void (*deal)(struct wk_reduce *r, const struct wk_reduce_step *step, struct wk_part *own);
    // Compute lane; blocks until every rank has given its part or is lost. `missing` is the part
    // that the caller must compute and gather next; empty: the gradient is complete, or an error
    // says that it never will be. `fine` false: the caller's part can't be computed, and no rank
    // takes this step.
    lh_err (*gather)(struct wk_reduce *r, bool fine, float *gradient, struct wk_gathered *sum,
                     struct wk_part *missing);
    // Compute lane, between deal() and gather(): values of the gradient from `from` on are final,
    // and the sum owns them until gather() returns. NULL: the caller keeps them.
    void (*final)(struct wk_reduce *r, uint64_t from);
    void (*applied)(struct wk_reduce *r); // compute lane: the optimizer made its step; or NULL
    // Loop thread, about once a second: checks which ranks are live and logs arrivals and losses.
    // Returns their number, including the leader.
    uint32_t (*watch)(struct wk_reduce *r, struct lh_log *log);
    // Loop thread: any current or later call of deal() or gather() returns soon; no more steps are
    // trained. NULL: they return soon anyway.
    void (*leave)(struct wk_reduce *r);
    // Loop thread, all lanes idle, before any memory of the trainer or its device is freed. `done`:
    // the run is over; the other ranks may end. False: a hung thread still uses the arrays; they
    // must stay until the process ends, and device memory must not be freed, because that waits for
    // the device's pending work.
    bool (*close)(struct wk_reduce *r, bool done);
};
struct wk_reduce {
    const struct wk_reduce_ops *ops;
};

#endif
