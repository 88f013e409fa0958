// Peers: which servers' certificates may stand by for a shard, as the coordinator said last
// (server/docs/0004-authority.md#identity-before-role).
#ifndef PS_PEERS_H
#define PS_PEERS_H

#include "common/base/err.h"
#include "common/security/identity.h"

struct Longhaul__V1__ReportReply;
struct ps_server;
struct ps_shard;

enum { PS_PEERS_MAX = 8 };

struct ps_peers {
    uint64_t id[PS_PEERS_MAX]; // ids of certificates
    uint32_t count;
};

void ps_peers_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
// A peer names a standby's directory, and so speaks as that standby. LH_ERR_BUSY: the coordinator
// has not said that its certificate may, which it may say with its next answer.
LH_MUST lh_err ps_peers_check(const struct ps_shard *s, const struct lh_peer *peer);

#endif
