// Due: which of the server's own records (a digest, a plan, the MOVE of every shard) must be
// written now. A record stays due until it is durable (head.c).
#include "server/core.h"
#include "server/push/follow.h"
#include "server/push/group_commit.h"
#include "server/state/checkpointer.h"
#include "server/state/digest.h"
#include "server/state/disk_full.h"
#include "server/state/fold.h"

bool ps_due_digest(const struct ps_shard *s)
{
    uint64_t every = s->server->conf.digest_every;
    if (s->replica.ledger.plan.phase == LH_PHASE_END) return false; // END is the last record
    bool due = every && s->replica.ledger.version >= s->digested + every;
    return !ps_shard_frozen(s) && (due || ps_digest_holds(s) || ps_disk_full_needs_record(s));
}

bool ps_due_plan(const struct ps_shard *s)
{
    return s->plan && s->plan->number > s->head->plan.number && !ps_shard_frozen(s);
}

static bool wished(const struct ps_shard *s)
{
    bool over = s->head->plan.phase == LH_PHASE_END; // END is the last record
    return s->wish.epoch > s->head->epoch && !s->head->move.epoch && !over;
}

// All shards move to one target, or none moves. The target is nearly caught up before the last
// records are written.
bool ps_due_move(const struct ps_server *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->conf.shard_count && s->phase == PS_SERVING; i++) {
        const struct ps_shard *shard = s->shard[i];
        if (shard->head->move.epoch) continue;
        if (!wished(shard) || !ps_follow_near(shard, shard->wish.target)) return false;
        any = true;
    }
    return any;
}
