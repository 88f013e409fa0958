// Grants: does a push say no more than the coordinator granted? (server/docs/0004-authority.md)
#ifndef PS_GRANTS_H
#define PS_GRANTS_H

#include "common/format/frame.h"
#include "common/format/grant.h"
#include "common/format/ledger.h"

struct Longhaul__V1__ReportReply;
struct ps_server;
struct ps_shard;

struct ps_grants { // a shard's key
    struct lh_grant_key key;
    bool keyed;  // the coordinator told it, now or to an earlier process
    bool stored; // the directory has this key
};

// At a start: the key that an earlier process was told, if any. A damaged file is left out, for the
// key is told again.
LH_MUST lh_err ps_grants_load(struct ps_shard *s);
// Takes the keys that an answer of the coordinator tells, and keeps them in the directory.
void ps_grants_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
// LH_ERR_GRANT: a claim was not granted to the frame's worker, or stands twice, or its worker has
// no units to claim. LH_ERR_BOUND: more steps or tokens than it may say.
LH_MUST lh_err ps_grants_check(const struct ps_grants *g, const struct lh_ledger *l,
                               const struct lh_frame *f);
// Can this frame not be judged before the key is there?
bool ps_grants_wait(const struct ps_grants *g, const struct lh_frame *f);

#endif
