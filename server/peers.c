// Peers: the servers that may stand by for a shard. See peers.h.
//
// A standby's messages can stop its owner (older copy) and release acknowledgements, so only
// permitted servers may send them. The list is lost with the process; the coordinator's next answer
// repeats it. Without a coordinator, as in tests, nothing names the owner, and every server is
// accepted.
#include "server/peers.h"

#include "common/format/frame.h"
#include "common/net/wire_member.h"
#include "server/core.h"

void ps_peers_told(struct ps_server *s, const struct lh_report_reply *m)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) s->shard[i]->peers.count = 0;
    for (size_t i = 0; i < m->n_servers; i++) {
        struct ps_shard *shard = ps_server_shard(s, m->servers[i].shard);
        struct ps_peers *p = shard ? &shard->peers : NULL;
        if (p && p->count < PS_PEERS_MAX) p->id[p->count++] = m->servers[i].server;
    }
}

lh_err ps_peers_check(const struct ps_shard *s, const struct lh_peer *peer)
{
    uint64_t id = lh_worker_id(peer);
    if (!s->server->conf.coordinator[0]) return LH_OK;
    for (uint32_t i = 0; i < s->peers.count; i++)
        if (s->peers.id[i] == id) return LH_OK;
    return lh_fail(LH_ERR_BUSY,
                   "shard %u: the coordinator names no standby %s of %s. To let it stand by: "
                   "longhaul adopt %s/%s --shards %u",
                   s->id, peer->name, peer->region, peer->region, peer->name, s->id);
}
