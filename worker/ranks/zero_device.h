// A rank's part of a sharded optimizer (zero.h) on the device that trains: moments, the squares of
// the gradient's pieces, the update. Work is queued on the device's own stream.
//
// Who calls is whose turn it is with `zero.h`; so nothing else of the device's is under way. A
// device that fails gives LH_ERR_IO, here and at every later call of wk_device_*().
#ifndef WK_ZERO_DEVICE_H
#define WK_ZERO_DEVICE_H

#include "worker/ranks/reduce.h"
#include "worker/train/device.h"

struct wk_zero_device;
// `state` has a device. LH_ERR_NO_MEMORY, LH_ERR_IO.
LH_MUST lh_err wk_zero_device_open(const struct wk_reduce_state *state,
                                   struct wk_zero_device **out);
void wk_zero_device_close(struct wk_zero_device *d); // NULL is allowed
uint32_t wk_zero_device_block(const struct wk_zero_device *d);
// How many pieces the values [from, end) have; both are multiples of the block, or the end of all.
size_t wk_zero_device_pieces(const struct wk_zero_device *d, uint64_t from, uint64_t end);

// Memory of the device: zeros, [values]. LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_zero_device_alloc(struct wk_zero_device *d, uint64_t values, float **out);
void wk_zero_device_free(struct wk_zero_device *d, float *there); // NULL is allowed

// Each is over when it returns.
LH_MUST lh_err wk_zero_device_out(struct wk_zero_device *d, float *host, const float *there,
                                  uint64_t values);
LH_MUST lh_err wk_zero_device_in(struct wk_zero_device *d, float *there, const float *host,
                                 uint64_t values);
LH_MUST lh_err wk_zero_device_within(struct wk_zero_device *d, float *to, const float *from,
                                     uint64_t values);

// These two only queue: settle() waits for all of them.
// The squares of the gradient's pieces in [from, end), for take().
LH_MUST lh_err wk_zero_device_squares(struct wk_zero_device *d, uint64_t from, uint64_t end);
// wk_update_slice() of the values [from, end): the new ones go to the gradient's place, moments are
// those of `from` on.
LH_MUST lh_err wk_zero_device_update(struct wk_zero_device *d, const struct wk_update *u,
                                     double norm, uint64_t from, uint64_t end,
                                     const struct lk_adamw_from *of, const struct lk_adamw_to *to);
LH_MUST lh_err wk_zero_device_settle(struct wk_zero_device *d);
// Once settled: appends those squares, and gives their number.
size_t wk_zero_device_take(const struct wk_zero_device *d, uint64_t from, uint64_t end, double *to);

#endif
