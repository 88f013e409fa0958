// The first bytes that a peer sends to a region's ranks (greeting.h). The first byte chooses the
// reader: 0 and 1 the channel's, without and with hosts; 2 and 3 the ring's. An accepted greeting
// encodes to the same bytes.
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "worker/ranks/greeting.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wk_channel_greeting channel;
    struct wk_ring_greeting ring;
    uint8_t room[128];
    struct lh_buf out = lh_buf_over(room, sizeof room);
    if (!size || data[0] > 3) return 0;
    bool hosts = data[0] & 1;
    struct lh_span bytes = lh_span(data + 1, size - 1);
    if (data[0] < 2) {
        if (wk_channel_greeting_get(bytes, hosts, &channel)) return 0;
        wk_channel_greeting_put(&out, &channel);
    } else {
        if (wk_ring_greeting_get(bytes, hosts, &ring)) return 0;
        wk_ring_greeting_put(&out, &ring);
    }
    LH_ASSERT(!lh_buf_err(&out) && lh_span_equal(lh_buf_span(&out), bytes));
    return 0;
}
