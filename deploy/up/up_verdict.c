// The verdict on an ended run: each condition by itself. See up_report.h.
#include <string.h>

#include "deploy/up/up_faults.h"
#include "deploy/up/up_report.h"
#include "deploy/up/up_trainers.h"
#include "deploy/up/up_watch.h"

static const double learned_nat = 0.1; // a smaller fall of the loss does not count

// Does this worker's copy of a shard equal the server's, by version and digest?
static bool holds(const struct dp_node *worker, const struct dp_holding *head)
{
    for (unsigned i = 0; i < worker->status.shards; i++) {
        const struct dp_holding *mine = &worker->status.shard[i];
        if (mine->shard == head->shard)
            return mine->version == head->version && mine->epoch == head->epoch &&
                   mine->digest[0] && !strcmp(mine->digest, head->digest);
    }
    return false;
}

bool dp_replicas_equal(const struct dp_up *up, unsigned *compared)
{
    bool equal = true;
    *compared = 0;
    for (uint32_t shard = 0; shard < up->t->shards; shard++) {
        const struct dp_holding *head = dp_watch_shard(up, shard, NULL);
        unsigned holders = head && head->digest[0] ? 1 : 0;
        if (!holders) equal = false;
        for (unsigned i = 0; head && i < up->nodes; i++) {
            if (up->node[i].kind != DP_WORKER || dp_watch_left(up, &up->node[i])) continue;
            holders++;
            if (!holds(&up->node[i], head)) equal = false;
        }
        if (!shard || holders < *compared) *compared = holders;
    }
    return equal;
}

// The shards' logs credit the run's units; the coordinator's count is a view of them. A unit
// credited by two logs would make the sum exceed the number of credited units. With their own data,
// workers claim no units.
bool dp_credited_once(const struct dp_up *up)
{
    uint64_t logs = 0;
    for (uint32_t shard = 0; shard < up->t->shards; shard++) {
        const struct dp_holding *head = dp_watch_shard(up, shard, NULL);
        logs += head ? head->credited : 0;
    }
    const struct dp_status *c = &dp_up_leader(up)->status;
    if (dp_topology_own_data(up->t)) return c->seen && !logs && !c->credited;
    return c->seen && logs == c->credited &&
           c->credited <= up->units.count * (uint64_t)up->t->run->epochs;
}

static bool drill_healed(const struct dp_up *up)
{
    if (!up->flags.with_faults) return true;
    for (unsigned i = 0; i < up->faults; i++)
        if (up->fault[i].recovered_s < 0) return false;
    return up->faults == dp_faults_planned(up);
}

void dp_verdict_of(const struct dp_up *up, struct dp_verdict *out)
{
    *out = (struct dp_verdict){.learned = up->unjudged || up->units.heldout_count > 0,
                               .below_bigram = true,
                               .commands = dp_trainers_good(up)};
    out->replicas_equal = dp_replicas_equal(up, &out->compared);
    out->credited_once = dp_credited_once(up);
    out->drill = drill_healed(up);
    for (uint32_t i = 0; !up->unjudged && i < up->units.heldout_count; i++) {
        const struct dp_heldout *h = &up->heldout[i];
        if (!(h->after.nats <= h->before.nats - learned_nat)) out->learned = false; // NaN: false
        if (h->after.bigram > 0 && !(h->after.nats <= h->after.bigram)) out->below_bigram = false;
    }
}
