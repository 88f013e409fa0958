// The parts of a step, and a trainer's arrays. See reduce.h.
#include "worker/ranks/reduce.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/train/device.h"

const char *wk_sum_word(enum wk_sum_type type)
{
    return type == WK_SUM_BF16 ? "bf16" : "fp32";
}

struct wk_part wk_reduce_part(uint32_t sequences, uint32_t part, uint32_t parts)
{
    uint32_t from = (uint32_t)(((uint64_t)sequences * part + parts - 1) / parts);
    uint32_t end = (uint32_t)(((uint64_t)sequences * (part + 1) + parts - 1) / parts);
    return (struct wk_part){from, end - from};
}

lh_err wk_reduce_allocate(struct wk_reduce_state *s)
{
    bool host = !s->device;
    s->gradient = lh_zeros((host ? s->values : 0) + WK_FIGURES, sizeof *s->gradient);
    if (host && !s->value) s->value = lh_zeros(s->values, sizeof *s->value);
    if (host) s->m = lh_zeros(s->values, sizeof *s->m);
    if (host) s->v = lh_zeros(s->values, sizeof *s->v);
    if (s->gradient && (!host || (s->value && s->m && s->v))) return LH_OK;
    return lh_fail(LH_ERR_NO_MEMORY, "trainer of %" PRIu64 " parameters", s->values);
}

void wk_reduce_free(struct wk_reduce_state *s)
{
    free(s->value);
    free(s->m);
    free(s->v);
    free(s->gradient);
}

lh_err wk_reduce_clear(const struct wk_reduce_state *s)
{
    memset(wk_reduce_figures(s), 0, WK_FIGURES * sizeof *s->gradient);
    if (s->device) return wk_device_clear(s->device);
    memset(s->gradient, 0, s->values * sizeof *s->gradient);
    return LH_OK;
}

lh_err wk_reduce_norm(const struct wk_reduce_state *s, uint64_t step, struct wk_tensor_norms *norms,
                      double *norm)
{
    if (s->device) return wk_device_norm(s->device, step, norms, norm);
    return wk_update_norm(s->params, s->gradient, step, norms, norm);
}

lh_err wk_reduce_update(const struct wk_reduce_state *s, const struct wk_update *u, double norm,
                        float *before, struct wk_tensor_norms *norms)
{
    const struct wk_update_arrays arrays = {s->gradient, s->m, s->v, s->value, before};
    if (s->device) return wk_device_apply(s->device, u, norm, norms);
    wk_update_apply(u, s->params, norm, &arrays, norms);
    return LH_OK;
}
