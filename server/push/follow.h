// Follow: streams of the durable log and of a shard's state.
#ifndef PS_FOLLOW_H
#define PS_FOLLOW_H

#include "server/core.h"

LH_MUST lh_err ps_follow_accept(struct ps_server *server, struct lh_call *call,
                                const struct lh_peer *peer, const struct lh_call_ops **ops,
                                void **self);
LH_MUST lh_err ps_snapshot_accept(struct ps_server *server, struct lh_call *call,
                                  const struct lh_peer *peer, const struct lh_call_ops **ops,
                                  void **self);
void ps_follow_publish(struct ps_shard *s); // new durable versions: wake the followers
// Does the standby with this directory follow, and is it nearly caught up?
bool ps_follow_near(const struct ps_shard *s, uint64_t standby);

#endif
