// A shard's state at the device that trains (state.h): base and the copy of a cut, residual and its
// spare, and the replica's parameters, which fold the same records. The arrays, 20 bytes a
// parameter, are the device's, and it does all work on them.
//
// What crosses: to the device a record's payload, and a residual or parameters that came to be on
// the host (a start, a refused push, a state that arrived whole, an outer optimizer other than
// sgd); to the host a push's payload, and the residual that it leaves, because the slot keeps it.
// The trainer's parameters never cross.
#ifndef WK_STATE_DEVICE_H
#define WK_STATE_DEVICE_H

#include <stdatomic.h>

#include "kernels/cuda/crossing.h"
#include "kernels/cuda/plan.h"
#include "worker/state/state.h"
#include "worker/train/device.h"

// Counts of what the states of a worker did; the loop and the encode lane add to them.
struct wk_device_counts {
    _Atomic uint64_t encoded; // pushes
    _Atomic uint64_t folded;  // records
    _Atomic uint64_t filled;  // parameters or residuals of a shard that came from the host
    _Atomic uint64_t compared, differed; // DIGEST records
};

struct wk_device_state_conf {
    struct wk_device_lent trainer;      // the parameters of all shards
    void (*failed)(void *arg, int err); // work between two steps did: no step may follow; or NULL
    void *arg;
    const struct lh_shard_layout *layout; // borrows
    struct lk_codec codec;                // what the own pushes have
    struct wk_device_counts *counts;      // borrows
    struct lk_outward *outward; // Borrows; the encode lane's, for the states of all shards.
};

// Bytes of the device that a state takes: its arrays, and payloads with scratch.
LH_MUST lh_err wk_device_state_need(const struct wk_device_state_conf *conf, uint64_t *arrays,
                                    uint64_t *scratch);
// Takes all of it; the thread uses the trainer's device afterwards, as it does after every call of
// the state's. kappa and trainer of its conf are the caller's to set. LH_ERR_UNSUPPORTED: no
// memory, in the device's words; LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_device_state_create(const struct wk_device_state_conf *conf,
                                      struct wk_shard_state **out);
// The parameters that the replica's records made, for tests: out[values]. LH_ERR_IO.
LH_MUST lh_err wk_device_state_read(struct wk_shard_state *st, float *out);

#endif
