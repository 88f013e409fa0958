// Credit bits of a shard, packed.
//
// Only the log of shard `unit mod shards` credits a unit, so a shard's ledger uses one in `shards`
// of its bits (server/docs/0000-protocol.md#rule-19). Packed, bit i stands for unit i * shards +
// shard: over all shards, one bit per unit of the run.
#ifndef LH_COMMON_CREDIT_H
#define LH_COMMON_CREDIT_H

#include <stddef.h>
#include <stdint.h>

// Packed size of `bytes` of a ledger's credit.
size_t lh_credit_packed_bytes(size_t bytes, uint32_t shards);
// Fills out[lh_credit_packed_bytes(bytes, shards)].
void lh_credit_pack(const uint8_t *bits, size_t bytes, uint32_t shard, uint32_t shards,
                    uint8_t *out);
// The shard's first unit that is not credited; the unit after its last credited one.
uint64_t lh_credit_first_open(const uint8_t *packed, size_t bytes, uint32_t shard, uint32_t shards);
uint64_t lh_credit_end(const uint8_t *packed, size_t bytes, uint32_t shard, uint32_t shards);

#endif
