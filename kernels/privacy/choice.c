// The secret draw of records. See choice.h.
//
// Invariants: 1. A record is drawn with a probability of at most q, and less than 2^-63 below it.
// 2. Every record takes the same steps, and no branch depends on the draw. The place of a drawn
// record in `out` does, as does the address of its data later.
#include "kernels/privacy/choice.h"

#include <math.h>

#include "common/base/check.h"
#include "kernels/privacy/stream.h"

uint32_t lk_choice_draw(struct lh_env *env, uint32_t records, double q, uint32_t cap, uint32_t *out)
{
    LH_ASSERT(q >= 0 && q <= 1 && records < LK_CHOICE_NONE);
    struct lk_stream stream;
    lk_stream_begin(&stream, env);
    if (LH_BUG("draw_all")) q = 1;
    const uint64_t limit = (uint64_t)ldexp(q, 63); // exact: q has 53 bits
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cap; i++) out[i] = LK_CHOICE_NONE;
    for (uint32_t i = 0; i < records && cap; i++) {
        uint64_t below = ((lk_stream_next(&stream) >> 1) - limit) >> 63; // 1: drawn
        uint32_t take = (uint32_t)below & ((kept - cap) >> 31);
        uint32_t at = kept < cap ? kept : cap - 1;
        out[at] ^= (out[at] ^ i) & (0 - take);
        kept += take;
    }
    lk_stream_end(&stream);
    return kept;
}
