// Point. See point.h.
#include "common/format/point.h"

bool lh_point_named(const struct lh_hash *chain)
{
    static const struct lh_hash unknown;
    return !lh_hash_equal(chain, &unknown);
}

bool lh_point_equal(const struct lh_point *a, const struct lh_point *b)
{
    return a->epoch == b->epoch && a->version == b->version && lh_hash_equal(&a->chain, &b->chain);
}
