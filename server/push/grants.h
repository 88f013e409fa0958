// Grants: does a push stay within the coordinator's grants? (server/docs/0004-authority.md)
#ifndef PS_GRANTS_H
#define PS_GRANTS_H

#include "common/format/frame.h"
#include "common/format/grant.h"
#include "common/format/ledger.h"

struct lh_report_reply;
struct ps_server;
struct ps_shard;

struct ps_grants { // a shard's key
    struct lh_grant_key key;
    bool keyed;  // the coordinator has sent it, now or to an earlier process
    bool stored; // this key is on disk
};

// At a start: loads the stored key, if any. Ignores a damaged file: the coordinator sends the key
// again.
LH_MUST lh_err ps_grants_load(struct ps_shard *s);
// Takes the keys from a coordinator's answer and stores them in the directory.
void ps_grants_told(struct ps_server *s, const struct lh_report_reply *m);
// LH_ERR_GRANT: a claim was not granted to the frame's worker or appears twice, or the worker may
// not claim units. LH_ERR_BOUND: too many steps or tokens.
LH_MUST lh_err ps_grants_check(const struct ps_grants *g, const struct lh_ledger *l,
                               const struct lh_frame *f);
// Must this frame wait for the key?
bool ps_grants_wait(const struct ps_grants *g, const struct lh_frame *f);

#endif
