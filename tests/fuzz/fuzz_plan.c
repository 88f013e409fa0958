// Plans: an accepted one encodes to the same bytes.
#include "common/base/check.h"
#include "common/format/plan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_plan p;
    lh_err err = lh_plan_parse(lh_span(data, size), &p);
    if (err) {
        LH_ASSERT(err == LH_ERR_MALFORMED);
        return 0;
    }
    struct lh_buf again = lh_buf(size);
    lh_plan_write(&p, &again);
    LH_ASSERT(lh_span_equal(lh_buf_span(&again), lh_span(data, size)));
    LH_ASSERT(!p.live || lh_plan_has(&p, p.worker[p.live - 1]));
    lh_buf_free(&again);
    return 0;
}
