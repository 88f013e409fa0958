// Follow: streams of the durable log, and of a shard's state, to whoever may have them.
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
// Does the standby of this directory follow, and has nearly everything been sent to it?
bool ps_follow_near(const struct ps_shard *s, uint64_t standby);
// Ends the streams of readers that do not read. True: some are to be looked at again.
// Ends the streams of identities that were expelled.
void ps_follow_expel(struct ps_server *s);
bool ps_follow_look(struct ps_server *server);

#endif
