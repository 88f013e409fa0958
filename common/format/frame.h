// The sealed frame: one push of one worker to one shard.
//
//   header (200 bytes) | claims (24 bytes each) | sealed payload (plain bytes + 16 of AEAD tag)
//
// Header and claims are the associated data of the seal: changing a bit of them makes unseal fail.
// Fields that differ between sends (session, attempt) travel outside the frame. A frame is sealed
// once; a retry sends the same bytes.
//
//   at size field                                     at size field
//    0   4  magic "LHF1"                               72   8  base version
//    4   2  wire version                               80   8  base epoch
//    6   2  header bytes (200)                         88   8  base: others' admitted pushes in it
//    8   1  index code (kernels/codec.h)               96   8  tokens trained since the last cut
//    9   1  value code                                104   4  local steps since the last cut
//   10   1  cipher (common/security/seal.h)           108   4  claims
//   11   1  flags, 0                                  112   8  values carried
//   12   4  density, fp32                             120   4  plain payload bytes
//   16   4  key id                                    124   4  allowance, fp32; 0: none
//   20   4  shard                                     128  32  hash of the model's manifest
//   24  16  job                                       160  24  nonce (AES-GCM uses the first 12)
//   40   8  worker                                    184   8  tag of the allowance
//   48   8  incarnation: granted << 32 | local
//   56   8  incarnation, random part
//   64   8  step                                    192   8  charged
//
// A claim is a unit and its grant (common/format/grant.h). The allowance is the coordinator's bound
// on the tokens of all pushes of this worker to the shard. `charged` is the total of steps that the
// worker's region has charged to its privacy budget, including this push
// (server/docs/0000-protocol.md#rule-34); 0 if the region is not private.
#ifndef LH_COMMON_FRAME_H
#define LH_COMMON_FRAME_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/format/grant.h"
#include "common/security/identity.h"
#include "common/security/seal.h"

enum { LH_FRAME_HEADER_BYTES = 200, LH_JOB_BYTES = 16, LH_DIGEST_BYTES = 16 };

struct lh_digest {
    uint8_t b[LH_DIGEST_BYTES];
};

// Life of a worker's state directory. Ordered by `number`; equal numbers with different random
// parts mean that a number was issued twice.
struct lh_incarnation {
    uint64_t number; // granted by the coordinator << 32 | raised by the worker itself
    uint64_t random;
};

struct lh_frame {
    uint8_t index_code, value_code, cipher;
    float density;
    uint32_t key_id, shard;
    uint8_t job[LH_JOB_BYTES];
    uint64_t worker;
    struct lh_incarnation incarnation;
    uint64_t step;
    uint64_t base_version, base_epoch, base_others;
    uint64_t tokens;
    uint32_t steps;
    uint32_t claims;
    uint64_t values;
    uint32_t plain_bytes;
    struct lh_hash manifest;
    uint8_t nonce[LH_SEAL_NONCE_BYTES];
    float allowance;
    uint64_t allowance_tag;
    uint64_t charged;              // total of charged steps; 0: the region is not private
    uint64_t claim[LH_CLAIMS_MAX]; // units
    struct lh_grant grant[LH_CLAIMS_MAX];
};

// Appends header and claims: the associated data, and the beginning of the frame.
void lh_frame_write_head(const struct lh_frame *f, struct lh_buf *out);
static inline size_t lh_frame_head_bytes(const struct lh_frame *f)
{
    return LH_FRAME_HEADER_BYTES + (size_t)LH_CLAIM_BYTES * f->claims;
}
static inline size_t lh_frame_bytes(const struct lh_frame *f)
{
    return lh_frame_head_bytes(f) + f->plain_bytes + LH_SEAL_TAG_BYTES;
}

// Parts of a frame's bytes: head (associated data) and sealed payload with its tag.
struct lh_frame_parts {
    struct lh_span head, sealed;
};
// Reads a whole frame; checks every length against the others; no bytes may be left over.
LH_MUST lh_err lh_frame_parse(struct lh_span bytes, struct lh_frame *out,
                              struct lh_frame_parts *parts);
// Reads the head alone and ignores the bytes after it.
LH_MUST lh_err lh_frame_parse_head(struct lh_span bytes, struct lh_frame *out);
// Reads a stub, head and tag only, as in REFUSE and elided records.
LH_MUST lh_err lh_frame_parse_stub(struct lh_span bytes, struct lh_frame *out);
// Appends the stub of a frame: its head and tag.
void lh_frame_write_stub(struct lh_span frame, const struct lh_frame *f, struct lh_buf *out);

// The digest that identifies a push: BLAKE2b of head and tag, keyed with the job (the tag binds the
// payload; the key keeps digests of different jobs apart). `bytes` is a whole frame or a stub.
struct lh_digest lh_frame_digest(struct lh_span bytes, const struct lh_frame *f);
bool lh_digest_equal(const struct lh_digest *a, const struct lh_digest *b);

static inline bool lh_incarnation_equal(struct lh_incarnation a, struct lh_incarnation b)
{
    return a.number == b.number && a.random == b.random;
}

// A worker's identity on the wire: BLAKE2b of its URI, 8 bytes, so every server can check it
// against the certificate.
uint64_t lh_worker_id(const struct lh_peer *peer);

#endif
