// Moves: an operator moves a shard to one of its standbys while its server lives.
#ifndef PS_CO_MOVE_H
#define PS_CO_MOVE_H

#include "server/coordinator/core.h"

struct lh_report_request;
struct lh_shard_move;
struct lh_shard_report;

// Reserves an epoch for the standby of this name, for every shard that it follows; *shards: their
// number. LH_ERR_INVALID, LH_ERR_NOT_FOUND: with the reason.
LH_MUST lh_err ps_co_move(struct ps_coordinator *c, const char *server, uint32_t *shards);
LH_MUST lh_err ps_co_end_move(struct ps_coordinator *c, uint32_t shard);
// The target serves in the reserved epoch, with records up to `head`: it owns the shard.
LH_MUST lh_err ps_co_moved(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                           uint64_t server, const struct lh_point *head);
// Takes a standby's report on its moves: it has the shard, or refused it.
LH_MUST lh_err ps_co_hear_target(struct ps_coordinator *c, const struct lh_report_request *m,
                                 uint64_t server);
// Ignores reports older than the newest from this process.
void ps_co_note_standby(struct ps_coordinator *c, const struct lh_peer *peer,
                        const struct lh_report_request *m, const struct lh_shard_report *r);
// Fills in the answer's part about the shard's move; false: none.
bool ps_co_tell_move(const struct ps_co_shard *s, const struct lh_report_request *m,
                     const struct lh_shard_report *r, struct lh_shard_move *out);
void ps_co_on_move(void *self, struct lh_request *rq, const void *m);
LH_MUST lh_err ps_co_load_moves(struct ps_coordinator *c);

#endif
