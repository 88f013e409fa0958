// lh_units_parse: an accepted manifest stays within its limits, and survives a write and a parse.
#include "common/base/check.h"
#include "common/format/units.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_units u, again;
    if (lh_units_parse(&u, lh_span(data, size))) {
        LH_ASSERT(!u.unit && !u.heldout && !u.count && !u.heldout_count);
        return 0;
    }
    for (uint64_t i = 0; i < u.count; i++) {
        const struct lh_unit *x = &u.unit[i];
        LH_ASSERT(x->id == i && x->tokens > 0 && x->from + x->tokens <= INT32_MAX);
        LH_ASSERT(x->file[0] && !strchr(x->file, '/') && !strstr(x->file, ".."));
    }
    struct lh_buf out = lh_buf(64 << 20);
    LH_ASSERT(lh_units_write(&u, &out) == LH_OK);
    LH_ASSERT(lh_units_parse(&again, lh_buf_span(&out)) == LH_OK);
    LH_ASSERT(u.count == again.count && u.heldout_count == again.heldout_count);
    LH_ASSERT(!memcmp(u.unit, again.unit, u.count * sizeof *u.unit));
    LH_ASSERT(!memcmp(u.heldout, again.heldout, u.heldout_count * sizeof *u.heldout));
    lh_units_free(&again);
    lh_units_free(&u);
    lh_buf_free(&out);
    return 0;
}
