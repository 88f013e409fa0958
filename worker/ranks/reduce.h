// Reduce: the processes of one region ("ranks") share every local step's gradient
// (DESIGN.md#section-5).
//
// Rank 0, the leader, is the region's worker: it alone leases, reads data, optimizes, pushes and
// follows. The others hold nothing that would be missed: they read the leader's parameters, compute
// the gradient of their part of a step's sequences, and give it. So the mean is over the same
// sequences whoever computes them, a step of N ranks is the step of one process at the same batch
// (to the rounding of a sum taken in another order), and a lost rank costs the others its share of
// the work and nothing else.
//
// A step, on the leader's compute lane:
//
//   deal(step, &part);                           the sequences are dealt among the ranks there are
//   do {
//       ... the gradient of `part` ...
//       gather(fine, gradient, &sum, &part);     adds what the others computed, in rank's order
//   } while (part.count);                        a lost rank's part is dealt anew
//
// Implementations: none (one process), shm (one host: reduce_shm.c), peers (reduce_peers.c): ranks
// that hold parameters and optimizer of their own and take every step themselves. There a lost rank
// costs the step that was under way: gather() clears the gradient and deals the step anew, and all
// that was summed up of it is forgotten.
//
// Peers sum up a gradient in buckets, from its end to its start, then what stands behind it. A
// bucket is summed as soon as all ranks' backward passes are past it, while they go on. Buckets
// are of one size, but the one at the start, which is what is left: all ranks cut the
// gradient alike, whatever of it is final when. A value's sum is the same in buckets of any size
// (but for NCCL's own order), and beside the backward pass or after it.
#ifndef WK_REDUCE_H
#define WK_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/env/log.h"
#include "worker/train/update.h"

enum { WK_RANKS_MAX = 64 }; // GPUs or sockets of one host
// Floats behind a trainer's gradient that peers add up with it: what they tell of their parts.
enum { WK_FIGURES_EACH = 20, WK_FIGURES = WK_RANKS_MAX * WK_FIGURES_EACH };

// As what gradients cross between ranks: ranks.wire, its words in their order. In bf16 each rank's
// part of a value is rounded to bf16 (nearest, ties to even), and so is every sum of parts, which
// are added in rank's order: bf16(bf16(bf16(x0) + bf16(x1)) + bf16(x2)) and so on. (NCCL has an
// order of its own.) A rounding moves a value by 2^-8 of it at most, so over N ranks a sum is off
// by about N/256 of the sum of the parts' absolute values at most. All ranks hold the same bits.
// What is not finite stays so; a sum beyond 3.39e38 is infinite. A leader alone rounds nothing.
enum wk_sum_type { WK_SUM_FP32, WK_SUM_BF16 };
const char *wk_sum_word(enum wk_sum_type type); // "bf16"
// Bytes of a value between ranks.
static inline uint32_t wk_sum_bytes(enum wk_sum_type type)
{
    return type == WK_SUM_BF16 ? 2 : 4;
}

struct wk_part { // sequences [from, from + count) of a step
    uint32_t from, count;
};

struct wk_reduce_step {
    const uint32_t *ids; // [sequences][length + 1]
    uint32_t sequences, length;
    uint64_t values;                // parameters
    float scale;                    // the gradient's: 1 / tokens of the whole step
    bool measure;                   // take the `first` figures as well
    const struct wk_update *update; // what becomes of the gradient
};

// A rank's figures of its part.
struct wk_share {
    double nll; // negative log likelihoods, nats
    // One rank's: sequences of its first pass, and the squared norm of that pass's gradient alone.
    uint32_t first;
    double first_square;
};
enum { WK_SAMPLES_MAX = WK_RANKS_MAX };
struct wk_gathered {
    bool fresh; // The gradient is empty: the step begins, or begins anew.
    double nll;
    uint32_t samples; // first figures, one a rank
    struct wk_share sample[WK_SAMPLES_MAX];
};

// A trainer's state. Peers hold the same.
struct wk_reduce_state {
    float *value, *m, *v; // [values] each; NULL with a device, which has them
    float *gradient;      // [values + WK_FIGURES]; with a device the figures alone
    uint64_t values;
    uint64_t *steps; // how many the optimizer has taken
    const struct wk_params *params;
    struct wk_device *device; // NULL: the arrays are on the host
};
// The place of the ranks' figures, [WK_FIGURES], on the host.
static inline float *wk_reduce_figures(const struct wk_reduce_state *s)
{
    return s->gradient + (s->device ? 0 : s->values);
}

struct wk_reduce;
struct wk_reduce_ops {
    const char *name;
    // Gives memory for the parameters that all ranks see, zeros; NULL: any memory does.
    float *(*parameters)(struct wk_reduce *r);
    // Once, before the first step. Borrows the arrays until close().
    lh_err (*bind)(struct wk_reduce *r, const struct wk_reduce_state *state);
    // Compute lane. `own` is the caller's part; it may be empty.
    void (*deal)(struct wk_reduce *r, const struct wk_reduce_step *step, struct wk_part *own);
    // Compute lane; blocks until every rank that was dealt to has given or is lost. `missing` is
    // what the caller shall compute and gather again; empty: the gradient is whole, or an error
    // says that it never will be. `fine` false: the caller's part can't be computed, and no rank
    // takes this step.
    lh_err (*gather)(struct wk_reduce *r, bool fine, float *gradient, struct wk_gathered *sum,
                     struct wk_part *missing);
    // Compute lane, between deal() and gather(): values of the gradient from `from` on are final,
    // and belong to the others' sum until gather() returns. NULL: they stay the caller's.
    void (*final)(struct wk_reduce *r, uint64_t from);
    void (*applied)(struct wk_reduce *r); // compute lane: the optimizer's step is taken
    // Loop thread, about once a second: looks which ranks are there, and logs those that came and
    // went. Returns their number, the leader included.
    uint32_t (*watch)(struct wk_reduce *r, struct lh_log *log);
    // Loop thread: a call of deal() or gather() that waits, or is made later, returns soon; no step
    // is trained any more.
    void (*leave)(struct wk_reduce *r);
    // Loop thread, all lanes at rest, before anything is freed that the trainer or its device has.
    // `done`: the run is over, the other ranks may end. False: a thread that does not end still has
    // the arrays; they must stay as they are until the process ends, and no memory of the device
    // may be freed, because that waits for what it has under way.
    bool (*close)(struct wk_reduce *r, bool done);
};
struct wk_reduce {
    const struct wk_reduce_ops *ops;
};

struct wk_reduce *wk_reduce_none(void); // one process; close() does nothing

#endif
