// A replica: ledger and parameters of one shard, folded record by record. Servers and workers run
// the same code, so equal logs give equal bytes.
//
// A record changes the replica completely or not at all. Memory: 4 bytes a parameter, the outer
// optimizer's state (none by default, outer.h), the ledger, and one scratch payload.
#ifndef LK_REPLICA_H
#define LK_REPLICA_H

#include "common/format/ledger.h"
#include "common/format/manifest.h"
#include "common/security/seal.h"
#include "kernels/codec.h"
#include "kernels/outer.h"

struct lk_replica {
    struct lh_ledger ledger;
    const struct lh_shard_layout *layout; // borrows
    struct lh_keyring *keys;              // borrows
    float *theta;                         // [layout->values]
    struct lk_outer outer;                // the optimizer of the log's plan, with its state
    struct lh_buf plain;                  // scratch of the last unsealed payload
    uint8_t job[LH_JOB_BYTES];
    struct lh_hash manifest;
};

LH_MUST lh_err lk_replica_create(struct lk_replica *r, const uint8_t job[LH_JOB_BYTES],
                                 const struct lh_manifest *m, uint32_t shard,
                                 struct lh_keyring *keys);
void lk_replica_free(struct lk_replica *r);

// Unseals a frame and checks its payload against its header and the layout, without folding.
// `plain` gets the payload, valid until the next call with this replica; may be NULL. *opened: the
// seal was valid; only then is an error the author's fault (server/docs/0000-protocol.md#rule-4).
// LH_ERR_UNSEAL, LH_ERR_KEY_MISSING, LH_ERR_MALFORMED, LH_ERR_NON_FINITE, LH_ERR_MANIFEST.
LH_MUST lh_err lk_replica_unseal(struct lk_replica *r, struct lh_span frame, struct lh_span *plain,
                                 bool *opened, struct lk_payload_info *info);
// The same with the payload in the caller's buffer, on any thread: it reads only constant fields of
// the replica.
LH_MUST lh_err lk_replica_unseal_into(const struct lk_replica *r, struct lh_span frame,
                                      struct lh_buf *plain, bool *opened,
                                      struct lk_payload_info *info);
// Folds the next record. An ADMIT needs its whole frame as body. LH_ERR_CONFLICT: another history;
// LH_ERR_CORRUPT at a DIGEST record: this replica differs from the log's owner.
LH_MUST lh_err lk_replica_apply(struct lk_replica *r, const struct lh_record *record);
// The same for an ADMIT whose payload is already unsealed (as on the server).
LH_MUST lh_err lk_replica_apply_plain(struct lk_replica *r, const struct lh_record *record,
                                      struct lh_span plain);

// Digest of the fold state: BLAKE2b-256 of the ledger's bytes, of the digests of the parameters,
// one per 4 MiB range in order, and likewise of the outer optimizer's state, if there is one.
struct lh_hash lk_replica_digest(const struct lk_replica *r);
LH_MUST lh_err lk_replica_digest_try(const struct lk_replica *r, struct lh_hash *out); // NO_MEMORY
// The same in steps, each on any thread, while no record changes a value of `r`: begin, step until
// it is done, end. A step reads about this many bytes. Each returns LH_ERR_NO_MEMORY on failure.
struct lk_digest {
    const struct lk_replica *r; // borrows
    struct lh_buf all;          // input of the digest so far
    int array;                  // array being read: theta, u, m
    uint64_t at;                // next byte of the array
    bool done;
};
LH_MUST lh_err lk_digest_begin(const struct lk_replica *r, struct lk_digest *out);
LH_MUST lh_err lk_digest_step(struct lk_digest *d, uint64_t bytes_max);
void lk_digest_end(struct lk_digest *d,
                   struct lh_hash *out); // frees it; `out`: the result, if done

// The exact state as bytes: ledger, parameters as fp32, the outer optimizer's state; and back.
// load() leaves the replica as it was when it fails.
LH_MUST lh_err lk_replica_save(const struct lk_replica *r, struct lh_buf *out);
// The same bytes in place, some in `heads`. Valid until a record is folded.
enum { LK_REPLICA_PARTS = 5 };
LH_MUST lh_err lk_replica_parts(const struct lk_replica *r, struct lh_buf *heads,
                                struct lh_span part[LK_REPLICA_PARTS]);
LH_MUST lh_err lk_replica_load(struct lk_replica *r, struct lh_span bytes);
// The bytes before the parameters of a state that ends with them; r->theta already holds those.
LH_MUST lh_err lk_replica_load_head(struct lk_replica *r, struct lh_span head);
size_t lk_replica_bytes_max(const struct lh_shard_layout *layout); // largest saved state

// ---- frames
size_t lk_frame_bytes_max(const struct lh_shard_layout *layout);  // largest frame of a push
size_t lk_record_bytes_max(const struct lh_shard_layout *layout); // largest body of a record
// The codec named in a frame's header; LH_ERR_MALFORMED if it does not exist.
LH_MUST lh_err lk_frame_codec(const struct lh_frame *f, struct lk_codec *out);

#endif
