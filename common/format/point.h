// A point of a shard's history: a version, the epoch it belongs to, and the chain that ends there
// (common/docs/0001-formats.md).
#ifndef LH_POINT_H
#define LH_POINT_H

#include "common/base/buf.h"

struct lh_point {
    uint64_t epoch, version; // version 0: before the shard's first record, or none
    struct lh_hash chain;    // zeros: unknown
};

bool lh_point_named(const struct lh_hash *chain); // false: zeros
bool lh_point_equal(const struct lh_point *a, const struct lh_point *b);

#endif
