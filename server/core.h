// Core: what every file of the server may call, and what calls none of them: look-ups, the end of a
// process that can't go on, and the events by which a lower file tells those above it.
#ifndef PS_CORE_H
#define PS_CORE_H

#include "server/server.h"

struct ps_shard *ps_server_shard(struct ps_server *s, uint32_t id); // NULL: another server's
// This process can't go on. Nothing happens in it any more; the first error is the one that counts.
void ps_fatal(struct ps_server *s, lh_err err);
// The server's next phase; one that has stopped stays so.
void ps_become(struct ps_server *s, enum ps_phase phase);
// The loop was kept by this from start_ns until now.
void ps_took(struct ps_server *s, enum ps_loop what, int64_t start_ns);
// Does a request of `who` name this server's run? LH_ERR_DENIED or LH_ERR_MANIFEST: it does not.
LH_MUST lh_err ps_check_run(const struct ps_server *s, const ProtobufCBinaryData *job,
                            const ProtobufCBinaryData *manifest, const char *who);
// How long a call over `link` may take, in ns; NULL: over a short path. Calls to the coordinator
// have half of the deadline. What answers wait for has a fifth: the call that asks again may find
// another connection sooner.
enum { PS_HALF_OF_DEADLINE = 2, PS_FIFTH_OF_DEADLINE = 5 };
int64_t ps_deadline(const struct ps_server *s, struct lh_link *link, int part);
struct lk_checkpoint_conf ps_checkpoint_conf(struct ps_server *s);

// Whoever hears of it is called when what goes on now is over, once however often it is raised
// before that. server.c says who hears what.
void ps_raise(struct ps_server *s, enum ps_event what);

#endif
