// The memory that training on a device needs: computed before any is taken, reported in bytes per
// parameter.
#ifndef WK_DEVICE_BUDGET_H
#define WK_DEVICE_BUDGET_H

#include "worker/train/transformer_gpu.h"

// In bytes.
struct wk_device_budget {
    uint64_t values;                // parameters
    uint64_t state;                 // parameters, gradient, moments, and their sums
    uint64_t norms;                 // the parameters before a step; 0: norms are off
    struct wk_gpu_passes_need need; // a bf16 copy of the parameters; activations and scratch
    uint64_t left;                  // free memory before any was taken
};

// Writes one line: "19.5 bytes a parameter (...), 1 MiB of 5 free". Includes memory that does not
// grow with the parameters.
void wk_device_budget_text(const struct wk_device_budget *b, char *out, size_t size);
// LH_ERR_UNSUPPORTED, with the same line: it exceeds the free memory of this device.
LH_MUST lh_err wk_device_budget_check(const struct wk_device_budget *b, const char *device);

#endif
