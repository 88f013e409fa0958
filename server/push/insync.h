// In sync: which standby must hold a record before it is acknowledged.
#ifndef PS_INSYNC_H
#define PS_INSYNC_H

#include <jansson.h>

#include "server/push/item.h"

// The shards are served from here on. `noted`: the coordinator named a standby at this start.
LH_MUST lh_err ps_insync_start(struct ps_server *s, bool noted);
// Takes a decided item: it is done, and freed, now or when the standby in sync holds it.
void ps_insync_answer(struct ps_item *i);
// The standby that the coordinator noted, as far as its answers say (0: none), and how often the
// note changed; *changes 0: not known.
uint64_t ps_insync_noted(const struct ps_shard *s, uint64_t *changes);
LH_MUST lh_err ps_confirm_accept(struct ps_server *s, struct lh_call *call,
                                 const struct lh_peer *peer, const struct lh_call_ops **ops,
                                 void **self);
json_t *ps_insync_status(const struct ps_shard *s); // gives it
void ps_insync_close(struct ps_shard *s);           // takes no timer any more
void ps_insync_free(struct ps_shard *s);

#endif
