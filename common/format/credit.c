// Credit bits of a shard, packed. See credit.h.
#include "common/format/credit.h"

#include <stdbool.h>
#include <string.h>

static bool has(const uint8_t *bits, uint64_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

size_t lh_credit_packed_bytes(size_t bytes, uint32_t shards)
{
    return bytes / shards + 1;
}

void lh_credit_pack(const uint8_t *bits, size_t bytes, uint32_t shard, uint32_t shards,
                    uint8_t *out)
{
    memset(out, 0, lh_credit_packed_bytes(bytes, shards));
    uint64_t i = 0;
    for (uint64_t unit = shard; unit < 8 * (uint64_t)bytes; unit += shards, i++)
        if (has(bits, unit)) out[i / 8] |= (uint8_t)(1u << (i % 8));
}

uint64_t lh_credit_first_open(const uint8_t *packed, size_t bytes, uint32_t shard, uint32_t shards)
{
    uint64_t i = 0, most = 8 * (uint64_t)bytes;
    while (i < most && packed[i / 8] == UINT8_MAX) i += 8;
    while (i < most && has(packed, i)) i++;
    return i * shards + shard;
}

uint64_t lh_credit_end(const uint8_t *packed, size_t bytes, uint32_t shard, uint32_t shards)
{
    uint64_t i = 8 * (uint64_t)bytes;
    while (i && !packed[(i - 1) / 8]) i -= 8;
    while (i && !has(packed, i - 1)) i--;
    return i ? (i - 1) * shards + shard + 1 : 0;
}
