// A device's budget. See device_budget.h.
#include "worker/train/device_budget.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t sum_of(const struct wk_device_budget *b)
{
    return b->state + b->norms + b->need.half + b->need.work;
}

void wk_device_budget_text(const struct wk_device_budget *b, char *out, size_t size)
{
    double n = (double)b->values;
    char half[64] = "", norms[64] = "";
    if (b->need.half)
        snprintf(half, sizeof half, ", their bf16 copy %.1f", (double)b->need.half / n);
    if (b->norms) snprintf(norms, sizeof norms, ", norms %.1f", (double)b->norms / n);
    snprintf(out, size,
             "%.1f bytes a parameter (parameters, gradient, moments %.1f%s%s, activations and "
             "scratch %.1f), %" PRIu64 " MiB of %" PRIu64 " free",
             (double)sum_of(b) / n, (double)b->state / n, half, norms, (double)b->need.work / n,
             (sum_of(b) + (1 << 20) - 1) >> 20, b->left >> 20);
}

lh_err wk_device_budget_check(const struct wk_device_budget *b, const char *device)
{
    char text[256];
    if (sum_of(b) <= b->left) return LH_OK;
    wk_device_budget_text(b, text, sizeof text);
    return lh_fail(LH_ERR_UNSUPPORTED, "%" PRIu64 " parameters do not fit on %s: %s", b->values,
                   device, text);
}
