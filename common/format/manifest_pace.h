// Servers and workers derive from the manifest, in the same way, the interval of a shard's digests
// and durable copies and the size of a log segment. Small models use a short interval, which costs
// them little.
#ifndef LH_COMMON_MANIFEST_PACE_H
#define LH_COMMON_MANIFEST_PACE_H

#include "common/format/manifest.h"

enum {
    LH_SMALL_MODEL_VALUES = 1 << 20, // 4 MiB of parameters
    LH_POINT_EVERY = 50,
    LH_POINT_EVERY_SMALL = 10,
    LH_SEGMENT_BYTES_MIN = 64 << 10,
    LH_SEGMENT_BYTES_MAX = 64 << 20,
};

// Versions between two digest records of a shard, and between two durable copies of a worker's
// replica, whose versions are multiples of it. Copies of one version in two regions make a stable
// point, so all nodes must agree on the interval.
static inline uint64_t lh_point_every(const struct lh_manifest *m)
{
    return m->values < LH_SMALL_MODEL_VALUES ? LH_POINT_EVERY_SMALL : LH_POINT_EVERY;
}

// Size of a log segment file, which is allocated ahead: the first power of two, within bounds, that
// is at least one byte per value of the largest shard.
static inline uint64_t lh_segment_bytes(const struct lh_manifest *m)
{
    uint64_t most = 0, bytes = LH_SEGMENT_BYTES_MIN;
    for (uint32_t i = 0; i < m->shards; i++)
        if (m->shard[i].values > most) most = m->shard[i].values;
    while (bytes < most && bytes < LH_SEGMENT_BYTES_MAX) bytes *= 2;
    return bytes;
}

#endif
