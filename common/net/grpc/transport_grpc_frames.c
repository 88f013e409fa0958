// Budgets for one peer's use of HTTP/2. See transport_grpc_frames.h.
//
// The plaintext of a connection is the client's preface (24 bytes), then frames: length (3 bytes,
// big-endian), type, flags, stream (4 bytes), payload (RFC 9113, section 4.1). Only frame heads are
// parsed. A header block is a HEADERS frame and the CONTINUATION frames up to END_HEADERS.
//
//  1. A frame is charged once its head is complete, before gRPC sees that read.
//  2. A budget is never above its burst and never below zero.
#include "common/net/grpc/transport_grpc_frames.h"

#include "common/base/check.h"
#include "common/env/env.h"

enum { PREFACE_BYTES = 24, ACK = 1, END_HEADERS = 4 };
enum {
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    SETTINGS = 4,
    WINDOW_UPDATE = 8,
    CONTINUATION = 9
}; // frame types

static const struct {
    const char *what;
    int64_t burst, per_s;
} allowed[LH_GRPC_SPENDINGS] = {
    [LH_GRPC_REQUESTS_SPENT] = {"requests", LH_GRPC_REQUESTS_BURST, LH_GRPC_REQUESTS_PER_S},
    [LH_GRPC_RESETS_SPENT] = {"requests that it took back, or that were refused",
                              LH_GRPC_RESETS_BURST, LH_GRPC_RESETS_PER_S},
    [LH_GRPC_HEADERS_SPENT] = {"bytes of headers", LH_GRPC_HEADERS_BURST, LH_GRPC_HEADERS_PER_S},
    [LH_GRPC_SMALL_SPENT] = {"frames that carry nothing", LH_GRPC_SMALL_BURST, LH_GRPC_SMALL_PER_S},
    [LH_GRPC_WINDOWS_SPENT] = {"updates of windows", LH_GRPC_WINDOWS_BURST, LH_GRPC_WINDOWS_PER_S},
};

void lh_grpc_allowance_begin(struct lh_grpc_allowance *a, int64_t now_ns)
{
    for (int i = 0; i < LH_GRPC_SPENDINGS; i++)
        a->budget[i] = (struct lh_grpc_budget){allowed[i].burst, now_ns};
}

const char *lh_grpc_spend(struct lh_grpc_allowance *a, enum lh_grpc_spending on, int64_t n,
                          int64_t now_ns)
{
    struct lh_grpc_budget *b = &a->budget[on];
    const int64_t burst = allowed[on].burst, per_s = allowed[on].per_s;
    int64_t full_ns = burst * LH_SECOND / per_s; // time to refill an empty budget
    int64_t passed = now_ns - b->at_ns;
    if (passed >= full_ns) {
        *b = (struct lh_grpc_budget){burst, now_ns};
    } else if (passed > 0) {
        int64_t earned = passed * per_s / LH_SECOND;
        b->left = b->left + earned < burst ? b->left + earned : burst;
        b->at_ns += earned * LH_SECOND / per_s; // keeps the fraction for the next call
    }
    b->left -= n;
    if (b->left >= 0) return NULL;
    b->left = 0;
    return allowed[on].what;
}

static const char *pay(struct lh_grpc_frames *f, struct lh_grpc_allowance *a, int64_t now_ns)
{
    const uint8_t *h = f->head;
    size_t length = (size_t)h[0] << 16 | (size_t)h[1] << 8 | h[2];
    const uint8_t type = h[3], flags = h[4];
    f->left = length;
    switch (type) {
    case DATA:
        if (length >= LH_GRPC_SMALL_BYTES) return NULL;
        return lh_grpc_spend(a, LH_GRPC_SMALL_SPENT, 1, now_ns);
    case HEADERS:
    case CONTINUATION: {
        f->block = (type == HEADERS ? 0 : f->block) + length;
        if (f->block > LH_GRPC_BLOCK_BYTES_MAX) return "bytes of one request's headers";
        bool begins = type == HEADERS;
        if (f->dialled && (flags & END_HEADERS)) f->block = 0;
        if (f->dialled) return begins ? NULL : lh_grpc_spend(a, LH_GRPC_SMALL_SPENT, 1, now_ns);
        if (begins && !f->acknowledged && ++f->early > LH_GRPC_EARLY_MAX)
            return "requests before it took our settings";
        if (flags & END_HEADERS) f->block = 0;
        const char *much = lh_grpc_spend(a, LH_GRPC_HEADERS_SPENT, (int64_t)length, now_ns);
        if (much) return much;
        return lh_grpc_spend(a, begins ? LH_GRPC_REQUESTS_SPENT : LH_GRPC_SMALL_SPENT, 1, now_ns);
    }
    case RST_STREAM: return f->dialled ? NULL : lh_grpc_spend(a, LH_GRPC_RESETS_SPENT, 1, now_ns);
    case WINDOW_UPDATE:
        return f->dialled ? NULL : lh_grpc_spend(a, LH_GRPC_WINDOWS_SPENT, 1, now_ns);
    case SETTINGS: f->acknowledged |= flags & ACK; // fall through
    default: // PRIORITY, SETTINGS, PING, GOAWAY and unknown types
        if (length > LH_GRPC_BLOCK_BYTES_MAX) return "bytes of a frame that carries no data";
        return lh_grpc_spend(a, LH_GRPC_SMALL_SPENT, 1, now_ns);
    }
}

const char *lh_grpc_frames_read(struct lh_grpc_frames *f, struct lh_grpc_allowance *a,
                                int64_t now_ns, const uint8_t *data, size_t n)
{
    if (!f->begun) {
        f->begun = true;
        f->left = f->dialled ? 0 : PREFACE_BYTES;
    }
    for (size_t at = 0; at < n;) {
        if (f->left) {
            size_t skip = f->left < n - at ? f->left : n - at;
            f->left -= skip;
            at += skip;
            continue;
        }
        f->head[f->have++] = data[at++];
        if (f->have < sizeof f->head) continue;
        f->have = 0;
        const char *much = pay(f, a, now_ns);
        if (much) return much;
    }
    return NULL;
}
