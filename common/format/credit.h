// Credit bits of a shard, packed.
//
// A unit is credited in the log of shard `unit mod shards` alone, so of the bits that a shard's
// ledger has only each shards-th means anything (server/docs/0000-protocol.md#rule-19). Packed, bit
// i stands for unit i * shards + shard: the bits of all shards together are one a unit of the run.
#ifndef LH_COMMON_CREDIT_H
#define LH_COMMON_CREDIT_H

#include <stddef.h>
#include <stdint.h>

// Bytes that `bytes` of a ledger's credit take, packed.
size_t lh_credit_packed_bytes(size_t bytes, uint32_t shards);
// Fills out[lh_credit_packed_bytes(bytes, shards)].
void lh_credit_pack(const uint8_t *bits, size_t bytes, uint32_t shard, uint32_t shards,
                    uint8_t *out);
// The shard's first unit that is not credited, and the one after its last that is.
uint64_t lh_credit_first_open(const uint8_t *packed, size_t bytes, uint32_t shard, uint32_t shards);
uint64_t lh_credit_end(const uint8_t *packed, size_t bytes, uint32_t shard, uint32_t shards);

#endif
