// A shard's state on the device that trains (state.h): base and the copy of a cut, residual and its
// spare, and the replica's parameters, which fold the same records. The arrays, 20 bytes a
// parameter, are on the device, which does all work on them.
//
// Copied to the device: a record's payload, and a residual or parameters that changed on the host
// (a start, a refused push, a snapshot, an outer optimizer other than sgd). Copied to the host: a
// push's payload, and the residual that it leaves, because the slot holds it. The trainer's
// parameters are never copied.
#ifndef WK_STATE_DEVICE_H
#define WK_STATE_DEVICE_H

#include <stdatomic.h>

#include "kernels/cuda/crossing.h"
#include "kernels/cuda/plan.h"
#include "worker/state/state.h"
#include "worker/train/device.h"

// Counts over a worker's states; the loop and the encode lane add to them.
struct wk_device_counts {
    _Atomic uint64_t encoded;            // pushes
    _Atomic uint64_t folded;             // records
    _Atomic uint64_t filled;             // parameters or residuals of a shard copied from the host
    _Atomic uint64_t compared, differed; // DIGEST records
};

struct wk_device_state_conf {
    struct wk_device_lent trainer; // the parameters of all shards
    void (*failed)(void *arg,
                   int err); // work between two steps failed: no step may follow; or NULL
    void *arg;
    const struct lh_shard_layout *layout; // borrows
    struct lk_codec codec;                // codec of the own pushes
    struct wk_device_counts *counts;      // borrows
    struct lk_outward *outward; // borrows; used by the encode lane, for the states of all shards
};

// Bytes of device memory that a state takes: its arrays, and payloads with scratch.
LH_MUST lh_err wk_device_state_need(const struct wk_device_state_conf *conf, uint64_t *arrays,
                                    uint64_t *scratch);
// Takes all of it. Afterwards the thread uses the trainer's device, as after every call of the
// state. The caller sets kappa and trainer of its conf. LH_ERR_UNSUPPORTED: no memory, with the
// device's text; LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_device_state_create(const struct wk_device_state_conf *conf,
                                      struct wk_shard_state **out);
// For tests: copies the parameters folded from records to out[values]. LH_ERR_IO.
LH_MUST lh_err wk_device_state_read(struct wk_shard_state *st, float *out);

#endif
