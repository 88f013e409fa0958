// Point. See point.h.
#include "common/format/point.h"

bool lh_point_named(const struct lh_hash *chain)
{
    static const struct lh_hash unknown;
    return !lh_hash_equal(chain, &unknown);
}
