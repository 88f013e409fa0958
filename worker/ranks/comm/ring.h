// A ring of processes, each connected to its predecessor and its successor: sums over all ranks,
// and broadcasts from rank 0.
//
// A sum is taken in rank order, ((x0 + x1) + x2) + ..., element by element: the same ranks give the
// same bits under any timing. The partial sums travel from rank 0 to the last rank, the sums
// from there around to all others, both in segments that follow each other closely. So each
// connection carries at most twice the array, as in the usual ring, which sums in a different order
// in each of its parts.
//
// Bytes of a segment, little endian:
//   0 u32 magic "WSEG"   4 u32 kind (1 partial sum, 2 result)   8 u32 operation, counted from 0
//  12 u32 segment, counted from 0   16 the segment's bytes: fp32, bf16 or opaque
// The reader knows the expected data; anything else ends the operation with LH_ERR_MALFORMED.
#ifndef WK_RING_H
#define WK_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "worker/ranks/reduce.h"
#include "worker/ranks/stream/stream.h"

enum { WK_RING_HEAD_BYTES = 16, WK_RING_SEGMENT_BYTES = 256 << 10 };
enum { WK_RING_SCRATCH_BYTES = 2 * WK_RING_SEGMENT_BYTES }; // one segment received, one sent

struct wk_ring {
    // Open connections; in a ring of two these are two connections. Borrows.
    struct wk_stream *before, *after;
    uint32_t ranks, rank;
    int bell;            // readable: leave, with LH_ERR_CANCELLED
    uint32_t operations; // operations that succeeded
    uint8_t *scratch;    // WK_RING_SCRATCH_BYTES, owned by the caller
};

// x[n] becomes the sum over all ranks; with WK_SUM_BF16 the wire carries bf16 (reduce.h). All ranks
// must pass the same type. LH_ERR_UNAVAILABLE: a neighbour is gone.
LH_MUST lh_err wk_ring_sum(struct wk_ring *r, float *x, uint64_t n, enum wk_sum_type type);
// Sends `bytes` at `data` from rank 0 to all ranks.
LH_MUST lh_err wk_ring_share(struct wk_ring *r, void *data, size_t bytes);

#endif
