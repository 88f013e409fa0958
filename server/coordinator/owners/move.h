// Moves: an operator sends a shard to one of its standbys while its server lives.
#ifndef PS_CO_MOVE_H
#define PS_CO_MOVE_H

#include "server/coordinator/core.h"

struct Longhaul__V1__ReportRequest;
struct Longhaul__V1__ShardMove;
struct Longhaul__V1__ShardReport;

// Reserves an epoch for the standby of this name, of every shard that it follows; their
// number. LH_ERR_INVALID, LH_ERR_NOT_FOUND: says why not.
LH_MUST lh_err ps_co_move(struct ps_coordinator *c, const char *server, uint32_t *shards);
LH_MUST lh_err ps_co_end_move(struct ps_coordinator *c, uint32_t shard);
// The target serves in the reserved epoch, and has records up to `head`: the shard is its own.
LH_MUST lh_err ps_co_moved(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                           uint64_t server, const struct lh_point *head);
// Takes what a standby reports of a shard: that it has it, or refused it.
LH_MUST lh_err ps_co_hear_target(struct ps_coordinator *c,
                                 const struct Longhaul__V1__ReportRequest *m, uint64_t server);
// A report that a later one of that life overtook is not noted.
void ps_co_note_standby(struct ps_coordinator *c, const struct lh_peer *peer,
                        const struct Longhaul__V1__ReportRequest *m,
                        const struct Longhaul__V1__ShardReport *r);
// Fills in what the answer to that report tells of the shard; false: nothing.
bool ps_co_tell_move(const struct ps_co_shard *s, const struct Longhaul__V1__ReportRequest *m,
                     const struct Longhaul__V1__ShardReport *r,
                     struct Longhaul__V1__ShardMove *out);
void ps_co_on_move(void *self, struct lh_request *rq, const ProtobufCMessage *m);
LH_MUST lh_err ps_co_load_moves(struct ps_coordinator *c);

#endif
