// lh_trace_parse: the traceparent that a caller sends. An accepted one is written back the same,
// except for its flags.
#include <string.h>

#include "common/base/check.h"
#include "common/net/trace.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_trace t;
    char text[LH_TRACE_TEXT_BYTES];
    bool taken = lh_trace_parse(lh_span(data, size), &t);
    LH_ASSERT(taken == (t.id[0] != 0));
    if (!taken) return 0;
    LH_ASSERT(strlen(t.id) == 32 && strlen(t.span) == 16);
    lh_trace_text(&t, text);
    LH_ASSERT(size == sizeof text - 1 && !memcmp(text, data, size - 2));
    return 0;
}
