// lh_cursor: any sequence of reads stays inside the bytes, and a failure is sticky.
//
// The first byte of each step chooses the read, the next one its length.
#include "common/base/buf.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void read_one(struct lh_cursor *c, uint8_t kind, uint8_t n)
{
    uint8_t bytes[256];
    char text[17];

    switch (kind % 8) {
    case 0: lh_get_u8(c); break;
    case 1: lh_get_u16(c); break;
    case 2: lh_get_u32(c); break;
    case 3: lh_get_u64(c); break;
    case 4: lh_get_f64(c); break;
    case 5: lh_get_into(c, bytes, n); break;
    case 6: {
        struct lh_span s = lh_get(c, n);
        LH_ASSERT(s.len == (c->failed ? 0 : n));
        lh_crc32c(0, s.data, s.len);
        break;
    }
    case 7:
        lh_get_str(c, text, sizeof text);
        LH_ASSERT(strlen(text) < sizeof text);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_cursor steps = lh_cursor(lh_span(data, size / 2));
    struct lh_cursor c = lh_cursor(lh_span(data, size));

    while (lh_left(&steps)) {
        bool failed = c.failed;
        size_t left = lh_left(&c);
        read_one(&c, lh_get_u8(&steps), lh_get_u8(&steps));
        LH_ASSERT(c.failed >= failed && lh_left(&c) <= left);
        LH_ASSERT(!failed || (lh_left(&c) == left && lh_get_u32(&c) == 0));
    }
    return 0;
}
