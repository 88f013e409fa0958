// Older copy. See older_copy.h.
//
// A standby in sync gets all its records of this epoch from the server that owns the shard. If the
// standby holds more records, or different ones, this directory is an older copy of that server's;
// it may have written as many records since. A trimmed record proves nothing if this process still
// knows its chain, or if the standby has confirmed that version or a later one to this process.
//
// A worker may claim anything, so its point counts for nothing here. The standby that the
// coordinator noted is one of the run's own servers.
#include "server/push/older_copy.h"

#include <inttypes.h>

#include "server/core.h"
#include "server/push/insync.h"

lh_err ps_older_copy_shown(const struct ps_shard *s, uint64_t standby, const struct lh_point *held,
                           bool *shown)
{
    const struct ps_insync *n = &s->insync;
    enum ps_stand stand;
    LH_TRY(ps_shard_stand(s, held, &stand));
    const struct lh_hash *chain = ps_chains_at(&s->chains, held->version);
    if (stand == PS_POINT_CUT && chain)
        stand = lh_hash_equal(chain, &held->chain) ? PS_POINT_OURS : PS_POINT_OTHER;
    bool heard = standby == n->standby && n->confirmed >= held->version;
    bool another = stand == PS_POINT_AHEAD || stand == PS_POINT_OTHER;
    *shown = held->version && (another || (stand == PS_POINT_CUT && !heard));
    return LH_OK;
}

lh_err ps_older_copy_error(const struct ps_shard *s, const struct lh_point *held)
{
    return lh_fail(LH_ERR_FENCED,
                   "shard %u ends at version %" PRIu64 " here, and its standby in sync holds "
                   "version %" PRIu64
                   " of the same epoch, with records that this log lacks: %s is an older copy, and "
                   "is no longer served. Put the newer directory back, or start this server with "
                   "role: standby and an empty directory: the standby takes over",
                   s->id, s->replica.ledger.version, held->version, s->server->conf.dir);
}

lh_err ps_older_copy_check(const struct ps_shard *s, uint64_t standby, const struct lh_point *held)
{
    const struct ps_insync *n = &s->insync;
    bool shown;
    LH_TRY(ps_older_copy_shown(s, standby, held, &shown));
    if (!shown) return LH_OK;
    if (n->state == PS_LEAVING && !n->known)
        return lh_fail(LH_ERR_BUSY,
                       "shard %u: the coordinator has not said yet which standby is in sync; try "
                       "again",
                       s->id);
    return standby && n->noted == standby ? ps_older_copy_error(s, held) : LH_OK;
}
