// The memory that training on a device takes: reckoned before anything is taken, told in bytes a
// parameter.
#ifndef WK_DEVICE_BUDGET_H
#define WK_DEVICE_BUDGET_H

#include "worker/train/transformer_gpu.h"

// In bytes.
struct wk_device_budget {
    uint64_t values;                // parameters
    uint64_t state;                 // parameters, gradient, moments, and room for their sums
    uint64_t norms;                 // the parameters before a step; 0: no norms are asked for
    struct wk_gpu_passes_need need; // a bf16 copy of the parameters; activations and scratch
    uint64_t left;                  // what was free before any of it was taken
};

// One line of it: "19.5 bytes a parameter (...), 1 MiB of 5 free". All that is taken counts, also
// what does not grow with the parameters.
void wk_device_budget_text(const struct wk_device_budget *b, char *out, size_t size);
// LH_ERR_UNSUPPORTED: it is more than was free on this device, in the same words.
LH_MUST lh_err wk_device_budget_check(const struct wk_device_budget *b, const char *device);

#endif
