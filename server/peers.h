// Peers: the certificates of servers that may stand by for a shard, by the coordinator's last
// answer (server/docs/0004-authority.md#identity-before-role).
#ifndef PS_PEERS_H
#define PS_PEERS_H

#include "common/base/err.h"
#include "common/security/identity.h"

struct lh_report_reply;
struct ps_server;
struct ps_shard;

enum { PS_PEERS_MAX = 8 };

struct ps_peers {
    uint64_t id[PS_PEERS_MAX]; // certificate ids
    uint32_t count;
};

void ps_peers_told(struct ps_server *s, const struct lh_report_reply *m);
// Checks a peer that names a standby's directory. LH_ERR_BUSY: the coordinator has not permitted
// its certificate, but its next answer may.
LH_MUST lh_err ps_peers_check(const struct ps_shard *s, const struct lh_peer *peer);

#endif
