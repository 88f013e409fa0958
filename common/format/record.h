// The record: one version of a shard's log, in the form that followers receive and the chain
// hashes.
//
//   at size field
//    0   8  version
//    8   8  epoch of the shard
//   16   2  kind
//   18   2  flags (1: the payload is left out; the body is the frame's stub)
//   20   4  REFUSE: reason (enum lh_err); ADMIT: norm at equal H, fp32, whose bit 0 says that the
//           push was clipped, and bit 31 that it was so as an outlier (common/format/norms.h)
//   24   4  scale, fp32: the one factor that the fold uses
//   28   4  body bytes
//   32  32  chain: h(v) = BLAKE2b(h(v-1), version, epoch, kind, reason, scale, body's identity)
//   64      body
//
// Bodies: ADMIT a whole frame (or its stub, flag 1), REFUSE a frame's stub, FENCE worker u64 and
// incarnation (u64, u64), PLAN an encoded plan, DIGEST the 32-byte digest of the fold state before
// this record, EPOCH the new epoch u64 and the version it starts from u64, MOVE the epoch that is
// reserved for another server u64 and that server's identity u64 (only an EPOCH may follow). Kinds
// KEY_RETIRE and MERGE are reserved. The identity of a frame is its stub: the AEAD tag binds the
// payload, so a follower that already holds the payload can check the chain without receiving it.
#ifndef LH_COMMON_RECORD_H
#define LH_COMMON_RECORD_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/format/frame.h"

enum { LH_RECORD_HEADER_BYTES = 64 };
enum lh_kind {
    LH_ADMIT = 1,
    LH_REFUSE = 2,
    LH_FENCE = 3,
    LH_PLAN = 4,
    LH_DIGEST_RECORD = 5,
    LH_EPOCH = 6,
    LH_MOVE = 7,
    LH_KEY_RETIRE = 8, // reserved
    LH_MERGE = 9,      // reserved
};
enum { LH_RECORD_ELIDED = 1 };

struct lh_norm {           // an admitted push's norm, from its record
    float at_equal_h;      // finite, not negative
    bool clipped, outlier; // outlier: clipped, and far above others' pushes
};

struct lh_record {
    uint64_t version, epoch;
    uint16_t kind, flags;
    uint32_t reason;
    float scale;
    struct lh_hash chain;
    struct lh_span body; // borrows
};

// An ADMIT carries these bits in place of a reason.
uint32_t lh_record_norm_bits(const struct lh_norm *n);
struct lh_norm lh_record_norm(const struct lh_record *r);

void lh_record_write_header(const struct lh_record *r, struct lh_buf *out);
// Reads the 64 bytes of a header; `body_bytes` gets the size of the body. Bounds, kinds and the
// scale (finite, not negative) are checked: LH_ERR_MALFORMED, LH_ERR_TOO_LARGE.
LH_MUST lh_err lh_record_parse_header(struct lh_span bytes, struct lh_record *out,
                                      uint32_t *body_bytes);
struct lh_hash lh_record_chain(const struct lh_hash *before, const struct lh_record *r);

// ---- a stream of records, one after another, wherever its messages were cut
struct lh_record_stream { // zeros: at the beginning of a record
    uint8_t header[LH_RECORD_HEADER_BYTES];
    size_t header_have;
    struct lh_record record; // valid once its header is complete
    struct lh_buf body;      // the bytes received so far; a function that takes it leaves zeros
    size_t body_have;
    bool whole; // the record is whole; its body borrows `body` until the next record begins
};
// Takes bytes off the front of *bytes: up to the end of a record (then `whole`), or all of them.
// A body of more than `body_max` bytes is refused before it takes memory. LH_ERR_BUSY: no memory
// for the body; else as lh_record_parse_header().
LH_MUST lh_err lh_record_stream_take(struct lh_record_stream *t, size_t body_max,
                                     struct lh_span *bytes);
void lh_record_stream_reset(struct lh_record_stream *t); // frees the partial record

#endif
