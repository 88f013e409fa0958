// The grant: proof that the coordinator leased a unit to a worker. The allowance: proof of the
// tokens that a worker may claim (server/docs/0004-authority.md#grants).
//
//   key of a shard = BLAKE2b-256(grant key; "longhaul grant key 1", job, shard u32)
//   tag            = first 16 bytes of BLAKE2b-256(key of the shard; "longhaul grant 1", job,
//                    unit u64, worker u64, number u32)
//   allowance tag  = first 8 bytes of BLAKE2b-256(key of the shard; "longhaul allowance 1", job,
//                    worker u64, allowance fp32)
//
// Integers are little endian. Only the coordinator has the grant key; a shard's servers have the
// shard's key. A claim in a frame and a grant in the answer to a lease request share one layout:
// unit u32, number u32, tag 16 bytes.
#ifndef LH_COMMON_GRANT_H
#define LH_COMMON_GRANT_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_GRANT_KEY_BYTES = 32, LH_GRANT_TAG_BYTES = 16, LH_CLAIM_BYTES = 24 };

struct lh_grant_key { // the run's, or a shard's
    uint8_t b[LH_GRANT_KEY_BYTES];
};

struct lh_grant {
    uint32_t number; // unique among a unit's grants
    uint8_t tag[LH_GRANT_TAG_BYTES];
};

struct lh_grant_key lh_grant_shard_key(const struct lh_grant_key *run, const uint8_t job[16],
                                       uint32_t shard);
struct lh_grant lh_grant_make(const struct lh_grant_key *shard, const uint8_t job[16],
                              uint64_t unit, uint64_t worker, uint32_t number);
bool lh_grant_valid(const struct lh_grant_key *shard, const uint8_t job[16], uint64_t unit,
                    uint64_t worker, const struct lh_grant *grant);
// The tag of an allowance, the bound on the tokens of all this worker's pushes to the shard.
uint64_t lh_allowance_tag(const struct lh_grant_key *shard, const uint8_t job[16], uint64_t worker,
                          float allowance);

void lh_claim_write(uint64_t unit, const struct lh_grant *grant, struct lh_buf *out);
uint64_t lh_claim_read(struct lh_cursor *c, struct lh_grant *grant); // returns the unit

#endif
