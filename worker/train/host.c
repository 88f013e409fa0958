// Parameters in an array. See host.h.
#include "worker/train/host.h"

#include "common/base/check.h"
#include "common/base/parallel.h"
#include "kernels/view.h"

enum {
    PART = 1 << 20,
    WORD = 64 * LK_VIEW_LINE
}; // values of a part, and values per word of `changed`
LH_STATIC_ASSERT(PART % WORD == 0, "a part is whole words");

struct moving {
    float *value; // the first one of the range
    const struct wk_renewal *renewal;
};

static void move_part(void *arg, size_t i)
{
    const struct moving *m = arg;
    const struct wk_renewal *r = m->renewal;
    uint64_t at = (uint64_t)i * PART, left = r->values - at;
    lk_view_move(r->from + at, r->to + at, r->changed + at / WORD, m->value + at,
                 left < PART ? left : PART);
}

void wk_host_copy(const float *value, uint64_t first, uint64_t values, float *slot)
{
    lh_parallel_copy(slot, value + first, values * sizeof *slot);
}

void wk_host_renew(float *value, const struct wk_renewal *r)
{
    struct moving m = {value + r->first, r};
    if (!r->from)
        lh_parallel_copy(m.value, r->to, r->values * sizeof *r->to);
    else
        lh_parallel((size_t)((r->values + PART - 1) / PART), move_part, &m);
}
