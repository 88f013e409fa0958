// Limits one peer's use of HTTP/2: budgets over the frames of all its connections. A server that we
// dialled has them for each connection.
//
// gRPC 1.51 makes a call of each request before it can be refused, and keeps it until our loop has
// handled it, even if the peer cancels at once: 20 MB became gigabytes ("rapid reset"). It reads
// header blocks of any length (CVE-2023-33953) and answers each ping. So transport_grpc_guard.c
// counts a peer's frames before gRPC reads them and ends the connection if they exceed the need of
// any of our programs.
#ifndef LH_COMMON_TRANSPORT_GRPC_FRAMES_H
#define LH_COMMON_TRANSPORT_GRPC_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    // Requests: a worker of 64 shards makes under a hundred a second, a bench some thousand.
    LH_GRPC_REQUESTS_BURST = 16384,
    LH_GRPC_REQUESTS_PER_S = 4096,
    // Requests before the peer acknowledged our settings: until then gRPC 1.51 allows any number of
    // streams, afterwards LH_GRPC_CALLS_PER_CONNECTION at a time.
    LH_GRPC_EARLY_MAX = 256,
    // Requests that the peer cancelled (RST_STREAM) or that its role may not make. A node that
    // learns of a new plan cancels its streams, about 64 at once. gRPC holds about 16 KiB of each
    // until our loop has handled it: a burst is 16 MiB.
    LH_GRPC_RESETS_BURST = 1024,
    LH_GRPC_RESETS_PER_S = 128,
    // Bytes of packed headers: ours have under 200 a request.
    LH_GRPC_HEADERS_BURST = 2 << 20,
    LH_GRPC_HEADERS_PER_S = 512 << 10,
    LH_GRPC_BLOCK_BYTES_MAX = 16 << 10, // headers of one request; gRPC refuses 8 KiB unpacked
    // Pings, settings, priorities, unknown frames, continuations, and data of a few bytes.
    LH_GRPC_SMALL_BURST = 32768,
    LH_GRPC_SMALL_PER_S = 8192,
    LH_GRPC_SMALL_BYTES = 64,
    // A follower sends a window update for each piece.
    LH_GRPC_WINDOWS_BURST = 262144,
    LH_GRPC_WINDOWS_PER_S = 65536,
};

enum lh_grpc_spending {
    LH_GRPC_REQUESTS_SPENT,
    LH_GRPC_RESETS_SPENT,
    LH_GRPC_HEADERS_SPENT,
    LH_GRPC_SMALL_SPENT,
    LH_GRPC_WINDOWS_SPENT,
    LH_GRPC_SPENDINGS
};

struct lh_grpc_budget {
    int64_t left, at_ns; // left at that time
};

struct lh_grpc_allowance { // one peer's, over all its connections
    struct lh_grpc_budget budget[LH_GRPC_SPENDINGS];
};

struct lh_grpc_frames {       // one connection's position in its stream of frames; zeros: start
    bool begun, acknowledged; // acknowledged: the peer has our settings
    // We dialled: the peer sends no preface, and answers instead of requests, as many as we ask
    // for. Only what no answer needs is charged: endless headers, empty frames, pings, settings.
    bool dialled;
    unsigned early; // requests before that
    uint8_t head[9];
    size_t have;  // bytes of the next head
    size_t left;  // bytes until the next head
    size_t block; // bytes of the header block that is not complete yet
};

void lh_grpc_allowance_begin(struct lh_grpc_allowance *a, int64_t now_ns);
// Spends `n`. NULL: within the budget; else the name of the excess.
const char *lh_grpc_spend(struct lh_grpc_allowance *a, enum lh_grpc_spending on, int64_t n,
                          int64_t now_ns);
// Reads the next bytes of a connection. NULL: within the budgets; else the name of the
// excess.
const char *lh_grpc_frames_read(struct lh_grpc_frames *f, struct lh_grpc_allowance *a,
                                int64_t now_ns, const uint8_t *data, size_t n);

#endif
